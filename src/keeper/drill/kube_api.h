// Requests to a kube-apiserver that was started for a drill, on loopback. Blocking; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"

namespace drill {

class KubeApi {
 public:
  struct Answer {
    long status = 0;
    std::string body;
  };

  // `url`: "https://127.0.0.1:6443", whose certificate is not verified: the server made it for
  // itself a moment ago. `token` is sent with each request.
  KubeApi(std::string url, std::string token) : url_(std::move(url)), token_(std::move(token)) {}

  // GET, or POST where there is a body, whatever the answer; Unavailable when there is none.
  absl::StatusOr<Answer> Ask(const std::string& path, const std::string& body = "") const;
  // GET of a JSON object. Unavailable, or what the API says is wrong as DataLoss.
  absl::StatusOr<nlohmann::json> Get(const std::string& path) const;
  // POST of a new object, which may be there already. Errors as Get's.
  absl::Status Create(const std::string& path, const nlohmann::json& object) const;
  // All objects of one kind, page by page. Errors as Get's.
  absl::StatusOr<std::vector<nlohmann::json>> List(const std::string& path) const;
  // How many there are. Errors as Get's.
  absl::StatusOr<uint64_t> Count(const std::string& path) const;

  // For programs that are clients of it. Readable for the owner only.
  absl::Status WriteKubeconfig(base::Files& files, const std::string& path) const;

 private:
  template <typename Use>
  absl::Status ForEachPage(const std::string& path, Use use) const;

  const std::string url_;
  const std::string token_;
};

}  // namespace drill
