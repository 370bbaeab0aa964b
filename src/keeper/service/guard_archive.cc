#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "client/methods.h"
#include "service/guard.h"
#include "service/guard_names.h"

namespace service {
namespace {

constexpr base::Duration kCallTimeout = std::chrono::seconds(5);
constexpr base::Duration kRetryEvery = std::chrono::seconds(1);
constexpr char kVersion[] = ENGRAM_VERSION;

}  // namespace

void Guard::RunArchive() {
  while (true) {
    const absl::Status checked = CheckHistory();
    if (!checked.ok()) {
      SetError(fmt::format("the archive stands still: {}", client::ErrorText(checked)));
      if (Pause(kRetryEvery)) return;
      continue;
    }
    capture::ArchiverOptions options{
        .cluster = cluster_config_.name,
        .writer = writer_,
        .segment_every = cluster_config_.policy.segment_every,
        .segment_bytes_max = cluster_config_.policy.segment_bytes_max,
        .seal = keys_->seal,
        .keeper_version = kVersion,
    };
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (state_.archive.revision == 0) {
        // After the last full, where there is one: else what came since would be in neither.
        const bool after_full =
            state_.last_full.has_value() && state_.last_full->timeline == state_.timeline;
        state_.archive.revision =
            after_full ? state_.last_full->last_revision : state_.mark.revision;
        state_.archive.at = after_full ? state_.last_full->last_seen.to : env_.clock.Wall();
      }
      options.timeline = state_.timeline;
      options.position = state_.archive;
      capture::ArchiveSink& sink = *this;
      archiver_ = std::make_unique<capture::Archiver>(*cluster_, env_.files, env_.clock,
                                                      env_.random, options, sink);
      error_.clear();
    }
    const capture::ArchiveEnd end = archiver_->Run();
    {
      const std::lock_guard lock(mutex_);
      const capture::ArchiverOptions& left = archiver_->options();
      if (left.timeline == state_.timeline) {
        state_.archive = left.position;
        SaveStateLocked();
      }
      archiver_.reset();
      if (stopping_) return;
    }
    absl::Status handled;
    switch (end.why) {
      case capture::ArchiveEnd::Why::kStopped:  // because another timeline was entered
        break;
      case capture::ArchiveEnd::Why::kCompacted:
        handled = CloseHole();
        break;
      case capture::ArchiveEnd::Why::kAnotherHistory: {
        const std::lock_guard history_lock(history_mutex_);
        const auto now = cluster_->Now(kCallTimeout);
        if (!now.ok()) {
          handled = now.status();
        } else if (books()->log->place().timeline == options.timeline) {
          handled = EnterAnotherHistory(*now, end.text);
        }
        break;
      }
      case capture::ArchiveEnd::Why::kFailed:
        handled = absl::UnavailableError(end.text);
        break;
    }
    if (handled.ok()) continue;
    SetError(fmt::format("the archive stands still: {}", base::Message(handled)));
    if (Pause(kRetryEvery)) return;
  }
}

// Compaction overtook the archive. A full holds what is still there; what it does not hold is lost,
// and that is said for ever.
absl::Status Guard::CloseHole() {
  const std::lock_guard backup_lock(backup_mutex_);
  // A cluster that was restored and marked compacted looks the same at first.
  const std::shared_ptr<Books> before = books();
  RETURN_IF_ERROR(CheckHistory());
  if (books() != before) return absl::OkStatus();
  ASSIGN_OR_RETURN(const BackupResult full, BackupLocked({}));
  catalog::Hole hole;
  {
    const std::lock_guard lock(mutex_);
    if (books_ != before) return absl::OkStatus();  // the hole is of a history that ended
    hole = {
        .timeline = state_.timeline,
        .first_revision = state_.archive.revision + 1,
        .last_revision = full.object.compact_revision - 1,
        .from = std::max(state_.watched_at, state_.archive.at),
        .to = env_.clock.Wall(),
        .why = fmt::format("compacted at {} before it was archived", full.object.compact_revision)};
    state_.archive.revision = std::max(state_.archive.revision, full.object.compact_revision);
    state_.archive.digest.reset();
    state_.archive.at = env_.clock.Wall();
    archive_rows_.Clear();
    SaveStateLocked();
    if (hole.last_revision < hole.first_revision) return absl::OkStatus();
    ++holes_;
  }
  LOG_ERROR("revisions were lost to the archive", {"cluster", cluster_config_.name},
            {"first", hole.first_revision}, {"last", hole.last_revision});
  return before->depot->Note({ledger::HoleFound{hole}});
}

// --- the archive's sink ---

// A segment goes into the books of its own timeline, also when another one was entered meanwhile.
std::string Guard::NewPath(const std::string& name) {
  const auto books = BooksOf(name);
  return books.ok() ? (*books)->depot->NewPath(name)
                    : base::JoinPath(PathOf(kScratchName), base::BaseName(name));
}

absl::Status Guard::Segment(catalog::Object object, const std::string& path) {
  const uint64_t events = object.events;
  ASSIGN_OR_RETURN(const std::shared_ptr<Books> books, BooksOf(object.name));
  RETURN_IF_ERROR(books->depot->Submit(std::move(object), path));
  const std::lock_guard lock(mutex_);
  events_ += events;
  return absl::OkStatus();
}

void Guard::Waits(const absl::Status& why) {
  SetError(why.ok() ? ""
                    : fmt::format("the archive stands still, a segment cannot be stored: {}",
                                  base::Message(why)));
}

void Guard::Seen(int64_t revision, const capture::RowDigest& digest) {
  const std::lock_guard lock(mutex_);
  if (!ArchivesLivingLocked()) return;
  archive_rows_.Append(revision, digest);
  state_.mark.revision = std::max(state_.mark.revision, revision);
}

void Guard::Watched(int64_t revision, base::Duration at) {
  const std::lock_guard lock(mutex_);
  if (!ArchivesLivingLocked()) return;
  const bool moved = revision != state_.archive.revision;
  state_.watched_at = at;
  CoveredLocked(at);
  books_->depot->SetWatched({.revision = revision, .at = at});
  if (!moved) return;
  state_.archive = archiver_->options().position;
  SaveStateLocked();
}

bool Guard::ArchivesLivingLocked() const {
  return archiver_ != nullptr && archiver_->options().timeline == state_.timeline;
}

}  // namespace service
