// What the parts of one transport have in common: who we are, what we say of ourselves, how we
// check others. Immutable once the transport has started; thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/urls.h"
#include "net/http_client.h"
#include "peer/transport.h"

namespace peer {

struct HttpTransportOptions {
  std::string version = "3.7.3";       // the etcd version this member stands for
  std::vector<std::string> peer_urls;  // advertised
  net::HttpClientOptions client;       // for dialing
  base::Duration snapshot_answer_timeout = std::chrono::minutes(5);
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Link {
  HttpTransportOptions options;
  Identity identity;
  Host* host = nullptr;

  // What etcd's members say of themselves in every request.
  Headers RequestHeaders() const;
};

// Why the sender of a request or a response cannot be talked to: etcd's "incompatible version" and
// "cluster ID mismatch", both FailedPrecondition. InvalidArgument when `version` is no version at
// all. Empty texts count as headers left out.
absl::Status CheckSender(const Link& link, std::string_view version,
                         std::string_view min_cluster_version, std::string_view cluster_id);

// The URLs of one member: one is used until it fails. Thread-safe.
class UrlPicker {
 public:
  explicit UrlPicker(const std::vector<std::string>& urls) { Update(urls); }
  void Update(const std::vector<std::string>& urls);
  // nullopt when the member has no usable URL.
  std::optional<base::Url> Pick() const;
  // The one picked did not work; others go on to the next, unless somebody did that already.
  void Unreachable(const base::Url& url);

 private:
  mutable std::mutex mutex_;
  std::vector<base::Url> urls_;  // guarded by mutex_
  size_t current_ = 0;           // guarded by mutex_
};

// Whether messages to and from a member get through, and how much. Thread-safe.
class Activity {
 public:
  explicit Activity(raft::NodeId id) : id_(id) {}
  void OnSuccess();
  // `what` and `why` are logged when the member was active until now.
  void OnFailure(std::string_view what, std::string_view why);
  std::optional<base::Duration> since() const;
  void CountSent(uint64_t bytes) { sent_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountReceived(uint64_t bytes) {
    received_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  uint64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }
  uint64_t received_bytes() const { return received_bytes_.load(std::memory_order_relaxed); }

 private:
  const raft::NodeId id_;
  mutable std::mutex mutex_;
  std::optional<base::Duration> since_;  // guarded by mutex_
  std::atomic<uint64_t> sent_bytes_{0};
  std::atomic<uint64_t> received_bytes_{0};
};

}  // namespace peer
