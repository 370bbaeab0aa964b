// Puts a bundle's files back. Works on the real file system. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bundle/tar.h"

namespace bundle {

struct ExtractOptions {
  // An absolute folder, made (0700) where it is missing; "/" puts everything back in its place.
  std::string into;
  // Replace files and links that differ. Folders are never replaced, nor anything by a folder.
  bool overwrite = false;
};

struct Extracted {
  std::vector<std::string> written;    // paths as in the tar; files and links
  std::vector<std::string> unchanged;  // were there already with the same content or target
  bool owners_kept = false;            // only root may give files away
};

// Nothing outside `into` is touched whatever the tar holds: symbolic links on the way are never
// followed (FailedPrecondition names them), and a tar with a path twice or with something below a
// file or a link is refused (InvalidArgument). The tar is read to its end before anything is
// written, and without `overwrite` what is there with another content is left alone: AlreadyExists
// lists it and nothing is written. Each file is written beside, synced and renamed. Modes (without
// set-uid and set-gid) and mtimes are put back, owners when root; folders that are there already
// stay as they are.
absl::StatusOr<Extracted> Extract(std::string_view tar, const ExtractOptions& options);

}  // namespace bundle
