// What a member is started with. Plain values; the pointers are seams for tests. No thread of its
// own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"

namespace member {

enum class AutoCompactionMode { kPeriodic, kRevision };

struct MemberOptions {
  std::string name = "default";
  std::string data_dir;
  std::string wal_dir;                                              // empty: <data_dir>/member/wal
  std::vector<std::string> peer_urls;                               // advertised
  std::vector<std::string> client_urls;                             // advertised
  std::map<std::string, std::vector<std::string>> initial_cluster;  // name -> peer URLs
  std::string cluster_token = "etcd-cluster";
  bool force_new_cluster = false;
  // --initial-cluster-state existing: a member without a log joins the cluster that the others of
  // initial_cluster form already.
  bool join_existing = false;

  base::Duration tick = std::chrono::milliseconds(100);
  int election_ticks = 10;
  bool pre_vote = true;
  uint64_t snapshot_count = 10000;
  uint64_t snapshot_catchup_entries = 5000;
  // The raft log kept in memory beyond what was snapshotted; reaching it brings the next snapshot
  // forward.
  uint64_t log_bytes_max = 64 << 20;
  uint64_t wal_segment_bytes = 0;  // 0: 64 MB, as etcd; smaller in tests only
  uint64_t max_wals = 5;
  uint64_t max_snapshots = 5;

  bool strict_reconfig_check = true;  // refuse membership changes that endanger the quorum
  size_t max_learners = 1;

  uint64_t max_request_bytes = 1572864;
  int64_t quota_bytes = 0;                  // 0: 2 GiB; negative: none
  bool quota_counts_live_pages = false;     // instead of the file's size
  bool auto_disarm_no_space = false;        // NOSPACE lifts itself once there is room
  base::Duration backend_batch_interval{};  // 0: 100 ms
  uint64_t backend_batch_limit = 0;         // 0: 10,000
  uint64_t compaction_batch_limit = 0;      // 0: the store's choice
  base::Duration compaction_sleep{};        // 0: the store's choice
  bool no_fsync = false;

  AutoCompactionMode auto_compaction_mode = AutoCompactionMode::kPeriodic;
  base::Duration auto_compaction_period{};  // periodic; 0: off
  int64_t auto_compaction_revisions = 0;    // revision; 0: off

  bool lease_checkpoints = false;
  bool lease_checkpoints_persist = false;

  std::string version = "3.7.3";  // the etcd version this member stands for

  base::Files* files = nullptr;
  base::Clock* clock = nullptr;
  base::Random* random = nullptr;
  // False: nothing runs by itself; Member::RunOnce() does a step of everything (simulation).
  bool threads = true;
};

inline constexpr int64_t kDefaultQuotaBytes = 2LL << 30;

}  // namespace member
