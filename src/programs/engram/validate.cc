#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/go_text.h"
#include "base/log.h"
#include "base/status.h"
#include "flags.h"
#include "net/tls.h"

namespace engram {
namespace {

absl::Status Invalid(std::string text) { return absl::InvalidArgumentError(text); }

absl::Status CheckBindable(const std::vector<base::Url>& urls) {
  for (const base::Url& url : urls) {
    if (!base::IsBindable(url))
      return Invalid(fmt::format("expected IP in URL for binding ({})", url.Text()));
  }
  return absl::OkStatus();
}

absl::Status CheckLogging(const Config& c) {
  if (c.logger == "capnslog") return Invalid("--logger=capnslog is removed in v3.5");
  if (c.logger != "zap")
    return Invalid(fmt::format("unknown logger option {}", base::GoQuote(c.logger)));
  if (c.log_format != "json" && c.log_format != "console") {
    return Invalid(
        fmt::format("unknown log format: {}, supported values json, console", c.log_format));
  }
  base::LogLevel level{};
  if (!base::ParseLogLevel(c.log_level, &level)) {
    return Invalid(fmt::format("unrecognized level: {}", base::GoQuote(c.log_level)));
  }
  if (c.log_outputs.empty()) return Invalid("no log output is given");
  if (c.log_outputs.size() > 1 &&
      std::find(c.log_outputs.begin(), c.log_outputs.end(), "default") != c.log_outputs.end()) {
    return Invalid("multi logoutput for \"default\" is not supported yet");
  }
  if (c.enable_log_rotation) {
    const auto files =
        std::count_if(c.log_outputs.begin(), c.log_outputs.end(), [](const std::string& o) {
          return o != "default" && o != "stderr" && o != "stdout" && o != "systemd/journal";
        });
    if (files != 1 || c.log_outputs.size() != 1) {
      return Invalid(
          "--log-outputs requires a single file path when --log-rotate-config-json is defined");
    }
    const auto json = nlohmann::json::parse(c.log_rotation_json, nullptr, false);
    if (!json.is_object())
      return Invalid("improperly formatted log rotation config: " + c.log_rotation_json);
  }
  return absl::OkStatus();
}

absl::Status CheckTimes(const Config& c) {
  if (c.heartbeat_ms == 0) return Invalid("--heartbeat-interval must be >0 (set to 0ms)");
  if (c.election_ms == 0) return Invalid("--election-timeout must be >0 (set to 0ms)");
  if (5 * c.heartbeat_ms > c.election_ms) {
    return Invalid(fmt::format(
        "--election-timeout[{}ms] should be at least as 5 times as --heartbeat-interval[{}ms]",
        c.election_ms, c.heartbeat_ms));
  }
  constexpr uint64_t kElectionMsMax = 50000;
  if (c.election_ms > kElectionMsMax) {
    return Invalid(
        fmt::format("--election-timeout[{}ms] is too long, and should be set less than {}ms",
                    c.election_ms, kElectionMsMax));
  }
  return absl::OkStatus();
}

absl::Status CheckDiscovery(const Config& c) {
  const int sources = (c.initial_cluster.empty() ? 0 : 1) + (c.discovery_srv.empty() ? 0 : 1) +
                      (c.discovery_endpoints.empty() ? 0 : 1);
  if (sources > 1) {
    return Invalid(
        "multiple discovery or bootstrap flags are set. Choose one of \"initial-cluster\", "
        "\"discovery-endpoints\" or \"discovery-srv\"");
  }
  if (c.discovery_token.empty() != c.discovery_endpoints.empty()) {
    return Invalid("both --discovery-token and --discovery-endpoints must be set");
  }
  for (const std::string& endpoint : c.discovery_endpoints) {
    if (endpoint.empty()) return Invalid("--discovery-endpoints must not contain empty endpoints");
  }
  return absl::OkStatus();
}

absl::Status CheckTls(const Config& c) {
  for (const std::string& version : {c.tls_min_version, c.tls_max_version}) {
    if (!version.empty() && version != "TLS1.2" && version != "TLS1.3") {
      return Invalid(fmt::format("unexpected TLS version {} (must be one of: TLS1.2, TLS1.3)",
                                 base::GoQuote(version)));
    }
  }
  if (!c.tls_max_version.empty() && c.tls_min_version > c.tls_max_version) {
    return Invalid(fmt::format("min version ({}) is greater than max version ({})",
                               c.tls_min_version, c.tls_max_version));
  }
  if (c.tls_min_version == "TLS1.3" && !c.cipher_suites.empty()) {
    return Invalid("cipher suites cannot be configured when only TLS1.3 is enabled");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DeriveDefaults(Config* c) {
  const bool default_cluster = !c->IsGiven("initial-cluster");
  if (!c->discovery_srv.empty() || !c->discovery_endpoints.empty()) {
    if (default_cluster) c->initial_cluster.clear();
  } else if (default_cluster && c->name != "default") {
    c->initial_cluster.clear();
    for (const base::Url& url : c->initial_advertise_peer_urls) {
      if (!c->initial_cluster.empty()) c->initial_cluster += ",";
      c->initial_cluster += c->name + "=" + url.Text();
    }
  }
  if (c->data_dir.empty()) {
    c->data_dir = c->name + ".etcd";
    LOG_WARN("'data-dir' was empty; using default", {"data-dir", c->data_dir});
  }
  return absl::OkStatus();
}

absl::Status Validate(const Config& c) {
  for (const auto& [name, given] : c.given) {
    if (name.starts_with("\n"))
      return Invalid(fmt::format("{} is not a valid flag", base::GoQuote(name.substr(1))));
  }
  RETURN_IF_ERROR(CheckLogging(c));
  RETURN_IF_ERROR(CheckBindable(c.listen_peer_urls));
  RETURN_IF_ERROR(CheckBindable(c.listen_client_urls));
  RETURN_IF_ERROR(CheckBindable(c.listen_client_http_urls));
  if (c.listen_client_http_urls.empty()) {
    LOG_WARN(
        "Running http and grpc server on single port. This is not recommended for production.");
  }
  RETURN_IF_ERROR(CheckBindable(c.listen_metrics_urls));
  for (const base::Url& url : c.initial_advertise_peer_urls) {
    if (!url.is_unix() && url.host.empty()) {
      return Invalid(fmt::format(
          "--initial-advertise-peer-urls {} must be \"host:port\" (unexpected empty host ({}))",
          base::GoQuote(base::JoinUrls(c.initial_advertise_peer_urls, ",")), url.Text()));
    }
  }
  for (const base::Url& url : c.advertise_client_urls) {
    if (!url.is_unix() && url.host.empty()) {
      return Invalid(
          fmt::format("--advertise-client-urls {} must be in the format \"host:port\", "
                      "\"unix:/path/to/socket\" or "
                      "\"unixs:/path/to/socket\" (unexpected empty host ({}))",
                      base::GoQuote(base::JoinUrls(c.advertise_client_urls, ",")), url.Text()));
    }
  }
  RETURN_IF_ERROR(CheckDiscovery(c));
  RETURN_IF_ERROR(CheckTimes(c));
  if (c.IsGiven("listen-client-urls") && !c.IsGiven("advertise-client-urls")) {
    return Invalid(
        "--advertise-client-urls is required when --listen-client-urls is set explicitly");
  }
  if (c.auto_compaction_mode.empty()) return Invalid("undefined auto-compaction-mode");
  if (c.auto_compaction_mode != "periodic" && c.auto_compaction_mode != "revision") {
    return Invalid(
        fmt::format("unknown auto-compaction-mode {}", base::GoQuote(c.auto_compaction_mode)));
  }
  if (c.tracing_sampling_rate < 0 || c.tracing_sampling_rate > 1000000) {
    return Invalid(
        "distributed tracing configurition is not valid: (tracing sampling rate must be less than "
        "1000000)");
  }
  ASSIGN_OR_RETURN(const auto gates, ResolveFeatureGates(c.feature_gates));
  if (IsEnabled(gates, "LeaseCheckpointPersist") && !IsEnabled(gates, "LeaseCheckpoint")) {
    return Invalid(
        "enabling feature gate LeaseCheckpointPersist requires enabling feature gate "
        "LeaseCheckpoint");
  }
  if (c.compact_hash_check_time <= base::Duration{}) {
    return Invalid(fmt::format("--compact-hash-check-time must be >0 (set to {})",
                               base::DurationText(c.compact_hash_check_time)));
  }
  return CheckTls(c);
}

absl::StatusOr<Retention> ParseRetention(const Config& c) {
  Retention retention;
  const std::string& text = c.auto_compaction_retention;
  if (text.empty()) return retention;
  if (const auto number = base::ParseGoInt(text); number) {
    if (c.auto_compaction_mode == "periodic") {
      retention.period = std::chrono::hours(*number);
    } else {
      retention.revisions = *number;
    }
    return retention;
  }
  const auto duration = base::ParseGoDuration(text);
  if (!duration) {
    return Invalid(fmt::format("error parsing CompactionRetention: time: invalid duration {}",
                               base::GoQuote(text)));
  }
  if (c.auto_compaction_mode == "periodic") {
    retention.period = *duration;
  } else {
    retention.revisions = duration->count();
  }
  return retention;
}

}  // namespace engram
