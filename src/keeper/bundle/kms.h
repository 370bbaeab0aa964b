// Asks a KMS plugin (v2) on this host for its state, as the API server does. Blocking; any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace bundle {

struct KmsStatus {
  std::string version;  // of the interface: "v2"
  std::string healthz;  // "ok", or what is wrong
  std::string key_id;   // of the key that new values are encrypted with
};

// `endpoint` is "unix:///path". Unavailable or DeadlineExceeded when nothing answers there; what
// the plugin says otherwise.
absl::StatusOr<KmsStatus> AskKmsPlugin(const std::string& endpoint, base::Duration timeout);

}  // namespace bundle
