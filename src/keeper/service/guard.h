// One cluster under guard: decides which history it tells, takes fulls and keeps the archive, and
// hands everything to the depot. Attach() first. Backup() may be called from any thread, one call
// at a time runs; Run() takes a thread until Stop().
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bundle/check.h"
#include "bundle/take.h"
#include "capture/archiver.h"
#include "capture/full.h"
#include "capture/source_health.h"
#include "catalog/inventory.h"
#include "config/config.h"
#include "depot/depot.h"
#include "ledger/log.h"
#include "service/clock_watch.h"
#include "service/setup.h"
#include "service/state_file.h"

namespace service {

class Requests;
enum class Wanted;

struct BackupResult {
  catalog::Object object;  // as it was submitted
  capture::MemberState member;
  base::Duration received_in{0};
  bool yielded = false;  // it was read slowly for those who wrote meanwhile
};

struct BundleResult {
  catalog::Object object;
  bundle::Taken taken;
  bundle::Report report;
};

// What a status page and the metrics tell. Times are wall clock; 0: never.
struct GuardState {
  std::string cluster;
  catalog::Timeline timeline;
  std::string error;  // why the cluster or the archive is not guarded at the moment
  int64_t archived_revision = 0;
  // How long ago the newest moment was that can be restored, by the steady clock; none: never.
  std::optional<base::Duration> uncovered_for;
  catalog::Time last_full_at{0};
  int64_t last_full_revision = 0;
  int64_t newest_proven_revision = 0;
  catalog::Time newest_proven_at{0};
  uint64_t holes = 0;   // found by this process
  std::string suspect;  // of the last full
  uint64_t events = 0;  // archived by this process
  std::vector<depot::StoreState> stores;
  uint64_t spool_bytes = 0;
  std::optional<int64_t> certificate_expiry_days;
  RetentionRun retention;       // the daemon's last
  uint64_t pruned_objects = 0;  // by this process
  uint64_t pruned_bytes = 0;
  bool paused = false;  // a full waits for its member, which suffers
  uint64_t pauses = 0;  // of fulls, by this process
  base::Duration paused_for{0};
  ClockState clock;
  uint64_t clock_steps = 0;  // seen by this process
};

class Guard final : private capture::ArchiveSink {
 public:
  // `config` and the cluster in it outlive the guard. Makes no connection.
  static absl::StatusOr<std::unique_ptr<Guard>> Create(Environment env,
                                                       const config::Config& config,
                                                       const config::Cluster& cluster);
  ~Guard() override;

  // Whether this process may write what the state directory holds of the cluster: one at a time
  // may, until it ends.
  absl::StatusOr<bool> Own();
  // Becomes that one, and returns nothing; or the daemon is it, and a full (or a bundle) that it
  // took is returned, begun after this call. Errors: the daemon's; Unavailable after `timeout`.
  absl::StatusOr<std::optional<BackupResult>> OwnOrAskFull(base::Duration timeout);
  absl::StatusOr<std::optional<BundleResult>> OwnOrAskBundle(base::Duration timeout);

  // Connects, finds the timeline and opens its log and depot. May be repeated after a failure.
  // Unavailable when the cluster cannot be asked, or no store can be used; FailedPrecondition when
  // another process owns the cluster's state.
  absl::Status Attach();

  // Takes a full now and submits it. `progress` as in FullOptions.
  absl::StatusOr<BackupResult> Backup(
      std::function<void(uint64_t received, uint64_t remaining)> progress);
  // Takes the control plane's files as they are now, looks into them and submits them.
  // FailedPrecondition when the configuration names none.
  absl::StatusOr<BundleResult> TakeBundle();
  // Waits until an object is in every store of the configuration.
  absl::Status WaitStored(const std::string& name, base::Duration timeout);

  // Guards until Stop(): fulls and retention by schedule, the archive where the policy has one.
  void Run();
  void Stop();

  GuardState state();

 private:
  Guard(Environment env, const config::Config& config, const config::Cluster& cluster);

  template <typename Result>
  absl::StatusOr<std::optional<Result>> OwnOrAsk(
      Wanted wanted, base::Duration timeout,
      absl::StatusOr<std::optional<Result>> (Requests::*take)(const std::string& id));
  // The log of one timeline and what brings objects to the stores under it.
  struct Books {
    std::unique_ptr<ledger::LogWriter> log;
    std::unique_ptr<depot::Depot> depot;  // goes before log
  };
  std::shared_ptr<Books> books();
  absl::StatusOr<std::shared_ptr<Books>> OpenBooks(const catalog::Timeline& timeline);
  // The books that an object of this name belongs into.
  absl::StatusOr<std::shared_ptr<Books>> BooksOf(const std::string& name);
  // The books of a timeline. Where it is another writer's, of which we say something for the first
  // time, they begin, and say why.
  absl::StatusOr<std::shared_ptr<Books>> BegunBooks(const catalog::Timeline& timeline,
                                                    const std::string& why);
  absl::Status TakeUpOldBooks();
  // `follows` becomes the timeline that lived before, where there was one.
  absl::StatusOr<StateFile> FirstState(const capture::HistoryMark& now, std::string* why,
                                       std::optional<catalog::Timeline>* follows);
  absl::Status Enter(const StateFile& state, const std::string& why,
                     const std::optional<catalog::Timeline>& follows);
  absl::Status EnterAnotherHistory(const capture::HistoryMark& now, const std::string& why);
  absl::Status CheckHistory();
  absl::StatusOr<BackupResult> BackupLocked(
      const std::function<void(uint64_t received, uint64_t remaining)>& progress);
  std::unique_ptr<capture::SourceWatch> WatchSource(const capture::MemberState& member);
  void EndWatch(const std::string& endpoint, const capture::SourceWatch& watch);
  catalog::Object Describe(const capture::Full& full, uint64_t number);
  void Prove(const capture::Full& full, catalog::Object* object);
  void CompareRows(const capture::Full& full, const capture::RowDigests& other,
                   const std::string& source, catalog::Object* object);
  absl::Status ProveByRpc(const capture::Full& full, catalog::Object* object);
  void RunArchive();
  void RunSchedule();
  void RunRetention();
  // `news` is the same as long as nothing new is to be said of what it could not delete.
  absl::StatusOr<RetentionRun> PruneOnce(std::string* news);
  bool FullIsDue();
  // Gives up the books of timelines that ended once every store has what is in them.
  void DropEmptyBooks();
  void LogBundle(const absl::StatusOr<BundleResult>& result) const;
  absl::Status CloseHole();
  bool Pause(base::Duration time);
  bool Stopping();
  void SaveStateLocked();
  // Everything up to `at`, by the wall clock, can be restored.
  void CoveredLocked(catalog::Time at);
  // Whether the archiver that runs writes the timeline that lives.
  bool ArchivesLivingLocked() const;
  std::string PathOf(std::string_view name) const;
  void SetError(const std::string& error);

  // capture::ArchiveSink
  std::string NewPath(const std::string& name) override;
  absl::Status Segment(catalog::Object object, const std::string& path) override;
  void Waits(const absl::Status& why) override;
  void Seen(int64_t revision, const capture::RowDigest& digest) override;
  void Watched(int64_t revision, base::Duration at) override;

  const Environment env_;
  const config::Config& config_;
  const config::Cluster& cluster_config_;
  const std::string dir_;  // of the state directory, this cluster's
  std::string writer_;
  std::optional<WriterKeys> keys_;
  std::unique_ptr<base::File> lock_;  // once this process owns the state
  std::vector<OpenedStore> stores_;
  bool took_up_old_books_ = false;  // by Attach
  std::unique_ptr<capture::Cluster> cluster_;
  ClockWatch clock_watch_;
  bool watches_clock_ = false;  // Run() does

  std::mutex backup_mutex_;   // held while a full is taken; taken before the others
  std::mutex history_mutex_;  // held while it is decided which history it is; before mutex_
  std::mutex mutex_;          // of what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  bool full_wanted_ = false;
  std::string error_;
  StateFile state_;
  std::optional<base::Duration> covered_;  // up to this moment of the steady clock
  std::shared_ptr<Books> books_;
  std::vector<std::shared_ptr<Books>> old_books_;  // of timelines that ended, until they are empty
  capture::RowDigests archive_rows_;
  std::unique_ptr<capture::Archiver> archiver_;
  std::optional<int64_t> certificate_expiry_days_;
  std::set<std::string> encryptions_;  // of the last full
  std::string kubernetes_version_;     // as the last bundle said
  uint64_t holes_ = 0;
  uint64_t events_ = 0;
  uint64_t pruned_objects_ = 0;
  uint64_t pruned_bytes_ = 0;
  bool paused_ = false;
  uint64_t pauses_ = 0;
  base::Duration paused_for_{0};
  // By endpoint: what a member's metrics said at the end of the last full.
  std::map<std::string, capture::Vitals> vitals_;
  std::set<std::string> unwatched_;  // endpoints whose metrics cannot be had, which was said
  uint64_t avoid_member_ = 0;        // that suffered from the last attempt
};

}  // namespace service
