// Bytes on their way to a socket: small writes gathered in blocks, large shared ones kept by
// reference. Loop thread only. Blocks come from a small per-thread stock and return to it, so an
// idle connection holds none.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "net/piece.h"
#include "net/piece_queue.h"

namespace net {

class OutputQueue {
 public:
  OutputQueue() = default;
  ~OutputQueue() { Clear(); }
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;

  size_t size() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }
  void Append(std::string_view bytes);
  // Copies small pieces, keeps large ones.
  void Append(Piece piece);
  // `view` must lie inside `piece`'s bytes: queues a part of a shared piece by reference, or a copy
  // when it is small.
  void AppendShared(const std::shared_ptr<const void>& holder, std::string_view view);
  // The first bytes queued, at most `max` entries; returns the entries filled.
  int Fill(iovec* entries, int max) const;
  // The first contiguous run.
  std::string_view Front() const;
  // Drops the first `n` bytes; n <= size().
  void Consume(size_t n);
  void Clear();

 private:
  std::string* TailBlock(size_t room);

  PieceQueue pieces_;
  size_t first_offset_ = 0;  // bytes of the first one already consumed
  size_t bytes_ = 0;
};

}  // namespace net
