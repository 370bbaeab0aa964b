#include "api/server_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"

namespace api {
namespace {

constexpr const char* kKnownPeers = "The current number of known peers.";

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

constexpr std::array<std::string_view, 17> kCodeNames = {
    "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated"};

std::string_view KindName(rpc::MethodKind kind) {
  switch (kind) {
    case rpc::MethodKind::kUnary:
      return "unary";
    case rpc::MethodKind::kClientStream:
      return "client_stream";
    case rpc::MethodKind::kServerStream:
      return "server_stream";
    case rpc::MethodKind::kBidiStream:
      return "bidi_stream";
  }
  return "unary";
}

double Seconds(base::Duration d) { return std::chrono::duration<double>(d).count(); }
double Milliseconds(base::Duration d) { return Seconds(d) * 1000; }

// Counts that may fall are gauges in etcd as well; this one only rises and mirrors a count kept
// elsewhere.
void RaiseTo(Counter& counter, uint64_t value) {
  const double missing = static_cast<double>(value) - counter.Value();
  if (missing > 0) counter.Increment(missing);
}

int CountOpenFiles() {
  DIR* dir = ::opendir("/proc/self/fd");
  if (dir == nullptr) return 0;
  int count = -3;  // ".", "..", and the directory itself
  while (::readdir(dir) != nullptr) ++count;
  ::closedir(dir);
  return count;
}

}  // namespace

struct ServerMetrics::Impl {
  base::Metrics& m;
  const MetricsOptions options;
  std::atomic<member::Member*> attached{nullptr};
  const WatchService* watch = nullptr;

  // S of the reference: 1 ms to 8.192 s.
  const std::vector<double> short_buckets = base::Metrics::Exponential(0.001, 2, 14);
  const std::vector<double> apply_buckets = base::Metrics::Exponential(0.0001, 2, 20);

  Gauge& has_leader;
  Gauge& is_leader;
  Gauge& is_learner;
  Counter& leader_changes;
  Gauge& committed;
  Gauge& applied;
  Gauge& pending;
  Counter& failed;
  Counter& slow_apply;
  Histogram& wal_fsync;
  Histogram& backend_commit;
  Histogram& rebalance;
  Histogram& spill;
  Histogram& write;
  Histogram& defrag;
  Gauge& defrag_inflight;
  Counter& health_success;
  Counter& health_failures;
  Counter& sent_bytes;
  Counter& received_bytes;
  Histogram& range_success;
  Histogram& compaction_total;
  Gauge& compaction_last;

  struct Method {
    Counter* started;
    Counter* received;
    Counter* sent;
    std::array<Counter*, 17> handled;
    Histogram* handling = nullptr;
    Histogram* request = nullptr;  // etcd_server_request_duration_seconds
    bool unary = false;
    Histogram* duration = nullptr;  // a metric of this method alone
  };
  std::map<std::string, Histogram*> by_method;  // Method::duration
  std::vector<Method> methods;                  // by MethodInfo::index

  std::mutex mutex;
  std::map<std::pair<std::string, bool>, Histogram*> apply;  // guarded by mutex
  std::map<std::pair<bool, std::string>, Counter*>
      client_requests;                             // guarded by mutex: (unary, version)
  std::map<std::string, Gauge*> cluster_versions;  // guarded by mutex
  uint64_t last_leader = 0;                        // consensus thread

  Impl(base::Metrics& metrics, MetricsOptions o)
      : m(metrics),
        options(std::move(o)),
        has_leader(m.Gauge("etcd_server_has_leader",
                           "Whether or not a leader exists. 1 is existence, 0 is not.")),
        is_leader(m.Gauge("etcd_server_is_leader",
                          "Whether or not this member is a leader. 1 if is, 0 otherwise.")),
        is_learner(m.Gauge("etcd_server_is_learner",
                           "Whether or not this member is a learner. 1 if is, 0 otherwise.")),
        leader_changes(m.Counter("etcd_server_leader_changes_seen_total", "Leader changes seen.")),
        committed(m.Gauge("etcd_server_proposals_committed_total", "Committed raft index.")),
        applied(m.Gauge("etcd_server_proposals_applied_total", "Applied raft index.")),
        pending(m.Gauge("etcd_server_proposals_pending", "Proposals waiting for their answer.")),
        failed(m.Counter("etcd_server_proposals_failed_total", "Proposals that failed.")),
        slow_apply(m.Counter("etcd_server_slow_apply_total",
                             "Applies slower than --warning-apply-duration.")),
        wal_fsync(m.Histogram("etcd_disk_wal_fsync_duration_seconds",
                              "WAL save durations, the fsync included.", short_buckets)),
        backend_commit(m.Histogram("etcd_disk_backend_commit_duration_seconds",
                                   "Backend commit durations.", short_buckets)),
        rebalance(m.Histogram("etcd_debugging_disk_backend_commit_rebalance_duration_seconds",
                              "Rebalance part of a commit.", short_buckets)),
        spill(m.Histogram("etcd_debugging_disk_backend_commit_spill_duration_seconds",
                          "Spill part of a commit.", short_buckets)),
        write(m.Histogram("etcd_debugging_disk_backend_commit_write_duration_seconds",
                          "Write part of a commit.", short_buckets)),
        defrag(m.Histogram("etcd_disk_backend_defrag_duration_seconds",
                           "Defragmentation durations.", base::Metrics::Exponential(0.1, 2, 13))),
        defrag_inflight(m.Gauge("etcd_disk_defrag_inflight", "Whether a defragmentation runs.")),
        health_success(m.Counter("etcd_server_health_success", "Successful health checks.")),
        health_failures(m.Counter("etcd_server_health_failures", "Failed health checks.")),
        sent_bytes(
            m.Counter("etcd_network_client_grpc_sent_bytes_total", "Bytes sent to gRPC clients.")),
        received_bytes(m.Counter("etcd_network_client_grpc_received_bytes_total",
                                 "Bytes received from gRPC clients.")),
        range_success(m.Histogram("etcd_server_range_duration_seconds", "Range durations.",
                                  apply_buckets, {{"success", "true"}})),
        compaction_total(
            m.Histogram("etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
                        "Compaction durations.", base::Metrics::Exponential(100, 2, 14))),
        compaction_last(m.Gauge("etcd_debugging_mvcc_db_compaction_last",
                                "Unix time of the last compaction.")) {
    // What exists in a member but has nothing to count here (no peers, no proxy, no v2 store) is
    // there with 0, since dashboards ask for it.
    for (const char* name :
         {"etcd_server_heartbeat_send_failures_total", "etcd_server_slow_read_indexes_total",
          "etcd_server_read_indexes_failed_total", "etcd_server_learner_promote_successes",
          "etcd_grpc_proxy_events_coalescing_total", "etcd_debugging_store_expires_total",
          "etcd_debugging_store_watch_requests_total",
          "etcd_debugging_server_lease_expired_total"}) {
      m.Counter(name, "Always 0 unless it has happened.");
    }
    for (const char* name :
         {"etcd_server_snapshot_apply_in_progress_total", "etcd_grpc_proxy_cache_keys_total",
          "etcd_grpc_proxy_cache_hits_total", "etcd_grpc_proxy_cache_misses_total",
          "etcd_grpc_proxy_watchers_coalescing_total", "etcd_debugging_store_watchers",
          "etcd_debugging_mvcc_pending_events_total", "etcd_debugging_auth_revision"}) {
      m.Gauge(name, "Always 0 where there is no such thing.");
    }
    for (const char* name :
         {"etcd_disk_wal_write_duration_seconds", "etcd_snap_fsync_duration_seconds",
          "etcd_snap_db_fsync_duration_seconds",
          "etcd_debugging_snap_save_marshalling_duration_seconds",
          "etcd_debugging_snap_save_total_duration_seconds",
          "etcd_debugging_server_watch_send_loop_watch_stream_duration_seconds",
          "etcd_debugging_server_watch_send_loop_control_stream_duration_seconds",
          "etcd_debugging_server_watch_send_loop_progress_duration_seconds",
          "etcd_debugging_server_watch_send_loop_watch_stream_duration_per_event_seconds"}) {
      m.Histogram(name, "See the etcd metric of this name.", short_buckets);
    }
    m.Histogram("etcd_snap_db_save_total_duration_seconds", "Received db snapshots.",
                base::Metrics::Exponential(0.1, 2, 10));
    by_method["Snapshot"] =
        &m.Histogram("etcd_disk_backend_snapshot_duration_seconds", "Backend snapshot durations.",
                     base::Metrics::Exponential(0.01, 2, 17));
    by_method["Hash"] = &m.Histogram("etcd_mvcc_hash_duration_seconds", "Hash durations.",
                                     base::Metrics::Exponential(0.01, 2, 15));
    by_method["HashKV"] = &m.Histogram("etcd_mvcc_hash_rev_duration_seconds", "HashKV durations.",
                                       base::Metrics::Exponential(0.01, 2, 15));
    by_method["Range"] = &range_success;
    m.Histogram("etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds",
                "Index compaction pauses.", base::Metrics::Exponential(0.5, 2, 14));
    m.Histogram("etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
                "Compaction pauses.", base::Metrics::Exponential(1, 2, 13));
    m.Histogram("etcd_debugging_lease_ttl_total", "Granted TTLs.",
                base::Metrics::Exponential(1, 2, 24));
    m.Gauge("etcd_server_version",
            "Which version is running. 1 for 'server_version' label with current version.",
            {{"server_version", options.version}})
        .Set(1);
    m.Gauge("etcd_server_go_version", "No Go here: the version of Engram.",
            {{"server_go_version", "engram" + options.engram_version}})
        .Set(1);
    m.Gauge("engram_version", "Engram's own version.", {{"version", options.engram_version}})
        .Set(1);
    for (const auto& [name, feature] : options.features) {
      m.Gauge("etcd_server_feature_enabled",
              "Whether or not a feature is enabled. 1 is enabled, 0 is not.",
              {{"name", name}, {"stage", feature.second}})
          .Set(feature.first ? 1 : 0);
    }
    MakeRuntimeNames();
  }

  // Dashboards and etcd's own suite ask for the names of the Go runtime; here they carry what comes
  // nearest, or 0.
  void MakeRuntimeNames() {
    for (const char* name : {"go_goroutines",
                             "go_threads",
                             "go_gc_gogc_percent",
                             "go_gc_gomemlimit_bytes",
                             "go_sched_gomaxprocs_threads",
                             "go_memstats_alloc_bytes",
                             "go_memstats_buck_hash_sys_bytes",
                             "go_memstats_gc_sys_bytes",
                             "go_memstats_heap_alloc_bytes",
                             "go_memstats_heap_idle_bytes",
                             "go_memstats_heap_inuse_bytes",
                             "go_memstats_heap_released_bytes",
                             "go_memstats_heap_sys_bytes",
                             "go_memstats_heap_objects",
                             "go_memstats_last_gc_time_seconds",
                             "go_memstats_mcache_inuse_bytes",
                             "go_memstats_mcache_sys_bytes",
                             "go_memstats_mspan_inuse_bytes",
                             "go_memstats_mspan_sys_bytes",
                             "go_memstats_next_gc_bytes",
                             "go_memstats_other_sys_bytes",
                             "go_memstats_stack_inuse_bytes",
                             "go_memstats_stack_sys_bytes",
                             "go_memstats_sys_bytes"}) {
      m.Gauge(name, "The Go runtime's name; there is no Go runtime here.");
    }
    for (const char* name : {"go_memstats_alloc_bytes_total", "go_memstats_frees_total",
                             "go_memstats_mallocs_total"}) {
      m.Counter(name, "The Go runtime's name; there is no Go runtime here.");
    }
    m.Gauge("go_info", "The Go runtime's name; there is no Go runtime here.", {{"version", "none"}})
        .Set(1);
    m.Histogram("go_gc_duration_seconds", "The Go runtime's name; there is no Go runtime here.",
                {1});
    m.Counter("promhttp_metric_handler_requests_total", "Scrapes.", {{"code", "200"}});
    m.Gauge("promhttp_metric_handler_requests_in_flight", "Scrapes being served.");
  }

  void Scrape() {
    m.Counter("promhttp_metric_handler_requests_total", "Scrapes.", {{"code", "200"}}).Increment();
    ScrapeProcess();
    member::Member* const member = attached.load(std::memory_order_acquire);
    if (member == nullptr) return;
    const mvcc::BackendSizes sizes = member->backend().sizes();
    const mvcc::StoreStats stats = member->store().stats();
    const lease::LeaseStats leases = member->lessor().stats();
    const mvcc::WatchStats watches = member->watch_hub().stats();
    const auto set = [this](const char* name, const char* help, auto value) {
      m.Gauge(name, help).Set(static_cast<double>(value));
    };
    const auto raise = [this](const char* name, const char* help, uint64_t value) {
      RaiseTo(m.Counter(name, help), value);
    };
    committed.Set(static_cast<double>(member->committed_index()));
    applied.Set(static_cast<double>(member->applied_index()));
    pending.Set(static_cast<double>(member->pending_proposals()));
    is_learner.Set(member->is_learner() ? 1 : 0);
    has_leader.Set(member->leader() != raft::kNoNode ? 1 : 0);
    is_leader.Set(member->is_leader() ? 1 : 0);
    set("etcd_server_quota_backend_bytes", "Current backend storage quota size in bytes.",
        member->quota_bytes());
    set("etcd_mvcc_db_total_size_in_bytes",
        "Total size of the underlying database physically allocated in bytes.", sizes.file_bytes);
    set("etcd_mvcc_db_total_size_in_use_in_bytes",
        "Total size of the underlying database logically in use in bytes.", sizes.in_use_bytes);
    set("etcd_mvcc_db_open_read_transactions", "Open read transactions.", sizes.open_readers);
    defrag_inflight.Set(sizes.defragmenting ? 1 : 0);
    set("etcd_debugging_mvcc_keys_total", "Total number of keys.", stats.live_keys);
    set("etcd_debugging_mvcc_current_revision", "The current revision of store.",
        stats.current_revision);
    set("etcd_debugging_mvcc_compact_revision", "The revision of the last compaction in store.",
        stats.compact_revision);
    set("engram_mvcc_index_bytes", "Memory of the key index.", stats.index_bytes);
    set("engram_backend_pending_bytes", "Writes that are not in the db file yet.",
        sizes.pending_bytes);
    raise("etcd_mvcc_put_total", "Total number of puts seen by this member.", stats.puts);
    raise("etcd_mvcc_delete_total", "Total number of deletes seen by this member.", stats.deletes);
    raise("etcd_mvcc_range_total", "Total number of ranges seen by this member.", stats.ranges);
    raise("etcd_mvcc_txn_total", "Total number of txns seen by this member.", stats.txns);
    raise("etcd_debugging_mvcc_db_compaction_keys_total", "Records removed by compactions.",
          stats.compacted_keys);
    raise("etcd_debugging_lease_granted_total", "The total number of granted leases.",
          leases.granted);
    raise("etcd_debugging_lease_revoked_total", "The total number of revoked leases.",
          leases.revoked);
    raise("etcd_debugging_lease_renewed_total", "The number of renewed leases seen by the leader.",
          leases.renewed);
    raise("etcd_debugging_server_lease_expired_total", "Always 0 unless it has happened.",
          leases.expired);
    set("etcd_debugging_mvcc_total_put_size_in_bytes", "Bytes of keys and values put.",
        stats.put_bytes);
    set("etcd_debugging_mvcc_watch_stream_total", "Total number of watch streams.",
        watch->streams());
    set("etcd_debugging_mvcc_watcher_total", "Total number of watchers.", watches.watchers);
    set("etcd_debugging_mvcc_slow_watcher_total", "Total number of unsynced slow watchers.",
        watches.slow_watchers);
    raise("etcd_debugging_mvcc_events_total", "Total number of events sent by this member.",
          watches.delivered);
    set("engram_watch_lag_revisions", "Revisions the slowest watcher is behind.", watches.max_lag);
    set("etcd_disk_wal_write_bytes_total", "Bytes written to the WAL.", member->wal_bytes());
    ScrapePeers(*member);
  }

  void ScrapePeers(const member::Member& member) {
    const std::string local = base::IdToHex(member.id());
    for (const peer::PeerFacts& peer : member.peers()) {
      const std::string remote = base::IdToHex(peer.id);
      const base::MetricLabels both = {{"Local", local}, {"Remote", remote}};
      m.Gauge("etcd_network_known_peers", kKnownPeers, both).Set(1);
      m.Gauge("etcd_network_active_peers", "The current number of active peer connections.", both)
          .Set(peer.active ? 1 : 0);
      RaiseTo(m.Counter("etcd_network_peer_sent_bytes_total",
                        "The total number of bytes sent to peers.", {{"To", remote}}),
              peer.sent_bytes);
      RaiseTo(m.Counter("etcd_network_peer_received_bytes_total",
                        "The total number of bytes received from peers.", {{"From", remote}}),
              peer.received_bytes);
    }
  }

  void ScrapeProcess() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const double cpu = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    Counter& seconds =
        m.Counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.");
    if (cpu > seconds.Value()) seconds.Increment(cpu - seconds.Value());
    std::ifstream statm("/proc/self/statm");
    double pages = 0;
    double resident = 0;
    statm >> pages >> resident;
    const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
    m.Gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.").Set(pages * page);
    m.Gauge("process_resident_memory_bytes", "Resident memory size in bytes.").Set(resident * page);
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    m.Gauge("process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.")
        .Set(static_cast<double>(limit.rlim_cur));
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const int open = CountOpenFiles();
    m.Gauge("process_open_fds", "Number of open file descriptors.").Set(open);
    m.Gauge("process_max_fds", "Maximum number of open file descriptors.")
        .Set(static_cast<double>(limit.rlim_cur));
    m.Gauge("os_fd_used", "The number of used file descriptors.").Set(open);
    m.Gauge("os_fd_limit", "The file descriptor limit.").Set(static_cast<double>(limit.rlim_cur));
    static const double start = [] {
      timespec now{};
      ::clock_gettime(CLOCK_REALTIME, &now);
      return static_cast<double>(now.tv_sec);
    }();
    m.Gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")
        .Set(start);
  }
};

ServerMetrics::ServerMetrics(base::Metrics& metrics, MetricsOptions options)
    : impl_(std::make_unique<Impl>(metrics, std::move(options))) {}

ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::Attach(member::Member& member, const WatchService& watch) {
  impl_->watch = &watch;
  impl_->attached.store(&member, std::memory_order_release);
  impl_->m
      .Gauge("etcd_server_id",
             "Server or member ID in hexadecimal format. 1 for 'server_id' label with current ID.",
             {{"server_id", base::IdToHex(member.id())}})
      .Set(1);
  impl_->m
      .Gauge("etcd_network_known_peers", kKnownPeers,
             {{"Local", base::IdToHex(member.id())}, {"Remote", base::IdToHex(member.id())}})
      .Set(1);
  if (const auto view = member.membership(); !view->cluster_version.empty())
    OnClusterVersion(view->cluster_version);
  impl_->m.OnScrape([impl = impl_.get()] { impl->Scrape(); });
}

void ServerMetrics::AttachMethods(const std::vector<const rpc::MethodInfo*>& methods) {
  base::Metrics& m = impl_->m;
  for (const rpc::MethodInfo* info : methods) {
    const base::MetricLabels labels = {{"grpc_type", std::string(KindName(info->kind))},
                                       {"grpc_service", info->service},
                                       {"grpc_method", info->name}};
    Impl::Method method{
        .started = &m.Counter("grpc_server_started_total",
                              "Total number of RPCs started on the server.", labels),
        .received =
            &m.Counter("grpc_server_msg_received_total",
                       "Total number of RPC stream messages received on the server.", labels),
        .sent = &m.Counter("grpc_server_msg_sent_total",
                           "Total number of gRPC stream messages sent by the server.", labels),
        .handled = {},
        .unary = info->kind == rpc::MethodKind::kUnary,
        .duration = nullptr};
    if (const auto own = impl_->by_method.find(info->name); own != impl_->by_method.end()) {
      method.duration = own->second;
    }
    for (size_t i = 0; i < kCodeNames.size(); ++i) {
      base::MetricLabels with_code = labels;
      with_code["grpc_code"] = kCodeNames[i];
      method.handled[i] = &m.Counter(
          "grpc_server_handled_total",
          "Total number of RPCs completed on the server, regardless of success or failure.",
          with_code);
    }
    if (impl_->options.extensive) {
      method.handling =
          &m.Histogram("grpc_server_handling_seconds", "Response latency of gRPC calls.",
                       {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, labels);
    }
    static const std::map<std::string, std::string, std::less<>> kRequestTypes = {
        {"Range", "Range"},
        {"Put", "Put"},
        {"DeleteRange", "DeleteRange"},
        {"Txn", "Txn"},
        {"Compact", "Compaction"},
        {"LeaseGrant", "LeaseGrant"},
        {"LeaseRevoke", "LeaseRevoke"},
        {"Alarm", "Alarm"}};
    if (const auto it = kRequestTypes.find(info->name); it != kRequestTypes.end()) {
      method.request =
          &m.Histogram("etcd_server_request_duration_seconds", "Request durations.",
                       impl_->short_buckets, {{"type", it->second}, {"success", "true"}});
    }
    if (impl_->methods.size() <= info->index) impl_->methods.resize(info->index + 1);
    impl_->methods[info->index] = method;
  }
}

void ServerMetrics::OnCallStart(rpc::Call& call) {
  const Impl::Method& method = impl_->methods[call.method().index];
  method.started->Increment();
  std::string_view version = call.Metadata("client-api-version");
  if (version.empty()) version = "unknown";
  // Few versions exist, so the last one seen is nearly always right and needs no look-up.
  struct Last {
    std::string version;
    Counter* counters[2] = {};
    Impl* owner = nullptr;
  };
  thread_local Last last;
  if (last.version != version || last.owner != impl_.get()) {
    const std::lock_guard lock(impl_->mutex);
    last.version = version;
    last.owner = impl_.get();
    for (const bool unary : {false, true}) {
      last.counters[unary ? 1 : 0] = &impl_->m.Counter(
          "etcd_server_client_requests_total",
          "The total number of client requests per client version.",
          {{"type", unary ? "unary" : "stream"}, {"client_api_version", last.version}});
    }
  }
  last.counters[method.unary ? 1 : 0]->Increment();
}

void ServerMetrics::OnCallEnd(const rpc::CallSummary& summary) {
  const Impl::Method& method = impl_->methods[summary.method.index];
  const auto code = static_cast<size_t>(summary.code);
  if (code < method.handled.size()) method.handled[code]->Increment();
  method.received->Increment(static_cast<double>(summary.messages_received));
  method.sent->Increment(static_cast<double>(summary.messages_sent));
  impl_->received_bytes.Increment(static_cast<double>(summary.payload_bytes_received));
  impl_->sent_bytes.Increment(static_cast<double>(summary.payload_bytes_sent));
  if (method.handling != nullptr) method.handling->Observe(Seconds(summary.took));
  if (method.request != nullptr) method.request->Observe(Seconds(summary.took));
  if (method.duration != nullptr) method.duration->Observe(Seconds(summary.took));
}

void ServerMetrics::OnHealth(bool success) {
  (success ? impl_->health_success : impl_->health_failures).Increment();
}

void ServerMetrics::OnCheck(std::string_view type, std::string_view name, bool success) {
  const std::string t(type);
  const std::string n(name);
  impl_->m
      .Gauge("etcd_server_healthcheck", "The result of each kind of healthcheck.",
             {{"type", t}, {"name", n}})
      .Set(success ? 1 : 0);
  impl_->m
      .Counter("etcd_server_healthchecks_total", "The total number of each kind of healthcheck.",
               {{"type", t}, {"name", n}, {"status", success ? "success" : "error"}})
      .Increment();
}

void ServerMetrics::OnApplied(std::string_view op, base::Duration took, bool success) {
  // The apply thread and, when idle, the consensus thread; never both at once, so the cache needs
  // no lock of its own.
  struct Last {
    std::string op;
    Histogram* by_success[2] = {};
    Impl* owner = nullptr;
  };
  thread_local Last last;
  if (last.op != op || last.owner != impl_.get()) {
    const std::lock_guard lock(impl_->mutex);
    last.op = op;
    last.owner = impl_.get();
    for (const bool ok : {false, true}) {
      Histogram*& histogram = impl_->apply[{last.op, ok}];
      if (histogram == nullptr) {
        histogram = &impl_->m.Histogram(
            "etcd_server_apply_duration_seconds", "Apply durations.", impl_->apply_buckets,
            {{"version", "v3"}, {"op", last.op}, {"success", ok ? "true" : "false"}});
      }
      last.by_success[ok ? 1 : 0] = histogram;
    }
  }
  last.by_success[success ? 1 : 0]->Observe(Seconds(took));
  if (took > impl_->options.warning_apply_duration) {
    impl_->slow_apply.Increment();
    LOG_WARN("apply request took too long", {"took", base::DurationText(took)},
             {"expected-duration", base::DurationText(impl_->options.warning_apply_duration)},
             {"request", op}, {"success", success});
  }
}

void ServerMetrics::OnAlarm(const member::Alarm& alarm, bool active) {
  auto& gauge = impl_->m.Gauge("etcd_debugging_server_alarms", "Active alarms.",
                               {{"server_id", base::IdToHex(alarm.member_id)},
                                {"alarm_type", alarm.type == 1 ? "NOSPACE" : "CORRUPT"}});
  gauge.Set(active ? 1 : 0);
  if (active) {
    LOG_WARN("alarm raised", {"alarm", alarm.type == 1 ? "NOSPACE" : "CORRUPT"},
             {"from", base::IdToHex(alarm.member_id)});
  } else {
    LOG_WARN("alarm disarmed", {"alarm", alarm.type == 1 ? "NOSPACE" : "CORRUPT"},
             {"from", base::IdToHex(alarm.member_id)});
  }
}

void ServerMetrics::OnClusterVersion(const std::string& version) {
  const std::lock_guard lock(impl_->mutex);
  for (auto& [v, gauge] : impl_->cluster_versions) gauge->Set(0);
  Gauge*& gauge = impl_->cluster_versions[version];
  if (gauge == nullptr) {
    gauge = &impl_->m.Gauge(
        "etcd_cluster_version",
        "Which version is running. 1 for 'cluster_version' label with current cluster version",
        {{"cluster_version", version.substr(0, version.rfind('.'))}});
  }
  gauge->Set(1);
  LOG_INFO("set initial cluster version", {"cluster-version", version});
  LOG_INFO("enabled capabilities for version", {"cluster-version", version});
  LOG_INFO("cluster version is updated", {"cluster-version", version});
  LOG_INFO("updated storage version", {"new-storage-version", version});
}

void ServerMetrics::OnMembership(const std::string& what, const cluster::Member& member) {
  LOG_INFO(what, {"added-peer-id", base::IdToHex(member.id)},
           {"added-peer-peer-urls", member.peer_urls},
           {"added-peer-is-learner", member.is_learner});
}

void ServerMetrics::OnCompactionFinished(int64_t revision, base::Duration took) {
  impl_->compaction_total.Observe(Milliseconds(took));
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  impl_->compaction_last.Set(static_cast<double>(now.tv_sec));
  LOG_INFO("finished scheduled compaction", {"compact-revision", revision},
           {"took", base::DurationText(took)});
}

void ServerMetrics::OnBatchEnd() {
  if (on_batch_end) on_batch_end();
}

void ServerMetrics::OnSoftState(uint64_t leader, raft::Role role, uint64_t term) {
  if (leader != raft::kNoNode && leader != impl_->last_leader) impl_->leader_changes.Increment();
  const uint64_t before = std::exchange(impl_->last_leader, leader);
  impl_->has_leader.Set(leader != raft::kNoNode ? 1 : 0);
  impl_->is_leader.Set(role == raft::Role::kLeader ? 1 : 0);
  const member::Member* const member = impl_->attached.load(std::memory_order_acquire);
  const std::string self = base::IdToHex(member == nullptr ? leader : member->id());
  if (role == raft::Role::kLeader) {
    ENGRAM_LOG(base::LogLevel::kInfo, "raft",
               fmt::format("{} became leader at term {}", self, term));
  }
  if (leader != raft::kNoNode && leader != before) {
    ENGRAM_LOG(base::LogLevel::kInfo, "raft",
               fmt::format("raft.node: {} elected leader {} at term {}", self,
                           base::IdToHex(leader), term));
  }
}

void ServerMetrics::OnFsync(base::Duration took) {
  impl_->wal_fsync.Observe(Seconds(took));
  if (took > std::chrono::seconds(1)) {
    LOG_WARN("slow fdatasync", {"took", base::DurationText(took)}, {"expected-duration", "1s"});
  }
}

void ServerMetrics::OnSnapshotSaved(uint64_t) {}

void ServerMetrics::OnRemoved() {
  if (on_removed) on_removed();
}

void ServerMetrics::OnFatal(const absl::Status& status) {
  if (on_fatal) on_fatal(status);
}

void ServerMetrics::OnCommit(const Commit& commit) {
  impl_->backend_commit.Observe(Seconds(commit.total));
  impl_->rebalance.Observe(Seconds(commit.rebalance));
  impl_->spill.Observe(Seconds(commit.spill));
  impl_->write.Observe(Seconds(commit.write));
}

void ServerMetrics::OnDefragment(base::Duration took, const absl::Status&) {
  impl_->defrag.Observe(Seconds(took));
}

}  // namespace api
