// Range queries: the steps of RangeRequest, in the order and with the quirks that clients know.
#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "base/wire.h"
#include "mvcc/store.h"
#include "mvcc/store_impl.h"

namespace mvcc {
namespace {

// A key-value on its way into an answer.
struct Item {
  KeyState state;
  std::string_view stored;  // in the pinned view; fetched when needed
  std::string_view value;   // for sorting by value
};

bool HasFilters(const RangeQuery& query) {
  return query.min_mod_revision != 0 || query.max_mod_revision != 0 ||
         query.min_create_revision != 0 || query.max_create_revision != 0;
}

bool Passes(const RangeQuery& query, const KeyState& state) {
  if (query.max_mod_revision != 0 && state.mod.main > query.max_mod_revision) return false;
  if (query.min_mod_revision != 0 && state.mod.main < query.min_mod_revision) return false;
  if (query.max_create_revision != 0 && state.created > query.max_create_revision) return false;
  return query.min_create_revision == 0 || state.created >= query.min_create_revision;
}

}  // namespace

void AppendKeyOnly(uint32_t field, std::string_view key, const KeyState& state, int64_t lease,
                   std::string* out) {
  KeyValue kv;
  kv.key = key;
  kv.create_revision = state.created;
  kv.mod_revision = state.mod.main;
  kv.version = state.version;
  kv.lease = lease;
  base::wire::AppendTag(out, field, base::wire::Type::kBytes);
  base::wire::AppendVarint(out, EncodedSize(kv));
  AppendKeyValue(kv, out);
}

absl::Status TakeReadPoint(const Store& store, const Store::Impl& impl, const RangeQuery& query,
                           const WriteTxn* txn, ReadPoint* point) {
  const int64_t current = store.current_revision();
  point->epoch = impl.epoch;
  point->revision = current;
  point->at_main = query.revision <= 0 ? current : query.revision;
  if (txn != nullptr) {
    point->revision = txn->header_revision();
    if (query.revision <= 0) point->at_main = txn->header_revision();
  }
  if (query.revision > current) return FutureRevisionError();
  if (point->at_main < store.compact_revision()) return CompactedError();
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> FetchStored(const Store& store, const ReadPoint& point,
                                             const KeyState& state) {
  ASSIGN_OR_RETURN(const std::optional<std::string_view> stored,
                   point.view->Find(state.mod, &point.hint));
  if (stored.has_value()) return *stored;
  return base::MakeStatus(absl::StatusCode::kDataLoss,
                          "db file {}: expected a record of revision {}_{}, found none",
                          store.backend().path(), state.mod.main, state.mod.sub);
}

namespace {

// Sorts by anything but the key; ties have no promised order, and keep the key's.
void Sort(const RangeQuery& query, std::vector<Item>* items) {
  const auto compare = [&](const Item& a, const Item& b) {
    switch (query.sort_target) {
      case SortTarget::kKey:
        return false;  // they are in key order
      case SortTarget::kVersion:
        return a.state.version < b.state.version;
      case SortTarget::kCreate:
        return a.state.created < b.state.created;
      case SortTarget::kMod:
        return a.state.mod.main < b.state.mod.main;
      case SortTarget::kValue:
        return a.value < b.value;
    }
    return false;
  };
  if (query.sort_target == SortTarget::kKey) {
    if (query.sort_order == SortOrder::kDescend) std::reverse(items->begin(), items->end());
    return;
  }
  if (query.sort_order == SortOrder::kDescend) {
    std::stable_sort(items->begin(), items->end(),
                     [&](const Item& a, const Item& b) { return compare(b, a); });
  } else {
    std::stable_sort(items->begin(), items->end(), compare);
  }
}

}  // namespace

absl::Status IndexWalk::Check() const {
  if (impl_.epoch != point_.epoch) return absl::AbortedError("the database was replaced");
  if (point_.at_main < store_.compact_revision()) return CompactedError();
  return absl::OkStatus();
}

absl::StatusOr<bool> IndexWalk::Slice(
    absl::FunctionRef<bool(std::string_view, const KeyState&)> visit, size_t keys_max) {
  bool stopped = false;
  const auto until_stopped = [&](std::string_view key, const KeyState& state) {
    stopped = !visit(key, state);
    return !stopped;
  };
  std::shared_lock lock(impl_.lock);
  RETURN_IF_ERROR(Check());
  KeyIndex::Slice slice = impl_.index.Visit(key_, end_, point_.at_main, keys_max, until_stopped);
  if (slice.done || stopped) return false;
  key_ = std::move(slice.resume_key);
  return true;
}

absl::StatusOr<int64_t> IndexWalk::Count() {
  size_t count = 0;
  while (true) {
    std::shared_lock lock(impl_.lock);
    RETURN_IF_ERROR(Check());
    if (count == 0) {
      const std::optional<int64_t> quick = impl_.QuickCount(key_, end_, point_.at_main);
      if (quick.has_value()) return *quick;
    }
    KeyIndex::Slice slice = impl_.index.CountAt(key_, end_, point_.at_main, kKeysPerLock, &count);
    if (slice.done) return static_cast<int64_t>(count);
    key_ = std::move(slice.resume_key);
  }
}

absl::StatusOr<RangeResult> Store::Range(const RangeQuery& query, std::string* out,
                                         uint32_t field) const {
  impl_->ranges.fetch_add(1, std::memory_order_relaxed);
  const size_t size_before = out->size();
  while (true) {
    absl::StatusOr<RangeResult> result = RangeAt(query, nullptr, field, out);
    if (result.ok()) return result;
    out->resize(size_before);
    // Replaced under our feet: what the new database says is as good an answer. And who asks for
    // the current revision never hears that it is compacted, though a compaction may pass between
    // two slices of the walk.
    const bool passed = query.revision <= 0 && result.status() == CompactedError();
    if (result.status().code() != absl::StatusCode::kAborted && !passed) return result;
  }
}

namespace {

// The common case: one key.
absl::StatusOr<RangeResult> RangeOne(const Store& store, const RangeQuery& query,
                                     const ReadPoint& point, const std::optional<KeyState>& state,
                                     uint32_t field, std::string* out) {
  RangeResult result{.revision = point.revision,
                     .read_revision = point.at_main,
                     .count = state.has_value() ? 1 : 0,
                     .returned = 0,
                     .more = false};
  if (!state.has_value() || query.count_only || !Passes(query, *state)) return result;
  result.returned = 1;
  if (query.keys_only && query.sort_target != SortTarget::kValue) {
    AppendKeyOnly(field, query.key, *state, 0, out);
    return result;
  }
  ASSIGN_OR_RETURN(const std::string_view stored, FetchStored(store, point, *state));
  if (query.keys_only) {
    ASSIGN_OR_RETURN(const KeyValue kv, DecodeKeyValue(stored));
    AppendKeyOnly(field, query.key, *state, kv.lease, out);
  } else {
    AppendField(field, stored, out);
  }
  return result;
}

// In key order and unfiltered: nothing is held but one slice. Stops after the limit.
absl::Status RangeInOrder(const Store& store, const RangeQuery& query, const ReadPoint& point,
                          uint32_t field, std::string* out, RangeResult* result) {
  IndexWalk walk(store, query.key, query.range_end, point);
  std::vector<KeyState> states;
  const bool limited = query.limit > 0;
  bool going = true;
  while (going) {
    states.clear();
    const auto visit = [&](std::string_view key, const KeyState& state) {
      if (limited && result->returned == query.limit) {
        result->more = true;
        return false;
      }
      ++result->returned;
      if (query.keys_only) {
        AppendKeyOnly(field, key, state, 0, out);
      } else {
        states.push_back(state);
      }
      return true;
    };
    ASSIGN_OR_RETURN(going, walk.Slice(visit));
    for (const KeyState& state : states) {
      ASSIGN_OR_RETURN(const std::string_view stored, FetchStored(store, point, state));
      AppendField(field, stored, out);
    }
  }
  if (result->more) {
    ASSIGN_OR_RETURN(result->count, IndexWalk(store, query.key, query.range_end, point).Count());
  } else {
    result->count = result->returned;
  }
  return absl::OkStatus();
}

// Everything else: collects, filters, sorts, cuts.
absl::Status RangeSorted(const Store& store, const RangeQuery& query, const ReadPoint& point,
                         uint32_t field, std::string* out, RangeResult* result) {
  // The limit cuts before sorting when the order asked for is none (whatever the target), or that
  // of keys.
  const bool early_limit =
      query.limit > 0 && !HasFilters(query) &&
      (query.sort_order == SortOrder::kNone ||
       (query.sort_target == SortTarget::kKey && query.sort_order == SortOrder::kAscend));
  std::vector<Item> items;
  bool cut = false;
  IndexWalk walk(store, query.key, query.range_end, point);
  bool going = true;
  while (going) {
    const auto visit = [&](std::string_view, const KeyState& state) {
      ++result->count;
      if (Passes(query, state)) items.push_back({state, {}, {}});
      cut = early_limit && static_cast<int64_t>(items.size()) > query.limit;
      return !cut;
    };
    ASSIGN_OR_RETURN(going, walk.Slice(visit));
  }
  if (cut) {
    ASSIGN_OR_RETURN(result->count, IndexWalk(store, query.key, query.range_end, point).Count());
  }
  if (query.sort_target == SortTarget::kValue) {
    for (Item& item : items) {
      ASSIGN_OR_RETURN(item.stored, FetchStored(store, point, item.state));
      ASSIGN_OR_RETURN(const KeyValue kv, DecodeKeyValue(item.stored));
      item.value = kv.value;
    }
  }
  Sort(query, &items);
  if (query.limit > 0 && static_cast<int64_t>(items.size()) > query.limit) {
    items.resize(static_cast<size_t>(query.limit));
    result->more = true;
  }
  for (Item& item : items) {
    if (item.stored.empty()) {
      ASSIGN_OR_RETURN(item.stored, FetchStored(store, point, item.state));
    }
    if (query.keys_only) {
      ASSIGN_OR_RETURN(const KeyValue kv, DecodeKeyValue(item.stored));
      AppendKeyOnly(field, kv.key, item.state,
                    query.sort_target == SortTarget::kValue ? kv.lease : 0, out);
    } else {
      AppendField(field, item.stored, out);
    }
  }
  result->returned = static_cast<int64_t>(items.size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RangeResult> Store::RangeAt(const RangeQuery& query, const WriteTxn* txn,
                                           uint32_t field, std::string* out) const {
  ReadPoint point;
  const bool one = query.range_end.empty();
  std::optional<KeyState> state;
  {
    std::shared_lock lock(impl_->lock);
    RETURN_IF_ERROR(TakeReadPoint(*this, *impl_, query, txn, &point));
    if (one) state = impl_->index.Get(query.key, point.at_main);
    // Pinned under the lock: a physical compaction can have removed nothing that is visible at this
    // point.
    if (!query.count_only) point.view = backend_.View();
    point.hint = {};
  }
  if (one) return RangeOne(*this, query, point, state, field, out);
  RangeResult result{.revision = point.revision,
                     .read_revision = point.at_main,
                     .count = 0,
                     .returned = 0,
                     .more = false};
  if (query.count_only) {
    ASSIGN_OR_RETURN(result.count, IndexWalk(*this, query.key, query.range_end, point).Count());
    return result;
  }
  const bool key_order =
      query.sort_target == SortTarget::kKey ? query.sort_order != SortOrder::kDescend : false;
  if (key_order && !HasFilters(query)) {
    RETURN_IF_ERROR(RangeInOrder(*this, query, point, field, out, &result));
  } else {
    RETURN_IF_ERROR(RangeSorted(*this, query, point, field, out, &result));
  }
  return result;
}

}  // namespace mvcc
