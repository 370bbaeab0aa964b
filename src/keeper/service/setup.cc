#include "service/setup.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <mutex>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "client/methods.h"
#include "proto/rpc.pb.h"
#include "stores/decorators.h"
#include "stores/file_store.h"
#include "stores/s3_store.h"
#include "vault/secret.h"

namespace service {
namespace {

constexpr base::Duration kDialTimeout = std::chrono::seconds(5);

absl::StatusOr<vault::Secret> ReadSecretOf(Environment env, const config::Secret& secret) {
  vault::SecretOrigin origin;
  switch (secret.source) {
    case config::Secret::Source::kNone:
      break;
    case config::Secret::Source::kFile:
      origin.file = secret.where;
      break;
    case config::Secret::Source::kEnvironment:
      origin.environment = secret.where;
      break;
    case config::Secret::Source::kCommand:
      for (const std::string& word : secret.command) {
        std::string quoted = "'";
        for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
        origin.command += (origin.command.empty() ? "" : " ") + quoted + "'";
      }
      break;
  }
  return vault::ReadSecret(env.files, origin);
}

stores::S3CredentialsSource CredentialsOf(Environment env, const config::Secret& secret) {
  if (!secret.given()) return stores::S3CredentialsFromEnvironment();
  if (secret.source == config::Secret::Source::kFile) {
    return stores::S3CredentialsFromFile(env.files, secret.where);
  }
  return [env, secret]() -> absl::StatusOr<stores::S3Credentials> {
    ASSIGN_OR_RETURN(const vault::Secret text, ReadSecretOf(env, secret));
    return stores::ParseS3Credentials(text.view());
  };
}

absl::StatusOr<std::unique_ptr<stores::Store>> OpenPlain(Environment env,
                                                         const config::Store& store,
                                                         const std::vector<std::string>& apart) {
  if (store.type == config::Store::Type::kFile) {
    return stores::FileStore::Open(env.files, env.clock, env.random,
                                   {.root = store.path, .apart_from = apart});
  }
  return stores::S3Store::Open(env.clock, stores::RealSleeper(),
                               {.endpoint = {.url = store.endpoint,
                                             .bucket = store.bucket,
                                             .region = store.region,
                                             .ca_file = store.ca_file},
                                .prefix = store.prefix},
                               CredentialsOf(env, store.credentials));
}

absl::StatusOr<std::shared_ptr<stores::Store>> OpenStore(Environment env,
                                                         const config::Store& store,
                                                         const std::vector<std::string>& apart) {
  ASSIGN_OR_RETURN(std::unique_ptr<stores::Store> opened, OpenPlain(env, store, apart));
  if (store.bandwidth > 0) {
    opened = std::make_unique<stores::BandwidthLimited>(std::move(opened), store.bandwidth,
                                                        env.clock, stores::RealSleeper());
  }
  return std::make_shared<stores::Retrying>(std::move(opened), env.clock, env.random,
                                            stores::RealSleeper(), stores::RetryPolicy{});
}

class LateStore final : public stores::Store {
 public:
  LateStore(Environment env, const config::Store& store, const std::string& state_dir)
      : env_(env), config_(store), state_dir_(state_dir) {}

  absl::Status Put(std::string_view name, const stores::Content& content,
                   const stores::Deadline& deadline) override {
    ASSIGN_OR_RETURN(const auto store, Opened());
    return store->Put(name, content, deadline);
  }
  absl::Status Replace(std::string_view name, std::string_view bytes,
                       const stores::Deadline& deadline) override {
    ASSIGN_OR_RETURN(const auto store, Opened());
    return store->Replace(name, bytes, deadline);
  }
  absl::Status Get(std::string_view name, uint64_t offset, uint64_t length, vault::Sink& sink,
                   const stores::Deadline& deadline) override {
    ASSIGN_OR_RETURN(const auto store, Opened());
    return store->Get(name, offset, length, sink, deadline);
  }
  absl::StatusOr<uint64_t> Stat(std::string_view name, const stores::Deadline& deadline) override {
    ASSIGN_OR_RETURN(const auto store, Opened());
    return store->Stat(name, deadline);
  }
  absl::StatusOr<std::vector<stores::ObjectInfo>> List(const stores::ListRequest& request,
                                                       const stores::Deadline& deadline) override {
    ASSIGN_OR_RETURN(const auto store, Opened());
    return store->List(request, deadline);
  }
  absl::Status Delete(std::string_view name, const stores::Deadline& deadline) override {
    ASSIGN_OR_RETURN(const auto store, Opened());
    return store->Delete(name, deadline);
  }
  absl::StatusOr<stores::Description> Describe(const stores::Deadline& deadline) override {
    ASSIGN_OR_RETURN(const auto store, Opened());
    return store->Describe(deadline);
  }
  absl::StatusOr<uint64_t> Sweep(base::Duration older_than,
                                 const stores::Deadline& deadline) override {
    ASSIGN_OR_RETURN(const auto store, Opened());
    return store->Sweep(older_than, deadline);
  }

 private:
  absl::StatusOr<std::shared_ptr<stores::Store>> Opened() {
    const std::lock_guard lock(mutex_);
    if (store_ == nullptr) {
      ASSIGN_OR_RETURN(store_, OpenStore(env_, config_, {state_dir_}));
    }
    return store_;
  }

  const Environment env_;
  const config::Store& config_;
  const std::string state_dir_;
  std::mutex mutex_;
  std::shared_ptr<stores::Store> store_;  // null until it could be opened
};

constexpr int kSteppedBack = 10;  // nice

}  // namespace

absl::StatusOr<WriterKeys> LoadWriterKeys(Environment env, const config::Config& config) {
  ASSIGN_OR_RETURN(const vault::Secret text,
                   vault::ReadSecret(env.files, {.file = config.signing_key_file}));
  absl::StatusOr<vault::SigningKey> signing = vault::SigningKey::Parse(text.view());
  if (!signing.ok()) return base::Annotate(signing.status(), config.signing_key_file);
  WriterKeys keys{.signing = *std::move(signing), .seal = {}};
  for (const std::string& recipient : config.encryption.recipients) {
    ASSIGN_OR_RETURN(const vault::Recipient parsed, vault::Recipient::Parse(recipient));
    keys.seal.recipients.push_back(parsed);
  }
  return keys;
}

absl::StatusOr<ReaderKeys> LoadReaderKeys(Environment env, const config::Config& config) {
  ReaderKeys keys;
  for (const std::string& text : config.trusted_signers) {
    ASSIGN_OR_RETURN(const vault::VerifyingKey key, vault::VerifyingKey::Parse(text));
    keys.trusted.push_back(key);
  }
  if (base::Exists(env.files, config.signing_key_file)) {
    ASSIGN_OR_RETURN(const WriterKeys own, LoadWriterKeys(env, config));
    keys.trusted.push_back(own.signing.verifying_key());
  }
  if (!config.encryption.identity_file.empty()) {
    ASSIGN_OR_RETURN(const vault::Secret text,
                     vault::ReadSecret(env.files, {.file = config.encryption.identity_file}));
    auto identities = vault::ParseIdentities(text.view());
    if (!identities.ok()) {
      return base::Annotate(identities.status(), config.encryption.identity_file);
    }
    keys.identities = *std::move(identities);
  }
  return keys;
}

bool StepBack() { return ::setpriority(PRIO_PROCESS, 0, kSteppedBack) == 0; }

std::vector<OpenedStore> OpenStores(Environment env, const config::Config& config,
                                    const config::Cluster& cluster) {
  std::vector<OpenedStore> opened;
  for (const std::string& name : cluster.stores) {
    OpenedStore entry{.name = name};
    auto store = OpenStore(env, *config.FindStore(name), {config.state_dir});
    if (store.ok()) {
      entry.store = *std::move(store);
    } else {
      entry.status = store.status();
    }
    opened.push_back(std::move(entry));
  }
  return opened;
}

std::shared_ptr<stores::Store> OpenStoreLate(Environment env, const config::Config& config,
                                             const std::string& name) {
  return std::make_shared<LateStore>(env, *config.FindStore(name), config.state_dir);
}

absl::StatusOr<std::shared_ptr<stores::Store>> OpenForPruning(Environment env,
                                                              const config::Config& config,
                                                              const std::string& name) {
  config::Store store = *config.FindStore(name);
  if (!store.prune_credentials_file.empty()) {
    store.credentials = {.source = config::Secret::Source::kFile,
                         .where = store.prune_credentials_file};
  }
  return OpenStore(env, store, {config.state_dir});
}

absl::StatusOr<std::vector<ledger::ReadableStore>> Readable(
    const std::vector<OpenedStore>& stores) {
  std::vector<ledger::ReadableStore> readable;
  std::string reasons;
  for (const OpenedStore& store : stores) {
    if (store.store != nullptr) {
      readable.push_back({store.name, store.store});
    } else {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", store.name,
                             base::Message(store.status));
    }
  }
  if (!readable.empty()) return readable;
  return base::MakeStatus(absl::StatusCode::kUnavailable, "no store can be opened: {}", reasons);
}

absl::StatusOr<std::unique_ptr<capture::Cluster>> OpenCluster(Environment env,
                                                              const config::Cluster& cluster) {
  client::Options options;
  options.endpoints = cluster.endpoints;
  options.tls.ca_file = cluster.tls.ca_file;
  options.tls.cert_file = cluster.tls.cert_file;
  options.tls.key_file = cluster.tls.key_file;
  options.dial_timeout = kDialTimeout;
  options.keepalive_time = std::chrono::seconds(10);
  options.keepalive_timeout = std::chrono::seconds(10);
  if (cluster.user.has_value()) {
    options.user = cluster.user->name;
    ASSIGN_OR_RETURN(const vault::Secret password, ReadSecretOf(env, cluster.user->password));
    options.password = std::string(password.view());
  }
  return capture::Cluster::Open(std::move(options));
}

absl::Status ProbeSnapshot(client::Client& client) {
  ASSIGN_OR_RETURN(const auto stream,
                   client.OpenServerStream(client::kSnapshotMethod, etcdserverpb::SnapshotRequest(),
                                           {.timeout = kDialTimeout}));
  etcdserverpb::SnapshotResponse piece;
  if (stream->Read(&piece, kDialTimeout) == client::Stream::ReadResult::kMessage) {
    return absl::OkStatus();
  }
  stream->Cancel();
  const absl::Status status = stream->Finish();
  if (absl::IsPermissionDenied(status)) {
    return base::Annotate(status, "the user needs the root role to take snapshots");
  }
  return status.ok() ? absl::UnavailableError("no snapshot came") : status;
}

absl::StatusOr<std::string> WriterId(Environment env, const std::string& state_dir) {
  RETURN_IF_ERROR(base::MakeDirectoriesDurably(env.files, state_dir, 0700));
  const std::string path = base::JoinPath(state_dir, "writer");
  if (!base::Exists(env.files, path)) {
    RETURN_IF_ERROR(base::WriteFileAtomically(env.files, path,
                                              fmt::format("{:016x}\n", env.random.Next()), 0600));
  }
  ASSIGN_OR_RETURN(std::string id, base::ReadFile(env.files, path));
  if (!id.empty() && id.back() == '\n') id.pop_back();
  if (uint64_t number = 0; !base::ParseHex16(id, &number)) {
    return base::MakeStatus(
        absl::StatusCode::kDataLoss,
        "{} does not hold a writer's id: remove it, so that a new writer begins", path);
  }
  return id;
}

}  // namespace service
