// Reads the files and folders of a bundle and writes them as a tar. Reads the real file system
// (owners, links and kinds are what base::Files does not tell). One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bundle/tar.h"

namespace bundle {

struct TakeLimits {
  uint64_t file_bytes_max = uint64_t{64} << 20;
  uint64_t bytes_max = uint64_t{256} << 20;  // of all contents
  size_t entries_max = 100'000;
  int tries = 3;  // for a file that changes while it is read
};

// A path that is not in the bundle, or not as it should be.
struct Trouble {
  std::string path;
  std::string what;
};

struct Taken {
  uint64_t entries = 0;
  uint64_t bytes = 0;  // of contents
  // Not taken: missing, not readable, a socket, pipe or device, too large. The bundle is taken all
  // the same: a key less is worse than a complaint more.
  std::vector<Trouble> refused;
  // Taken, but the file changed each time it was read: it may be half old, half new.
  std::vector<Trouble> changed;
};

// `paths` are absolute; folders are taken with all they hold, in the order of names, symbolic links
// as links. Modes, numeric owners and mtimes are kept; ACLs and extended attributes are not. Fails
// where the sink does, or where the limits of the whole are passed.
absl::StatusOr<Taken> Take(const std::vector<std::string>& paths, Sink sink,
                           const TakeLimits& limits = {});

}  // namespace bundle
