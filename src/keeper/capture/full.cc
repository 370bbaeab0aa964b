#include "capture/full.h"

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "base/status.h"
#include "capture/growing_file.h"
#include "capture/pace.h"
#include "capture/sealed_file.h"
#include "client/methods.h"
#include "client/snapshot.h"
#include "proto/rpc.pb.h"

namespace capture {
namespace {

// A member that sends a paced snapshot in bursts holds up its clients for as long as each lasts.
constexpr uint32_t kPacedReadAheadBytes = uint32_t{64} << 10;
constexpr uint64_t kSyncBytes = uint64_t{1} << 20;
constexpr base::Duration kLookTimeout = std::chrono::seconds(1);
constexpr char kScratchName[] = "snapshot.db";

// Removes a file unless it was kept.
class Scratch {
 public:
  Scratch(base::Files& files, std::string path) : files_(files), path_(std::move(path)) {}
  ~Scratch() {
    // Removed by the next full if not now; it is never taken for anything.
    if (!kept_) files_.Remove(path_).IgnoreError();
  }
  void Keep() { kept_ = true; }
  const std::string& path() const { return path_; }

 private:
  base::Files& files_;
  const std::string path_;
  bool kept_ = false;
};

void Sleep(base::Duration time) { std::this_thread::sleep_for(time); }

Pace MakePace(base::Clock& clock, client::Client& member, const FullOptions& options) {
  if (options.bytes_per_second.has_value()) return Pace(clock, Sleep, *options.bytes_per_second);
  return Pace(
      clock, Sleep,
      [&member]() -> absl::StatusOr<MemberLoad> {
        ASSIGN_OR_RETURN(const auto status,
                         member.Call(client::kStatus, {}, {.timeout = kLookTimeout}));
        return MemberLoad{.raft_index = status.raftindex(), .db_bytes = status.dbsize()};
      },
      options.open_max);
}

// Passes on what it reads, and checks the digest at its end.
class DigestCheckingSource final : public vault::Source {
 public:
  explicit DigestCheckingSource(vault::Source& from) : from_(from) {}
  absl::StatusOr<size_t> Read(char* out, size_t n) override {
    ASSIGN_OR_RETURN(const size_t got, from_.Read(out, n));
    digest_.Add({out, got});
    if (got == 0) RETURN_IF_ERROR(digest_.Check());
    return got;
  }

 private:
  vault::Source& from_;
  client::TrailingDigest digest_;
};

// Seals a file while it is written by the owner's thread, which has enough to do with receiving it:
// the snapshot's digest is checked here.
class SealingAlong {
 public:
  SealingAlong(base::Files& files, base::Random& random, std::string to,
               const vault::SealOptions& options)
      : files_(files), random_(random), to_(std::move(to)), options_(options) {}
  ~SealingAlong() {
    if (sealing_.valid()) plain_->End(absl::CancelledError("the snapshot was not received"));
  }

  // The file at `from` exists.
  absl::Status Begin(const std::string& from) {
    ASSIGN_OR_RETURN(auto file, files_.Open(from, {}));
    plain_.emplace(std::move(file));
    sealing_ = std::async(std::launch::async, [this] { return Seal(); });
    return absl::OkStatus();
  }
  void Grow(uint64_t bytes) {
    if (plain_.has_value()) plain_->Grow(bytes);
  }
  // All is written.
  void End() { plain_->End(absl::OkStatus()); }
  absl::StatusOr<vault::Sealed> Take() { return sealing_.get(); }

 private:
  absl::StatusOr<vault::Sealed> Seal() {
    ASSIGN_OR_RETURN(vault::Sealed sealed,
                     SealFile(files_, random_, to_, options_, [this](vault::Sink& sink) {
                       DigestCheckingSource checked(*plain_);
                       return vault::Copy(checked, sink).status();
                     }));
    RETURN_IF_ERROR(files_.SyncDirectory(base::DirName(to_)));
    return sealed;
  }

  base::Files& files_;
  base::Random& random_;
  const std::string to_;
  const vault::SealOptions& options_;
  std::optional<GrowingFile> plain_;
  std::future<absl::StatusOr<vault::Sealed>> sealing_;
};

// The best member other than one, or that one where it is the only one that serves.
absl::StatusOr<MemberState> ChooseAnother(const std::vector<MemberState>& members, uint64_t avoid) {
  std::vector<MemberState> others = members;
  std::erase_if(others, [avoid](const MemberState& m) { return m.member_id == avoid; });
  if (avoid != 0) {
    if (auto other = ChooseMember(others); other.ok()) return other;
  }
  return ChooseMember(members);
}

}  // namespace

absl::StatusOr<Full> TakeFull(Cluster& cluster, base::Files& files, base::Clock& clock,
                              base::Random& random, const FullOptions& options) {
  RETURN_IF_ERROR(base::MakeDirectories(files, options.scratch_dir, 0700));
  Full full;
  ASSIGN_OR_RETURN(full.member,
                   ChooseAnother(cluster.Survey(options.survey_timeout), options.avoid_member));
  const auto may_go_on = [&] {
    return options.may_go_on ? options.may_go_on(full.member) : absl::OkStatus();
  };
  RETURN_IF_ERROR(base::Annotate(may_go_on(), full.member.endpoint));
  // Not that of the snapshot: answers would wait behind its pieces.
  ASSIGN_OR_RETURN(const auto asked, cluster.Only(full.member.endpoint));
  Pace pace = MakePace(clock, *asked, options);
  const bool yields = !options.bytes_per_second.has_value();
  // Who begins fast and has to yield later does it in bursts: there is one window for a stream's
  // life.
  const bool paced = pace.bytes_per_second() > 0;
  ASSIGN_OR_RETURN(const auto member,
                   cluster.Only(full.member.endpoint, paced ? kPacedReadAheadBytes : 0));

  const Scratch snapshot(files, base::JoinPath(options.scratch_dir, kScratchName));
  // Sealed while it comes: what turns out damaged is thrown away.
  Scratch sealed(files, options.sealed_path);
  SealingAlong sealing(files, random, sealed.path(), options.seal);
  absl::Status sealing_began;
  const base::Duration began = clock.Monotonic();
  std::optional<base::Duration> first_byte;
  full.seen.from = clock.Wall();
  const auto saved = client::SaveSnapshot(
      *member, files, snapshot.path(),
      {.stall_timeout = options.stall_timeout,
       .durable = false,
       .check_digest = false,
       .sync_every_bytes = paced ? kSyncBytes : 0,
       .on_progress =
           [&](const client::SnapshotProgress& progress) {
             // The view was pinned before the first byte left.
             if (!first_byte.has_value()) first_byte = clock.Wall();
             sealing.Grow(progress.received_bytes);
             pace.At(progress.received_bytes);
             full.yielded |= yields && pace.bytes_per_second() > 0;
             if (options.on_progress) {
               options.on_progress(progress.received_bytes, progress.remaining_bytes);
             }
           },
       .may_go_on = may_go_on,
       .on_file_created = [&] { sealing_began = sealing.Begin(snapshot.path() + ".part"); }});
  RETURN_IF_ERROR(base::Annotate(saved.status(), full.member.endpoint));
  RETURN_IF_ERROR(sealing_began);
  full.received_in = clock.Monotonic() - began;
  full.seen.to = std::max(first_byte.value_or(clock.Wall()), full.seen.from);
  sealing.End();

  absl::StatusOr<Examination> examination =
      Examine(files, clock, snapshot.path(), {.digest_was_checked = true});
  absl::StatusOr<vault::Sealed> facts = sealing.Take();
  // A digest that does not fit says more than a page that makes no sense.
  RETURN_IF_ERROR(base::Annotate(facts.status(), full.member.endpoint));
  RETURN_IF_ERROR(examination.status());
  full.examination = *std::move(examination);
  full.sealed = *std::move(facts);
  sealed.Keep();
  return full;
}

}  // namespace capture
