#include "drill/kube.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/random.h"
#include "base/status.h"

namespace drill {
namespace {

using nlohmann::json;

constexpr base::Duration kPoll = std::chrono::milliseconds(200);
constexpr int kInformerSeconds = 5;  // a watch that is too old is told so at once
constexpr long kGone = 410;

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
  KubeApi api;
  std::string version;

  // Names of the resources of a group version that can be listed.
  absl::StatusOr<std::vector<std::string>> ListableOf(const std::string& prefix) const {
    ASSIGN_OR_RETURN(const json list, api.Get(prefix));
    std::vector<std::string> names;
    for (const json& resource : list.value("resources", json::array())) {
      const std::string name = resource.value("name", "");
      const json verbs = resource.value("verbs", json::array());
      const bool can_list = std::find(verbs.begin(), verbs.end(), "list") != verbs.end();
      if (can_list && name.find('/') == std::string::npos) names.push_back(name);
    }
    return names;
  }
};

KubeApiserver::KubeApiserver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KubeApiserver::~KubeApiserver() = default;
const std::string& KubeApiserver::version() const { return impl_->version; }
const KubeApi& KubeApiserver::api() const { return impl_->api; }

absl::StatusOr<std::unique_ptr<KubeApiserver>> KubeApiserver::Start(base::Files& files,
                                                                    base::Clock& clock,
                                                                    const KubeOptions& options) {
  const auto in_scratch = [&](const char* name) {
    return base::JoinPath(options.scratch_dir, name);
  };
  const std::string secret = in_scratch("sa.key"), open = in_scratch("sa.pub");
  RETURN_IF_ERROR(WriteServiceAccountKeys(files, secret, open));
  const std::string token =
      fmt::format("{:016x}{:016x}", base::SystemRandom().Next(), base::SystemRandom().Next());
  const std::string tokens = in_scratch("tokens.csv");
  RETURN_IF_ERROR(base::WriteFileAtomically(
      files, tokens, fmt::format("{},admin,admin,system:masters\n", token), 0600));
  ASSIGN_OR_RETURN(const int port, FreePort());
  auto impl =
      std::unique_ptr<Impl>(new Impl{files,
                                     clock,
                                     options,
                                     nullptr,
                                     KubeApi(fmt::format("https://127.0.0.1:{}", port), token),
                                     {}});
  std::vector<std::string> arguments = {
      "--etcd-servers=" + options.etcd_endpoint,
      "--service-account-issuer=https://kubernetes.default.svc",
      "--service-account-key-file=" + open, "--service-account-signing-key-file=" + secret,
      "--service-cluster-ip-range=10.96.0.0/16", "--cert-dir=" + in_scratch("kube-certs"),
      fmt::format("--secure-port={}", port), "--bind-address=127.0.0.1",
      "--token-auth-file=" + tokens, "--authorization-mode=RBAC",
      // Webhooks of the real cluster are not to be called.
      "--disable-admission-plugins=ServiceAccount,"
      "MutatingAdmissionWebhook,ValidatingAdmissionWebhook"};
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
                              impl->child->LastWords(files));
    }
    const auto ready = impl->api.Ask("/readyz");
    if (ready.ok() && ready->status == 200) {
      ASSIGN_OR_RETURN(const json version, impl->api.Get("/version"));
      impl->version = version.value("gitVersion", "");
      return std::unique_ptr<KubeApiserver>(new KubeApiserver(std::move(impl)));
    }
    last = ready.ok() ? absl::UnavailableError(ready->body) : ready.status();
    std::this_thread::sleep_for(kPoll);
  }
  return base::MakeStatus(absl::StatusCode::kUnavailable, "kube-apiserver is not ready: {}",
                          base::Message(last));
}

absl::StatusOr<KubeObjects> KubeApiserver::ListEverything() {
  KubeObjects out;
  std::vector<std::pair<std::string, std::string>> kinds;  // path, name for people
  std::vector<std::string> versions = {"/api/v1"};
  ASSIGN_OR_RETURN(const json groups, impl_->api.Get("/apis"));
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
    const auto count = impl_->api.Count(path);
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

absl::StatusOr<std::string> KubeApiserver::CheckInformer(int64_t revision) {
  ASSIGN_OR_RETURN(const KubeApi::Answer watch,
                   impl_->api.Ask(fmt::format(
                       "/api/v1/namespaces?watch=true&resourceVersion={}&timeoutSeconds={}",
                       revision, kInformerSeconds)));
  ASSIGN_OR_RETURN(const json list, impl_->api.Get("/api/v1/namespaces"));
  const std::string now = list.value("metadata", json::object()).value("resourceVersion", "");
  // The refusal is the answer itself, or the first event of the stream.
  const json event =
      json::parse(watch.body.substr(0, watch.body.find('\n')), nullptr, /*allow_exceptions=*/false);
  const bool gone =
      watch.status == kGone || (event.is_object() && event.value("type", "") == "ERROR" &&
                                event.value("object", json::object()).value("code", 0L) == kGone);
  if (!gone) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "a client that knows revision {} is not told that it is too old (the "
                            "API is at {}): it would never list anew",
                            revision, now);
  }
  return fmt::format("a watch from revision {} is told 410 Gone; {} namespaces listed at {}",
                     revision, list.value("items", json::array()).size(), now);
}

}  // namespace drill
