#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/wire.h"
#include "mvcc/store.h"
#include "mvcc/store_impl.h"

namespace mvcc {
namespace {

uint64_t ZigZag(int64_t v) {
  return static_cast<uint64_t>(v) << 1 ^ static_cast<uint64_t>(v >> 63);
}
int64_t UnZigZag(uint64_t v) { return static_cast<int64_t>(v >> 1 ^ (~(v & 1) + 1)); }

size_t FieldSize(uint32_t field, size_t bytes) {
  return base::wire::VarintSize(uint64_t{field} << 3) + base::wire::VarintSize(bytes) + bytes;
}

}  // namespace

struct RangeCursor::State {
  State(const Store& s, const RangeQuery& q)
      : store(s), query(q), key(q.key), range_end(q.range_end) {
    query.key = key;
    query.range_end = range_end;
  }

  const Store& store;
  RangeQuery query;
  const std::string key;
  const std::string range_end;
  ReadPoint point;
  std::unique_ptr<IndexWalk> walk;
  bool walking = true;           // the walk has more
  std::vector<KeyState> states;  // of the slice at hand
  size_t next_state = 0;
  int64_t walked = 0;  // keys taken from the walk, at most the limit
  bool more = false;
  bool done = false;
  // A plan: where each record lies in the pinned view, as its address' difference from the one
  // before (zigzag) and its size, both varints.
  bool planned = false;
  std::string plan;
  size_t plan_at = 0;
  uintptr_t plan_last = 0;
  int64_t count = -1;

  absl::Status TakePoint();
  absl::StatusOr<Size> MakePlan(uint32_t field);
  absl::Status TakeSlice();
  absl::StatusOr<std::optional<std::string_view>> NextRecord();
  absl::Status Emit(std::string_view stored, uint32_t field, std::string* out,
                    uint64_t* size) const;
  absl::Status Count();
};

RangeCursor::RangeCursor() = default;
RangeCursor::~RangeCursor() = default;

absl::StatusOr<std::unique_ptr<RangeCursor>> RangeCursor::Open(const Store& store,
                                                               const RangeQuery& query) {
  std::unique_ptr<RangeCursor> cursor(new RangeCursor);
  cursor->state_ = std::make_unique<State>(store, query);
  State& state = *cursor->state_;
  store.impl_->ranges.fetch_add(1, std::memory_order_relaxed);
  absl::Status counted;
  do {
    RETURN_IF_ERROR(state.TakePoint());
    counted = query.count_only ? state.Count() : absl::OkStatus();
  } while (query.revision <= 0 && counted == CompactedError());
  RETURN_IF_ERROR(counted);
  cursor->revision_ = state.point.revision;
  cursor->read_revision_ = state.point.at_main;
  return cursor;
}

// Begins at the revision asked for, or at what is current now.
absl::Status RangeCursor::State::TakePoint() {
  walking = !query.count_only;
  states.clear();
  next_state = 0;
  walked = 0;
  more = false;
  plan.clear();
  count = -1;
  {
    std::shared_lock lock(store.impl_->lock);
    RETURN_IF_ERROR(TakeReadPoint(store, *store.impl_, query, nullptr, &point));
    point.view = store.backend().View();
    point.hint = {};
  }
  walk = std::make_unique<IndexWalk>(store, key, range_end, point);
  return absl::OkStatus();
}

absl::Status RangeCursor::State::TakeSlice() {
  states.clear();
  next_state = 0;
  const auto visit = [&](std::string_view, const KeyState& state) {
    if (query.limit > 0 && walked == query.limit) {
      more = true;
      return false;
    }
    ++walked;
    states.push_back(state);
    return true;
  };
  ASSIGN_OR_RETURN(walking, walk->Slice(visit));
  return absl::OkStatus();
}

absl::Status RangeCursor::State::Count() {
  if (count >= 0) return absl::OkStatus();
  if (!query.count_only && !more) {
    count = walked;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(count, IndexWalk(store, key, range_end, point).Count());
  return absl::OkStatus();
}

// The stored bytes of the next key; nullopt at the end.
absl::StatusOr<std::optional<std::string_view>> RangeCursor::State::NextRecord() {
  if (planned) {
    const char* p = plan.data() + plan_at;
    const char* const end = plan.data() + plan.size();
    if (p == end) return std::nullopt;
    uint64_t delta = 0;
    uint64_t size = 0;
    CHECK(base::wire::Reader::ReadVarint(&p, end, &delta) &&
          base::wire::Reader::ReadVarint(&p, end, &size));
    plan_last += static_cast<uintptr_t>(UnZigZag(delta));
    plan_at = static_cast<size_t>(p - plan.data());
    return std::string_view(reinterpret_cast<const char*>(plan_last), size);
  }
  while (next_state == states.size()) {
    if (!walking) return std::nullopt;
    RETURN_IF_ERROR(TakeSlice());
  }
  ASSIGN_OR_RETURN(const std::string_view stored, FetchStored(store, point, states[next_state]));
  ++next_state;
  return stored;
}

// Appends the key-value of a record, or only adds up its size when `out` is null.
absl::Status RangeCursor::State::Emit(std::string_view stored, uint32_t field, std::string* out,
                                      uint64_t* size) const {
  if (!query.keys_only) {
    *size += FieldSize(field, stored.size());
    if (out != nullptr) AppendField(field, stored, out);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(KeyValue kv, DecodeKeyValue(stored));
  kv.value = {};
  kv.lease = 0;
  *size += FieldSize(field, EncodedSize(kv));
  if (out != nullptr) {
    base::wire::AppendTag(out, field, base::wire::Type::kBytes);
    base::wire::AppendVarint(out, EncodedSize(kv));
    AppendKeyValue(kv, out);
  }
  return absl::OkStatus();
}

absl::StatusOr<RangeCursor::Size> RangeCursor::Plan(uint32_t field) {
  State& state = *state_;
  while (true) {
    absl::StatusOr<Size> size = state.MakePlan(field);
    if (size.ok()) return size;
    // Nothing has been handed out yet, so a read of the current revision may begin anew when a
    // compaction passed it or the database was replaced.
    const bool again =
        size.status().code() == absl::StatusCode::kAborted || size.status() == CompactedError();
    if (!again || state.query.revision > 0) return size;
    RETURN_IF_ERROR(state.TakePoint());
    revision_ = state.point.revision;
    read_revision_ = state.point.at_main;
  }
}

absl::StatusOr<RangeCursor::Size> RangeCursor::State::MakePlan(uint32_t field) {
  Size size;
  uintptr_t last = 0;
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<std::string_view> stored, NextRecord());
    if (!stored.has_value()) break;
    const auto address = reinterpret_cast<uintptr_t>(stored->data());
    base::wire::AppendVarint(&plan, ZigZag(static_cast<int64_t>(address - last)));
    base::wire::AppendVarint(&plan, stored->size());
    last = address;
    RETURN_IF_ERROR(Emit(*stored, field, nullptr, &size.bytes));
  }
  RETURN_IF_ERROR(Count());
  states = {};
  planned = true;
  size.more = more;
  size.count = count;
  return size;
}

absl::StatusOr<RangeCursor::Chunk> RangeCursor::Next(size_t keys_max, uint64_t bytes_max,
                                                     std::string* out, uint32_t field) {
  State& state = *state_;
  const size_t size_before = out->size();
  Chunk chunk;
  uint64_t bytes = 0;
  const auto fill = [&]() -> absl::Status {
    while (!state.done && static_cast<size_t>(chunk.returned) < keys_max && bytes < bytes_max) {
      ASSIGN_OR_RETURN(const std::optional<std::string_view> stored, state.NextRecord());
      if (!stored.has_value()) {
        state.done = true;
        break;
      }
      RETURN_IF_ERROR(state.Emit(*stored, field, out, &bytes));
      ++chunk.returned;
    }
    // The last chunk should know that it is the last: look whether anything follows.
    if (!state.done && !state.planned) {
      while (state.next_state == state.states.size() && state.walking) {
        RETURN_IF_ERROR(state.TakeSlice());
      }
      state.done = state.next_state == state.states.size();
    } else if (state.planned) {
      state.done = state.plan_at == state.plan.size();
    }
    if (state.done) RETURN_IF_ERROR(state.Count());
    return absl::OkStatus();
  };
  if (absl::Status status = fill(); !status.ok()) {
    out->resize(size_before);
    return status;
  }
  chunk.done = state.done;
  if (chunk.done) {
    chunk.more = state.more;
    chunk.count = state.count;
  }
  return chunk;
}

}  // namespace mvcc
