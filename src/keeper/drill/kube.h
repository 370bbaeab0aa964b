// A kube-apiserver on a restored cluster, to see whether it can read everything in it. Loopback
// only, with keys and tokens of its own. Blocking; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "drill/child.h"
#include "drill/kube_api.h"

namespace drill {

struct KubeOptions {
  std::string program = "kube-apiserver";
  std::string etcd_endpoint;
  std::string scratch_dir;
  std::string encryption_config_file;  // empty: none
  base::Duration start_timeout = std::chrono::minutes(2);
};

struct KubeObjects {
  uint64_t objects = 0;
  uint64_t kinds = 0;
  uint64_t secrets = 0;
  uint64_t crds = 0;
  std::vector<std::string> failures;  // "secrets: …", one for each kind that cannot be listed
};

class KubeApiserver {
 public:
  // Starts it and waits until /readyz says ok. Unavailable, with its last words, when it does not.
  static absl::StatusOr<std::unique_ptr<KubeApiserver>> Start(base::Files& files,
                                                              base::Clock& clock,
                                                              const KubeOptions& options);
  ~KubeApiserver();
  const std::string& version() const;
  const KubeApi& api() const;
  // Lists every kind of every API group, custom resources included, page by page.
  absl::StatusOr<KubeObjects> ListEverything();
  // Asks as a client does that knows everything up to `revision` of the lost cluster: its watch has
  // to be answered with "410 Gone", so that it lists anew. DataLoss where it is not: the client
  // would hold what is lost, or miss what comes, and never know. What was seen, for people.
  absl::StatusOr<std::string> CheckInformer(int64_t revision);

 private:
  struct Impl;
  explicit KubeApiserver(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace drill
