// An object of a store as a source, for what pulls its bytes (vault/seal.h) where a store pushes
// them: read in pieces, of which one is in memory at a time. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stores/store.h"
#include "vault/stream.h"

namespace stores {

class ObjectSource final : public vault::Source {
 public:
  // `bytes` of the object from `offset` on, which it should have; the store outlives the source. A
  // piece is one request to the store.
  ObjectSource(Store& store, std::string name, uint64_t bytes, const Deadline& deadline,
               size_t piece_bytes = size_t{4} << 20, uint64_t offset = 0)
      : store_(store),
        name_(std::move(name)),
        offset_(offset),
        bytes_(bytes),
        deadline_(deadline),
        piece_bytes_(piece_bytes) {}
  // DataLoss when the object is shorter. One that is longer is not noticed: digests see to that.
  absl::StatusOr<size_t> Read(char* out, size_t n) override;

 private:
  absl::Status NextPiece();

  Store& store_;
  const std::string name_;
  const uint64_t offset_;
  const uint64_t bytes_;
  const Deadline deadline_;
  const size_t piece_bytes_;
  std::string piece_;
  size_t piece_at_ = 0;   // piece_[piece_at_..] is still to be handed out
  uint64_t fetched_ = 0;  // up to the end of the piece
  absl::Status failure_;
};

}  // namespace stores
