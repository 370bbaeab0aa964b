// Everything the server can be told, with etcd's names and defaults. Plain values, filled by flags,
// environment or a file before any thread starts. Source: reference programs.md 1.3.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/urls.h"

namespace engram {

// One transport's TLS files and rules.
struct TransportSecurity {
  std::string cert_file;
  std::string key_file;
  std::string client_cert_file;
  std::string client_key_file;
  bool client_cert_auth = false;
  std::string trusted_ca_file;
  std::string crl_file;
  std::vector<std::string> allowed_cn;
  std::vector<std::string> allowed_hostname;
  bool auto_tls = false;
  bool skip_client_san_verification = false;
};

struct Config {
  // Member
  std::string name = "default";
  std::string data_dir;
  std::string wal_dir;
  uint64_t snapshot_count = 10000;
  uint64_t snapshot_catchup_entries = 5000;
  uint64_t max_wals = 5;
  uint64_t max_snapshots = 5;
  uint64_t heartbeat_ms = 100;
  uint64_t election_ms = 1000;
  bool initial_election_tick_advance = true;
  std::vector<base::Url> listen_peer_urls;
  std::vector<base::Url> listen_client_urls;
  std::vector<base::Url> listen_client_http_urls;
  std::vector<base::Url> listen_metrics_urls;
  int64_t quota_backend_bytes = 0;
  std::string backend_freelist_type;
  base::Duration backend_batch_interval{};
  int64_t backend_batch_limit = 0;
  uint64_t max_txn_ops = 128;
  uint64_t max_request_bytes = 1572864;
  uint64_t max_concurrent_streams = 4294967295;
  base::Duration grpc_keepalive_min_time = std::chrono::seconds(5);
  base::Duration grpc_keepalive_interval = std::chrono::hours(2);
  base::Duration grpc_keepalive_timeout = std::chrono::seconds(20);
  bool reuse_port = false;
  bool reuse_address = false;
  base::Duration raft_read_timeout = std::chrono::seconds(5);
  base::Duration raft_write_timeout = std::chrono::seconds(5);
  bool enable_grpc_gateway = true;
  bool memory_mlock = false;
  std::string feature_gates;
  uint64_t bootstrap_defrag_threshold_mb = 0;
  int64_t max_learners = 1;
  base::Duration warning_apply_duration = std::chrono::milliseconds(100);
  base::Duration warning_unary_duration = std::chrono::milliseconds(300);
  base::Duration watch_progress_notify_interval{};
  int64_t compaction_batch_limit = 0;
  base::Duration compaction_sleep_interval{};
  base::Duration corrupt_check_time{};
  base::Duration compact_hash_check_time = std::chrono::minutes(1);
  base::Duration downgrade_check_time = std::chrono::seconds(5);

  // Clustering
  std::vector<base::Url> initial_advertise_peer_urls;
  std::vector<base::Url> advertise_client_urls;
  std::string initial_cluster;
  std::string initial_cluster_state = "new";
  std::string initial_cluster_token = "etcd-cluster";
  std::string discovery_token;
  std::vector<std::string> discovery_endpoints;
  base::Duration discovery_dial_timeout = std::chrono::seconds(2);
  base::Duration discovery_request_timeout = std::chrono::seconds(5);
  base::Duration discovery_keepalive_time = std::chrono::seconds(2);
  base::Duration discovery_keepalive_timeout = std::chrono::seconds(6);
  bool discovery_insecure_transport = true;
  bool discovery_insecure_skip_tls_verify = false;
  std::string discovery_cert;
  std::string discovery_key;
  std::string discovery_cacert;
  std::string discovery_user;
  std::string discovery_password;
  std::string discovery_fallback = "exit";
  std::string discovery_srv;
  std::string discovery_srv_name;
  bool strict_reconfig_check = true;
  bool pre_vote = true;
  std::string auto_compaction_mode = "periodic";
  std::string auto_compaction_retention = "0";
  std::string v2_deprecation = "write-only";

  // Security
  TransportSecurity client_tls;
  TransportSecurity peer_tls;
  uint64_t self_signed_cert_validity = 1;
  std::vector<std::string> cipher_suites;
  std::string tls_min_version = "TLS1.2";
  std::string tls_max_version;
  std::vector<std::string> cors = {"*"};
  std::vector<std::string> host_whitelist = {"*"};
  std::string auth_token = "simple";
  uint64_t bcrypt_cost = 10;
  uint64_t auth_token_ttl = 300;

  // Observability
  bool enable_pprof = false;
  std::string metrics = "basic";
  std::string logger = "zap";
  std::vector<std::string> log_outputs = {"default"};
  std::string log_level = "info";
  std::string log_format = "json";
  bool enable_log_rotation = false;
  std::string log_rotation_json =
      R"({"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false})";
  bool enable_distributed_tracing = false;
  std::string tracing_address = "localhost:4317";
  std::string tracing_service_name = "etcd";
  std::string tracing_instance_id;
  int64_t tracing_sampling_rate = 0;

  // Unsafe, and this program's own
  bool force_new_cluster = false;
  bool unsafe_no_fsync = false;
  std::string config_file;
  bool version = false;
  // Where Engram differs from etcd on request.
  bool quota_counts_live_pages = false;
  bool auto_disarm_no_space = false;

  // Filled by parsing: which flags were given, by name.
  std::map<std::string, bool> given;

  Config();
  bool IsGiven(const std::string& flag) const { return given.contains(flag); }
  base::Duration tick() const { return std::chrono::milliseconds(heartbeat_ms); }
};

// The feature gates with their defaults.
struct FeatureGate {
  std::string_view name;
  bool enabled;
  std::string_view stage;
};
// All gates with `text` ("A=true,B=false") applied; InvalidArgument with etcd's texts.
absl::StatusOr<std::vector<FeatureGate>> ResolveFeatureGates(std::string_view text);
bool IsEnabled(const std::vector<FeatureGate>& gates, std::string_view name);

}  // namespace engram
