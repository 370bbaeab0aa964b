#include "net/recycler.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace net {
namespace {

// In front of each block; keeps its alignment.
struct alignas(16) BlockHeader {
  size_t usable_bytes;
  uint32_t size_class;  // kNoClass: from malloc
};

constexpr size_t kSmallestBytes = 64;
constexpr uint32_t kClasses = 7;  // 64 bytes to 4 KiB
constexpr uint32_t kNoClass = kClasses;
constexpr size_t kStockBytesMax = 256 << 10;  // of each class and thread

constexpr size_t kStringBytesMin = 64;
constexpr size_t kStringBytesMax = 4096;
constexpr size_t kStringsMax = 512;

struct FreeBlock {
  FreeBlock* next;
};

struct Stock {
  ~Stock() {
    closed = true;
    for (FreeBlock*& head : heads) {
      while (head != nullptr) {
        FreeBlock* next = head->next;
        std::free(reinterpret_cast<BlockHeader*>(head) - 1);
        head = next;
      }
    }
  }
  std::array<FreeBlock*, kClasses> heads{};
  std::array<size_t, kClasses> bytes{};
  bool closed = false;
};

Stock& Mine() {
  thread_local Stock stock;
  return stock;
}

struct Strings {
  ~Strings() { closed = true; }
  std::vector<std::string> list;
  bool closed = false;
};

Strings& MyStrings() {
  thread_local Strings strings;
  return strings;
}

uint32_t ClassOf(size_t bytes) {
  if (bytes <= kSmallestBytes) return 0;
  return static_cast<uint32_t>(std::bit_width(bytes - 1)) - 6;
}

}  // namespace

void* RecyclerAllocate(size_t bytes) {
  const uint32_t size_class = ClassOf(bytes);
  if (size_class >= kClasses) {
    if (bytes > std::numeric_limits<size_t>::max() - sizeof(BlockHeader)) return nullptr;
    auto* header = static_cast<BlockHeader*>(std::malloc(sizeof(BlockHeader) + bytes));
    if (header == nullptr) return nullptr;
    *header = {bytes, kNoClass};
    return header + 1;
  }
  const size_t usable = kSmallestBytes << size_class;
  Stock& stock = Mine();
  if (FreeBlock* head = stock.heads[size_class]; head != nullptr) {
    stock.heads[size_class] = head->next;
    stock.bytes[size_class] -= usable;
    return head;
  }
  auto* header = static_cast<BlockHeader*>(std::malloc(sizeof(BlockHeader) + usable));
  if (header == nullptr) return nullptr;
  *header = {usable, size_class};
  return header + 1;
}

void RecyclerFree(void* block) {
  if (block == nullptr) return;
  BlockHeader* header = static_cast<BlockHeader*>(block) - 1;
  const uint32_t size_class = header->size_class;
  Stock& stock = Mine();
  if (size_class == kNoClass || stock.closed || stock.bytes[size_class] >= kStockBytesMax) {
    std::free(header);
    return;
  }
  auto* head = static_cast<FreeBlock*>(block);
  head->next = stock.heads[size_class];
  stock.heads[size_class] = head;
  stock.bytes[size_class] += header->usable_bytes;
}

void* RecyclerReallocate(void* block, size_t bytes) {
  if (block == nullptr) return RecyclerAllocate(bytes);
  const size_t usable = (static_cast<BlockHeader*>(block) - 1)->usable_bytes;
  if (bytes <= usable) return block;
  void* larger = RecyclerAllocate(bytes);
  if (larger == nullptr) return nullptr;
  std::memcpy(larger, block, usable);
  RecyclerFree(block);
  return larger;
}

void* RecyclerAllocateZeroed(size_t count, size_t bytes) {
  if (bytes != 0 && count > std::numeric_limits<size_t>::max() / bytes) return nullptr;
  void* block = RecyclerAllocate(count * bytes);
  if (block != nullptr) std::memset(block, 0, count * bytes);
  return block;
}

std::string TakeString() {
  Strings& strings = MyStrings();
  if (strings.closed || strings.list.empty()) return {};
  std::string s = std::move(strings.list.back());
  strings.list.pop_back();
  return s;
}

void RecycleString(std::string&& used) {
  if (used.capacity() < kStringBytesMin || used.capacity() > kStringBytesMax) return;
  Strings& strings = MyStrings();
  if (strings.closed || strings.list.size() >= kStringsMax) return;
  used.clear();
  strings.list.push_back(std::move(used));
}

}  // namespace net
