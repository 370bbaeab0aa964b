#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "mvcc/key_index.h"
#include "mvcc/key_tree.h"

namespace mvcc {
namespace {

// Loading takes some dozens of bytes a record for a moment. They come from mappings of their own:
// memory from malloc would not all go back to the system, and freeing large blocks makes glibc hold
// on to more later.
void* Map(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);  // out of memory, as operator new would end it
  return memory;
}

// An array of fixed size, zeros at first.
template <typename T>
class MappedArray {
 public:
  MappedArray() = default;
  explicit MappedArray(size_t size)
      : items_(size == 0 ? nullptr : static_cast<T*>(Map(size * sizeof(T)))), size_(size) {}
  ~MappedArray() {
    if (items_ != nullptr) ::munmap(items_, size_ * sizeof(T));
  }
  MappedArray(MappedArray&& other) noexcept
      : items_(std::exchange(other.items_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedArray& operator=(MappedArray&& other) noexcept {
    std::swap(items_, other.items_);
    std::swap(size_, other.size_);
    return *this;
  }
  T& operator[](size_t index) const { return items_[index]; }
  std::span<T> span() const { return {items_, size_}; }
  size_t size() const { return size_; }

 private:
  static_assert(std::is_trivially_copyable_v<T>);
  T* items_ = nullptr;
  size_t size_ = 0;
};

// A growing array.
template <typename T>
class Blocks {
 public:
  void Add(const T& item) {
    if (size_ == blocks_.size() * kBlockItems) blocks_.emplace_back(kBlockItems);
    (*this)[size_++] = item;
  }
  T& operator[](size_t index) const { return blocks_[index / kBlockItems][index % kBlockItems]; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kBlockItems = size_t{1} << 14;
  std::vector<MappedArray<T>> blocks_;
  size_t size_ = 0;
};

struct Record {
  const char* key;
  uint32_t key_bytes;
  bool tombstone;
  Revision revision;
  int64_t created;
  int64_t version;
  int64_t lease;
  std::string_view key_view() const { return {key, key_bytes}; }
};

}  // namespace

struct KeyIndexLoader::Shard::Records {
  // A record by number, with eight bytes of its key from some depth on: sorting compares these and
  // seldom the keys.
  struct Item {
    uint64_t head;
    uint32_t record;
  };

  Blocks<Record> records;
  MappedArray<uint32_t>
      order;                // numbers of records, by (key, revision); of another size before Sort
  size_t prefix_bytes = 0;  // common to all keys

  void Add(const Record& record) {
    CHECK_OP(records.size(), <, size_t{UINT32_MAX});
    prefix_bytes = records.size() == 0
                       ? record.key_bytes
                       : internal::CommonPrefix(records[0].key_view().substr(0, prefix_bytes),
                                                record.key_view());
    records.Add(record);
  }

  void SetHeads(std::span<Item> items, size_t depth) {
    constexpr size_t kAhead = 8;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i + 2 * kAhead < items.size()) __builtin_prefetch(&records[items[i + 2 * kAhead].record]);
      if (i + kAhead < items.size())
        __builtin_prefetch(records[items[i + kAhead].record].key + depth);
      const std::string_view rest = records[items[i].record].key_view().substr(depth);
      if (rest.size() >= 8) {
        items[i].head = base::LoadBe64(rest.data());
      } else {
        char padded[8] = {};
        rest.copy(padded, rest.size());
        items[i].head = base::LoadBe64(padded);
      }
    }
  }

  // Sorts items of which the keys are equal up to `depth`, and have at least that many bytes.
  void SortFrom(std::span<Item> items, size_t depth) {
    while (items.size() > 1) {
      SetHeads(items, depth);
      std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
        return a.head != b.head ? a.head < b.head : a.record < b.record;
      });
      depth += 8;
      // What is left to sort are groups of equal heads. The last one is sorted by this loop, the
      // others by a call, so that the stack stays flat where all keys agree for a long stretch.
      std::span<Item> last_group;
      for (size_t begin = 0, end; begin < items.size(); begin = end) {
        end = begin + 1;
        while (end < items.size() && items[end].head == items[begin].head) ++end;
        if (end - begin == 1) continue;
        std::span<Item> longer = SortEnded(items.subspan(begin, end - begin), depth);
        if (end == items.size()) {
          last_group = longer;
        } else {
          SortFrom(longer, depth);
        }
      }
      items = last_group;
    }
  }

  // Of keys with equal heads, brings those of at most `depth` bytes to the front, by (length,
  // record): where the head was padded, the shorter key is the lower. Returns the others.
  std::span<Item> SortEnded(std::span<Item> items, size_t depth) {
    const auto ended = std::stable_partition(
        items.begin(), items.end(),
        [this, depth](const Item& item) { return records[item.record].key_bytes <= depth; });
    std::stable_sort(items.begin(), ended, [this](const Item& a, const Item& b) {
      return records[a.record].key_bytes < records[b.record].key_bytes;
    });
    return items.subspan(static_cast<size_t>(ended - items.begin()));
  }

  void Sort() {
    if (order.size() == records.size()) return;
    MappedArray<Item> items(records.size());
    for (size_t i = 0; i < items.size(); ++i) items[i] = {0, static_cast<uint32_t>(i)};
    SortFrom(items.span(), prefix_bytes);
    order = MappedArray<uint32_t>(items.size());
    for (size_t i = 0; i < items.size(); ++i) order[i] = items[i].record;
  }
};

KeyIndexLoader::Shard::Shard() : records_(std::make_unique<Records>()) {}
KeyIndexLoader::Shard::~Shard() = default;
KeyIndexLoader::Shard::Shard(Shard&&) noexcept = default;
KeyIndexLoader::Shard& KeyIndexLoader::Shard::operator=(Shard&&) noexcept = default;

void KeyIndexLoader::Shard::Put(std::string_view key, int64_t created, Revision revision,
                                int64_t version, int64_t lease) {
  CHECK_OP(key.size(), <=, size_t{UINT32_MAX});
  records_->Add(
      {key.data(), static_cast<uint32_t>(key.size()), false, revision, created, version, lease});
}

void KeyIndexLoader::Shard::Tombstone(std::string_view key, Revision revision) {
  CHECK_OP(key.size(), <=, size_t{UINT32_MAX});
  records_->Add({key.data(), static_cast<uint32_t>(key.size()), true, revision, 0, 0, 0});
}

void KeyIndexLoader::Shard::Sort() { records_->Sort(); }
size_t KeyIndexLoader::Shard::size() const { return records_->records.size(); }

absl::StatusOr<KeyIndex> KeyIndexLoader::Build(
    std::vector<Shard> shards, absl::FunctionRef<void(std::string_view, int64_t)> attached) {
  struct Source {
    Shard::Records* records;
    size_t next = 0;
    bool done() const { return next == records->order.size(); }
    const Record& front() const { return records->records[records->order[next]]; }
    void Advance() {
      ++next;
      // Records and keys lie scattered in memory.
      constexpr size_t kAhead = 8;
      const MappedArray<uint32_t>& order = records->order;
      if (next + 2 * kAhead < order.size())
        __builtin_prefetch(&records->records[order[next + 2 * kAhead]]);
      if (next + kAhead < order.size())
        __builtin_prefetch(records->records[order[next + kAhead]].key);
    }
  };
  std::vector<Source> sources;
  for (Shard& shard : shards) {
    shard.Sort();
    if (shard.size() > 0) sources.push_back({shard.records_.get()});
  }

  KeyIndex index;
  KeyIndex::Tree::Packer packer(index.tree_.get());
  std::vector<Change> changes;
  while (!sources.empty()) {
    std::string_view key = sources.front().front().key_view();
    for (const Source& source : sources) key = std::min(key, source.front().key_view());
    changes.clear();
    int64_t lease = 0;
    bool exhausted = false;
    for (Source& source : sources) {  // in the order of their revisions
      for (; !source.done() && source.front().key_view() == key; source.Advance()) {
        const Record& record = source.front();
        lease = record.lease;
        if (changes.empty()) {
          changes.push_back({record.revision, record.tombstone, record.created, record.version});
          continue;
        }
        const Revision last = changes.back().revision;
        if (record.revision <= last) {
          packer.Finish();  // the index owns what was built, and goes with it
          return absl::DataLossError(
              fmt::format("the record of revision {}_{} follows that of {}_{} of the same key",
                          record.revision.main, record.revision.sub, last.main, last.sub));
        }
        changes.push_back(internal::NextChange(changes.back(), record.revision, record.tombstone));
      }
      exhausted |= source.done();
    }
    packer.Add(key, changes);
    if (lease != 0) attached(key, lease);
    if (exhausted) std::erase_if(sources, [](const Source& source) { return source.done(); });
  }
  packer.Finish();
  return index;
}

}  // namespace mvcc
