// A store in a folder. An object is a file under its name; what is not complete yet lies in
// `.incoming` and is renamed when it is synced. Thread-safe, and several processes may use one
// folder.
//
// Modes are 0600 and 0700: what is in the control plane's memory is secret even where it is
// encrypted.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "stores/store.h"

namespace stores {

struct FileStoreOptions {
  std::string root;  // must exist: a folder made here could hide a disk that is not mounted
  // Describe warns when the store is on the same file system as one of these.
  std::vector<std::string> apart_from;
};

class FileStore final : public Store {
 public:
  // The references outlive the store. FailedPrecondition when the root is no folder.
  static absl::StatusOr<std::unique_ptr<FileStore>> Open(base::Files& files,
                                                         const base::Clock& clock,
                                                         base::Random& random,
                                                         FileStoreOptions options);

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
  FileStore(base::Files& files, const base::Clock& clock, base::Random& random,
            FileStoreOptions options)
      : files_(files), clock_(clock), random_(random), options_(std::move(options)) {}

  std::string PathOf(std::string_view name) const { return base::JoinPath(options_.root, name); }
  std::string NewIncomingPath();
  // Makes a folder below the root, and everything above it, durable.
  absl::Status EnsureDirectory(const std::string& path);
  // Writes and syncs a file in .incoming. An error of the content comes back as it is.
  absl::Status WriteIncoming(const std::string& path, const Content& content,
                             const Deadline& deadline);
  // Brings an object under its path: over another only where `replace`, AlreadyExists otherwise.
  absl::Status Publish(const std::string& path, const Content& content, bool replace,
                       const Deadline& deadline);
  // Publish, also where somebody removed folders since they were made.
  absl::Status PublishAnew(const std::string& path, const Content& content, bool replace,
                           const Deadline& deadline);
  // What a Put does that finds its name taken.
  absl::Status PutAgain(std::string_view name, const Content& content, const Deadline& deadline);
  // Adds what to do to an error of the file system.
  absl::Status Explain(const absl::Status& status) const;

  base::Files& files_;
  const base::Clock& clock_;
  base::Random& random_;
  const FileStoreOptions options_;
  std::mutex mutex_;                   // leaf; guards random_ and what follows
  std::set<std::string> directories_;  // known to be durable; emptied when it grows large
};

}  // namespace stores
