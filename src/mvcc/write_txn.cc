#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/wire.h"
#include "mvcc/store.h"
#include "mvcc/store_impl.h"
#include "mvcc/watch_hub.h"

namespace mvcc {

WriteTxn Store::BeginWrite() {
  CHECK(!impl_->writing);
  impl_->writing = true;
  impl_->collect_events = impl_->hub != nullptr && impl_->hub->wanted();
  impl_->collect_previous = impl_->collect_events && impl_->hub->previous_wanted();
  return WriteTxn(this, current_revision());
}

WriteTxn::WriteTxn(WriteTxn&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)), base_(other.base_), sub_(other.sub_) {}

WriteTxn::~WriteTxn() { CHECK(store_ == nullptr); }

absl::StatusOr<RangeResult> WriteTxn::Range(const RangeQuery& query, std::string* out,
                                            uint32_t field) {
  const size_t size_before = out->size();
  absl::StatusOr<RangeResult> result = store_->RangeAt(query, this, field, out);
  if (!result.ok()) out->resize(size_before);
  return result;
}

// The apply thread reads the index beside readers; only physical compaction writes it on another
// thread.
std::optional<KeyState> WriteTxn::State(std::string_view key) const {
  std::shared_lock lock(store_->impl_->lock);
  return store_->impl_->index.Get(key, KeyIndex::kNow);
}

void WriteTxn::VisitStates(
    std::string_view key, std::string_view range_end,
    absl::FunctionRef<bool(std::string_view key, const KeyState&)> visit) const {
  std::string from(key);
  bool stopped = false;
  while (true) {
    std::shared_lock lock(store_->impl_->lock);
    KeyIndex::Slice slice =
        store_->impl_->index.Visit(from, range_end, KeyIndex::kNow, kKeysPerLock,
                                   [&](std::string_view k, const KeyState& state) {
                                     stopped = !visit(k, state);
                                     return !stopped;
                                   });
    if (slice.done || stopped) return;
    from = std::move(slice.resume_key);
  }
}

absl::StatusOr<std::string_view> WriteTxn::Stored(const KeyState& state) const {
  Store::Impl& impl = *store_->impl_;
  // While the entry is open the active batch stays the same, so one view serves the whole
  // transaction.
  if (impl.view == nullptr) impl.view = store_->backend_.View();
  ASSIGN_OR_RETURN(const std::optional<std::string_view> stored, impl.view->Find(state.mod));
  if (stored.has_value()) return *stored;
  return base::MakeStatus(absl::StatusCode::kDataLoss,
                          "db file {}: expected a record of revision {}_{}, found none",
                          store_->backend_.path(), state.mod.main, state.mod.sub);
}

absl::StatusOr<std::optional<std::string_view>> WriteTxn::Get(std::string_view key) const {
  const std::optional<KeyState> state = State(key);
  if (!state.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string_view stored, Stored(*state));
  return stored;
}

// What watchers get as prev_kv: the key as it was before the transaction.
absl::StatusOr<std::optional<std::string_view>> WriteTxn::PreviousForEvent(
    std::string_view key, const std::optional<KeyState>& previous) const {
  std::optional<KeyState> before = previous;
  if (previous.has_value() && previous->mod.main > base_) {
    std::shared_lock lock(store_->impl_->lock);
    before = store_->impl_->index.Get(key, base_);
  }
  if (!before.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string_view stored, Stored(*before));
  return stored;
}

absl::Status WriteTxn::Put(std::string_view key, std::string_view value, int64_t lease,
                           std::optional<std::string_view>* previous) {
  Store::Impl& impl = *store_->impl_;
  const Revision revision{base_ + 1, sub_};
  KeyIndex::PutResult result;
  {
    std::lock_guard lock(impl.lock);
    result = impl.index.Put(key, revision);
    if (!result.previous.has_value()) impl.NoteCount(revision.main, 1, key);
  }
  ++sub_;
  const KeyValue kv{.key = key,
                    .create_revision = result.state.created,
                    .mod_revision = revision.main,
                    .version = result.state.version,
                    .value = value,
                    .lease = lease};
  const size_t size = EncodedSize(kv);
  char* const stored = store_->backend_.AppendRecord(revision, false, size);
  EncodeTo(kv, stored);
  if (impl.options.leases != nullptr) impl.options.leases->OnKeyPut(key, lease);
  impl.puts.fetch_add(1, std::memory_order_relaxed);
  impl.put_bytes.fetch_add(key.size() + value.size(), std::memory_order_relaxed);
  if (previous != nullptr) {
    previous->reset();
    if (result.previous.has_value()) {
      ASSIGN_OR_RETURN(*previous, Stored(*result.previous));
    }
  }
  if (impl.collect_events) {
    std::optional<std::string_view> event_previous;
    if (impl.collect_previous && result.state.created != revision.main) {
      ASSIGN_OR_RETURN(event_previous, PreviousForEvent(key, result.previous));
    }
    // In the encoding the key follows its tag and length.
    const char* const key_there =
        stored + (key.empty() ? 0 : 1 + base::wire::VarintSize(key.size()));
    impl.events.Add(revision, false, {key_there, key.size()}, {stored, size}, event_previous);
  }
  return absl::OkStatus();
}

absl::Status WriteTxn::Tombstone(std::string_view key, const std::optional<KeyState>& state,
                                 std::string* previous, uint32_t field) {
  Store::Impl& impl = *store_->impl_;
  const Revision revision{base_ + 1, sub_ - 1};
  KeyValue kv;
  kv.key = key;
  const size_t size = EncodedSize(kv);
  char* const stored = store_->backend_.AppendRecord(revision, true, size);
  EncodeTo(kv, stored);
  if (impl.options.leases != nullptr) impl.options.leases->OnKeyDeleted(key);
  impl.deletes.fetch_add(1, std::memory_order_relaxed);
  if (previous != nullptr) {
    ASSIGN_OR_RETURN(const std::string_view before, Stored(*state));
    AppendField(field, before, previous);
  }
  if (impl.collect_events) {
    std::optional<std::string_view> event_previous;
    if (impl.collect_previous) {
      ASSIGN_OR_RETURN(event_previous, PreviousForEvent(key, state));
    }
    const char* const key_there = stored + size - key.size();
    impl.events.Add(revision, true, {key_there, key.size()}, {}, event_previous);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> WriteTxn::DeleteRange(std::string_view key, std::string_view range_end,
                                              std::string* previous, uint32_t field) {
  Store::Impl& impl = *store_->impl_;
  if (range_end.empty()) {
    std::optional<KeyState> state;
    {
      std::lock_guard lock(impl.lock);
      state = impl.index.Tombstone(key, {base_ + 1, sub_});
      if (state.has_value()) impl.NoteCount(base_ + 1, -1, key);
    }
    if (!state.has_value()) return 0;
    ++sub_;
    RETURN_IF_ERROR(Tombstone(key, state, previous, field));
    return 1;
  }
  int64_t deleted = 0;
  std::string from(key);
  std::vector<std::pair<std::string, KeyState>> found;
  bool going = true;
  while (going) {
    found.clear();
    {
      std::shared_lock lock(impl.lock);
      KeyIndex::Slice slice = impl.index.Visit(from, range_end, KeyIndex::kNow, kKeysPerLock,
                                               [&](std::string_view k, const KeyState& state) {
                                                 found.emplace_back(std::string(k), state);
                                                 return true;
                                               });
      going = !slice.done;
      if (going) from = std::move(slice.resume_key);
    }
    const int64_t first_sub = sub_;
    if (!found.empty()) {
      std::lock_guard lock(impl.lock);
      for (const auto& [k, state] : found) {
        CHECK(impl.index.Tombstone(k, {base_ + 1, sub_++}).has_value());
        impl.NoteCount(base_ + 1, -1, k);
      }
    }
    const int64_t end_sub = std::exchange(sub_, first_sub);
    for (const auto& [k, state] : found) {
      ++sub_;
      RETURN_IF_ERROR(Tombstone(k, state, previous, field));
    }
    CHECK_OP(sub_, ==, end_sub);
    deleted += static_cast<int64_t>(found.size());
  }
  return deleted;
}

int64_t WriteTxn::End() {
  Store& store = *std::exchange(store_, nullptr);
  Store::Impl& impl = *store.impl_;
  impl.writing = false;
  if (!changed()) {
    impl.view.reset();
    return base_;
  }
  impl.txns.fetch_add(1, std::memory_order_relaxed);
  const int64_t revision = base_ + 1;
  // Sequentially consistent with WatchHub::wanted(), see there.
  store.current_revision_.store(revision, std::memory_order_seq_cst);
  if (impl.collect_events) {
    impl.hub->Publish(impl.events.Build(revision, revision, impl.collect_previous));
  } else if (impl.hub != nullptr && impl.hub->wanted()) {
    impl.hub->Skip(revision);
  }
  impl.view.reset();
  return revision;
}

}  // namespace mvcc
