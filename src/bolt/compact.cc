#include "bolt/compact.h"

#include <utility>

#include "base/status.h"

namespace bolt {

CompactCopier::CompactCopier(const ReadTx& source, DB& destination, double fill_percent)
    : source_(source), destination_(destination), fill_percent_(fill_percent) {}

CompactCopier::~CompactCopier() = default;

absl::Status CompactCopier::Enter(std::string name, const Bucket& from) {
  path_.push_back({.name = std::move(name), .from = from, .cursor = from.cursor()});
  return path_.back().cursor.First().status();
}

absl::StatusOr<bool> CompactCopier::Step(uint64_t max_bytes) {
  if (done_) return true;
  ASSIGN_OR_RETURN(const std::unique_ptr<WriteTx> tx, destination_.BeginWrite());
  if (!started_) {
    RETURN_IF_ERROR(Enter("", source_.root()));
    if (source_.root().sequence() != 0)
      RETURN_IF_ERROR(tx->root().SetSequence(source_.root().sequence()));
    started_ = true;
  }
  std::vector<WriteBucket*> to = {&tx->root()};  // as path_
  for (size_t i = 1; i < path_.size(); ++i) {
    ASSIGN_OR_RETURN(WriteBucket * next, to.back()->bucket(path_[i].name));
    to.push_back(next);
  }
  for (WriteBucket* bucket : to) bucket->set_fill_percent(fill_percent_);

  uint64_t bytes = 0;
  while (!path_.empty()) {
    Cursor& cursor = path_.back().cursor;
    if (!cursor.valid()) {  // this bucket is done: its parent goes on behind it
      path_.pop_back();
      to.pop_back();
      if (!path_.empty()) RETURN_IF_ERROR(path_.back().cursor.Next().status());
      continue;
    }
    if (bytes >= max_bytes && bytes > 0) break;
    bytes +=
        cursor.key().size() + (cursor.is_bucket() ? kBucketHeaderBytes : cursor.value().size());
    // In a damaged file buckets may hold each other; a sound one holds no more than its size.
    if (copied_bytes_ + bytes > source_.size_bytes()) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "db file {}: expected a tree, found a cycle of buckets",
                              source_.path());
    }
    if (!cursor.is_bucket()) {
      // The source's pages stay mapped and as they are while its transaction lives.
      RETURN_IF_ERROR(to.back()->PutBorrowed(cursor.key(), cursor.value()));
      RETURN_IF_ERROR(cursor.Next().status());
      continue;
    }
    ASSIGN_OR_RETURN(const Bucket nested, path_.back().from.bucket(cursor.key()));
    ASSIGN_OR_RETURN(WriteBucket* const copy, to.back()->CreateBucket(cursor.key()));
    copy->set_fill_percent(fill_percent_);
    if (nested.sequence() != 0) RETURN_IF_ERROR(copy->SetSequence(nested.sequence()));
    to.push_back(copy);
    RETURN_IF_ERROR(Enter(std::string(cursor.key()), nested));
  }
  RETURN_IF_ERROR(tx->Commit().status());
  copied_bytes_ += bytes;
  done_ = path_.empty();
  return done_;
}

}  // namespace bolt
