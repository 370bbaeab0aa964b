// Transactions on a db file: ReadTx and WriteTx, the buckets in them and cursors over those.
//
// Threads. A ReadTx is an immutable pinned view: it, its Buckets and `const` calls on them may be
// used from any number of threads at once. A WriteTx with all its WriteBuckets belongs to one
// thread. A Cursor belongs to one thread. Lifetimes. A string_view from Get or a Cursor stays valid
// until its transaction ends (in a WriteTx too, even if the key is overwritten or deleted
// meanwhile). Buckets, WriteBuckets and Cursors must not outlive their transaction. Errors. Damage
// of the file yields DataLoss "db file <path>: page 7: expected ..."; nothing reads outside the
// file or loops.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bolt/page.h"

namespace bolt {

class Cursor;
class WriteBucket;
class WriteTx;
struct CommitStats;

namespace internal {
class Arena;
struct Node;
class Store;
class TreeEditor;
// The pages one transaction may read: a mapping, and where it ends. Immutable.
struct PageSource {
  const char* data = nullptr;  // page 0
  PageId page_count = 0;       // pages at or above this id are not part of the view
  uint32_t page_bytes = 0;
  const std::string* path = nullptr;  // of the file, for messages

  // The branch or leaf page `id`; false when it is damaged, see Damage.
  bool Load(PageId id, PageView* out) const {
    return id >= 2 && id < page_count &&
           PageView::Load(data + id * page_bytes, id, (page_count - id) * page_bytes, page_bytes,
                          out);
  }
  // DataLoss saying what is wrong with page `id`, which Load refused.
  absl::Status Damage(PageId id) const;
  // DataLoss "db file <path>: page <id>: <what>".
  absl::Status Damage(PageId id, std::string_view what) const;
};
}  // namespace internal

// Where the last Get() of a run of them ended. For one bucket of one transaction; one thread.
class LeafHint {
 private:
  friend class Bucket;
  // Of two pages: their keys, empty when there is no page.
  struct Level {
    PageView page;
    std::string_view first;
    std::string_view last;
  };
  Level leaf_;
  Level branch_;  // a parent of leaves; what lies behind its last key is not known
};

// A bucket seen through a transaction: a small value, cheap to copy.
class Bucket {
 public:
  // The value of `key`; nothing when it is missing or names a nested bucket.
  // With a hint, a key in the leaf of the call before is found without a descent.
  absl::StatusOr<std::optional<std::string_view>> Get(std::string_view key,
                                                      LeafHint* hint = nullptr) const;
  // A nested bucket; NotFound when there is none of that name.
  absl::StatusOr<Bucket> bucket(std::string_view name) const;
  // A counter kept with the bucket; 0 unless somebody used it.
  uint64_t sequence() const { return sequence_; }
  // Positioned nowhere: call First, Last or Seek.
  Cursor cursor() const;
  // Up to `parts_max` - 1 keys, ascending, that cut the bucket into parts of about equal numbers of
  // pages, for scanning it by several threads: part i is [keys[i - 1], keys[i]). None when it is
  // small. Reads branch pages only.
  absl::StatusOr<std::vector<std::string_view>> CutKeys(size_t parts_max) const;
  // Root page, or kInlineRoot.
  PageId root_page() const { return root_; }

 private:
  friend class Cursor;
  friend class ReadTx;
  friend class WriteBucket;
  friend class WriteTx;
  friend class internal::TreeEditor;
  absl::Status LoadRoot(PageView* out) const;

  const internal::PageSource* source_ = nullptr;
  PageId root_ = kInlineRoot;
  std::string_view inline_image_;
  uint64_t sequence_ = 0;
};

// Walks a bucket in key order, nested buckets included. In a WriteTx it sees the transaction's own
// writes, and the bucket may be changed between two calls: Next then goes to the first key above
// the one last stood on, Prev to the last below it.
class Cursor {
 public:
  // Each moves and says whether it now stands on an element. First, Last and Seek may be called at
  // any time. Next past the last and Prev before the first element return false, as does either
  // when the cursor stands nowhere.
  absl::StatusOr<bool> First();
  absl::StatusOr<bool> Last();
  absl::StatusOr<bool> Next();
  absl::StatusOr<bool> Prev();
  // To the first element whose key is >= `key`.
  absl::StatusOr<bool> Seek(std::string_view key);

  bool valid() const { return valid_; }
  // Require valid(). A nested bucket's value() is its header: open it by Bucket::bucket(key()).
  std::string_view key() const { return element_.key; }
  std::string_view value() const { return element_.value; }
  bool is_bucket() const { return element_.is_bucket(); }

 private:
  friend class Bucket;
  friend class WriteBucket;
  friend class internal::TreeEditor;
  // One step of the path from the root: a page, or the node that took its place in a WriteTx.
  struct Level {
    PageView page;
    const internal::Node* node = nullptr;
    uint32_t index = 0;
    uint32_t count() const;
    bool leaf() const;
  };
  explicit Cursor(const Bucket& bucket) : bucket_(bucket) {}
  explicit Cursor(const WriteBucket& bucket);

  absl::Status PushRoot();
  absl::Status PushChild();
  absl::Status Get(const Level& level, Element* out) const;
  absl::Status SearchLevel(Level& level, std::string_view key, bool* exact) const;
  absl::Status Descend(bool to_last);
  absl::StatusOr<bool> Land();
  absl::Status EnterLeaf(const bool* forward);
  absl::StatusOr<bool> Step(bool forward);
  absl::StatusOr<bool> Reseek(bool forward);

  Bucket bucket_;                         // what is read where no node stands
  const WriteBucket* writing_ = nullptr;  // in a WriteTx
  uint64_t change_count_ = 0;             // of *writing_ when the path was taken
  std::vector<Level> path_;
  Element element_;
  // Keys at the ends of the leaf stood on: a step into the next leaf must go beyond, or the pages
  // form a cycle.
  std::string_view leaf_first_, leaf_last_;
  bool valid_ = false;
};

class ReadTx {
 public:
  ~ReadTx();  // gives the view back; any thread
  ReadTx(const ReadTx&) = delete;
  ReadTx& operator=(const ReadTx&) = delete;

  TxId txid() const { return meta_.txid; }
  // The bucket whose nested buckets are the top-level ones.
  const Bucket& root() const { return root_; }
  // A top-level bucket; NotFound when missing.
  absl::StatusOr<Bucket> bucket(std::string_view name) const { return root_.bucket(name); }
  // etcd's "db size": pages ever allocated times the page size.
  uint64_t size_bytes() const { return meta_.page_count * meta_.page_bytes; }
  const Meta& meta() const { return meta_; }
  const std::string& path() const { return *source_.path; }

  // The hot backup: a file image with both meta pages made anew for this view. ImageSize() ==
  // size_bytes(). Pages that are free in this view may be overwritten by later commits, so the
  // bytes of those, which nothing refers to, may differ between two readings.
  uint64_t ImageSize() const { return size_bytes(); }
  // Copies image bytes [offset, offset + n) to `out`. OutOfRange when they pass the end.
  absl::Status ReadImage(uint64_t offset, char* out, size_t n) const;
  // The same without a copy: up to `n` bytes at `offset`, fewer at the border behind the meta pages
  // and at the end (empty there). Valid as long as the transaction.
  std::string_view ImageView(uint64_t offset, size_t n) const;

  const internal::PageSource& source() const { return source_; }  // for this layer's own use

 private:
  friend class internal::Store;
  ReadTx(std::shared_ptr<internal::Store> store, std::shared_ptr<const void> mapping,
         internal::PageSource source, const Meta& meta);

  const std::shared_ptr<internal::Store> store_;
  const std::shared_ptr<const void> mapping_;  // keeps source_.data mapped
  const internal::PageSource source_;
  const Meta meta_;
  Bucket root_;
  mutable std::once_flag meta_pages_once_;
  mutable std::string meta_pages_;  // pages 0 and 1 of the image, made when first asked for
  const std::string& MetaPages() const;
};

// A bucket of a WriteTx, which owns it. One thread.
class WriteBucket {
 public:
  ~WriteBucket();
  WriteBucket(const WriteBucket&) = delete;
  WriteBucket& operator=(const WriteBucket&) = delete;

  // As Bucket's, seeing the transaction's own writes.
  absl::StatusOr<std::optional<std::string_view>> Get(std::string_view key) const;
  Cursor cursor() const;

  // Sets the value of `key`; both are copied. InvalidArgument: "key required", "key too large"
  // (above kKeyBytesMax), "value too large", or "incompatible value" when the key names a nested
  // bucket. Keys put in ascending order behind the last key of the bucket cost a copy and no
  // search.
  absl::Status Put(std::string_view key, std::string_view value);
  // The same without copying: both must stay readable and unchanged until the transaction ends.
  absl::Status PutBorrowed(std::string_view key, std::string_view value);
  // Removes a key; whether it was there. InvalidArgument "incompatible value" when it names a
  // nested bucket.
  absl::StatusOr<bool> Delete(std::string_view key);
  // Removes the keys in [begin, end), or from `begin` on without `end`; how many. Whole pages
  // inside the range are dropped without being copied. InvalidArgument "incompatible value", with
  // nothing removed, when the range holds a nested bucket.
  absl::StatusOr<uint64_t> DeleteRange(std::string_view begin, std::optional<std::string_view> end);

  // Nested buckets. The pointers stay valid until the transaction ends or the bucket is deleted.
  absl::StatusOr<WriteBucket*> bucket(std::string_view name);        // NotFound
  absl::StatusOr<WriteBucket*> CreateBucket(std::string_view name);  // AlreadyExists
  absl::StatusOr<WriteBucket*> CreateBucketIfMissing(
      std::string_view name);                        // InvalidArgument "incompatible value"
  absl::Status DeleteBucket(std::string_view name);  // NotFound

  uint64_t sequence() const { return sequence_; }
  absl::Status SetSequence(uint64_t value);
  absl::StatusOr<uint64_t> NextSequence();  // counts up and returns it

  // How full pages are made when a page splits at commit: default 0.5, clamped to [0.1, 1.0], not
  // stored. 0.9 suits buckets that are only appended to.
  void set_fill_percent(double fill);

 private:
  friend class Cursor;
  friend class WriteTx;
  friend class internal::TreeEditor;
  WriteBucket(WriteTx& tx, const Bucket& stored);
  absl::Status Broken(absl::Status status);

  WriteTx& tx_;
  Bucket stored_;                   // as committed
  internal::Node* root_ = nullptr;  // once something changes; owned by the transaction
  // The bucket's last leaf, when all nodes above it are loaded: where appends go. May be empty;
  // null when unknown.
  internal::Node* last_leaf_ = nullptr;
  uint64_t sequence_ = 0;
  uint64_t change_count_ = 0;
  bool dirty_ = false;  // the header in the parent must be written anew
  double fill_percent_ = 0.5;
  std::map<std::string, std::unique_ptr<WriteBucket>, std::less<>>
      children_;  // opened nested buckets
};

class WriteTx {
 public:
  ~WriteTx();  // rolls back unless committed
  WriteTx(const WriteTx&) = delete;
  WriteTx& operator=(const WriteTx&) = delete;

  TxId txid() const { return meta_.txid; }
  WriteBucket& root() { return *root_; }
  // Top-level buckets: as WriteBucket's functions of the same names.
  absl::StatusOr<WriteBucket*> bucket(std::string_view name) { return root_->bucket(name); }
  absl::StatusOr<WriteBucket*> CreateBucket(std::string_view name) {
    return root_->CreateBucket(name);
  }
  absl::StatusOr<WriteBucket*> CreateBucketIfMissing(std::string_view name) {
    return root_->CreateBucketIfMissing(name);
  }
  absl::Status DeleteBucket(std::string_view name) { return root_->DeleteBucket(name); }

  // Makes everything durable (unless Options::no_sync) and visible to readers that begin later; the
  // transaction is over either way. DataLoss from damage met on the way leaves the file as it was;
  // a failed write or sync is final for the DB.
  absl::StatusOr<CommitStats> Commit();
  // Forgets everything; the transaction is over.
  void Rollback();

 private:
  friend class Cursor;
  friend class WriteBucket;
  friend class internal::Store;
  friend class internal::TreeEditor;
  WriteTx(std::shared_ptr<internal::Store> store, std::shared_ptr<const void> mapping,
          internal::PageSource source, const Meta& meta);

  std::shared_ptr<internal::Store> store_;  // null once the transaction is over
  const std::shared_ptr<const void> mapping_;
  const internal::PageSource source_;
  Meta meta_;                                       // with this transaction's txid
  std::unique_ptr<internal::Arena> arena_;          // the nodes and bytes of this transaction
  std::vector<std::pair<PageId, uint32_t>> freed_;  // pages no longer used: id, overflow
  absl::Status broken_;  // damage met in the middle of a change: Commit refuses
  std::unique_ptr<WriteBucket> root_;
};

}  // namespace bolt
