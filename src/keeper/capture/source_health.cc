#include "capture/source_health.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <utility>

#include "base/status.h"

namespace capture {
namespace {

constexpr size_t kPageBytesMax = size_t{16} << 20;
// So many say what is usual.
constexpr double kUsualCount = 20;

// No number of seconds, writes or bytes is larger; nor is what is none.
constexpr double kValueMax = 1e15;

// The value of a sample without labels.
std::optional<double> Sample(std::string_view page, std::string_view name) {
  for (size_t at = 0; at < page.size();) {
    const size_t end = std::min(page.find('\n', at), page.size());
    const std::string_view line = page.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ') continue;
    const std::string_view text = line.substr(name.size() + 1);
    double value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec == std::errc() && std::abs(value) <= kValueMax) return value;
  }
  return std::nullopt;
}

bool ReadLatency(std::string_view page, const std::string& name, Vitals::Latency* out) {
  const auto seconds = Sample(page, name + "_sum");
  const auto count = Sample(page, name + "_count");
  if (!seconds || !count) return false;
  *out = {.seconds = *seconds, .count = *count};
  return true;
}

// The mean of what came between two looks; nothing when it is too little to say.
std::optional<double> Mean(const Vitals::Latency& from, const Vitals::Latency& to,
                           double count_min) {
  const double count = to.count - from.count;
  if (count < count_min || count <= 0) return std::nullopt;
  return (to.seconds - from.seconds) / count;
}

std::optional<double> Usual(const std::optional<Vitals::Latency>& before,
                            const Vitals::Latency& now) {
  if (before.has_value()) {
    if (const auto mean = Mean(*before, now, kUsualCount)) return mean;
  }
  return Mean({}, now, kUsualCount);
}

std::string Milliseconds(double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); }

size_t TakeBytes(char* data, size_t size, size_t count, void* out) {
  auto& body = *static_cast<std::string*>(out);
  if (body.size() + size * count > kPageBytesMax) return 0;
  body.append(data, size * count);
  return size * count;
}

}  // namespace

std::optional<Vitals> ParseVitals(std::string_view page) {
  Vitals vitals;
  const bool fsync = ReadLatency(page, "etcd_disk_wal_fsync_duration_seconds", &vitals.fsync);
  const bool commit =
      ReadLatency(page, "etcd_disk_backend_commit_duration_seconds", &vitals.commit);
  if (!fsync && !commit) return std::nullopt;
  vitals.leader_changes = Sample(page, "etcd_server_leader_changes_seen_total").value_or(0);
  const auto quota = Sample(page, "etcd_server_quota_backend_bytes");
  const auto size = Sample(page, "etcd_mvcc_db_total_size_in_bytes");
  if (quota && size && *quota > 0) vitals.space_left = *quota - *size;
  return vitals;
}

absl::StatusOr<Vitals> ReadVitals(const MetricsAccess& access, base::Duration timeout) {
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  if (curl == nullptr) return absl::InternalError("curl cannot be set up");
  const std::string address = access.url + "/metrics";
  std::string body;
  curl_easy_setopt(curl.get(), CURLOPT_URL, address.c_str());
  if (!access.ca_file.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_CAINFO, access.ca_file.c_str());
  }
  if (!access.cert_file.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_SSLCERT, access.cert_file.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_SSLKEY, access.key_file.c_str());
  }
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS,
                   static_cast<long>(timeout / std::chrono::milliseconds(1)));
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, TakeBytes);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) {
    return base::MakeStatus(absl::StatusCode::kUnavailable, "{}: {}", address,
                            curl_easy_strerror(code));
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) {
    return base::MakeStatus(absl::StatusCode::kUnavailable, "{}: status {}", address, status);
  }
  const std::optional<Vitals> vitals = ParseVitals(body);
  if (!vitals.has_value()) {
    return base::MakeStatus(absl::StatusCode::kUnavailable,
                            "{}: the page tells neither fsync nor commit times", address);
  }
  return *vitals;
}

SourceWatch::SourceWatch(base::Clock& clock, const SourceWatchOptions& options, Look look,
                         Wait wait, Tell tell, std::optional<Vitals> before)
    : clock_(clock),
      options_(options),
      look_(std::move(look)),
      wait_(std::move(wait)),
      tell_(std::move(tell)) {
  absl::StatusOr<Vitals> now = look_();
  looked_ = clock_.Monotonic();
  if (!now.ok()) {
    unwatched_ = now.status();
    return;
  }
  // A member that counts less than before was started anew.
  const bool same = before.has_value() && before->fsync.count <= now->fsync.count &&
                    before->commit.count <= now->commit.count;
  fsync_before_ = Usual(same ? std::optional(before->fsync) : std::nullopt, now->fsync);
  commit_before_ = Usual(same ? std::optional(before->commit) : std::nullopt, now->commit);
  space_at_begin_ = now->space_left;
  last_ = judged_ = *now;
}

std::string SourceWatch::Suffering(const Vitals& now, double factor) {
  std::string why;
  const double floor = std::chrono::duration<double>(options_.floor).count();
  const auto judge = [&](const char* name, const Vitals::Latency& from, const Vitals::Latency& to,
                         const std::optional<double>& before) {
    const auto mean = Mean(from, to, options_.count_min);
    if (!mean || !before || *mean < floor || *mean < factor * *before) return;
    why += fmt::format("{}{} {}, {} before", why.empty() ? "" : "; ", name, Milliseconds(*mean),
                       Milliseconds(*before));
  };
  judge("fsync", judged_.fsync, now.fsync, fsync_before_);
  judge("commit", judged_.commit, now.commit, commit_before_);
  if (now.leader_changes > judged_.leader_changes) {
    why += fmt::format("{}the leader changed", why.empty() ? "" : "; ");
  }
  // Too few to say anything are judged together with those of the next look.
  const bool enough = now.fsync.count - judged_.fsync.count >= options_.count_min ||
                      now.commit.count - judged_.commit.count >= options_.count_min;
  if (enough || !why.empty()) judged_ = now;
  return why;
}

absl::Status SourceWatch::AtPiece() {
  if (!unwatched_.ok() || clock_.Monotonic() - looked_ < options_.look_every) {
    return absl::OkStatus();
  }
  bool suffers = false;
  while (true) {
    absl::StatusOr<Vitals> now = look_();
    looked_ = clock_.Monotonic();
    if (!now.ok()) {
      unwatched_ = now.status();
      if (suffers) tell_(false, "its metrics cannot be had any more");
      return absl::OkStatus();
    }
    last_ = *now;
    // A snapshot that is open keeps old pages from being used again: to wait would make it worse.
    if (space_at_begin_ && now->space_left && *now->space_left * 2 < *space_at_begin_) {
      return base::MakeStatus(
          absl::StatusCode::kUnavailable,
          "the space that its db has left halved during the snapshot, to {} MiB",
          static_cast<int64_t>(*now->space_left) >> 20);
    }
    const std::string why = Suffering(*now, suffers ? options_.recovered : options_.suffers);
    if (why.empty()) {
      if (suffers) tell_(false, "it recovered");
      return absl::OkStatus();
    }
    if (paused_ >= options_.pause_max) {
      return base::MakeStatus(absl::StatusCode::kUnavailable,
                              "it suffers, and did not recover in {} s of waiting: {}",
                              paused_ / std::chrono::seconds(1), why);
    }
    if (!suffers) {
      suffers = true;
      if (why_.empty()) why_ = why;
      tell_(true, why);
    }
    const base::Duration began = clock_.Monotonic();
    if (wait_(options_.look_every)) return absl::CancelledError("stopped");
    paused_ += clock_.Monotonic() - began;
  }
}

std::string SourceWatch::Summary() const {
  if (why_.empty()) return {};
  return fmt::format("paused {:.0f} s: {}", std::chrono::duration<double>(paused_).count(), why_);
}

}  // namespace capture
