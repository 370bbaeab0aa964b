#include "raft/log.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace raft {

Log::Log(const LogStorage* storage, uint64_t applying_bytes_max)
    : storage_(storage),
      unstable_(storage->LastIndex() + 1),
      committed_(storage->FirstIndex() - 1),
      applying_(committed_),
      applied_(committed_),
      applying_bytes_max_(applying_bytes_max) {}

void Log::Start(Index committed, Index applied) {
  CHECK_OP(committed, >=, committed_);
  CHECK_OP(committed, <=, last_index());
  committed_ = committed;
  if (applied == 0) return;
  CHECK_OP(applied, >=, applied_);
  CHECK_OP(applied, <=, committed);
  applying_ = applied;
  applied_ = applied;
}

Index Log::first_index() const {
  if (unstable_.snapshot()) return unstable_.snapshot()->metadata.index + 1;
  return storage_->FirstIndex();
}

Index Log::last_index() const {
  // Without unstable entries next() is one above the snapshot or above what storage has.
  return unstable_.next() - 1;
}

std::optional<Term> Log::TermAt(Index index) const {
  if (const std::optional<Term> term = unstable_.TermAt(index)) return term;
  if (index + 1 < first_index() || index > last_index()) return std::nullopt;
  return storage_->TermAt(index);
}

EntryId Log::LastId() const {
  const Index last = last_index();
  const std::optional<Term> term = TermAt(last);
  CHECK(term.has_value());
  return {.term = *term, .index = last};
}

bool Log::Matches(EntryId id) const { return TermAt(id.index) == id.term; }

bool Log::IsUpToDate(EntryId last) const {
  const EntryId own = LastId();
  return last.term > own.term || (last.term == own.term && last.index >= own.index);
}

absl::Status Log::Slice(Index low, Index high, uint64_t bytes_max, std::vector<Entry>* out,
                        uint64_t* bytes) const {
  CHECK_OP(low, <=, high);
  CHECK_OP(high, <=, last_index() + 1);
  if (low < first_index()) {
    return absl::Status(absl::StatusCode::kOutOfRange, "entries are compacted");
  }
  out->reserve(out->size() + std::min<size_t>(high - low, 4096));
  uint64_t sum = 0;
  size_t wanted_from_storage = 0;
  const size_t before = out->size();
  if (low < unstable_.first()) {
    const Index storage_high = std::min(high, unstable_.first());
    wanted_from_storage = storage_high - low;
    const absl::Status status = storage_->Entries(low, storage_high, bytes_max, out);
    if (!status.ok()) return status;
    CHECK_OP(out->size(), >, before);
    for (size_t i = before; i < out->size(); ++i) sum += (*out)[i].EncodedBytes();
  }
  if (out->size() - before == wanted_from_storage && high > unstable_.first()) {
    for (const Entry& entry : unstable_.Slice(std::max(low, unstable_.first()), high)) {
      const size_t size = entry.EncodedBytes();
      if (out->size() > before && sum + size > bytes_max) break;
      sum += size;
      out->push_back(entry);
    }
  }
  if (bytes != nullptr) *bytes = sum;
  return absl::OkStatus();
}

void Log::Append(std::vector<Entry>&& entries) {
  if (entries.empty()) return;
  CHECK_OP(entries.front().index, >, committed_);
  unstable_.Append(std::move(entries));
}

bool Log::AppendAfter(EntryId previous, std::vector<Entry>&& entries, Index commit) {
  if (!Matches(previous)) return false;
  const Index last_new = previous.index + entries.size();
  const auto first_new = std::find_if(entries.begin(), entries.end(), [this](const Entry& entry) {
    return !Matches({.term = entry.term, .index = entry.index});
  });
  entries.erase(entries.begin(), first_new);
  Append(std::move(entries));
  CommitTo(std::min(commit, last_new));
  return true;
}

EntryId Log::FindConflictByTerm(Index index, Term term) const {
  for (; index > 0; --index) {
    const std::optional<Term> own = TermAt(index);
    if (!own) return {.term = 0, .index = index};
    if (*own <= term) return {.term = *own, .index = index};
  }
  return {};
}

void Log::CommitTo(Index index) {
  if (index <= committed_) return;
  CHECK_OP(index, <=, last_index());
  committed_ = index;
}

void Log::Restore(SnapshotPtr snapshot) {
  committed_ = snapshot->metadata.index;
  unstable_.Restore(std::move(snapshot));
}

Index Log::LastApplicable(bool allow_unstable) const {
  return allow_unstable ? committed_ : std::min(committed_, unstable_.first() - 1);
}

bool Log::HasNextCommitted(bool allow_unstable) const {
  // The snapshot must be applied first, whether its write has begun or not.
  if (applying_paused_ || unstable_.snapshot()) return false;
  return applying_ < LastApplicable(allow_unstable);
}

std::vector<Entry> Log::NextCommitted(bool allow_unstable, uint64_t* bytes) const {
  std::vector<Entry> entries;
  *bytes = 0;
  if (!HasNextCommitted(allow_unstable)) return entries;
  CHECK_OP(applying_bytes_, <, applying_bytes_max_);
  const absl::Status status = Slice(applying_ + 1, LastApplicable(allow_unstable) + 1,
                                    applying_bytes_max_ - applying_bytes_, &entries, bytes);
  // A committed entry that cannot be read back is lost: nothing can be built on this log any more.
  CHECK(status.ok());
  return entries;
}

void Log::AcceptApplying(Index index, uint64_t bytes, bool allow_unstable) {
  CHECK_OP(index, <=, committed_);
  CHECK_OP(index, >=, applying_);
  applying_ = index;
  applying_bytes_ += bytes;
  // Paused also when the last batch was cut short: the next entry alone would cross the limit.
  applying_paused_ =
      applying_bytes_ >= applying_bytes_max_ || index < LastApplicable(allow_unstable);
}

void Log::AppliedTo(Index index, uint64_t bytes) {
  CHECK_OP(index, <=, committed_);
  CHECK_OP(index, >=, applied_);
  applied_ = index;
  applying_ = std::max(applying_, index);
  applying_bytes_ -= std::min(applying_bytes_, bytes);
  applying_paused_ = applying_bytes_ >= applying_bytes_max_;
}

}  // namespace raft
