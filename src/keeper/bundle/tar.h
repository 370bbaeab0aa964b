// Entries of a bundle to tar bytes and back. The format is pax (POSIX.1-2001), so that `tar -x`
// reads a bundle as well. libarchive does the parsing; this door lets only files, folders and
// symbolic links through, under names that stay inside. One thread each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct archive;

namespace bundle {

struct Entry {
  enum class Type { kFile, kFolder, kLink };
  std::string path;  // "etc/kubernetes/pki/ca.crt": from the root, without the slash
  Type type = Type::kFile;
  uint32_t mode = 0;  // permission bits, also set-uid, set-gid and sticky
  int64_t uid = 0;
  int64_t gid = 0;
  int64_t mtime_ns = 0;  // since 1970
  uint64_t size = 0;     // kFile
  std::string target;    // kLink
};

// Why a path must not be written or read; empty: it may. Refused are absolute paths, "." and ".."
// and empty parts, and what no file system takes.
std::string PathFault(std::string_view path);

using Sink = absl::FunctionRef<absl::Status(std::string_view)>;

class TarWriter {
 public:
  // `sink` gets the bytes in order; its first error is what every later call returns. What it
  // refers to outlives the writer.
  explicit TarWriter(Sink sink);
  ~TarWriter();
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  absl::Status Add(const Entry& entry, std::string_view content);
  // Writes the end; without it a reader takes the tar for cut.
  absl::Status Finish();

 private:
  friend struct TarCallbacks;
  absl::Status Failure(std::string_view what) const;

  archive* archive_;
  Sink sink_;
  absl::Status failure_;  // of the sink
};

// Calls `visit` for each entry with its content. DataLoss where the tar is cut or no tar,
// InvalidArgument where an entry is of another kind or its name leads elsewhere; what `visit`
// returns otherwise.
absl::Status ReadTar(std::string_view tar,
                     absl::FunctionRef<absl::Status(const Entry&, std::string_view)> visit);

// The entries alone, in order.
absl::StatusOr<std::vector<Entry>> Inspect(std::string_view tar);

}  // namespace bundle
