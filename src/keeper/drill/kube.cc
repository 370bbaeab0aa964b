#include "drill/kube.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/random.h"
#include "base/status.h"

namespace drill {
namespace {

using nlohmann::json;

constexpr base::Duration kPoll = std::chrono::milliseconds(200);
constexpr long kCallTimeoutSeconds = 60;
constexpr size_t kAnswerBytesMax = size_t{256} << 20;
constexpr int kPageObjects = 500;

std::string PemOf(EVP_PKEY* key, bool secret) {
  BIO* bio = BIO_new(BIO_s_mem());
  const int written =
      secret ? PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr)
             : PEM_write_bio_PUBKEY(bio, key);
  char* bytes = nullptr;
  const long n = written == 1 ? BIO_get_mem_data(bio, &bytes) : 0;
  std::string pem(bytes == nullptr ? "" : bytes, static_cast<size_t>(n));
  BIO_free(bio);
  return pem;
}

// Keys for service account tokens; those of the real cluster are not needed to read objects.
absl::Status WriteServiceAccountKeys(base::Files& files, const std::string& secret_path,
                                     const std::string& public_path) {
  EVP_PKEY* key = EVP_RSA_gen(2048);
  const std::string secret = key == nullptr ? "" : PemOf(key, true);
  const std::string open = key == nullptr ? "" : PemOf(key, false);
  EVP_PKEY_free(key);
  if (secret.empty() || open.empty()) return absl::InternalError("no RSA key can be made");
  RETURN_IF_ERROR(base::WriteFileAtomically(files, secret_path, secret, 0600));
  return base::WriteFileAtomically(files, public_path, open, 0600);
}

}  // namespace

struct KubeApiserver::Impl {
  base::Files& files;
  base::Clock& clock;
  KubeOptions options;
  std::unique_ptr<Child> child;
  std::string url;
  std::string token;
  std::string version;

  // GET of a path; the body, or Unavailable, or what the API says is wrong as DataLoss.
  absl::StatusOr<std::string> Get(const std::string& path) const {
    CURL* curl = curl_easy_init();
    if (curl == nullptr) return absl::InternalError("curl cannot be set up");
    std::string body;
    const std::string address = url + path;
    curl_slist* headers =
        curl_slist_append(nullptr, fmt::format("Authorization: Bearer {}", token).c_str());
    curl_easy_setopt(curl, CURLOPT_URL, address.c_str());
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    // Its certificate is one it made for itself a moment ago, on loopback.
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, kCallTimeoutSeconds);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    const auto take = +[](char* data, size_t size, size_t count, void* out) -> size_t {
      auto* text = static_cast<std::string*>(out);
      if (text->size() + size * count > kAnswerBytesMax) return 0;
      text->append(data, size * count);
      return size * count;
    };
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
    const CURLcode code = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    if (code != CURLE_OK) {
      return base::MakeStatus(absl::StatusCode::kUnavailable, "GET {}: {}", path,
                              curl_easy_strerror(code));
    }
    if (status == 200) return body;
    const json answer = json::parse(body, nullptr, /*allow_exceptions=*/false);
    const std::string message =
        answer.is_object() && answer.contains("message") && answer["message"].is_string()
            ? answer["message"].get<std::string>()
            : body.substr(0, 200);
    return base::MakeStatus(absl::StatusCode::kDataLoss, "HTTP {}: {}", status, message);
  }

  absl::StatusOr<json> GetJson(const std::string& path) const {
    ASSIGN_OR_RETURN(const std::string body, Get(path));
    json parsed = json::parse(body, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "GET {}: no JSON object", path);
    }
    return parsed;
  }

  std::string LastWords() const {
    const auto log = base::ReadFile(files, child->log_path());
    if (!log.ok()) return "";
    return log->substr(log->size() > 400 ? log->size() - 400 : 0);
  }

  // Names of the resources of a group version that can be listed.
  absl::StatusOr<std::vector<std::string>> ListableOf(const std::string& prefix) const {
    ASSIGN_OR_RETURN(const json list, GetJson(prefix));
    std::vector<std::string> names;
    for (const json& resource : list.value("resources", json::array())) {
      const std::string name = resource.value("name", "");
      const json verbs = resource.value("verbs", json::array());
      const bool can_list = std::find(verbs.begin(), verbs.end(), "list") != verbs.end();
      if (can_list && name.find('/') == std::string::npos) names.push_back(name);
    }
    return names;
  }

  // Pages through one kind; how many there are.
  absl::StatusOr<uint64_t> CountOf(const std::string& path) const {
    uint64_t count = 0;
    std::string next;
    do {
      char* escaped = curl_easy_escape(nullptr, next.c_str(), static_cast<int>(next.size()));
      const std::string page_path =
          fmt::format("{}?limit={}{}", path, kPageObjects,
                      next.empty() ? std::string() : fmt::format("&continue={}", escaped));
      curl_free(escaped);
      ASSIGN_OR_RETURN(const json page, GetJson(page_path));
      count += page.value("items", json::array()).size();
      next = page.value("metadata", json::object()).value("continue", "");
    } while (!next.empty());
    return count;
  }
};

KubeApiserver::KubeApiserver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KubeApiserver::~KubeApiserver() = default;
const std::string& KubeApiserver::version() const { return impl_->version; }

absl::StatusOr<std::unique_ptr<KubeApiserver>> KubeApiserver::Start(base::Files& files,
                                                                    base::Clock& clock,
                                                                    const KubeOptions& options) {
  auto impl = std::unique_ptr<Impl>(new Impl{files, clock, options, nullptr, {}, {}, {}});
  const auto in_scratch = [&](const char* name) {
    return base::JoinPath(options.scratch_dir, name);
  };
  const std::string secret = in_scratch("sa.key"), open = in_scratch("sa.pub");
  RETURN_IF_ERROR(WriteServiceAccountKeys(files, secret, open));
  impl->token =
      fmt::format("{:016x}{:016x}", base::SystemRandom().Next(), base::SystemRandom().Next());
  const std::string tokens = in_scratch("tokens.csv");
  RETURN_IF_ERROR(base::WriteFileAtomically(
      files, tokens, fmt::format("{},admin,admin,system:masters\n", impl->token), 0600));
  ASSIGN_OR_RETURN(const int port, FreePort());
  impl->url = fmt::format("https://127.0.0.1:{}", port);
  std::vector<std::string> arguments = {"--etcd-servers=" + options.etcd_endpoint,
                                        "--service-account-issuer=https://kubernetes.default.svc",
                                        "--service-account-key-file=" + open,
                                        "--service-account-signing-key-file=" + secret,
                                        "--service-cluster-ip-range=10.96.0.0/16",
                                        "--cert-dir=" + in_scratch("kube-certs"),
                                        fmt::format("--secure-port={}", port),
                                        "--bind-address=127.0.0.1",
                                        "--token-auth-file=" + tokens,
                                        "--authorization-mode=RBAC",
                                        "--disable-admission-plugins=ServiceAccount"};
  if (!options.encryption_config_file.empty()) {
    arguments.push_back("--encryption-provider-config=" + options.encryption_config_file);
  }
  ASSIGN_OR_RETURN(impl->child, Child::Start(options.program, arguments, in_scratch("kube.log")));
  const base::Duration until = clock.Monotonic() + options.start_timeout;
  absl::Status last;
  while (clock.Monotonic() < until) {
    std::string how;
    if (!impl->child->Running(&how)) {
      return base::MakeStatus(absl::StatusCode::kUnavailable, "kube-apiserver {}: {}", how,
                              impl->LastWords());
    }
    const auto ready = impl->Get("/readyz");
    if (ready.ok()) {
      ASSIGN_OR_RETURN(const json version, impl->GetJson("/version"));
      impl->version = version.value("gitVersion", "");
      return std::unique_ptr<KubeApiserver>(new KubeApiserver(std::move(impl)));
    }
    last = ready.status();
    std::this_thread::sleep_for(kPoll);
  }
  return base::MakeStatus(absl::StatusCode::kUnavailable, "kube-apiserver is not ready: {}",
                          base::Message(last));
}

absl::StatusOr<KubeObjects> KubeApiserver::ListEverything() {
  KubeObjects out;
  std::vector<std::pair<std::string, std::string>> kinds;  // path, name for people
  std::vector<std::string> versions = {"/api/v1"};
  ASSIGN_OR_RETURN(const json groups, impl_->GetJson("/apis"));
  for (const json& group : groups.value("groups", json::array())) {
    const json preferred = group.value("preferredVersion", json::object());
    versions.push_back("/apis/" + preferred.value("groupVersion", ""));
  }
  for (const std::string& version : versions) {
    const auto names = impl_->ListableOf(version);
    if (!names.ok()) {
      out.failures.push_back(fmt::format("{}: {}", version, base::Message(names.status())));
      continue;
    }
    for (const std::string& name : *names) kinds.push_back({version + "/" + name, name});
  }
  for (const auto& [path, name] : kinds) {
    const auto count = impl_->CountOf(path);
    if (!count.ok()) {
      out.failures.push_back(fmt::format("{}: {}", name, base::Message(count.status())));
      continue;
    }
    ++out.kinds;
    out.objects += *count;
    if (path == "/api/v1/secrets") out.secrets = *count;
    if (name == "customresourcedefinitions") out.crds = *count;
  }
  return out;
}

}  // namespace drill
