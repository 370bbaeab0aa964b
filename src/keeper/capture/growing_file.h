// Reads a file while another thread still writes it, so that a snapshot is sealed as it arrives.
// One writer, one reader, each on its own thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "vault/stream.h"

namespace capture {

class GrowingFile final : public vault::Source {
 public:
  explicit GrowingFile(std::unique_ptr<base::File> file) : file_(std::move(file)) {}

  // By the writer: the file has its first `bytes`. A reader that waits may learn of it a little
  // later, with more of them or with End.
  void Grow(uint64_t bytes);
  // By the writer, once: what Grow told last is all there is, or, with an error, will not be
  // completed.
  void End(const absl::Status& status);

  // By the reader: waits for bytes. The error of End, when it had one.
  absl::StatusOr<size_t> Read(char* out, size_t n) override;

 private:
  const std::unique_ptr<base::File> file_;
  uint64_t offset_ = 0;  // the reader's
  uint64_t told_ = 0;    // the writer's: where it last woke the reader
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t bytes_ = 0;  // under mutex_, as all below
  bool ended_ = false;
  absl::Status status_;
};

}  // namespace capture
