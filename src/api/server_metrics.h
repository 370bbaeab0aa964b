// etcd's metrics for all that exists here, and the observer that feeds them. Counters are
// thread-safe; gauges that mirror state are refreshed at each scrape. Names, labels and buckets:
// reference client-api.md 9.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/watch.h"
#include "base/metrics.h"
#include "member/member.h"
#include "rpc/server.h"

namespace api {

struct MetricsOptions {
  std::string version = "3.7.3";
  std::string engram_version;
  bool extensive = false;  // gRPC handling times
  base::Duration warning_apply_duration = std::chrono::milliseconds(100);
  std::vector<std::pair<std::string, std::pair<bool, std::string>>>
      features;  // name -> (enabled, stage)
};

class ServerMetrics final : public member::MemberObserver {
 public:
  ServerMetrics(base::Metrics& metrics, MetricsOptions options);
  ~ServerMetrics() override;

  // The owner's part of observing. Set before the member starts.
  std::function<void()> on_batch_end;
  std::function<void(const absl::Status&)> on_fatal;
  std::function<void()> on_removed;

  // Once the member runs; makes the labelled series and the scrape hook.
  void Attach(member::Member& member, const WatchService& watch);
  // Once all methods are registered.
  void AttachMethods(const std::vector<const rpc::MethodInfo*>& methods);

  // Interceptors.
  void OnCallStart(rpc::Call& call);
  void OnCallEnd(const rpc::CallSummary& summary);
  void OnHealth(bool success);
  void OnCheck(std::string_view type, std::string_view name, bool success);

  // member::MemberObserver
  void OnApplied(std::string_view op, base::Duration took, bool success) override;
  void OnAlarm(const member::Alarm& alarm, bool active) override;
  void OnClusterVersion(const std::string& version) override;
  void OnMembership(const std::string& what, const cluster::Member& member) override;
  void OnCompactionFinished(int64_t revision, base::Duration took) override;
  void OnBatchEnd() override;
  void OnSoftState(uint64_t leader, raft::Role role, uint64_t term) override;
  void OnFsync(base::Duration took) override;
  void OnSnapshotSaved(uint64_t index) override;
  void OnFatal(const absl::Status& status) override;
  void OnRemoved() override;
  void OnCommit(const Commit& commit) override;
  void OnDefragment(base::Duration took, const absl::Status& status) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace api
