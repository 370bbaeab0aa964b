#include "stores/decorators.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "stores/names.h"

namespace stores {
namespace {

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

// Remembers how far a Get came and whether it was the sink that ended it.
class ProgressSink final : public vault::Sink {
 public:
  explicit ProgressSink(vault::Sink& next) : next_(next) {}
  absl::Status Write(std::string_view data) override {
    const absl::Status status = next_.Write(data);
    if (status.ok()) {
      bytes_ += data.size();
    } else {
      failed_ = true;
    }
    return status;
  }
  absl::Status Finish() override { return next_.Finish(); }
  uint64_t bytes() const { return bytes_; }
  bool failed() const { return failed_; }

 private:
  vault::Sink& next_;
  uint64_t bytes_ = 0;
  bool failed_ = false;
};

class ThrottledContent final : public Content {
 public:
  ThrottledContent(const Content& inner, Throttle& throttle, const Deadline& deadline)
      : inner_(inner), throttle_(throttle), deadline_(deadline) {}
  uint64_t bytes() const override { return inner_.bytes(); }
  const base::Digest& sha256() const override { return inner_.sha256(); }
  absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override {
    return inner_.ReadAt(offset, out, n);
  }
  absl::StatusOr<size_t> ReadToSend(uint64_t offset, char* out, size_t n) const override {
    ASSIGN_OR_RETURN(const size_t got, inner_.ReadToSend(offset, out, n));
    RETURN_IF_ERROR(throttle_.Take(got, deadline_));
    return got;
  }

 private:
  const Content& inner_;
  Throttle& throttle_;
  const Deadline& deadline_;
};

class ThrottledSink final : public vault::Sink {
 public:
  ThrottledSink(vault::Sink& next, Throttle& throttle, const Deadline& deadline)
      : next_(next), throttle_(throttle), deadline_(deadline) {}
  absl::Status Write(std::string_view data) override {
    RETURN_IF_ERROR(throttle_.Take(data.size(), deadline_));
    return next_.Write(data);
  }
  absl::Status Finish() override { return next_.Finish(); }

 private:
  vault::Sink& next_;
  Throttle& throttle_;
  const Deadline& deadline_;
};

}  // namespace

// --- Decorator ---

absl::Status Decorator::Put(std::string_view name, const Content& content,
                            const Deadline& deadline) {
  return inner_->Put(name, content, deadline);
}
absl::Status Decorator::Replace(std::string_view name, std::string_view bytes,
                                const Deadline& deadline) {
  return inner_->Replace(name, bytes, deadline);
}
absl::Status Decorator::Get(std::string_view name, uint64_t offset, uint64_t length,
                            vault::Sink& sink, const Deadline& deadline) {
  return inner_->Get(name, offset, length, sink, deadline);
}
absl::StatusOr<uint64_t> Decorator::Stat(std::string_view name, const Deadline& deadline) {
  return inner_->Stat(name, deadline);
}
absl::StatusOr<std::vector<ObjectInfo>> Decorator::List(const ListRequest& request,
                                                        const Deadline& deadline) {
  return inner_->List(request, deadline);
}
absl::Status Decorator::Delete(std::string_view name, const Deadline& deadline) {
  return inner_->Delete(name, deadline);
}
absl::StatusOr<Description> Decorator::Describe(const Deadline& deadline) {
  return inner_->Describe(deadline);
}
absl::StatusOr<uint64_t> Decorator::Sweep(base::Duration older_than, const Deadline& deadline) {
  return inner_->Sweep(older_than, deadline);
}

// --- Retrying ---

template <typename Call>
auto Retrying::Repeat(const Deadline& deadline, const Call& call) -> decltype(call()) {
  RETURN_IF_ERROR(deadline.Check(clock_));
  for (int attempt = 1;; ++attempt) {
    auto result = call();
    const absl::Status& status = StatusOf(result);
    if (status.ok() || !Pause(status, attempt, deadline)) {
      if (status.ok() || attempt == 1) return result;
      return base::Annotate(status, fmt::format("after {} attempts", attempt));
    }
  }
}

bool Retrying::Pause(const absl::Status& status, int attempt, const Deadline& deadline) {
  if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) return false;
  if (attempt >= policy_.attempts_max) return false;
  base::Duration delay = policy_.first_delay;
  for (int i = 1; i < attempt && delay < policy_.delay_max; ++i) delay *= 2;
  delay = std::max(std::min(delay, policy_.delay_max), base::Duration(2));
  {
    std::lock_guard lock(mutex_);
    const auto half = static_cast<uint64_t>(delay.count() / 2);
    delay -= base::Duration(static_cast<int64_t>(random_.Below(half + 1)));
  }
  if (deadline.Left(clock_) <= delay) return false;
  sleeper_.Sleep(delay, deadline);
  return deadline.Check(clock_).ok();
}

absl::Status Retrying::Put(std::string_view name, const Content& content,
                           const Deadline& deadline) {
  return Repeat(deadline, [&] { return inner().Put(name, content, deadline); });
}
absl::Status Retrying::Replace(std::string_view name, std::string_view bytes,
                               const Deadline& deadline) {
  return Repeat(deadline, [&] { return inner().Replace(name, bytes, deadline); });
}
absl::Status Retrying::Get(std::string_view name, uint64_t offset, uint64_t length,
                           vault::Sink& sink, const Deadline& deadline) {
  ProgressSink progress(sink);
  absl::Status sink_failure;
  const absl::Status status = Repeat(deadline, [&]() -> absl::Status {
    const uint64_t left = length == kToTheEnd ? kToTheEnd : length - progress.bytes();
    absl::Status got = inner().Get(name, offset + progress.bytes(), left, progress, deadline);
    if (!progress.failed()) return got;
    sink_failure = std::move(got);
    return absl::OkStatus();
  });
  return sink_failure.ok() ? status : sink_failure;
}
absl::StatusOr<uint64_t> Retrying::Stat(std::string_view name, const Deadline& deadline) {
  return Repeat(deadline, [&] { return inner().Stat(name, deadline); });
}
absl::StatusOr<std::vector<ObjectInfo>> Retrying::List(const ListRequest& request,
                                                       const Deadline& deadline) {
  return Repeat(deadline, [&] { return inner().List(request, deadline); });
}
absl::Status Retrying::Delete(std::string_view name, const Deadline& deadline) {
  return Repeat(deadline, [&] { return inner().Delete(name, deadline); });
}
absl::StatusOr<Description> Retrying::Describe(const Deadline& deadline) {
  return Repeat(deadline, [&] { return inner().Describe(deadline); });
}
absl::StatusOr<uint64_t> Retrying::Sweep(base::Duration older_than, const Deadline& deadline) {
  return Repeat(deadline, [&] { return inner().Sweep(older_than, deadline); });
}

// --- BandwidthLimited ---

absl::Status Throttle::Take(size_t bytes, const Deadline& deadline) {
  // A piece is at most some MiB, so the product fits.
  const auto cost =
      base::Duration(static_cast<int64_t>(uint64_t{bytes} * 1'000'000'000 / bytes_per_second_));
  base::Duration wait{};
  {
    std::lock_guard lock(mutex_);
    const base::Duration now = clock_.Monotonic();
    free_at_ = std::max(free_at_, now);
    wait = free_at_ - now;
    free_at_ += cost;
  }
  if (wait > base::Duration::zero()) sleeper_.Sleep(wait, deadline);
  return deadline.Check(clock_);
}

absl::Status BandwidthLimited::Put(std::string_view name, const Content& content,
                                   const Deadline& deadline) {
  return inner().Put(name, ThrottledContent(content, throttle_, deadline), deadline);
}
absl::Status BandwidthLimited::Get(std::string_view name, uint64_t offset, uint64_t length,
                                   vault::Sink& sink, const Deadline& deadline) {
  ThrottledSink throttled(sink, throttle_, deadline);
  return inner().Get(name, offset, length, throttled, deadline);
}

// --- ConcurrencyLimited ---

template <typename Call>
auto ConcurrencyLimited::Within(const Deadline& deadline, const Call& call) -> decltype(call()) {
  // How late a deadline on another clock, or a cancellation, may be noticed.
  constexpr auto kSlice = std::chrono::milliseconds(50);
  {
    std::unique_lock lock(mutex_);
    while (free_ == 0) {
      RETURN_IF_ERROR(deadline.Check(clock_));
      freed_.wait_for(lock, kSlice);
    }
    --free_;
  }
  auto result = call();
  {
    std::lock_guard lock(mutex_);
    ++free_;
  }
  freed_.notify_one();
  return result;
}

absl::Status ConcurrencyLimited::Put(std::string_view name, const Content& content,
                                     const Deadline& deadline) {
  return Within(deadline, [&] { return inner().Put(name, content, deadline); });
}
absl::Status ConcurrencyLimited::Replace(std::string_view name, std::string_view bytes,
                                         const Deadline& deadline) {
  return Within(deadline, [&] { return inner().Replace(name, bytes, deadline); });
}
absl::Status ConcurrencyLimited::Get(std::string_view name, uint64_t offset, uint64_t length,
                                     vault::Sink& sink, const Deadline& deadline) {
  return Within(deadline, [&] { return inner().Get(name, offset, length, sink, deadline); });
}
absl::StatusOr<uint64_t> ConcurrencyLimited::Stat(std::string_view name, const Deadline& deadline) {
  return Within(deadline, [&] { return inner().Stat(name, deadline); });
}
absl::StatusOr<std::vector<ObjectInfo>> ConcurrencyLimited::List(const ListRequest& request,
                                                                 const Deadline& deadline) {
  return Within(deadline, [&] { return inner().List(request, deadline); });
}
absl::Status ConcurrencyLimited::Delete(std::string_view name, const Deadline& deadline) {
  return Within(deadline, [&] { return inner().Delete(name, deadline); });
}
absl::StatusOr<Description> ConcurrencyLimited::Describe(const Deadline& deadline) {
  return Within(deadline, [&] { return inner().Describe(deadline); });
}
absl::StatusOr<uint64_t> ConcurrencyLimited::Sweep(base::Duration older_than,
                                                   const Deadline& deadline) {
  return Within(deadline, [&] { return inner().Sweep(older_than, deadline); });
}

// --- DryRun ---

void DryRun::Say(std::string_view line) {
  std::lock_guard lock(mutex_);
  say_(line);
}

absl::Status DryRun::Put(std::string_view name, const Content& content, const Deadline&) {
  RETURN_IF_ERROR(CheckName(name));
  Say(fmt::format("would store {}, {} bytes", name, content.bytes()));
  return absl::OkStatus();
}
absl::Status DryRun::Replace(std::string_view name, std::string_view bytes, const Deadline&) {
  RETURN_IF_ERROR(CheckReplace(name, bytes));
  Say(fmt::format("would replace {}, {} bytes", name, bytes.size()));
  return absl::OkStatus();
}
absl::Status DryRun::Delete(std::string_view name, const Deadline&) {
  RETURN_IF_ERROR(CheckName(name));
  Say(fmt::format("would delete {}", name));
  return absl::OkStatus();
}
absl::StatusOr<Description> DryRun::Describe(const Deadline& deadline) {
  ASSIGN_OR_RETURN(Description description, inner().Describe(deadline));
  description.warnings.push_back("dry run: nothing is written or deleted");
  return description;
}
absl::StatusOr<uint64_t> DryRun::Sweep(base::Duration, const Deadline&) {
  Say("would remove what interrupted uploads left");
  return 0;
}

// --- Prefixed ---

absl::Status Prefixed::Put(std::string_view name, const Content& content,
                           const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  return inner().Put(fmt::format("{}{}", prefix_, name), content, deadline);
}
absl::Status Prefixed::Replace(std::string_view name, std::string_view bytes,
                               const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  return inner().Replace(fmt::format("{}{}", prefix_, name), bytes, deadline);
}
absl::Status Prefixed::Get(std::string_view name, uint64_t offset, uint64_t length,
                           vault::Sink& sink, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  return inner().Get(fmt::format("{}{}", prefix_, name), offset, length, sink, deadline);
}
absl::StatusOr<uint64_t> Prefixed::Stat(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  return inner().Stat(fmt::format("{}{}", prefix_, name), deadline);
}
absl::StatusOr<std::vector<ObjectInfo>> Prefixed::List(const ListRequest& request,
                                                       const Deadline& deadline) {
  RETURN_IF_ERROR(CheckListRequest(request));
  ListRequest wider = request;
  wider.prefix.insert(0, prefix_);
  if (!wider.after.empty()) wider.after.insert(0, prefix_);
  ASSIGN_OR_RETURN(std::vector<ObjectInfo> objects, inner().List(wider, deadline));
  for (ObjectInfo& object : objects) object.name.erase(0, prefix_.size());
  return objects;
}
absl::Status Prefixed::Delete(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  return inner().Delete(fmt::format("{}{}", prefix_, name), deadline);
}
absl::StatusOr<Description> Prefixed::Describe(const Deadline& deadline) {
  ASSIGN_OR_RETURN(Description description, inner().Describe(deadline));
  description.where += fmt::format(", below {}", prefix_);
  return description;
}

}  // namespace stores
