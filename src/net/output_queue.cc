#include "net/output_queue.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "net/recycler.h"

namespace net {
namespace {

constexpr size_t kBlockBytes = 32 << 10;
// Below this a copy is cheaper than an entry of its own in writev.
constexpr size_t kCopyBelow = 2048;
constexpr size_t kSpareBlocksMax = 64;

std::vector<std::string>& SpareBlocks() {
  thread_local std::vector<std::string> spare;
  return spare;
}

std::string TakeBlock() {
  std::vector<std::string>& spare = SpareBlocks();
  if (spare.empty()) {
    std::string block;
    block.reserve(kBlockBytes);
    return block;
  }
  std::string block = std::move(spare.back());
  spare.pop_back();
  return block;
}

void GiveBack(std::string block) {
  std::vector<std::string>& spare = SpareBlocks();
  if (block.capacity() < kBlockBytes || block.capacity() > 2 * kBlockBytes ||
      spare.size() >= kSpareBlocksMax) {
    return;
  }
  block.clear();
  spare.push_back(std::move(block));
}

}  // namespace

std::string* OutputQueue::TailBlock(size_t room) {
  if (!pieces_.empty() && !pieces_.back().shared()) {
    std::string* last = pieces_.back().owned();
    if (last->capacity() - last->size() >= room) return last;
  }
  pieces_.Push(Piece(TakeBlock()));
  return pieces_.back().owned();
}

void OutputQueue::Append(std::string_view bytes) {
  if (bytes.empty()) return;
  bytes_ += bytes.size();
  // Long runs are cut into blocks, so that no block grows beyond what the stock takes back.
  while (!bytes.empty()) {
    std::string* block = TailBlock(std::min(bytes.size(), kCopyBelow));
    const size_t n = std::min(bytes.size(), block->capacity() - block->size());
    block->append(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
}

void OutputQueue::Append(Piece piece) {
  if (piece.size() < kCopyBelow) {
    Append(piece.view());
    if (!piece.shared()) RecycleString(std::move(*piece.owned()));
    return;
  }
  bytes_ += piece.size();
  pieces_.Push(std::move(piece));
}

void OutputQueue::AppendShared(const std::shared_ptr<const void>& holder, std::string_view view) {
  if (view.size() < kCopyBelow) return Append(view);
  bytes_ += view.size();
  pieces_.Push(Piece(holder, view));
}

int OutputQueue::Fill(iovec* entries, int max) const {
  int count = 0;
  size_t offset = first_offset_;
  for (size_t i = 0; i < pieces_.size() && count < max; ++i) {
    const std::string_view view = pieces_[i].view().substr(offset);
    offset = 0;
    entries[count].iov_base = const_cast<char*>(view.data());
    entries[count].iov_len = view.size();
    ++count;
  }
  return count;
}

std::string_view OutputQueue::Front() const {
  if (pieces_.empty()) return {};
  return pieces_.front().view().substr(first_offset_);
}

void OutputQueue::Consume(size_t n) {
  bytes_ -= n;
  while (n > 0) {
    Piece& piece = pieces_.front();
    const size_t left = piece.size() - first_offset_;
    if (n < left) {
      first_offset_ += n;
      return;
    }
    n -= left;
    if (!piece.shared()) GiveBack(std::move(*piece.owned()));
    pieces_.Pop();
    first_offset_ = 0;
  }
}

void OutputQueue::Clear() {
  while (!empty()) Consume(bytes_);
  pieces_.Clear();
  first_offset_ = 0;
}

}  // namespace net
