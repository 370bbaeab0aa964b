#include "sim/process.h"

#include <utility>

#include "base/status.h"

namespace sim {
namespace {

class CallbackProposal final : public member::Proposal {
 public:
  explicit CallbackProposal(Process::Answered answered) : answered_(std::move(answered)) {}
  void Done(member::ApplyResult result) override { answered_(result); }

 private:
  const Process::Answered answered_;
};

}  // namespace

Tuning Tuning::Draw(base::Random& random) {
  Tuning t;
  t.snapshot_count = 5 + random.Below(50);
  t.catchup_entries = 1 + random.Below(20);
  t.wal_segment_bytes = 4096 * (1 + random.Below(6));
  t.max_wals = 1 + random.Below(4);
  t.batch_operations = random.OneIn(3) ? 1 + random.Below(5) : 0;
  t.batch_interval = std::chrono::milliseconds(5 + random.Below(200));
  t.compaction_batch = 1 + random.Below(12);
  t.lease_checkpoints = random.OneIn(3);
  return t;
}

absl::Status Process::Start() {
  member::MemberOptions options;
  options.name = "sim";
  options.data_dir = kDataDir;
  options.peer_urls = {"http://127.0.0.1:2380"};
  options.client_urls = {"http://127.0.0.1:2379"};
  options.initial_cluster = {{"sim", options.peer_urls}};
  options.snapshot_count = tuning_.snapshot_count;
  options.snapshot_catchup_entries = tuning_.catchup_entries;
  options.wal_segment_bytes = tuning_.wal_segment_bytes;
  options.max_wals = tuning_.max_wals;
  options.max_snapshots = 2;
  options.backend_batch_interval = tuning_.batch_interval;
  options.backend_batch_limit = tuning_.batch_operations;
  options.compaction_batch_limit = tuning_.compaction_batch;
  options.lease_checkpoints = tuning_.lease_checkpoints;
  options.lease_checkpoints_persist = tuning_.lease_checkpoints;
  options.files = &files_;
  options.clock = &clock_;
  options.random = &random_;
  options.threads = false;
  ASSIGN_OR_RETURN(member_, member::Member::Start(std::move(options), *this, *this));
  return absl::OkStatus();
}

void Process::Step(base::Duration passed) {
  clock_.now += passed;
  member_->RunOnce();
}

absl::Status Process::Stop() {
  absl::Status stopped = member_->Stop();
  Kill();
  return stopped;
}

void Process::Propose(member::RequestKind kind, std::string_view message, Answered answered) {
  member_->Propose(kind, message, std::make_unique<CallbackProposal>(std::move(answered)));
}

bool Process::InDefragmentation() {
  if (!member_->backend().sizes().defragmenting) return false;
  const auto names = files_.List(base::DirName(kDbPath));
  if (!names.ok()) return false;
  for (const std::string& name : *names) {
    if (name.starts_with("db.tmp.")) return true;
  }
  return false;
}

}  // namespace sim
