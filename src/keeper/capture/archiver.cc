#include "capture/archiver.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/time_text.h"
#include "capture/assembler.h"
#include "capture/sealed_file.h"
#include "client/methods.h"
#include "proto/rpc.pb.h"

namespace capture {
namespace {

constexpr base::Duration kCallTimeout = std::chrono::seconds(5);
constexpr base::Duration kProgressEvery = std::chrono::seconds(1);
constexpr base::Duration kRetryEvery = std::chrono::seconds(1);
// A stream from which not even an answer to a progress request comes is dead, whatever TCP says.
constexpr base::Duration kSilenceMax = std::chrono::seconds(20);
// A wall clock that moves by more than this against the steady one was set; what is less is taken
// for a slow machine or a clock that is steered.
constexpr base::Duration kStepMin = std::chrono::seconds(1);
// Of leases that were met; forgotten all at once, which costs a look-up each.
constexpr size_t kKnownLeasesMax = 1'000'000;

}  // namespace

struct Archiver::State {
  Cluster& cluster;
  base::Files& files;
  base::Clock& clock;
  base::Random& random;
  ArchiverOptions options;
  ArchiveSink& sink;

  std::unordered_set<int64_t> known_leases;

  std::mutex mutex;
  std::condition_variable stop_changed;
  bool stopping = false;
  client::Stream* stream = nullptr;  // to be cancelled by Stop()

  bool Stopping() {
    const std::lock_guard lock(mutex);
    return stopping;
  }
  // Whether it was stopped meanwhile.
  bool Pause(base::Duration time) {
    std::unique_lock lock(mutex);
    return stop_changed.wait_for(lock, time, [this] { return stopping; });
  }
};

// One watch stream, from its opening to its end.
class Archiver::Session {
 public:
  explicit Session(State& state) : s_(state), options_(state.options), assembler_(0) {}

  ArchiveEnd Run() {
    ArchiveEnd end = Open();
    if (stream_ != nullptr) {
      {
        const std::lock_guard lock(s_.mutex);
        s_.stream = stream_.get();
        if (s_.stopping) stream_->Cancel();
      }
      end = Loop();
      const std::lock_guard lock(s_.mutex);
      s_.stream = nullptr;
    }
    // What is whole is kept, however the stream ended; of another history nothing is.
    if (end.why != ArchiveEnd::Why::kAnotherHistory && writer_.has_value() && !CloseSegment()) {
      return {.why = ArchiveEnd::Why::kStopped, .text = "stopped before a segment could be stored"};
    }
    return end;
  }

 private:
  static ArchiveEnd Failed(std::string text) {
    return {.why = ArchiveEnd::Why::kFailed, .text = std::move(text)};
  }
  static ArchiveEnd AnotherHistory(std::string text) {
    return {.why = ArchiveEnd::Why::kAnotherHistory, .text = std::move(text)};
  }

  ArchiveEnd Open() {
    auto opened = s_.cluster.any().OpenStream(client::kWatchMethod, {.require_leader = true});
    if (!opened.ok()) return Failed(client::ErrorText(opened.status()));
    // One revision that is known is asked for again, to see that it is still the same.
    const int64_t from =
        options_.position.revision + (options_.position.digest.has_value() ? 0 : 1);
    assembler_ = Assembler(from);
    etcdserverpb::WatchRequest request;
    etcdserverpb::WatchCreateRequest& create = *request.mutable_create_request();
    create.set_key(std::string(1, '\0'));
    create.set_range_end(std::string(1, '\0'));
    create.set_start_revision(from);
    create.set_fragment(true);
    create.set_progress_notify(true);
    const absl::Status written = (*opened)->Write(request);
    if (!written.ok()) return Failed(client::ErrorText(written));
    stream_ = *std::move(opened);
    // Of a clock that was set back since, no moment is known at which what comes was not there.
    const base::Duration now = s_.clock.Wall();
    not_yet_seen_ = options_.position.at <= now ? options_.position.at : base::Duration(0);
    heard_ = base::Now(s_.clock);
    progress_asked_ = heard_.steady;
    return {};
  }

  ArchiveEnd Loop() {
    etcdserverpb::WatchResponse response;
    while (true) {
      switch (stream_->Read(&response, UntilNextTimer())) {
        case client::Stream::ReadResult::kMessage: {
          std::optional<ArchiveEnd> end = Take(response);
          if (end.has_value()) return *std::move(end);
          break;
        }
        case client::Stream::ReadResult::kEnd: {
          if (s_.Stopping()) return {.why = ArchiveEnd::Why::kStopped};
          const absl::Status status = stream_->Finish();
          return Failed(status.ok() ? "the server ended the watch" : client::ErrorText(status));
        }
        case client::Stream::ReadResult::kTimeout:
          break;
      }
      if (s_.Stopping()) return {.why = ArchiveEnd::Why::kStopped};
      std::optional<ArchiveEnd> end = OnTimers();
      if (end.has_value()) return *std::move(end);
    }
  }

  base::Duration UntilNextTimer() const {
    const base::Duration now = s_.clock.Monotonic();
    base::Duration next = progress_asked_ + kProgressEvery;
    if (writer_.has_value()) next = std::min(next, segment_opened_ + options_.segment_every);
    return std::max(next - now, base::Duration(std::chrono::milliseconds(1)));
  }

  std::optional<ArchiveEnd> OnTimers() {
    const base::Duration now = s_.clock.Monotonic();
    if (writer_.has_value() && now - segment_opened_ >= options_.segment_every) {
      if (!CloseSegment()) return ArchiveEnd{.why = ArchiveEnd::Why::kStopped};
    }
    if (now - heard_.steady > kSilenceMax) return Failed("the watch is silent");
    if (now - progress_asked_ >= kProgressEvery) {
      progress_asked_ = now;
      if (!asked_.has_value()) asked_ = base::Now(s_.clock);
      etcdserverpb::WatchRequest request;
      request.mutable_progress_request();
      // A stream that broke says so to the next Read.
      stream_->Write(request).IgnoreError();
    }
    return std::nullopt;
  }

  std::optional<ArchiveEnd> Take(const etcdserverpb::WatchResponse& response) {
    if (response.header().cluster_id() != options_.timeline.cluster_id) {
      return AnotherHistory(fmt::format("the cluster id changed from {:x} to {:x}",
                                        options_.timeline.cluster_id,
                                        response.header().cluster_id()));
    }
    const base::Instant now = base::Now(s_.clock);
    if (!FollowClock(now)) return ArchiveEnd{.why = ArchiveEnd::Why::kStopped};
    if (response.canceled()) {
      if (response.compact_revision() > 0) {
        return ArchiveEnd{.why = ArchiveEnd::Why::kCompacted,
                          .compact_revision = response.compact_revision(),
                          .text = response.cancel_reason()};
      }
      return Failed(fmt::format("the watch was cancelled: {}", response.cancel_reason()));
    }
    if (response.created()) return std::nullopt;
    if (response.events().empty()) return TakeProgress(response);
    // A clock that is steered back by little makes no time run backwards here.
    const base::Duration seen = std::max(now.wall, not_yet_seen_);
    const absl::Status taken = assembler_.Take(
        response, not_yet_seen_, seen, [&](int64_t id) { MeetLease(id); },
        [&](const WholeRevision& revision) { return TakeRevision(revision); });
    not_yet_seen_ = seen;
    if (absl::IsAborted(taken)) return AnotherHistory(std::string(base::Message(taken)));
    if (absl::IsCancelled(taken)) return ArchiveEnd{.why = ArchiveEnd::Why::kStopped};
    if (!taken.ok()) return Failed(std::string(base::Message(taken)));
    return std::nullopt;
  }

  std::optional<ArchiveEnd> TakeProgress(const etcdserverpb::WatchResponse& response) {
    const int64_t revision = response.header().revision();
    if (assembler_.pending() || revision >= assembler_.next_revision()) {
      return Failed(fmt::format("the watch says it is at revision {} and delivered up to {}",
                                revision, assembler_.next_revision() - 1));
    }
    // The answer is about some moment since it was asked for.
    if (!asked_.has_value()) return std::nullopt;
    if (revision == assembler_.next_revision() - 1) {
      not_yet_seen_ = std::max(not_yet_seen_, asked_->wall);
      if (!writer_.has_value()) s_.sink.Watched(options_.position.revision, asked_->wall);
    }
    asked_.reset();
    return std::nullopt;
  }

  // Where the wall clock was set since the last answer, what comes is told by the clock as it is
  // now, in a segment of its own: within one, times never run backwards nor jump. False when it was
  // stopped before the segment could be stored.
  bool FollowClock(const base::Instant& now) {
    const base::Instant before = std::exchange(heard_, now);
    const base::Duration step = StepBetween(before, now);
    if (std::chrono::abs(step) < kStepMin) return true;
    if (not_yet_seen_ > base::Duration(0)) not_yet_seen_ += step;
    if (asked_.has_value()) asked_->wall += StepBetween(*asked_, now);
    return !writer_.has_value() || CloseSegment();
  }

  // Aborted: another history. Cancelled: stopped.
  absl::Status TakeRevision(const WholeRevision& revision) {
    if (revision.view.revision == options_.position.revision) {
      if (revision.digest == options_.position.digest) return absl::OkStatus();
      return base::MakeStatus(absl::StatusCode::kAborted,
                              "revision {} is not what it was when it was archived",
                              revision.view.revision);
    }
    if (!writer_.has_value()) OpenSegment(revision.view.revision);
    writer_->Add(revision.view);
    last_digest_ = revision.digest;
    s_.sink.Seen(revision.view.revision, revision.digest);
    if (writer_->bytes() >= options_.segment_bytes_max && !CloseSegment()) {
      return absl::CancelledError("stopped");
    }
    return absl::OkStatus();
  }

  void MeetLease(int64_t id) {
    if (s_.known_leases.size() >= kKnownLeasesMax) s_.known_leases.clear();
    if (s_.known_leases.insert(id).second) met_leases_.push_back(id);
  }

  void OpenSegment(int64_t first_revision) {
    uint64_t writer_id = 0;
    CHECK(base::ParseHex16(options_.writer, &writer_id));
    std::string previous;
    base::Digest digest;
    if (base::ParseDigest(options_.position.previous_sha256, &digest)) {
      previous = base::DigestBytes(digest);
    }
    writer_.emplace(events::SegmentHeader{.cluster = options_.cluster,
                                          .cluster_id = options_.timeline.cluster_id,
                                          .timeline_revision = options_.timeline.first_revision,
                                          .writer = writer_id,
                                          .first_revision = first_revision,
                                          .previous_sha256 = previous});
    segment_opened_ = s_.clock.Monotonic();
  }

  std::vector<events::LeaseGrant> LookUpLeases() {
    std::vector<events::LeaseGrant> grants;
    for (const int64_t id : met_leases_) {
      etcdserverpb::LeaseTimeToLiveRequest request;
      request.set_id(id);
      const auto answer =
          s_.cluster.any().Call(client::kLeaseTimeToLive, request, {.timeout = kCallTimeout});
      // Gone already, or nobody answers: a restore takes the policy's default.
      grants.push_back({.id = id, .ttl_seconds = answer.ok() ? answer->grantedttl() : 0});
    }
    met_leases_.clear();
    return grants;
  }

  // Seals what is open and hands it on, as often as it takes. False when stopped before that.
  bool CloseSegment() {
    const events::SegmentWriter& open = *writer_;
    catalog::Object object;
    object.kind = catalog::Kind::kSegment;
    object.timeline = options_.timeline;
    object.writer = options_.writer;
    object.first_revision = open.next_revision() - open.revisions();
    object.last_revision = open.next_revision() - 1;
    object.events = open.events();
    object.first_seen = {open.first_seen_from(), open.first_seen_to()};
    object.last_seen = {open.last_seen_from(), open.last_seen_to()};
    object.previous_sha256 = options_.position.previous_sha256;
    object.keeper_version = options_.keeper_version;
    object.name = fmt::format("{}/{}/{}/archive/live/{:016x}-{:016x}-{}.seg", options_.cluster,
                              options_.timeline.Name(), options_.writer, object.first_revision,
                              object.last_revision, base::CompactUtc(object.last_seen.to));
    const std::string plain = writer_->Finish(LookUpLeases());
    writer_.reset();
    bool waited = false;
    while (true) {
      const absl::Status stored = Store(&object, plain);
      if (!stored.ok() || waited) s_.sink.Waits(stored);
      if (stored.ok()) break;
      waited = true;
      if (s_.Pause(kRetryEvery)) return false;
    }
    options_.position = {.revision = object.last_revision,
                         .digest = last_digest_,
                         .at = object.last_seen.to,
                         .previous_sha256 = object.plain_sha256};
    s_.sink.Watched(object.last_revision, object.last_seen.to);
    return true;
  }

  absl::Status Store(catalog::Object* object, const std::string& plain) {
    const std::string path = s_.sink.NewPath(object->name);
    ASSIGN_OR_RETURN(const vault::Sealed sealed,
                     SealFile(s_.files, s_.random, path, options_.seal,
                              [&](vault::Sink& sink) { return sink.Write(plain); }));
    SetSealed(sealed, object);
    return s_.sink.Segment(*object, path);
  }

  State& s_;
  ArchiverOptions& options_;
  std::unique_ptr<client::Stream> stream_;
  Assembler assembler_;
  std::optional<events::SegmentWriter> writer_;
  base::Duration segment_opened_{0};
  RowDigest last_digest_{};
  std::vector<int64_t> met_leases_;
  base::Duration not_yet_seen_{0};  // wall clock: what comes next was not there then
  base::Instant heard_;             // when the last answer came
  base::Duration progress_asked_{0};
  std::optional<base::Instant> asked_;  // when the request without an answer was sent
};

Archiver::Archiver(Cluster& cluster, base::Files& files, base::Clock& clock, base::Random& random,
                   ArchiverOptions options, ArchiveSink& sink)
    : state_(new State{cluster, files, clock, random, std::move(options), sink}) {}
Archiver::~Archiver() = default;

ArchiveEnd Archiver::Run() { return Session(*state_).Run(); }

void Archiver::Stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  state_->stop_changed.notify_all();
  if (state_->stream != nullptr) state_->stream->Cancel();
}

const ArchiverOptions& Archiver::options() const { return state_->options; }

}  // namespace capture
