#include "drill/kube_api.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include "base/status.h"

namespace drill {
namespace {

using nlohmann::json;

constexpr long kCallTimeoutSeconds = 60;
constexpr size_t kAnswerBytesMax = size_t{256} << 20;
constexpr int kPageObjects = 500;
constexpr long kOk = 200, kCreated = 201, kConflict = 409;

size_t Append(char* data, size_t size, size_t count, void* out) {
  auto* text = static_cast<std::string*>(out);
  if (text->size() + size * count > kAnswerBytesMax) return 0;
  text->append(data, size * count);
  return size * count;
}

// What the API says is wrong.
absl::Status Refusal(const KubeApi::Answer& answer) {
  const json error = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  const bool told = error.is_object() && error.contains("message") && error["message"].is_string();
  return base::MakeStatus(absl::StatusCode::kDataLoss, "HTTP {}: {}", answer.status,
                          told ? error["message"].get<std::string>() : answer.body.substr(0, 200));
}

}  // namespace

absl::StatusOr<KubeApi::Answer> KubeApi::Ask(const std::string& path,
                                             const std::string& body) const {
  CURL* curl = curl_easy_init();
  if (curl == nullptr) return absl::InternalError("curl cannot be set up");
  Answer answer;
  const std::string address = url_ + path;
  curl_slist* headers =
      curl_slist_append(nullptr, fmt::format("Authorization: Bearer {}", token_).c_str());
  curl_easy_setopt(curl, CURLOPT_URL, address.c_str());
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, kCallTimeoutSeconds);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
  if (!body.empty()) {
    headers = curl_slist_append(headers, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
  curl_slist_free_all(headers);
  curl_easy_cleanup(curl);
  if (code != CURLE_OK) {
    return base::MakeStatus(absl::StatusCode::kUnavailable, "{} {}: {}",
                            body.empty() ? "GET" : "POST", path, curl_easy_strerror(code));
  }
  return answer;
}

absl::StatusOr<json> KubeApi::Get(const std::string& path) const {
  ASSIGN_OR_RETURN(const Answer answer, Ask(path));
  if (answer.status != kOk) return Refusal(answer);
  json parsed = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "GET {}: no JSON object", path);
  }
  return parsed;
}

absl::Status KubeApi::Create(const std::string& path, const json& object) const {
  ASSIGN_OR_RETURN(const Answer answer, Ask(path, object.dump()));
  if (answer.status == kCreated || answer.status == kConflict) return absl::OkStatus();
  return Refusal(answer);
}

template <typename Use>
absl::Status KubeApi::ForEachPage(const std::string& path, Use use) const {
  std::string next;
  do {
    char* escaped = curl_easy_escape(nullptr, next.c_str(), static_cast<int>(next.size()));
    const std::string page_path =
        fmt::format("{}?limit={}{}", path, kPageObjects,
                    next.empty() ? std::string() : fmt::format("&continue={}", escaped));
    curl_free(escaped);
    ASSIGN_OR_RETURN(json page, Get(page_path));
    next = page.value("metadata", json::object()).value("continue", "");
    use(page["items"]);
  } while (!next.empty());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<json>> KubeApi::List(const std::string& path) const {
  std::vector<json> objects;
  RETURN_IF_ERROR(ForEachPage(path, [&](json& items) {
    for (json& item : items) objects.push_back(std::move(item));
  }));
  return objects;
}

absl::StatusOr<uint64_t> KubeApi::Count(const std::string& path) const {
  uint64_t count = 0;
  RETURN_IF_ERROR(ForEachPage(path, [&](const json& items) { count += items.size(); }));
  return count;
}

absl::Status KubeApi::WriteKubeconfig(base::Files& files, const std::string& path) const {
  const json config = {
      {"apiVersion", "v1"},
      {"kind", "Config"},
      {"current-context", "drill"},
      {"clusters",
       {{{"name", "drill"}, {"cluster", {{"server", url_}, {"insecure-skip-tls-verify", true}}}}}},
      {"users", {{{"name", "drill"}, {"user", {{"token", token_}}}}}},
      {"contexts", {{{"name", "drill"}, {"context", {{"cluster", "drill"}, {"user", "drill"}}}}}}};
  return base::WriteFileAtomically(files, path, config.dump(2), 0600);
}

}  // namespace drill
