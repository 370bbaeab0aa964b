#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "bolt/db.h"
#include "bolt/node.h"
#include "bolt/store.h"
#include "bolt/tree_editor.h"
#include "bolt/tx.h"

namespace bolt {

using internal::TreeEditor;

namespace {

// An empty bucket: a header, and an empty leaf page with id 0.
constexpr std::string_view kEmptyBucket(
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
    kBucketHeaderBytes + kPageHeaderBytes);

}  // namespace

WriteBucket::WriteBucket(WriteTx& tx, const Bucket& stored)
    : tx_(tx), stored_(stored), sequence_(stored.sequence()) {}

WriteBucket::~WriteBucket() = default;

// A change that met damage half way must not be committed.
absl::Status WriteBucket::Broken(absl::Status status) {
  if (absl::IsDataLoss(status) && tx_.broken_.ok()) tx_.broken_ = status;
  return status;
}

absl::StatusOr<std::optional<std::string_view>> WriteBucket::Get(std::string_view key) const {
  ASSIGN_OR_RETURN(const std::optional<Element> element, TreeEditor::Find(*this, key));
  if (!element || element->is_bucket()) return std::nullopt;
  return element->value;
}

Cursor WriteBucket::cursor() const { return Cursor(*this); }

absl::Status WriteBucket::Put(std::string_view key, std::string_view value) {
  return TreeEditor(*this).Put(key, value, 0, true);
}

absl::Status WriteBucket::PutBorrowed(std::string_view key, std::string_view value) {
  return TreeEditor(*this).Put(key, value, 0, false);
}

absl::StatusOr<bool> WriteBucket::Delete(std::string_view key) {
  return TreeEditor(*this).Delete(key);
}

absl::StatusOr<uint64_t> WriteBucket::DeleteRange(std::string_view begin,
                                                  std::optional<std::string_view> end) {
  absl::StatusOr<uint64_t> count = TreeEditor(*this).DeleteRange(begin, end);
  if (!count.ok()) return Broken(count.status());
  return count;
}

absl::StatusOr<WriteBucket*> WriteBucket::bucket(std::string_view name) {
  if (const auto opened = children_.find(name); opened != children_.end())
    return opened->second.get();
  ASSIGN_OR_RETURN(const std::optional<Element> element, TreeEditor::Find(*this, name));
  if (!element || !element->is_bucket()) return absl::NotFoundError("bucket not found");
  const std::optional<BucketHeader> header = DecodeBucketHeader(element->value);
  if (!header) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "db file {}: bucket {}: expected a bucket header", *tx_.source_.path,
                            name);
  }
  Bucket stored;
  stored.source_ = &tx_.source_;
  stored.root_ = header->root;
  stored.inline_image_ = header->inline_image;
  stored.sequence_ = header->sequence;
  auto& slot = children_[std::string(name)];
  slot.reset(new WriteBucket(tx_, stored));
  return slot.get();
}

absl::StatusOr<WriteBucket*> WriteBucket::CreateBucket(std::string_view name) {
  if (name.empty()) return absl::InvalidArgumentError("bucket name required");
  ASSIGN_OR_RETURN(const std::optional<Element> element, TreeEditor::Find(*this, name));
  if (element) {
    return element->is_bucket() ? absl::AlreadyExistsError("bucket already exists")
                                : absl::InvalidArgumentError("incompatible value");
  }
  RETURN_IF_ERROR(TreeEditor(*this).Put(name, kEmptyBucket, kBucketElement, true));
  return bucket(name);
}

absl::StatusOr<WriteBucket*> WriteBucket::CreateBucketIfMissing(std::string_view name) {
  absl::StatusOr<WriteBucket*> created = CreateBucket(name);
  return absl::IsAlreadyExists(created.status()) ? bucket(name) : created;
}

absl::Status WriteBucket::DeleteBucket(std::string_view name) {
  ASSIGN_OR_RETURN(const std::optional<Element> element, TreeEditor::Find(*this, name));
  if (!element) return absl::NotFoundError("bucket not found");
  if (!element->is_bucket()) return absl::InvalidArgumentError("incompatible value");
  return Broken(TreeEditor(*this).DeleteBucket(name));
}

absl::Status WriteBucket::SetSequence(uint64_t value) {
  sequence_ = value;
  dirty_ = true;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> WriteBucket::NextSequence() {
  RETURN_IF_ERROR(SetSequence(sequence_ + 1));
  return sequence_;
}

void WriteBucket::set_fill_percent(double fill) { fill_percent_ = std::clamp(fill, 0.1, 1.0); }

WriteTx::WriteTx(std::shared_ptr<internal::Store> store, std::shared_ptr<const void> mapping,
                 internal::PageSource source, const Meta& meta)
    : store_(std::move(store)),
      mapping_(std::move(mapping)),
      source_(source),
      meta_(meta),
      arena_(std::make_unique<internal::Arena>()) {
  Bucket stored;
  stored.source_ = &source_;
  stored.root_ = meta_.root;
  stored.sequence_ = meta_.root_sequence;
  root_.reset(new WriteBucket(*this, stored));
}

WriteTx::~WriteTx() { Rollback(); }

absl::StatusOr<CommitStats> WriteTx::Commit() {
  if (store_ == nullptr) return absl::FailedPreconditionError("tx closed");
  absl::StatusOr<CommitStats> stats =
      broken_.ok() ? store_->Commit(*this) : absl::StatusOr<CommitStats>(broken_);
  Rollback();
  return stats;
}

void WriteTx::Rollback() {
  if (store_ == nullptr) return;
  store_->EndWrite();
  store_.reset();
}

}  // namespace bolt
