// The typed contents of WAL records, and their protobuf encoding. The structs are this layer's own:
// it knows nothing of the raft library. Plain values and pure functions, thread-safe.
//
// Writers encode the way etcd 3.7 does (a zero entry type is left out); the decoders take the style
// of 3.6 too (zeros spelled out), unknown fields, and any order of fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace wal {

// Whose log this is. Never changes within a log.
struct Metadata {
  uint64_t node_id = 0;
  uint64_t cluster_id = 0;
  friend bool operator==(const Metadata&, const Metadata&) = default;
};

// What a raft peer must remember besides entries.
struct HardState {
  uint64_t term = 0;
  uint64_t vote = 0;
  uint64_t commit = 0;
  bool empty() const { return term == 0 && vote == 0 && commit == 0; }
  friend bool operator==(const HardState&, const HardState&) = default;
};

// Who takes part in consensus.
struct ConfState {
  std::vector<uint64_t> voters;
  std::vector<uint64_t> learners;
  std::vector<uint64_t> voters_outgoing;
  std::vector<uint64_t> learners_next;
  // A running server states this field also when false, an offline restore leaves it out. Kept
  // apart so that a log can be rewritten byte for byte.
  std::optional<bool> auto_leave;
  bool empty() const {
    return voters.empty() && learners.empty() && voters_outgoing.empty() && learners_next.empty() &&
           !auto_leave.has_value();
  }
  friend bool operator==(const ConfState&, const ConfState&) = default;
};

// States that everything up to `index` is in the database. {0, 0} with an empty ConfState opens
// every log.
struct SnapshotRecord {
  uint64_t index = 0;
  uint64_t term = 0;
  ConfState conf_state;
  friend bool operator==(const SnapshotRecord&, const SnapshotRecord&) = default;
};

// One raft log entry, borrowed: `data` must outlive the call it is passed to.
struct EntryView {
  uint64_t term = 0;
  uint64_t index = 0;
  uint32_t type = 0;  // 0 normal, 1 ConfChange, 2 ConfChangeV2
  std::string_view data;
};

// One raft log entry, owned.
struct Entry {
  uint64_t term = 0;
  uint64_t index = 0;
  uint32_t type = 0;
  std::string data;
  EntryView view() const { return {term, index, type, data}; }
  friend bool operator==(const Entry&, const Entry&) = default;
};

// The encoding of an entry up to its payload: the whole encoding is this followed by `data`. Lets
// the writer checksum and copy a payload without an intermediate buffer.
inline constexpr size_t kEntryHeadBytesMax = 48;
// Writes at `out` (room for kEntryHeadBytesMax); returns the length.
size_t EncodeEntryHead(const EntryView& entry, char* out);

// Appended to `out`.
void EncodeMetadata(const Metadata& metadata, std::string* out);
void EncodeState(const HardState& state, std::string* out);
void EncodeConfState(const ConfState& conf_state, std::string* out);
void EncodeSnapshot(const SnapshotRecord& snapshot, std::string* out);

// False when `bytes` are not such a message; `*out` is then unspecified. A decoded EntryView
// borrows from `bytes`.
bool DecodeMetadata(std::string_view bytes, Metadata* out);
bool DecodeEntry(std::string_view bytes, EntryView* out);
bool DecodeState(std::string_view bytes, HardState* out);
bool DecodeConfState(std::string_view bytes, ConfState* out);
bool DecodeSnapshot(std::string_view bytes, SnapshotRecord* out);

}  // namespace wal
