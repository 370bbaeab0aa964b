// Whatever bytes arrive: decoding them as each raftpb message neither crashes nor reads out of
// bounds, and what was understood survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "raft/codec.h"

namespace {

template <typename T, typename Decode>
void RoundTrip(std::string_view bytes, Decode decode, void (*encode)(const T&, std::string*)) {
  const absl::StatusOr<T> value = decode(bytes);
  if (!value.ok()) return;
  std::string again;
  encode(*value, &again);
  const absl::StatusOr<T> reread = decode(again);
  CHECK(reread.ok());
  CHECK(*reread == *value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  RoundTrip<raft::Message>(
      bytes, [](std::string_view b) { return raft::DecodeMessage(b); }, raft::EncodeMessage);
  RoundTrip<raft::Entry>(
      bytes, [](std::string_view b) { return raft::DecodeEntry(b); }, raft::EncodeEntry);
  RoundTrip<raft::Snapshot>(
      bytes, [](std::string_view b) { return raft::DecodeSnapshot(b); }, raft::EncodeSnapshot);
  RoundTrip<raft::HardState>(bytes, raft::DecodeHardState, raft::EncodeHardState);
  RoundTrip<raft::ConfState>(bytes, raft::DecodeConfState, raft::EncodeConfState);
  RoundTrip<raft::ConfChange>(bytes, raft::DecodeConfChange, raft::EncodeConfChange);
  RoundTrip<raft::ConfChangeV2>(bytes, raft::DecodeConfChangeV2, raft::EncodeConfChangeV2);
  // Sharing the input instead of copying it must make no difference.
  const auto owner = std::make_shared<const std::string>(bytes);
  const absl::StatusOr<raft::Message> copied = raft::DecodeMessage(bytes);
  const absl::StatusOr<raft::Message> aliased = raft::DecodeMessage(*owner, owner);
  CHECK(copied.ok() == aliased.ok());
  if (copied.ok()) {
    CHECK(*copied == *aliased);
    std::string encoded;
    raft::EncodeMessage(*copied, &encoded);
    CHECK_OP(encoded.size(), ==, raft::EncodedBytes(*copied));
  }
  return 0;
}
