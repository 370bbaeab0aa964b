#include "serve.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "api/api.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"
#include "cluster/membership.h"
#include "flags.h"
#include "net/loop.h"
#include "net/server.h"
#include "net/tls.h"
#include "peer/http_transport.h"

namespace engram {
namespace {

using base::Url;

net::ListenAddress AddressOf(const Url& url) {
  if (url.is_unix()) return net::ListenAddress::Unix(url.host_port);
  return net::ListenAddress::Tcp(
      url.host, static_cast<uint16_t>(std::strtoul(url.port.c_str(), nullptr, 10)));
}

bool AnyTls(const std::vector<Url>& urls) {
  return std::any_of(urls.begin(), urls.end(), [](const Url& url) { return url.tls(); });
}

std::vector<std::string> Hosts(const std::vector<Url>& urls) {
  std::vector<std::string> hosts;
  for (const Url& url : urls) hosts.push_back(url.host_port);
  return hosts;
}

// sd_notify(3) without its library: one datagram.
void NotifyReady() {
  LOG_INFO("notifying init daemon");
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path != nullptr && *path != '\0') {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    const socklen_t length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(address.sun_path));
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    static constexpr std::string_view kMessage = "READY=1";
    const bool sent = fd >= 0 && ::sendto(fd, kMessage.data(), kMessage.size(), MSG_NOSIGNAL,
                                          reinterpret_cast<const sockaddr*>(&address),
                                          length) == static_cast<ssize_t>(kMessage.size());
    if (!sent) LOG_ERROR("failed to notify systemd for readiness", {"error", std::strerror(errno)});
    if (fd >= 0) ::close(fd);
    if (!sent) return;
  }
  LOG_INFO("successfully notified init daemon");
}

net::TlsOptions TlsOptionsOf(const TransportSecurity& tls, const Config& config) {
  return {.cert_file = tls.cert_file,
          .key_file = tls.key_file,
          .trusted_ca_file = tls.trusted_ca_file,
          .client_cert_auth = tls.client_cert_auth,
          .allowed_common_names = tls.allowed_cn,
          .allowed_hostnames = tls.allowed_hostname,
          .crl_file = tls.crl_file,
          .min_version = config.tls_min_version.empty() ? "TLS1.2" : config.tls_min_version,
          .max_version = config.tls_max_version,
          .cipher_suites = config.cipher_suites};
}

}  // namespace

struct Server::Parts {
  base::Metrics metrics;
  std::unique_ptr<peer::HttpTransport> transport;
  std::unique_ptr<api::ServerMetrics> server_metrics;
  std::unique_ptr<member::Member> member;
  std::unique_ptr<net::LoopPool> loops;
  std::unique_ptr<api::Api> api;
  std::atomic<api::Api*> api_for_batches{nullptr};
  std::unique_ptr<net::Server> client_server;
  std::unique_ptr<net::Server> peer_server;
  std::unique_ptr<net::Server> metrics_server;
  std::shared_ptr<net::TlsServer> client_tls;
  std::shared_ptr<net::TlsServer> peer_tls;
  bool stopped = false;
};

Server::Server(Config config, std::vector<std::string> command_line,
               std::function<void(const absl::Status&)> fatal, std::function<void()> removed)
    : config_(std::move(config)),
      command_line_(std::move(command_line)),
      fatal_(std::move(fatal)),
      removed_(std::move(removed)) {}

Server::~Server() { Stop(); }

namespace {

absl::StatusOr<std::map<std::string, std::vector<std::string>>> InitialCluster(
    const Config& config) {
  ASSIGN_OR_RETURN(auto cluster, cluster::ParseInitialCluster(config.initial_cluster));
  const auto own = cluster.find(config.name);
  if (own == cluster.end()) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "couldn't find local name \"{}\" in the initial cluster configuration",
                            config.name);
  }
  std::vector<std::string> listed = own->second;
  std::vector<std::string> advertised = base::UrlTexts(config.initial_advertise_peer_urls);
  std::sort(listed.begin(), listed.end());
  std::sort(advertised.begin(), advertised.end());
  if (listed == advertised) return cluster;
  std::string named;
  for (const std::string& url : listed)
    named += (named.empty() ? "" : ",") + config.name + "=" + url;
  const std::string urls = base::JoinUrls(config.initial_advertise_peer_urls, ",");
  return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                          "--initial-cluster has {} but missing from "
                          "--initial-advertise-peer-urls={} (resolved urls: \"{}\" != \"{}\")",
                          named, urls, urls, fmt::format("{}", listed.front()));
}

// Certificates made by ourselves where asked for and none are given.
absl::Status UseAutoTls(TransportSecurity* tls, const std::vector<Url>& urls, const Config& config,
                        const char* kind) {
  if (!tls->auto_tls || !tls->cert_file.empty() || !AnyTls(urls)) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const net::CertificatePair pair,
      net::EnsureSelfSigned({.directory = config.data_dir + "/fixtures/" + kind,
                             .hosts = Hosts(urls),
                             .validity_years = static_cast<int>(config.self_signed_cert_validity)},
                            base::SystemClock().Wall()));
  tls->cert_file = pair.cert_file;
  tls->key_file = pair.key_file;
  return absl::OkStatus();
}

member::MemberOptions MemberOptionsOf(const Config& config, const Retention& retention,
                                      const std::vector<FeatureGate>& gates,
                                      std::map<std::string, std::vector<std::string>> cluster) {
  member::MemberOptions o;
  o.name = config.name;
  o.data_dir = config.data_dir;
  o.wal_dir = config.wal_dir;
  o.peer_urls = base::UrlTexts(config.initial_advertise_peer_urls);
  o.client_urls = base::UrlTexts(config.advertise_client_urls);
  o.initial_cluster = std::move(cluster);
  o.cluster_token = config.initial_cluster_token;
  o.force_new_cluster = config.force_new_cluster;
  o.join_existing = config.initial_cluster_state == "existing";
  o.tick = config.tick();
  o.election_ticks = static_cast<int>(config.election_ms / config.heartbeat_ms);
  o.pre_vote = config.pre_vote;
  o.snapshot_count = config.snapshot_count == 0 ? 10000 : config.snapshot_count;
  o.snapshot_catchup_entries = config.snapshot_catchup_entries;
  o.strict_reconfig_check = config.strict_reconfig_check;
  o.max_learners = static_cast<size_t>(std::max<int64_t>(config.max_learners, 0));
  o.max_wals = config.max_wals;
  o.max_snapshots = config.max_snapshots;
  o.max_request_bytes = config.max_request_bytes;
  o.quota_bytes = config.quota_backend_bytes;
  o.quota_counts_live_pages = config.quota_counts_live_pages;
  o.auto_disarm_no_space = config.auto_disarm_no_space;
  o.backend_batch_interval = config.backend_batch_interval;
  o.backend_batch_limit =
      config.backend_batch_limit > 0 ? static_cast<uint64_t>(config.backend_batch_limit) : 0;
  o.compaction_batch_limit =
      config.compaction_batch_limit > 0 ? static_cast<uint64_t>(config.compaction_batch_limit) : 0;
  o.compaction_sleep = config.compaction_sleep_interval;
  o.no_fsync = config.unsafe_no_fsync;
  o.auto_compaction_mode = config.auto_compaction_mode == "revision"
                               ? member::AutoCompactionMode::kRevision
                               : member::AutoCompactionMode::kPeriodic;
  o.auto_compaction_period = retention.period;
  o.auto_compaction_revisions = retention.revisions;
  o.lease_checkpoints = IsEnabled(gates, "LeaseCheckpoint");
  o.lease_checkpoints_persist = IsEnabled(gates, "LeaseCheckpointPersist");
  o.version = kEtcdVersion;
  o.files = &base::PosixFiles();
  o.clock = &base::SystemClock();
  o.random = &base::SystemRandom();
  return o;
}

peer::HttpTransportOptions TransportOptionsOf(const Config& config) {
  const TransportSecurity& tls = config.peer_tls;
  peer::HttpTransportOptions options;
  options.version = kEtcdVersion;
  options.peer_urls = base::UrlTexts(config.initial_advertise_peer_urls);
  options.client.connect_timeout =
      std::chrono::seconds(1) + std::chrono::milliseconds(config.election_ms);
  options.client.tls = {
      .cert_file = tls.client_cert_file.empty() ? tls.cert_file : tls.client_cert_file,
      .key_file = tls.client_cert_file.empty() ? tls.key_file : tls.client_key_file,
      .trusted_ca_file = tls.trusted_ca_file,
      // Certificates that members make for themselves cannot be verified.
      .skip_verify = tls.auto_tls,
      .min_version = config.tls_min_version.empty() ? "TLS1.2" : config.tls_min_version,
      .max_version = config.tls_max_version,
      .cipher_suites = config.cipher_suites};
  return options;
}

void LogConfig(const Config& c, const std::vector<FeatureGate>& gates, bool initialized) {
  std::string gate_text;
  for (const FeatureGate& gate : gates) {
    gate_text += fmt::format("{}{}={}", gate_text.empty() ? "" : ",", gate.name, gate.enabled);
  }
  LOG_INFO(
      "starting an etcd server", {"etcd-version", kEtcdVersion}, {"engram-version", ENGRAM_VERSION},
      {"member-initialized", initialized}, {"name", c.name}, {"data-dir", c.data_dir},
      {"wal-dir", c.wal_dir}, {"wal-dir-dedicated", c.wal_dir},
      {"member-dir", c.data_dir + "/member"}, {"force-new-cluster", c.force_new_cluster},
      {"heartbeat-interval", base::DurationText(std::chrono::milliseconds(c.heartbeat_ms))},
      {"election-timeout", base::DurationText(std::chrono::milliseconds(c.election_ms))},
      {"initial-election-tick-advance", c.initial_election_tick_advance},
      {"snapshot-count", c.snapshot_count}, {"max-wals", c.max_wals},
      {"max-snapshots", c.max_snapshots}, {"snapshot-catchup-entries", c.snapshot_catchup_entries},
      {"initial-advertise-peer-urls", base::UrlTexts(c.initial_advertise_peer_urls)},
      {"listen-peer-urls", base::UrlTexts(c.listen_peer_urls)},
      {"advertise-client-urls", base::UrlTexts(c.advertise_client_urls)},
      {"listen-client-urls", base::UrlTexts(c.listen_client_urls)},
      {"listen-metrics-urls", base::UrlTexts(c.listen_metrics_urls)}, {"cors", c.cors},
      {"host-whitelist", c.host_whitelist}, {"initial-cluster", c.initial_cluster},
      {"initial-cluster-state", c.initial_cluster_state},
      {"initial-cluster-token", c.initial_cluster_token},
      {"quota-backend-bytes", c.quota_backend_bytes}, {"max-request-bytes", c.max_request_bytes},
      {"max-concurrent-streams", c.max_concurrent_streams}, {"pre-vote", c.pre_vote},
      {"feature-gates", gate_text}, {"auto-compaction-mode", c.auto_compaction_mode},
      {"auto-compaction-retention", c.auto_compaction_retention}, {"max-learners", c.max_learners});
}

}  // namespace

absl::Status Server::Start() {
  parts_ = std::make_unique<Parts>();
  Parts& p = *parts_;
  ASSIGN_OR_RETURN(const Retention retention, ParseRetention(config_));
  ASSIGN_OR_RETURN(const auto gates, ResolveFeatureGates(config_.feature_gates));
  const bool initialized = base::Exists(base::PosixFiles(), config_.data_dir + "/member");
  LOG_INFO("Initialize and start etcd server", {"data-dir", config_.data_dir},
           {"dir-type", initialized ? "member" : "empty"});
  if (!config_.discovery_srv.empty() || !config_.discovery_endpoints.empty()) {
    return absl::UnimplementedError(
        "discovery: joining by discovery is not supported; use --initial-cluster");
  }
  RETURN_IF_ERROR(net::CheckTlsOptions(TlsOptionsOf(config_.client_tls, config_)));
  LOG_INFO("configuring peer listeners",
           {"listen-peer-urls", base::UrlTexts(config_.listen_peer_urls)});
  LOG_INFO("configuring client listeners",
           {"listen-client-urls", base::UrlTexts(config_.listen_client_urls)});
  RETURN_IF_ERROR(UseAutoTls(&config_.client_tls, config_.listen_client_urls, config_, "client"));
  RETURN_IF_ERROR(UseAutoTls(&config_.peer_tls, config_.listen_peer_urls, config_, "peer"));
  if (AnyTls(config_.listen_peer_urls)) {
    if (config_.peer_tls.cert_file.empty() || config_.peer_tls.key_file.empty()) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                              "cannot listen on TLS for {}: KeyFile and CertFile are not presented",
                              config_.listen_peer_urls.front().host_port);
    }
    net::TlsOptions tls = TlsOptionsOf(config_.peer_tls, config_);
    tls.check_client_san = !config_.peer_tls.skip_client_san_verification;
    tls.alpn = {"http/1.1"};
    ASSIGN_OR_RETURN(p.peer_tls, net::TlsServer::Create(tls));
  }
  for (const auto* urls : {&config_.listen_client_urls, &config_.listen_client_http_urls}) {
    for (const Url& url : *urls) {
      if (url.tls() &&
          (config_.client_tls.cert_file.empty() || config_.client_tls.key_file.empty())) {
        return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                                "TLS key/cert (--cert-file, --key-file) must be provided for "
                                "client url {} with HTTPS scheme",
                                url.Text());
      }
      if (!url.tls() && !config_.client_tls.cert_file.empty()) {
        LOG_WARN(
            "scheme is http or unix while key and cert files are present; ignoring key and cert "
            "files",
            {"client-url", url.Text()});
      }
    }
  }
  if (AnyTls(config_.listen_metrics_urls) && config_.client_tls.cert_file.empty()) {
    return absl::InvalidArgumentError(
        "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url");
  }
  if (!config_.client_tls.cert_file.empty()) {
    ASSIGN_OR_RETURN(p.client_tls,
                     net::TlsServer::Create(TlsOptionsOf(config_.client_tls, config_)));
  }
  for (const Url& a : config_.listen_client_urls) {
    for (const Url& b : config_.listen_client_http_urls) {
      if (a.host_port == b.host_port) {
        return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                                "cannot bind both --listen-client-urls and "
                                "--listen-client-http-urls on the same url {}",
                                a.Text());
      }
    }
  }
  ASSIGN_OR_RETURN(auto cluster, InitialCluster(config_));
  LogConfig(config_, gates, initialized);

  std::vector<std::pair<std::string, std::pair<bool, std::string>>> features;
  for (const FeatureGate& gate : gates)
    features.push_back({std::string(gate.name), {gate.enabled, std::string(gate.stage)}});
  p.server_metrics = std::make_unique<api::ServerMetrics>(
      p.metrics, api::MetricsOptions{.version = kEtcdVersion,
                                     .engram_version = ENGRAM_VERSION,
                                     .extensive = config_.metrics == "extensive",
                                     .warning_apply_duration = config_.warning_apply_duration,
                                     .features = std::move(features)});
  p.server_metrics->on_fatal = fatal_;
  p.server_metrics->on_removed = removed_;
  p.server_metrics->on_batch_end = [&p] {
    if (api::Api* api = p.api_for_batches.load(std::memory_order_acquire)) api->OnBatchEnd();
  };

  p.transport = std::make_unique<peer::HttpTransport>(TransportOptionsOf(config_));
  p.loops = std::make_unique<net::LoopPool>(std::max(2U, std::thread::hardware_concurrency()));
  ASSIGN_OR_RETURN(p.member, member::Member::Start(
                                 MemberOptionsOf(config_, retention, gates, std::move(cluster)),
                                 *p.transport, *p.server_metrics));
  const base::Duration progress = config_.watch_progress_notify_interval > base::Duration{}
                                      ? config_.watch_progress_notify_interval
                                      : std::chrono::minutes(10);
  p.api = std::make_unique<api::Api>(
      *p.member, *p.loops, *p.server_metrics, p.metrics,
      api::ApiOptions{.version = kEtcdVersion,
                      .max_request_bytes = config_.max_request_bytes,
                      .max_txn_ops = config_.max_txn_ops,
                      .watch_progress_interval = progress,
                      .warning_unary_duration = config_.warning_unary_duration > base::Duration{}
                                                    ? config_.warning_unary_duration
                                                    : std::chrono::milliseconds(300)},
      api::HttpOptions{.gateway = config_.enable_grpc_gateway,
                       .cors = config_.cors,
                       .host_whitelist = config_.host_whitelist,
                       .debug_endpoints = config_.log_level == "debug",
                       .command_line = command_line_,
                       .raft = p.transport.get()});
  p.api_for_batches.store(p.api.get(), std::memory_order_release);

  if (config_.bootstrap_defrag_threshold_mb > 0 && initialized) {
    const mvcc::BackendSizes sizes = p.member->backend().sizes();
    const uint64_t free_bytes = sizes.file_bytes - sizes.in_use_bytes;
    const uint64_t threshold = config_.bootstrap_defrag_threshold_mb << 20;
    if (free_bytes < threshold) {
      LOG_INFO("Skipping defragmentation", {"current-db-size-bytes", sizes.file_bytes},
               {"current-db-size-in-use-bytes", sizes.in_use_bytes},
               {"bootstrap-defrag-threshold-bytes", threshold});
    } else {
      RETURN_IF_ERROR(p.member->backend().Defragment());
    }
  }

  // The others are needed to get ready.
  RETURN_IF_ERROR(StartPeerListeners());
  std::mutex mutex;
  std::condition_variable ready;
  p.member->WhenReady([&] {
    const std::lock_guard lock(mutex);
    ready.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    while (!p.member->ready() && !interrupted_.load())
      ready.wait_for(lock, std::chrono::milliseconds(50));
  }
  if (interrupted_.load()) return absl::CancelledError("interrupted");
  RETURN_IF_ERROR(StartClientListeners());
  LOG_INFO("ready to serve client requests");
  NotifyReady();
  return absl::OkStatus();
}

namespace {

// Opens a socket for each address of `urls`. `traffic` names it in the log; null is peer traffic.
absl::Status Open(net::Server& server, const std::vector<Url>& urls,
                  const net::ListenerOptions& base_options,
                  const std::shared_ptr<net::TlsServer>& tls, bool reuse_port,
                  const char* traffic) {
  // One socket for URLs that differ by scheme only.
  std::vector<std::string> done;
  for (const Url& url : urls) {
    if (std::find(done.begin(), done.end(), url.host_port) != done.end()) continue;
    done.push_back(url.host_port);
    const auto has = [&](bool secure) {
      return std::any_of(urls.begin(), urls.end(), [&](const Url& u) {
        return u.host_port == url.host_port && u.tls() == secure;
      });
    };
    net::ListenerOptions options = base_options;
    options.address = AddressOf(url);
    options.plain = has(false);
    if (has(true)) options.tls = tls;
    options.reuse_port = reuse_port;
    ASSIGN_OR_RETURN(const net::Listener* listener, server.Listen(std::move(options)));
    if (traffic == nullptr) {
      LOG_INFO("serving peer traffic", {"address", listener->address()});
    } else if (has(false)) {
      LOG_INFO("serving client traffic insecurely; this is strongly discouraged!",
               {"traffic", traffic}, {"address", listener->address()});
    } else {
      LOG_INFO("serving client traffic securely", {"traffic", traffic},
               {"address", listener->address()});
    }
  }
  return absl::OkStatus();
}

std::function<void(const net::RejectedConnection&)> LogRejected(const char* text) {
  return [text](const net::RejectedConnection& r) {
    LOG_WARN(text, {"remote-addr", r.remote_address}, {"server-name", r.server_name},
             {"error", r.error});
  };
}

}  // namespace

absl::Status Server::StartPeerListeners() {
  Parts& p = *parts_;
  p.peer_server = std::make_unique<net::Server>(*p.loops);
  p.peer_server->set_on_rejected(LogRejected("rejected connection on peer endpoint"));
  net::ListenerOptions options;
  options.http = &p.api->peer_http();
  options.http2 = false;
  // A member that takes nothing for this long is given up; it comes back by itself. A body may
  // pause for longer: the disk of this member, where a snapshot goes, can be slow.
  constexpr base::Duration kSilence = std::chrono::seconds(5);
  options.http1.idle_timeout = kSilence;
  options.http1.read_timeout = 6 * kSilence;
  options.http1.write_stall_max = kSilence;
  return Open(*p.peer_server, config_.listen_peer_urls, options, p.peer_tls, config_.reuse_port,
              nullptr);
}

absl::Status Server::StartClientListeners() {
  Parts& p = *parts_;
  p.client_server = std::make_unique<net::Server>(*p.loops);
  p.client_server->set_on_rejected(LogRejected("rejected connection on client endpoint"));
  net::ListenerOptions client_options;
  client_options.grpc = &p.api->grpc();
  const bool split = !config_.listen_client_http_urls.empty();
  if (!split) client_options.http = &p.api->client_http();
  client_options.http2_options.concurrent_streams_max =
      static_cast<uint32_t>(config_.max_concurrent_streams);
  client_options.http2_options.client_ping_interval_min = config_.grpc_keepalive_min_time;
  client_options.http2_options.keepalive_interval = config_.grpc_keepalive_interval;
  client_options.http2_options.keepalive_timeout = config_.grpc_keepalive_timeout;
  const char* debug = std::getenv("GODEBUG");
  client_options.http2_options.print_authority =
      debug != nullptr && std::strstr(debug, "http2debug=2") != nullptr;
  RETURN_IF_ERROR(Open(*p.client_server, config_.listen_client_urls, client_options, p.client_tls,
                       config_.reuse_port, split ? "grpc" : "grpc+http"));
  if (split) {
    net::ListenerOptions http_options;
    http_options.http = &p.api->client_http();
    RETURN_IF_ERROR(Open(*p.client_server, config_.listen_client_http_urls, http_options,
                         p.client_tls, config_.reuse_port, "http"));
  }
  if (!config_.listen_metrics_urls.empty()) {
    p.metrics_server = std::make_unique<net::Server>(*p.loops);
    net::ListenerOptions metrics_options;
    metrics_options.http = &p.api->metrics_http();
    RETURN_IF_ERROR(Open(*p.metrics_server, config_.listen_metrics_urls, metrics_options,
                         p.client_tls, config_.reuse_port, "metrics"));
  }
  return absl::OkStatus();
}

void Server::Stop() {
  if (parts_ == nullptr || parts_->stopped) return;
  Parts& p = *parts_;
  p.stopped = true;
  LOG_INFO("closing etcd server", {"name", config_.name}, {"data-dir", config_.data_dir});
  constexpr base::Duration kGrace = std::chrono::milliseconds(500);
  if (p.member != nullptr) p.member->HandOverLeadership();
  // Requests between members are streams without an end: they are cut.
  if (p.peer_server != nullptr) p.peer_server->Shutdown({});
  for (auto* server : {&p.client_server, &p.metrics_server}) {
    if (*server != nullptr) (*server)->Shutdown(kGrace);
  }
  if (p.api != nullptr) p.api->StopHelpers();
  if (p.member != nullptr) {
    const absl::Status stopped = p.member->Stop();
    if (!stopped.ok()) LOG_ERROR("failed to commit everything", {"error", stopped});
  }
  if (p.loops != nullptr) p.loops->Stop();
  p.client_server.reset();
  p.metrics_server.reset();
  p.peer_server.reset();
  p.api_for_batches.store(nullptr);
  p.api.reset();
  p.member.reset();
  LOG_INFO("closed etcd server", {"name", config_.name}, {"data-dir", config_.data_dir});
}

}  // namespace engram
