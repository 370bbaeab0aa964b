// Looks into a bundle for what would make a restored control plane fail although etcd is healthy.
// Reads bytes only, but for trying the KMS plugins that an encryption configuration names. One
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "bundle/kms.h"

namespace bundle {

struct Finding {
  enum class Level { kOk, kWarning, kFailed };
  Level level = Level::kOk;
  std::string subject;  // a path in the bundle, or what the finding is about
  std::string text;     // for people; never holds a secret
};

struct KmsPlugin {
  std::string config;   // the file that names it
  std::string version;  // "v1", "v2"
  std::string name;
  std::string endpoint;  // "unix:///var/run/kms.sock"
  std::string
      key_id;  // of the key it encrypts with, as it said when it was tried; empty: it did not
};

struct Report {
  std::vector<Finding> findings;
  size_t certificates = 0;
  // Of the certificate that expires first; negative: it has.
  std::optional<int64_t> first_expiry_days;
  std::string first_expiring;
  std::vector<KmsPlugin> kms;
  std::string kubernetes_version;  // "v1.37.2", of the API server's image; empty: nothing says it
  bool Passed() const;
};

struct CheckOptions {
  base::Duration now{0};  // since 1970
  // Of the cluster that is backed up: "https://10.0.0.1:2379".
  std::vector<std::string> endpoints;
  // The beginnings of encrypted values found in etcd: "k8s:enc:aescbc:v1:key1:".
  std::set<std::string> value_prefixes;
  int64_t expiry_warning_days = 30;
  // Whether a unix socket is there; not given: the real file system is asked.
  std::function<bool(const std::string& path)> socket_exists;
  // Tries a KMS plugin of version v2, whose socket is there; not given: the real one is asked.
  std::function<absl::StatusOr<KmsStatus>(const std::string& endpoint)> ask_kms;
};

// Fails only where the tar cannot be read.
absl::StatusOr<Report> Check(std::string_view tar, const CheckOptions& options);
// What no encryption configuration in the bundle can decrypt, of values that begin with these
// prefixes: a line each.
absl::StatusOr<std::vector<std::string>> Undecryptable(std::string_view tar,
                                                       const std::set<std::string>& value_prefixes);
// Check on the files as they are now; what cannot be taken is a finding as well.
absl::StatusOr<Report> CheckPaths(const std::vector<std::string>& paths,
                                  const CheckOptions& options);

}  // namespace bundle
