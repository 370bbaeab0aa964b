#include "mirror.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/status.h"
#include "client/watch.h"
#include "kv_requests.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr int64_t kPageKeys = 1000;
constexpr std::string_view kPositionName("\0engram-mirror/", 15);

bool IsPositionKey(std::string_view key) {
  return key.substr(0, kPositionName.size()) == kPositionName;
}

// Calls `page` for each page of the keys under `prefix` as of one revision; returns that revision
// and the cluster's id.
struct Scanned {
  int64_t revision = 0;
  uint64_t cluster_id = 0;
};
template <typename Page>
absl::StatusOr<Scanned> Scan(client::Client& client, std::string_view prefix, int64_t revision,
                             bool keys_only, const Page& page) {
  const KeyRange range = PrefixRange(prefix);
  pb::RangeRequest request;
  request.set_key(range.key);
  request.set_range_end(range.end);
  request.set_limit(kPageKeys);
  request.set_keys_only(keys_only);
  request.set_revision(revision);
  Scanned scanned{.revision = revision, .cluster_id = 0};
  for (;;) {
    ASSIGN_OR_RETURN(const pb::RangeResponse response, client.Call(client::kRange, request));
    scanned.cluster_id = response.header().cluster_id();
    if (scanned.revision == 0) {
      scanned.revision = response.header().revision();
      request.set_revision(scanned.revision);
    }
    RETURN_IF_ERROR(page(response));
    if (!response.more() || response.kvs_size() == 0) return scanned;
    request.set_key(response.kvs(response.kvs_size() - 1).key() + '\0');
  }
}

}  // namespace

std::string FormatPosition(const MirrorPosition& position) {
  return fmt::format("{:x} {} {}", position.cluster_id, position.revision, Quote(position.prefix));
}

bool ParsePosition(std::string_view text, MirrorPosition* position) {
  const size_t first = text.find(' ');
  const size_t second = first == std::string_view::npos ? first : text.find(' ', first + 1);
  if (second == std::string_view::npos) return false;
  const absl::StatusOr<uint64_t> cluster = ParseUint(text.substr(0, first), 16);
  const absl::StatusOr<int64_t> revision = ParseInt(text.substr(first + 1, second - first - 1), 10);
  if (!cluster.ok() || !revision.ok() || *revision <= 0) return false;
  position->cluster_id = *cluster;
  position->revision = *revision;
  return Unquote(text.substr(second + 1), &position->prefix);
}

std::string Mirror::DestinationKey(std::string_view key) const {
  return options_.destination_prefix + std::string(key.substr(options_.prefix.size()));
}

std::string Mirror::PositionKey() const {
  return std::string(kPositionName) + options_.destination_prefix;
}

absl::StatusOr<MirrorPosition> Mirror::ReadPosition() {
  pb::RangeRequest request;
  request.set_key(PositionKey());
  ASSIGN_OR_RETURN(const pb::RangeResponse response, destination_.Call(client::kRange, request));
  MirrorPosition position;
  if (response.kvs_size() > 0 && !ParsePosition(response.kvs(0).value(), &position)) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "key {} of the destination holds no mirror position: {}",
                            Quote(PositionKey()), Quote(response.kvs(0).value()));
  }
  return position;
}

absl::Status Mirror::Run(const std::function<void()>& on_no_position) {
  int64_t revision = options_.start_revision - 1;
  if (options_.start_revision <= 0) {
    absl::StatusOr<MirrorPosition> read = ReadPosition();
    if (read.status().code() == absl::StatusCode::kPermissionDenied) {
      keeps_position_ = false;
      on_no_position();
      read = MirrorPosition();
    }
    ASSIGN_OR_RETURN(const MirrorPosition position, std::move(read));
    pb::RangeRequest probe;
    probe.set_key("\0", 1);
    probe.set_count_only(true);
    ASSIGN_OR_RETURN(const pb::RangeResponse source, source_.Call(client::kRange, probe));
    cluster_id_ = source.header().cluster_id();
    const bool known = position.revision > 0;
    const bool same = position.cluster_id == cluster_id_ && position.prefix == options_.prefix &&
                      position.revision <= source.header().revision();
    revision = known && same ? position.revision : 0;
    if (revision == 0) {
      ASSIGN_OR_RETURN(revision, CopyAll(/*reconcile=*/false));
    }
  }
  for (;;) {
    bool compacted = false;
    RETURN_IF_ERROR(Follow(revision + 1, &compacted));
    if (!compacted) return absl::InternalError("the watch of the source has ended");
    ASSIGN_OR_RETURN(revision, CopyAll(/*reconcile=*/true));
  }
}

absl::StatusOr<int64_t> Mirror::CopyAll(bool reconcile) {
  ASSIGN_OR_RETURN(const Scanned scanned,
                   Scan(source_, options_.prefix, 0, false, [this](const pb::RangeResponse& page) {
                     std::vector<pb::RequestOp> ops;
                     for (const mvccpb::KeyValue& kv : page.kvs()) {
                       if (IsPositionKey(kv.key())) continue;
                       pb::PutRequest& put = *ops.emplace_back().mutable_request_put();
                       put.set_key(DestinationKey(kv.key()));
                       put.set_value(kv.value());
                     }
                     return Commit(std::move(ops), 0);
                   }));
  cluster_id_ = scanned.cluster_id;
  if (reconcile) RETURN_IF_ERROR(DeleteSurplus(scanned.revision));
  RETURN_IF_ERROR(Commit({}, scanned.revision));
  return scanned.revision;
}

// Walks both sides in key order and deletes the destination's keys that the source lacks at
// `revision`.
absl::Status Mirror::DeleteSurplus(int64_t revision) {
  std::vector<std::string> wanted;
  RETURN_IF_ERROR(
      Scan(source_, options_.prefix, revision, true, [&](const pb::RangeResponse& page) {
        for (const mvccpb::KeyValue& kv : page.kvs()) {
          if (IsPositionKey(kv.key())) continue;
          wanted.push_back(DestinationKey(kv.key()));
        }
        return absl::OkStatus();
      }).status());
  std::vector<pb::RequestOp> ops;
  size_t next = 0;
  RETURN_IF_ERROR(
      Scan(destination_, options_.destination_prefix, 0, true, [&](const pb::RangeResponse& page) {
        for (const mvccpb::KeyValue& kv : page.kvs()) {
          while (next < wanted.size() && wanted[next] < kv.key()) ++next;
          if (next < wanted.size() && wanted[next] == kv.key()) continue;
          if (IsPositionKey(kv.key())) continue;
          ops.emplace_back().mutable_request_delete_range()->set_key(kv.key());
        }
        return absl::OkStatus();
      }).status());
  return Commit(std::move(ops), 0);
}

absl::Status Mirror::Follow(int64_t from_revision, bool* compacted) {
  const KeyRange range = PrefixRange(options_.prefix);
  const auto watcher = client::Watcher::Create(source_, /*require_leader=*/true);
  watcher->Add({.key = range.key, .range_end = range.end, .start_revision = from_revision});
  for (;;) {
    pb::WatchResponse response;
    int watch = 0;
    RETURN_IF_ERROR(watcher->Next(&response, &watch));
    cluster_id_ =
        response.header().cluster_id() == 0 ? cluster_id_ : response.header().cluster_id();
    if (response.compact_revision() != 0) {
      *compacted = true;
      return absl::OkStatus();
    }
    if (response.canceled()) return absl::InternalError(response.cancel_reason());
    RETURN_IF_ERROR(Apply(response));
  }
}

// One transaction per source revision, as far as its size allows.
absl::Status Mirror::Apply(const pb::WatchResponse& response) {
  std::vector<pb::RequestOp> ops;
  int64_t revision = 0;
  for (const mvccpb::Event& event : response.events()) {
    if (revision != 0 && event.kv().mod_revision() != revision) {
      RETURN_IF_ERROR(Commit(std::exchange(ops, {}), revision));
    }
    revision = event.kv().mod_revision();
    if (IsPositionKey(event.kv().key())) continue;
    pb::RequestOp& op = ops.emplace_back();
    if (event.type() == mvccpb::Event::PUT) {
      op.mutable_request_put()->set_key(DestinationKey(event.kv().key()));
      op.mutable_request_put()->set_value(event.kv().value());
    } else {
      op.mutable_request_delete_range()->set_key(DestinationKey(event.kv().key()));
    }
  }
  return revision == 0 ? absl::OkStatus() : Commit(std::move(ops), revision);
}

absl::Status Mirror::Commit(std::vector<pb::RequestOp> ops, int64_t revision) {
  const auto changes = static_cast<int64_t>(ops.size());
  if (revision != 0 && keeps_position_) {
    pb::PutRequest& put = *ops.emplace_back().mutable_request_put();
    put.set_key(PositionKey());
    put.set_value(FormatPosition(
        {.cluster_id = cluster_id_, .revision = revision, .prefix = options_.prefix}));
  }
  const auto step = static_cast<std::ptrdiff_t>(std::max<uint64_t>(options_.txn_ops_max, 1));
  for (auto first = ops.begin(); first != ops.end();) {
    const auto last = first + std::min(step, ops.end() - first);
    pb::TxnRequest request;
    for (auto op = first; op != last; ++op) *request.add_success() = std::move(*op);
    RETURN_IF_ERROR(destination_.Call(client::kTxn, request).status());
    first = last;
  }
  mirrored_ += changes;
  return absl::OkStatus();
}

}  // namespace engramctl
