#include "mvcc/key_history.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace mvcc::internal {
namespace {

constexpr unsigned kCountMask = 0x0f;
constexpr unsigned kExplicitFirst = 0x20;
constexpr unsigned kDead = 0x80;
constexpr size_t kInlineChangesMax = 15;
constexpr size_t kLogStateBytes = 1 + sizeof(uint64_t);
// A varint of a difference and one of a sub.
constexpr size_t kChangeBytesMax = 20;
// The two flag bits must fit beside a difference.
constexpr uint64_t kDifferenceMax = (uint64_t{1} << 62) - 1;

unsigned Header(const char* state) { return static_cast<unsigned char>(*state); }

ChangeLog* LogOf(const char* state) {
  return reinterpret_cast<ChangeLog*>(base::LoadLe<uintptr_t>(state + 1));
}

char* PutChange(char* p, int64_t main_before, Revision revision, bool tombstone) {
  const uint64_t difference = static_cast<uint64_t>(revision.main - main_before);
  const bool has_sub = revision.sub != 0;
  p = PutVarint(p, difference << 2 | uint64_t{has_sub} << 1 | uint64_t{tombstone});
  return has_sub ? PutVarint(p, static_cast<uint64_t>(revision.sub)) : p;
}

// Reads coded changes one by one; `current` is the one read last.
struct Reader {
  const char* p = nullptr;
  size_t left = 0;
  Change current;

  static Reader OfInline(const char* state) {
    Reader r;
    const unsigned header = Header(state);
    r.p = state + 1;
    r.left = header & kCountMask;
    r.ReadRevision(0);
    Change& first = r.current;
    if ((header & kExplicitFirst) != 0) {
      first.created =
          static_cast<int64_t>(static_cast<uint64_t>(first.revision.main) - TakeVarint(r.p));
      first.version = static_cast<int64_t>(TakeVarint(r.p));
    } else if (!first.tombstone) {
      first.created = first.revision.main;
      first.version = 1;
    }
    return r;
  }

  // False at the end.
  bool Next() {
    if (left == 0) return false;
    const Change before = current;
    ReadRevision(before.revision.main);
    current = NextChange(before, current.revision, current.tombstone);
    return true;
  }

 private:
  void ReadRevision(int64_t main_before) {
    const uint64_t word = TakeVarint(p);
    current.revision.main = main_before + static_cast<int64_t>(word >> 2);
    current.revision.sub = (word & 2) != 0 ? static_cast<int64_t>(TakeVarint(p)) : 0;
    current.tombstone = (word & 1) != 0;
    --left;
  }
};

// Whether the state of one or more changes could be written without a log.
bool EncodeInline(std::span<const Change> changes, StateBuffer* out) {
  if (changes.size() > kInlineChangesMax) return false;
  char* p = out->bytes + 1;
  char* const end = out->bytes + kStateBytesMax;
  const Change& first = changes.front();
  const bool plain =
      first.tombstone || (first.created == first.revision.main && first.version == 1);
  int64_t main_before = 0;
  for (const Change& change : changes) {
    char bytes[2 * kChangeBytesMax];
    if (static_cast<uint64_t>(change.revision.main - main_before) > kDifferenceMax) return false;
    char* q = PutChange(bytes, main_before, change.revision, change.tombstone);
    if (&change == &first && !plain) {
      q = PutVarint(
          q, static_cast<uint64_t>(first.revision.main) - static_cast<uint64_t>(first.created));
      q = PutVarint(q, static_cast<uint64_t>(first.version));
    }
    const size_t size = static_cast<size_t>(q - bytes);
    if (size > static_cast<size_t>(end - p)) return false;
    std::memcpy(p, bytes, size);
    p += size;
    main_before = change.revision.main;
  }
  out->bytes[0] =
      static_cast<char>(static_cast<unsigned>(changes.size()) | (plain ? 0 : kExplicitFirst) |
                        (changes.back().tombstone ? kDead : 0));
  out->size = static_cast<size_t>(p - out->bytes);
  return true;
}

size_t HeapBytes(const std::string& text) {
  return text.capacity() <= 15 ? 0 : text.capacity() + 9;
}

}  // namespace

Change NextChange(const Change& last, Revision revision, bool tombstone) {
  if (tombstone) return {revision, true, 0, 0};
  if (last.tombstone) return {revision, false, revision.main, 1};
  // Unsigned, since a version from a file may be anything.
  return {revision, false, last.created,
          static_cast<int64_t>(static_cast<uint64_t>(last.version) + 1)};
}

size_t StateBytes(const char* state) {
  const unsigned header = Header(state);
  size_t left = header & kCountMask;
  if (left == 0) return kLogStateBytes;
  const char* p = state + 1;
  for (bool first = true; left > 0; --left, first = false) {
    if ((TakeVarint(p) & 2) != 0) TakeVarint(p);
    if (first && (header & kExplicitFirst) != 0) {
      TakeVarint(p);
      TakeVarint(p);
    }
  }
  return static_cast<size_t>(p - state);
}

Change LastChange(const char* state) {
  if ((Header(state) & kCountMask) == 0) return LogOf(state)->last();
  Reader reader = Reader::OfInline(state);
  while (reader.Next()) {
  }
  return reader.current;
}

std::optional<Change> NewestAt(const char* state, int64_t at_main) {
  if ((Header(state) & kCountMask) == 0) return LogOf(state)->NewestAt(at_main);
  Reader reader = Reader::OfInline(state);
  if (reader.current.revision.main > at_main) return std::nullopt;
  Change newest = reader.current;
  while (reader.Next() && reader.current.revision.main <= at_main) newest = reader.current;
  return newest;
}

void ForEachChange(const char* state, absl::FunctionRef<bool(const Change&)> visit) {
  if ((Header(state) & kCountMask) == 0) {
    LogOf(state)->ForEach(visit);
    return;
  }
  Reader reader = Reader::OfInline(state);
  do {
    if (!visit(reader.current)) return;
  } while (reader.Next());
}

void ChangeLog::AppendTo(Run& run, const Change& last, const Change& change) {
  char bytes[kChangeBytesMax];
  const char* end = PutChange(bytes, last.revision.main, change.revision, change.tombstone);
  run.rest.append(bytes, static_cast<size_t>(end - bytes));
  ++run.changes;
}

void ChangeLog::Append(const Change& change) {
  Run* run = runs_.empty() ? nullptr : runs_.back().get();
  if (run == nullptr || run->changes == kRunChanges ||
      static_cast<uint64_t>(change.revision.main - last_.revision.main) > kDifferenceMax) {
    if (run != nullptr) {
      text_bytes_ -= HeapBytes(run->rest);
      run->rest.shrink_to_fit();
      text_bytes_ += HeapBytes(run->rest);
    }
    runs_.push_back(std::make_unique<Run>());
    runs_.back()->first = change;
  } else {
    text_bytes_ -= HeapBytes(run->rest);
    AppendTo(*run, last_, change);
    text_bytes_ += HeapBytes(run->rest);
  }
  last_ = change;
  ++size_;
}

std::optional<Change> ChangeLog::NewestAt(int64_t at_main) const {
  if (last_.revision.main <= at_main) return last_;
  auto after = std::partition_point(
      runs_.begin(), runs_.end(),
      [at_main](const std::unique_ptr<Run>& run) { return run->first.revision.main <= at_main; });
  if (after == runs_.begin()) return std::nullopt;
  const Run& run = **std::prev(after);
  Reader reader{run.rest.data(), run.changes - 1, run.first};
  Change newest = run.first;
  while (reader.Next() && reader.current.revision.main <= at_main) newest = reader.current;
  return newest;
}

void ChangeLog::ForEach(absl::FunctionRef<bool(const Change&)> visit) const {
  for (const auto& run : runs_) {
    Reader reader{run->rest.data(), run->changes - 1, run->first};
    do {
      if (!visit(reader.current)) return;
    } while (reader.Next());
  }
}

void ChangeLog::DropOldest(size_t count) {
  CHECK_OP(count, <, size_);
  size_ -= count;
  auto first = runs_.begin();
  for (; count >= (*first)->changes; ++first) {
    count -= (*first)->changes;
    text_bytes_ -= HeapBytes((*first)->rest);
  }
  runs_.erase(runs_.begin(), first);
  if (count == 0) return;
  Run& run = *runs_.front();
  text_bytes_ -= HeapBytes(run.rest);
  Reader reader{run.rest.data(), run.changes - 1, run.first};
  for (size_t i = 0; i < count; ++i) reader.Next();
  run.rest = run.rest.substr(static_cast<size_t>(reader.p - run.rest.data()));
  run.first = reader.current;
  run.changes -= static_cast<uint32_t>(count);
  text_bytes_ += HeapBytes(run.rest);
}

size_t ChangeLog::memory_bytes() const {
  constexpr size_t kHeapBlockOverhead = 16;
  return sizeof(*this) + kHeapBlockOverhead + runs_.capacity() * sizeof(runs_[0]) +
         runs_.size() * (sizeof(Run) + kHeapBlockOverhead) + text_bytes_;
}

void Histories::StoreLog(ChangeLog* log, StateBuffer* out) {
  out->bytes[0] = static_cast<char>(log->last().tombstone ? kDead : 0);
  base::StoreLe(out->bytes + 1, reinterpret_cast<uintptr_t>(log));
  out->size = kLogStateBytes;
}

void Histories::Encode(std::span<const Change> changes, StateBuffer* out) {
  if (EncodeInline(changes, out)) return;
  auto log = std::make_unique<ChangeLog>();
  for (const Change& change : changes) log->Append(change);
  log_bytes_ += log->memory_bytes();
  StoreLog(log.release(), out);
}

void Histories::Append(const char* state, const Change& change, StateBuffer* out) {
  const unsigned header = Header(state);
  const size_t count = header & kCountMask;
  if (count == 0) {
    ChangeLog* log = LogOf(state);
    log_bytes_ -= log->memory_bytes();
    log->Append(change);
    log_bytes_ += log->memory_bytes();
    StoreLog(log, out);
    return;
  }
  std::array<Change, kInlineChangesMax + 1> changes;
  size_t n = 0;
  Reader reader = Reader::OfInline(state);
  do {
    changes[n++] = reader.current;
  } while (reader.Next());
  const int64_t last_main = changes[n - 1].revision.main;
  changes[n++] = change;
  if (n <= kInlineChangesMax &&
      static_cast<uint64_t>(change.revision.main - last_main) <= kDifferenceMax) {
    // The bytes so far stay as they are.
    char bytes[kChangeBytesMax];
    const char* end = PutChange(bytes, last_main, change.revision, change.tombstone);
    const size_t old_size = static_cast<size_t>(reader.p - state);
    const size_t added = static_cast<size_t>(end - bytes);
    if (old_size + added <= kStateBytesMax) {
      std::memcpy(out->bytes, state, old_size);
      std::memcpy(out->bytes + old_size, bytes, added);
      out->bytes[0] = static_cast<char>((header & kExplicitFirst) | static_cast<unsigned>(n) |
                                        (change.tombstone ? kDead : 0));
      out->size = old_size + added;
      return;
    }
  }
  Encode(std::span(changes.data(), n), out);
}

void Histories::Free(const char* state) {
  if ((Header(state) & kCountMask) != 0) return;
  std::unique_ptr<ChangeLog> log(LogOf(state));
  log_bytes_ -= log->memory_bytes();
}

Histories::Compacted Histories::Compact(
    const char* state, int64_t compact_main, size_t* drops_left,
    absl::FunctionRef<void(const RevisionKey&, bool kept)> record, StateBuffer* out) {
  const std::optional<Change> newest = NewestAt(state, compact_main);
  if (!newest.has_value()) return {};
  const bool keep_newest = !newest->tombstone || newest->revision.main == compact_main;
  size_t dropped = 0;
  bool something_stays = false;
  bool finished = true;
  ForEachChange(state, [&](const Change& change) {
    something_stays = true;
    if (change.revision.main > compact_main) return false;
    const RevisionKey key{change.revision, change.tombstone};
    if (keep_newest && change.revision == newest->revision) {
      record(key, true);
      return false;
    }
    if (*drops_left == 0) {
      finished = false;
      return false;
    }
    --*drops_left;
    ++dropped;
    record(key, false);
    something_stays = false;
    return true;
  });
  if (dropped == 0) return {Outcome::kSame, finished};
  if (!something_stays) {
    Free(state);
    return {Outcome::kEmpty, finished};
  }
  DropOldest(state, dropped, out);
  return {Outcome::kShorter, finished};
}

void Histories::DropOldest(const char* state, size_t count, StateBuffer* out) {
  std::array<Change, kInlineChangesMax> left;
  size_t n = 0;
  if ((Header(state) & kCountMask) != 0) {
    ForEachChange(state, [&](const Change& change) {
      if (count > 0) {
        --count;
      } else {
        left[n++] = change;
      }
      return true;
    });
    Encode(std::span(left.data(), n), out);
    return;
  }
  ChangeLog* log = LogOf(state);
  log_bytes_ -= log->memory_bytes();
  log->DropOldest(count);
  log_bytes_ += log->memory_bytes();
  StoreLog(log, out);
  // Back into the leaf only when clearly short, so that a key does not go to and fro.
  if (log->size() > kInlineChangesMax / 2) return;
  log->ForEach([&](const Change& change) {
    left[n++] = change;
    return true;
  });
  StateBuffer short_state;
  if (!EncodeInline(std::span(left.data(), n), &short_state)) return;
  Free(state);
  *out = short_state;
}

}  // namespace mvcc::internal
