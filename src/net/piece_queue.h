// Pieces that wait, first in, first out. In a vector that is reused, since most queues hold one
// piece for a moment; what has left is dropped by halves, so that a queue which is refilled before
// it is empty does not keep a slot for every piece it ever held. One thread.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "net/piece.h"

namespace net {

class PieceQueue {
 public:
  bool empty() const { return first_ == pieces_.size(); }
  size_t size() const { return pieces_.size() - first_; }
  // The i-th of those that wait.
  const Piece& operator[](size_t i) const { return pieces_[first_ + i]; }
  Piece& front() { return pieces_[first_]; }
  const Piece& front() const { return pieces_[first_]; }
  Piece& back() { return pieces_.back(); }

  void Push(Piece piece) { pieces_.push_back(std::move(piece)); }
  void Pop() {
    pieces_[first_] = Piece();
    if (++first_ == pieces_.size()) {
      Clear();
    } else if (first_ > kKeptMax && first_ * 2 > pieces_.size()) {
      pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
  }
  void Clear() {
    pieces_.clear();
    first_ = 0;
  }

 private:
  static constexpr size_t kKeptMax = 64;
  std::vector<Piece> pieces_;
  size_t first_ = 0;
};

}  // namespace net
