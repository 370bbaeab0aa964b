// Protobuf encoding of package raftpb, compatible with etcd 3.6 and 3.7. Pure functions,
// thread-safe (any thread).
//
// Encoders write fields in ascending order and leave out what is zero, as 3.7 does, except where
// 3.7's own code always sets a field (HardState; SnapshotMetadata; ConfState.auto_leave; type and
// node of a change; type, to and from of a message; term and index of an entry in a log). Absent
// and zero mean the same to every reader.
//
// Decoders accept fields in any order, repeated integers packed or not, repeated occurrences of a
// singular field (the last one counts; embedded messages merge as protobuf demands) and unknown
// fields, which they drop. Malformed bytes and unknown enumeration values yield kInvalidArgument
// that names the message and the field; nothing is trusted beyond the view's bounds.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "raft/types.h"

namespace raft {

// Each appends to *out.
void EncodeEntry(const Entry& entry, std::string* out);
void EncodeHardState(const HardState& state, std::string* out);
void EncodeConfState(const ConfState& state, std::string* out);
void EncodeSnapshotMetadata(const SnapshotMetadata& metadata, std::string* out);
void EncodeSnapshot(const Snapshot& snapshot, std::string* out);
void EncodeConfChange(const ConfChange& change, std::string* out);
void EncodeConfChangeV2(const ConfChangeV2& change, std::string* out);
void EncodeMessage(const Message& message, std::string* out);

// The size EncodeMessage would append; costs a walk over the entries.
size_t EncodedBytes(const Message& message);

// `owner`: when given, entry data, contexts and snapshot data alias the bytes it keeps alive
// instead of being copied (so a frame's bytes live as long as any entry of it). Without it they are
// copied.
absl::StatusOr<Entry> DecodeEntry(std::string_view bytes,
                                  const std::shared_ptr<const void>& owner = nullptr);
absl::StatusOr<HardState> DecodeHardState(std::string_view bytes);
absl::StatusOr<ConfState> DecodeConfState(std::string_view bytes);
absl::StatusOr<SnapshotMetadata> DecodeSnapshotMetadata(std::string_view bytes);
absl::StatusOr<Snapshot> DecodeSnapshot(std::string_view bytes,
                                        const std::shared_ptr<const void>& owner = nullptr);
absl::StatusOr<ConfChange> DecodeConfChange(std::string_view bytes);
absl::StatusOr<ConfChangeV2> DecodeConfChangeV2(std::string_view bytes);
absl::StatusOr<Message> DecodeMessage(std::string_view bytes,
                                      const std::shared_ptr<const void>& owner = nullptr);

// The change in an entry of type kConfChange or kConfChangeV2; kInvalidArgument for other types and
// malformed data. Empty data is the change whose fields are all zero.
absl::StatusOr<ConfChangeV2> DecodeConfChangeEntry(const Entry& entry);

}  // namespace raft
