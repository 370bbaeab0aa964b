#include "flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "base/go_text.h"
#include "base/log.h"
#include "base/status.h"

namespace engram {
namespace {

using Set = std::function<absl::Status(Config&, std::string_view)>;

absl::Status ParseError() { return absl::InvalidArgumentError("parse error"); }

std::vector<std::string> SplitCommas(std::string_view text) {
  std::vector<std::string> items;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    items.emplace_back(item);
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

// One setter per type of member. The accessor names the member.
template <typename F>
Set String(F member) {
  return [member](Config& c, std::string_view v) {
    member(c) = std::string(v);
    return absl::OkStatus();
  };
}
template <typename F>
Set Bool(F member) {
  return [member](Config& c, std::string_view v) {
    const auto parsed = base::ParseGoBool(v);
    if (!parsed) return ParseError();
    member(c) = *parsed;
    return absl::OkStatus();
  };
}
template <typename F>
Set Int(F member) {
  return [member](Config& c, std::string_view v) {
    const auto parsed = base::ParseGoInt(v);
    if (!parsed) return ParseError();
    member(c) = *parsed;
    return absl::OkStatus();
  };
}
template <typename F>
Set Uint(F member, uint64_t max = std::numeric_limits<uint64_t>::max()) {
  return [member, max](Config& c, std::string_view v) {
    const auto parsed = base::ParseGoUint(v);
    if (!parsed) return ParseError();
    if (*parsed > max)
      return absl::Status(absl::StatusCode::kInvalidArgument, "value out of range");
    member(c) = *parsed;
    return absl::OkStatus();
  };
}
template <typename F>
Set Duration(F member) {
  return [member](Config& c, std::string_view v) {
    const auto parsed = base::ParseGoDuration(v);
    if (!parsed) return ParseError();
    member(c) = *parsed;
    return absl::OkStatus();
  };
}
template <typename F>
Set List(F member) {
  return [member](Config& c, std::string_view v) {
    member(c) = v.empty() ? std::vector<std::string>() : SplitCommas(v);
    return absl::OkStatus();
  };
}
template <typename F>
Set Urls(F member) {
  return [member](Config& c, std::string_view v) {
    if (v.empty()) {
      member(c).clear();
      return absl::OkStatus();
    }
    auto parsed = base::ParseUrlList(v);
    if (!parsed.ok()) return parsed.status();
    member(c) = *std::move(parsed);
    return absl::OkStatus();
  };
}
template <typename F>
Set Enum(F member, std::vector<std::string> values, bool named_error = false) {
  return [member, values = std::move(values), named_error](Config& c, std::string_view v) {
    if (std::find(values.begin(), values.end(), v) == values.end()) {
      return absl::InvalidArgumentError(named_error ? "invalid value " + base::GoQuote(v)
                                                    : "invalid value");
    }
    member(c) = std::string(v);
    return absl::OkStatus();
  };
}
Set Gates() {
  return [](Config& c, std::string_view v) {
    const auto gates = ResolveFeatureGates(v);
    if (!gates.ok()) return gates.status();
    c.feature_gates = std::string(v);
    return absl::OkStatus();
  };
}
Set Ignore() {
  return [](Config&, std::string_view) { return absl::OkStatus(); };
}

#define M(expr) \
  [](Config & c) -> auto& { return c.expr; }

void AddTransport(std::vector<Flag>* flags, bool peer) {
  // Names are kept for the life of the process.
  static auto* const kept = new std::deque<std::string>;
  const auto keep = [](std::string text) -> std::string_view {
    return kept->emplace_back(std::move(text));
  };
  const std::string prefix = peer ? "peer-" : "";
  const std::string section = peer ? "peer-transport-security." : "client-transport-security.";
  const auto add = [&](const std::string& name, FlagType type, Set set, const std::string& key,
                       std::string_view help) {
    flags->push_back({keep(prefix + name), type, std::move(set),
                      key == "-" ? "-" : keep(section + key), "Security", help});
  };
#define T(field) \
  [peer](Config & c) -> auto& { return (peer ? c.peer_tls : c.client_tls).field; }
  add("cert-file", FlagType::kString, String(T(cert_file)), "cert-file",
      "Path to the server TLS cert file.");
  add("key-file", FlagType::kString, String(T(key_file)), "key-file",
      "Path to the server TLS key file.");
  add("client-cert-file", FlagType::kString, String(T(client_cert_file)), "client-cert-file",
      "Cert this server shows as a client.");
  add("client-key-file", FlagType::kString, String(T(client_key_file)), "client-key-file",
      "Key this server uses as a client.");
  add("client-cert-auth", FlagType::kBool, Bool(T(client_cert_auth)), "client-cert-auth",
      "Require client certificates.");
  add("trusted-ca-file", FlagType::kString, String(T(trusted_ca_file)), "trusted-ca-file",
      "CA bundle client certificates must chain to.");
  add("auto-tls", FlagType::kBool, Bool(T(auto_tls)), "auto-tls", "Use a self-made certificate.");
  if (peer) {
    flags->push_back({"peer-crl-file", FlagType::kString, String(T(crl_file)), "-", "Security",
                      "Revocation list of the peer side."});
    flags->push_back({"peer-cert-allowed-cn", FlagType::kStringList, List(T(allowed_cn)),
                      "peer-transport-security.allowed-cn", "Security",
                      "CNs accepted in peer certificates."});
    flags->push_back({"peer-cert-allowed-hostname", FlagType::kStringList,
                      List(T(allowed_hostname)), "peer-transport-security.allowed-hostname",
                      "Security", "Host names accepted in peer certificates."});
    flags->push_back({"peer-skip-client-san-verification", FlagType::kBool,
                      Bool(T(skip_client_san_verification)),
                      "peer-transport-security.skip-client-san-verification", "Security",
                      "Do not check the SANs of peers."});
  } else {
    flags->push_back({"client-crl-file", FlagType::kString, String(T(crl_file)), "-", "Security",
                      "Revocation list of the client side."});
    flags->push_back({"client-cert-allowed-hostname", FlagType::kStringList,
                      List(T(allowed_hostname)), "client-transport-security.allowed-hostname",
                      "Security", "SAN hosts accepted in client certificates."});
  }
#undef T
}

std::vector<Flag> MakeFlags() {
  constexpr std::string_view kMember = "Member";
  constexpr std::string_view kCluster = "Clustering";
  constexpr std::string_view kSecurity = "Security";
  constexpr std::string_view kLogging = "Observability";
  constexpr std::string_view kUnsafe = "Unsafe and own";
  std::vector<Flag> f = {
      {"name", FlagType::kString, String(M(name)), "", kMember,
       "Human-readable name of this member."},
      {"data-dir", FlagType::kString, String(M(data_dir)), "", kMember,
       "Path to the data directory."},
      {"wal-dir", FlagType::kString, String(M(wal_dir)), "", kMember,
       "Path to a separate log directory."},
      {"snapshot-count", FlagType::kUint, Uint(M(snapshot_count)), "", kMember,
       "Applied entries between raft snapshots."},
      {"snapshot-catchup-entries", FlagType::kUint, Uint(M(snapshot_catchup_entries)), "", kMember,
       "Entries kept behind a snapshot for slow followers."},
      {"max-wals", FlagType::kUint, Uint(M(max_wals)), "", kMember,
       "Log segments kept, 0 for all."},
      {"max-snapshots", FlagType::kUint, Uint(M(max_snapshots)), "", kMember,
       "Snapshot files kept, 0 for all."},
      {"heartbeat-interval", FlagType::kUint, Uint(M(heartbeat_ms)), "", kMember,
       "Heartbeat interval in milliseconds."},
      {"election-timeout", FlagType::kUint, Uint(M(election_ms)), "", kMember,
       "Election timeout in milliseconds."},
      {"initial-election-tick-advance", FlagType::kBool, Bool(M(initial_election_tick_advance)), "",
       kMember, "Skip part of the first election wait."},
      {"listen-peer-urls", FlagType::kUrlList, Urls(M(listen_peer_urls)), "", kMember,
       "URLs to listen on for peers."},
      {"listen-client-urls", FlagType::kUrlList, Urls(M(listen_client_urls)), "", kMember,
       "URLs to listen on for clients."},
      {"listen-client-http-urls", FlagType::kUrlList, Urls(M(listen_client_http_urls)), "", kMember,
       "URLs to serve HTTP on, apart from gRPC."},
      {"listen-metrics-urls", FlagType::kUrlList, Urls(M(listen_metrics_urls)), "", kMember,
       "URLs for metrics and health only."},
      {"quota-backend-bytes", FlagType::kInt, Int(M(quota_backend_bytes)), "", kMember,
       "Size quota of the db file; 0 means 2 GiB, negative none."},
      {"backend-bbolt-freelist-type", FlagType::kString, String(M(backend_freelist_type)), "",
       kMember, "array or map; both mean the same here."},
      {"backend-batch-interval", FlagType::kDuration, Duration(M(backend_batch_interval)), "",
       kMember, "Longest time before the db is committed; 0 means 100ms."},
      {"backend-batch-limit", FlagType::kInt, Int(M(backend_batch_limit)), "", kMember,
       "Operations before the db is committed; 0 means 10000."},
      {"max-txn-ops", FlagType::kUint, Uint(M(max_txn_ops)), "", kMember,
       "Operations allowed in one transaction."},
      {"max-request-bytes", FlagType::kUint, Uint(M(max_request_bytes)), "", kMember,
       "Largest client request in bytes."},
      {"max-concurrent-streams", FlagType::kUint32,
       Uint(M(max_concurrent_streams), std::numeric_limits<uint32_t>::max()), "", kMember,
       "Streams a client connection may open."},
      {"grpc-keepalive-min-time", FlagType::kDuration, Duration(M(grpc_keepalive_min_time)), "",
       kMember, "Fastest tolerated client ping."},
      {"grpc-keepalive-interval", FlagType::kDuration, Duration(M(grpc_keepalive_interval)), "",
       kMember, "Server ping interval, 0 for none."},
      {"grpc-keepalive-timeout", FlagType::kDuration, Duration(M(grpc_keepalive_timeout)), "",
       kMember, "How long a ping's answer may take."},
      {"socket-reuse-port", FlagType::kBool, Bool(M(reuse_port)), "socket-options.reuse-port",
       kMember, "Set SO_REUSEPORT."},
      {"socket-reuse-address", FlagType::kBool, Bool(M(reuse_address)),
       "socket-options.reuse-address", kMember, "Set SO_REUSEADDR (always set here)."},
      {"raft-read-timeout", FlagType::kDuration, Duration(M(raft_read_timeout)), "-", kMember,
       "Read timeout of peer connections."},
      {"raft-write-timeout", FlagType::kDuration, Duration(M(raft_write_timeout)), "-", kMember,
       "Write timeout of peer connections."},
      {"enable-grpc-gateway", FlagType::kBool, Bool(M(enable_grpc_gateway)), "", kMember,
       "JSON gateway under /v3/."},
      {"memory-mlock", FlagType::kBool, Bool(M(memory_mlock)), "", kMember,
       "Lock the db mapping in memory."},
      {"feature-gates", FlagType::kString, Gates(), "", kMember, "Feature gates: A=true,B=false."},
      {"bootstrap-defrag-threshold-megabytes", FlagType::kUint,
       Uint(M(bootstrap_defrag_threshold_mb)), "", kMember,
       "Defragment at start when so much would be freed."},
      {"max-learners", FlagType::kInt, Int(M(max_learners)), "", kMember,
       "Learners the cluster may have."},
      {"warning-apply-duration", FlagType::kDuration, Duration(M(warning_apply_duration)), "",
       kMember, "Applies slower than this are logged."},
      {"warning-unary-request-duration", FlagType::kDuration, Duration(M(warning_unary_duration)),
       "", kMember, "Requests slower than this are logged."},
      {"watch-progress-notify-interval", FlagType::kDuration,
       Duration(M(watch_progress_notify_interval)), "", kMember,
       "Interval of periodic watch progress; 0 means 10m."},
      {"compaction-batch-limit", FlagType::kInt, Int(M(compaction_batch_limit)), "", kMember,
       "Records removed at a time by a compaction."},
      {"compaction-sleep-interval", FlagType::kDuration, Duration(M(compaction_sleep_interval)), "",
       kMember, "Pause between the slices of a compaction."},
      {"corrupt-check-time", FlagType::kDuration, Duration(M(corrupt_check_time)), "", kMember,
       "Period of hash checks across members."},
      {"compact-hash-check-time", FlagType::kDuration, Duration(M(compact_hash_check_time)), "",
       kMember, "Period of compaction hash checks."},
      {"downgrade-check-time", FlagType::kDuration, Duration(M(downgrade_check_time)), "", kMember,
       "Period of the version monitor."},

      {"initial-advertise-peer-urls", FlagType::kUrlList, Urls(M(initial_advertise_peer_urls)), "",
       kCluster, "Peer URLs told to the other members."},
      {"advertise-client-urls", FlagType::kUrlList, Urls(M(advertise_client_urls)), "", kCluster,
       "Client URLs told to clients."},
      {"initial-cluster", FlagType::kString, String(M(initial_cluster)), "", kCluster,
       "name=url,... of the members at bootstrap."},
      {"initial-cluster-state", FlagType::kEnum,
       Enum(M(initial_cluster_state), {"new", "existing"}), "", kCluster, "new or existing."},
      {"initial-cluster-token", FlagType::kString, String(M(initial_cluster_token)), "", kCluster,
       "Mixed into the ids of cluster and members."},
      {"discovery-token", FlagType::kString, String(M(discovery_token)), "discovery-config.token",
       kCluster, "Token of v3 discovery."},
      {"discovery-endpoints", FlagType::kStringList, List(M(discovery_endpoints)),
       "discovery-config.client.endpoints", kCluster, "Endpoints of v3 discovery."},
      {"discovery-dial-timeout", FlagType::kDuration, Duration(M(discovery_dial_timeout)),
       "discovery-config.client.dial-timeout", kCluster, "v3 discovery."},
      {"discovery-request-timeout", FlagType::kDuration, Duration(M(discovery_request_timeout)),
       "discovery-config.client.request-timeout", kCluster, "v3 discovery."},
      {"discovery-keepalive-time", FlagType::kDuration, Duration(M(discovery_keepalive_time)),
       "discovery-config.client.keepalive-time", kCluster, "v3 discovery."},
      {"discovery-keepalive-timeout", FlagType::kDuration, Duration(M(discovery_keepalive_timeout)),
       "discovery-config.client.keepalive-timeout", kCluster, "v3 discovery."},
      {"discovery-insecure-transport", FlagType::kBool, Bool(M(discovery_insecure_transport)),
       "discovery-config.client.secure.insecure-transport", kCluster, "v3 discovery."},
      {"discovery-insecure-skip-tls-verify", FlagType::kBool,
       Bool(M(discovery_insecure_skip_tls_verify)),
       "discovery-config.client.secure.insecure-skip-tls-verify", kCluster, "v3 discovery."},
      {"discovery-cert", FlagType::kString, String(M(discovery_cert)),
       "discovery-config.client.secure.cert", kCluster, "v3 discovery."},
      {"discovery-key", FlagType::kString, String(M(discovery_key)),
       "discovery-config.client.secure.key", kCluster, "v3 discovery."},
      {"discovery-cacert", FlagType::kString, String(M(discovery_cacert)),
       "discovery-config.client.secure.cacert", kCluster, "v3 discovery."},
      {"discovery-user", FlagType::kString, String(M(discovery_user)),
       "discovery-config.client.auth.username", kCluster, "v3 discovery."},
      {"discovery-password", FlagType::kString, String(M(discovery_password)),
       "discovery-config.client.auth.password", kCluster, "v3 discovery."},
      {"discovery-fallback", FlagType::kEnum, Enum(M(discovery_fallback), {"exit", "proxy"}), "-",
       kCluster, "Only exit is left."},
      {"discovery-srv", FlagType::kString, String(M(discovery_srv)), "", kCluster,
       "DNS domain to bootstrap from."},
      {"discovery-srv-name", FlagType::kString, String(M(discovery_srv_name)), "", kCluster,
       "Suffix of the SRV name."},
      {"strict-reconfig-check", FlagType::kBool, Bool(M(strict_reconfig_check)), "", kCluster,
       "Refuse changes that endanger the quorum."},
      {"pre-vote", FlagType::kBool, Bool(M(pre_vote)), "", kCluster,
       "Ask before starting an election."},
      {"auto-compaction-mode", FlagType::kString, String(M(auto_compaction_mode)), "", kCluster,
       "periodic or revision."},
      {"auto-compaction-retention", FlagType::kString, String(M(auto_compaction_retention)), "",
       kCluster, "Hours or a duration, or revisions; 0 is off."},
      {"v2-deprecation", FlagType::kEnum,
       Enum(M(v2_deprecation),
            {"write-only", "write-only-skip-check", "write-only-drop-data", "gone"}, true),
       "", kCluster, "Accepted and without effect."},
  };
  AddTransport(&f, false);
  AddTransport(&f, true);
  std::vector<Flag> rest = {
      {"self-signed-cert-validity", FlagType::kUint, Uint(M(self_signed_cert_validity)), "",
       kSecurity, "Years a self-made certificate is valid."},
      {"cipher-suites", FlagType::kStringList, List(M(cipher_suites)), "", kSecurity,
       "TLS 1.2 cipher suites by IANA name."},
      {"tls-min-version", FlagType::kString, String(M(tls_min_version)), "", kSecurity,
       "TLS1.2 or TLS1.3."},
      {"tls-max-version", FlagType::kString, String(M(tls_max_version)), "", kSecurity,
       "TLS1.2, TLS1.3, or empty."},
      {"cors", FlagType::kStringList, List(M(cors)), "", kSecurity, "Origins allowed by CORS."},
      {"host-whitelist", FlagType::kStringList, List(M(host_whitelist)), "", kSecurity,
       "Host headers accepted on plain HTTP."},
      {"auth-token", FlagType::kString, String(M(auth_token)), "", kSecurity,
       "simple, or jwt with its options."},
      {"bcrypt-cost", FlagType::kUint, Uint(M(bcrypt_cost)), "", kSecurity,
       "Cost of password hashes."},
      {"auth-token-ttl", FlagType::kUint, Uint(M(auth_token_ttl)), "", kSecurity,
       "Seconds a simple token lives."},

      {"enable-pprof", FlagType::kBool, Bool(M(enable_pprof)), "", kLogging,
       "Accepted; there is no Go profile to serve."},
      {"metrics", FlagType::kString, String(M(metrics)), "", kLogging, "basic or extensive."},
      {"logger", FlagType::kString, String(M(logger)), "", kLogging,
       "Only zap, the name of the log's shape."},
      {"log-outputs", FlagType::kStringList, List(M(log_outputs)), "", kLogging,
       "default, stderr, stdout, systemd/journal or files."},
      {"log-level", FlagType::kString, String(M(log_level)), "", kLogging,
       "debug, info, warn, error, panic or fatal."},
      {"log-format", FlagType::kString, String(M(log_format)), "", kLogging, "json or console."},
      {"enable-log-rotation", FlagType::kBool, Bool(M(enable_log_rotation)), "", kLogging,
       "Rotate the one log file."},
      {"log-rotation-config-json", FlagType::kString, String(M(log_rotation_json)), "", kLogging,
       "How to rotate."},
      {"enable-distributed-tracing", FlagType::kBool, Bool(M(enable_distributed_tracing)), "",
       kLogging, "Accepted; no spans are exported."},
      {"distributed-tracing-address", FlagType::kString, String(M(tracing_address)), "", kLogging,
       "Collector address."},
      {"distributed-tracing-service-name", FlagType::kString, String(M(tracing_service_name)), "",
       kLogging, "Service name of spans."},
      {"distributed-tracing-instance-id", FlagType::kString, String(M(tracing_instance_id)), "",
       kLogging, "Instance id of spans."},
      {"distributed-tracing-sampling-rate", FlagType::kInt, Int(M(tracing_sampling_rate)), "",
       kLogging, "Spans per million."},

      {"force-new-cluster", FlagType::kBool, Bool(M(force_new_cluster)), "", kUnsafe,
       "Become a one-member cluster from existing data."},
      {"unsafe-no-fsync", FlagType::kBool, Bool(M(unsafe_no_fsync)), "", kUnsafe,
       "Never sync; a crash may lose everything."},
      {"config-file", FlagType::kString, String(M(config_file)), "-", kUnsafe,
       "Read everything from this file instead."},
      {"version", FlagType::kBool, Bool(M(version)), "-", kUnsafe, "Print the version and exit."},
      {"engram-quota-counts-live-pages", FlagType::kBool, Bool(M(quota_counts_live_pages)), "",
       kUnsafe, "Free pages of the db file count as room."},
      {"engram-auto-disarm-nospace", FlagType::kBool, Bool(M(auto_disarm_no_space)), "", kUnsafe,
       "NOSPACE lifts itself once there is room."},
  };
  f.insert(f.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  for (const std::string_view name :
       {"cluster-active-size", "cluster-remove-delay", "cluster-sync-interval", "config", "force",
        "max-result-buffer", "max-retry-attempts", "peer-heartbeat-interval",
        "peer-election-timeout", "retry-interval", "snapshot", "v", "vv", "test.coverprofile",
        "test.outputdir"}) {
    f.push_back({name, FlagType::kIgnored, Ignore(), "-", "", ""});
  }
  return f;
}

std::string EnvironmentName(std::string_view flag) {
  std::string name = "ETCD_";
  for (const char c : flag) {
    name.push_back(c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return name;
}

ParseOutcome Refuse(std::string message, std::string_view program) {
  return {.exit_code = 2, .err = std::move(message) + "\n" + SynopsisText(program)};
}

}  // namespace

const std::vector<Flag>& Flags() {
  static const auto* const flags = new std::vector<Flag>(MakeFlags());
  return *flags;
}

const Flag* FindFlag(std::string_view name) {
  for (const Flag& flag : Flags()) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

ParseOutcome ParseArguments(const std::vector<std::string>& args, std::string_view program,
                            Config* config) {
  size_t i = 0;
  for (; i < args.size(); ++i) {
    std::string_view arg = args[i];
    if (arg.size() < 2 || arg[0] != '-') break;
    if (arg == "--") {
      ++i;
      break;
    }
    arg.remove_prefix(arg.starts_with("--") ? 2 : 1);
    const size_t equals = arg.find('=');
    const std::string_view name = arg.substr(0, equals);
    if (name.empty() || name[0] == '-') return Refuse("bad flag syntax: " + args[i], program);
    if (name == "h" || name == "help") {
      return {.exit_code = 0, .out = HelpText(program), .err = SynopsisText(program)};
    }
    const Flag* flag = FindFlag(name);
    if (flag == nullptr)
      return Refuse(fmt::format("flag provided but not defined: -{}", name), program);
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = arg.substr(equals + 1);
    } else if (flag->type == FlagType::kBool || flag->type == FlagType::kIgnored) {
      value = "true";
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      return Refuse(fmt::format("flag needs an argument: -{}", name), program);
    }
    if (const absl::Status set = flag->set(*config, value); !set.ok()) {
      return Refuse(fmt::format("invalid {}value {} for flag -{}: {}",
                                flag->type == FlagType::kBool ? "boolean " : "",
                                base::GoQuote(value), name, base::Message(set)),
                    program);
    }
    config->given[std::string(name)] = true;
  }
  if (i < args.size()) {
    // Reported as a log line, as etcd does it.
    config->given["\n" + args[i]] = true;
  }
  return {};
}

absl::Status ApplyEnvironment(const std::vector<std::string>& environment, Config* config) {
  for (const std::string& entry : environment) {
    if (!entry.starts_with("ETCD_")) continue;
    const size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : entry.substr(equals + 1);
    if (name == "ETCD_VERIFY" || name == "ETCD_UNSUPPORTED_ARCH" || name == "ETCD_CONFIG_FILE")
      continue;
    if (name == "ETCD_VERSION") {
      LOG_WARN("cannot set special environment variable", {"key", name}, {"value", value});
      continue;
    }
    const auto& flags = Flags();
    const auto flag = std::find_if(flags.begin(), flags.end(),
                                   [&](const Flag& f) { return EnvironmentName(f.name) == name; });
    if (flag == flags.end()) {
      LOG_WARN("unrecognized environment variable", {"environment-variable", entry});
      continue;
    }
    if (value.empty()) continue;
    if (config->IsGiven(std::string(flag->name))) {
      base::Log(base::LogLevel::kFatal, "", base::CallerText("flags/flag.cc", __LINE__),
                "conflicting environment variable is shadowed by corresponding command-line flag "
                "(either unset "
                "environment variable or disable flag))",
                {{"environment-variable", name}});
      return absl::InvalidArgumentError("");
    }
    if (const absl::Status set = flag->set(*config, value); !set.ok()) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument, "invalid value {} for {}: {}",
                              base::GoQuote(value), name, base::Message(set));
    }
    config->given[std::string(flag->name)] = true;
    LOG_INFO("recognized and used environment variable", {"variable-name", name},
             {"variable-value", value});
  }
  return absl::OkStatus();
}

std::string SynopsisText(std::string_view program) {
  return fmt::format(
      "Usage:\n\n"
      "  {0} [flags]\n    Start a server.\n\n"
      "  {0} --version\n    Show the version.\n\n"
      "  {0} -h | --help\n    Show all flags.\n\n"
      "  {0} --config-file\n    Path to a configuration file; other flags and environment "
      "variables are ignored then.\n",
      program);
}

std::string HelpText(std::string_view) {
  std::string out;
  std::string_view group;
  for (const Flag& flag : Flags()) {
    if (flag.type == FlagType::kIgnored) continue;
    if (flag.group != group) {
      group = flag.group;
      out += fmt::format("\n{}:\n", group);
    }
    out += fmt::format("  --{}\n    {}\n", flag.name, flag.help);
  }
  return out +
         "\nEvery flag has an environment variable: ETCD_ and its name in upper case, '-' as "
         "'_'.\n";
}

}  // namespace engram
