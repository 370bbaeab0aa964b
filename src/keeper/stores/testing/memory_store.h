// A store in memory that keeps all promises: what others are measured by. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "stores/store.h"

namespace stores {

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(const base::Clock& clock) : clock_(clock) {}

  absl::Status Put(std::string_view name, const Content& content,
                   const Deadline& deadline) override;
  absl::Status Replace(std::string_view name, std::string_view bytes,
                       const Deadline& deadline) override;
  absl::Status Get(std::string_view name, uint64_t offset, uint64_t length, vault::Sink& sink,
                   const Deadline& deadline) override;
  absl::StatusOr<uint64_t> Stat(std::string_view name, const Deadline& deadline) override;
  absl::StatusOr<std::vector<ObjectInfo>> List(const ListRequest& request,
                                               const Deadline& deadline) override;
  absl::Status Delete(std::string_view name, const Deadline& deadline) override;
  absl::StatusOr<Description> Describe(const Deadline& deadline) override;
  absl::StatusOr<uint64_t> Sweep(base::Duration older_than, const Deadline& deadline) override;

 private:
  const base::Clock& clock_;
  std::mutex mutex_;  // leaf; guards what follows
  std::map<std::string, std::string, std::less<>> objects_;
};

}  // namespace stores
