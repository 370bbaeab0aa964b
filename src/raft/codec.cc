#include "raft/codec.h"

#include <concepts>
#include <utility>

#include "base/status.h"
#include "base/wire.h"

namespace raft {
namespace {

using base::wire::AppendBytes;
using base::wire::AppendNonEmpty;
using base::wire::AppendNonZero;
using base::wire::AppendTag;
using base::wire::AppendUint;
using base::wire::AppendVarint;
using base::wire::Reader;
using base::wire::Type;
using base::wire::VarintSize;

// Messages nest through `responses`, which never cross the network; the bounds keep a hostile one
// from costing much more memory than its bytes.
constexpr int kNestingMax = 4;
constexpr size_t kResponsesMax = 1024;

using Owner = std::shared_ptr<const void>;

absl::Status Malformed(std::string_view message, uint32_t field) {
  return base::MakeStatus(absl::StatusCode::kInvalidArgument, "malformed raftpb.{} at field {}",
                          message, field);
}

// Reads one message: calls field(number) for each field; it returns false when the value is
// malformed.
template <std::predicate<Reader&> Field>
absl::Status Walk(std::string_view name, std::string_view bytes, Field field) {
  Reader reader(bytes);
  while (reader.Next()) {
    if (!field(reader) || !reader.ok()) return Malformed(name, reader.field());
  }
  return reader.ok() ? absl::OkStatus() : Malformed(name, reader.field());
}

bool ReadUint(Reader& reader, uint64_t* out) {
  if (!reader.Expect(Type::kVarint)) return false;
  *out = reader.varint();
  return true;
}

bool ReadBool(Reader& reader, bool* out) {
  if (!reader.Expect(Type::kVarint)) return false;
  *out = reader.varint() != 0;
  return true;
}

// Values above `max` are unknown to this version; taking them for another would change what the
// message means.
template <typename Enum>
bool ReadEnum(Reader& reader, Enum max, Enum* out) {
  if (!reader.Expect(Type::kVarint) || reader.varint() > static_cast<uint64_t>(max)) return false;
  *out = static_cast<Enum>(reader.varint());
  return true;
}

bool ReadBuffer(Reader& reader, const Owner& owner, Buffer* out) {
  if (!reader.Expect(Type::kBytes)) return false;
  *out = owner ? Buffer::Alias(owner, reader.bytes()) : Buffer::Copy(reader.bytes());
  return true;
}

bool ReadIds(Reader& reader, std::vector<NodeId>* out) {
  reader.EachVarint([out](uint64_t id) { out->push_back(id); });
  return reader.ok();
}

absl::Status Parse(std::string_view bytes, const Owner& owner, Entry* out) {
  return Walk("Entry", bytes, [&](Reader& reader) {
    switch (reader.field()) {
      case 1:
        return ReadEnum(reader, EntryType::kConfChangeV2, &out->type);
      case 2:
        return ReadUint(reader, &out->term);
      case 3:
        return ReadUint(reader, &out->index);
      case 4:
        return ReadBuffer(reader, owner, &out->data);
      default:
        return true;
    }
  });
}

absl::Status Parse(std::string_view bytes, ConfState* out) {
  return Walk("ConfState", bytes, [&](Reader& reader) {
    switch (reader.field()) {
      case 1:
        return ReadIds(reader, &out->voters);
      case 2:
        return ReadIds(reader, &out->learners);
      case 3:
        return ReadIds(reader, &out->voters_outgoing);
      case 4:
        return ReadIds(reader, &out->learners_next);
      case 5:
        return ReadBool(reader, &out->auto_leave);
      default:
        return true;
    }
  });
}

absl::Status Parse(std::string_view bytes, SnapshotMetadata* out) {
  absl::Status nested;
  RETURN_IF_ERROR(Walk("SnapshotMetadata", bytes, [&](Reader& reader) {
    switch (reader.field()) {
      case 1:
        if (!reader.Expect(Type::kBytes)) return false;
        nested.Update(Parse(reader.bytes(), &out->conf_state));
        return true;
      case 2:
        return ReadUint(reader, &out->index);
      case 3:
        return ReadUint(reader, &out->term);
      default:
        return true;
    }
  }));
  return nested;
}

absl::Status Parse(std::string_view bytes, const Owner& owner, Snapshot* out) {
  absl::Status nested;
  RETURN_IF_ERROR(Walk("Snapshot", bytes, [&](Reader& reader) {
    switch (reader.field()) {
      case 1:
        return ReadBuffer(reader, owner, &out->data);
      case 2:
        if (!reader.Expect(Type::kBytes)) return false;
        nested.Update(Parse(reader.bytes(), &out->metadata));
        return true;
      default:
        return true;
    }
  }));
  return nested;
}

absl::Status Parse(std::string_view bytes, ConfChangeSingle* out) {
  return Walk("ConfChangeSingle", bytes, [&](Reader& reader) {
    switch (reader.field()) {
      case 1:
        return ReadEnum(reader, ConfChangeType::kAddLearnerNode, &out->type);
      case 2:
        return ReadUint(reader, &out->node_id);
      default:
        return true;
    }
  });
}

absl::Status Parse(std::string_view bytes, const Owner& owner, int depth, Message* out) {
  absl::Status nested;
  Snapshot snapshot;
  bool has_snapshot = false;
  RETURN_IF_ERROR(Walk("Message", bytes, [&](Reader& reader) {
    switch (reader.field()) {
      case 1:
        return ReadEnum(reader, MessageType::kForgetLeader, &out->type);
      case 2:
        return ReadUint(reader, &out->to);
      case 3:
        return ReadUint(reader, &out->from);
      case 4:
        return ReadUint(reader, &out->term);
      case 5:
        return ReadUint(reader, &out->log_term);
      case 6:
        return ReadUint(reader, &out->index);
      case 7:
        if (!reader.Expect(Type::kBytes)) return false;
        nested.Update(Parse(reader.bytes(), owner, &out->entries.emplace_back()));
        return nested.ok();
      case 8:
        return ReadUint(reader, &out->commit);
      case 9:
        if (!reader.Expect(Type::kBytes)) return false;
        has_snapshot = true;
        nested.Update(Parse(reader.bytes(), owner, &snapshot));
        return nested.ok();
      case 10:
        return ReadBool(reader, &out->reject);
      case 11:
        return ReadUint(reader, &out->reject_hint);
      case 12:
        return ReadBuffer(reader, owner, &out->context);
      case 13:
        return ReadUint(reader, &out->vote);
      case 14:
        if (!reader.Expect(Type::kBytes)) return false;
        if (depth == kNestingMax || out->responses.size() == kResponsesMax) return false;
        nested.Update(Parse(reader.bytes(), owner, depth + 1, &out->responses.emplace_back()));
        return nested.ok();
      default:
        return true;
    }
  }));
  if (has_snapshot) out->snapshot = std::make_shared<const Snapshot>(std::move(snapshot));
  return nested;
}

// Encoders of embedded messages: tag, length, bytes. The length is found by encoding in place and
// moving the bytes up, which costs a short copy; only entries, which may be large, compute theirs
// beforehand.
template <typename Encode>
void AppendNested(std::string* out, uint32_t field, Encode encode) {
  AppendTag(out, field, Type::kBytes);
  const size_t start = out->size();
  encode(out);
  char length[10];
  const auto bytes =
      static_cast<size_t>(base::wire::PutVarint(length, out->size() - start) - length);
  out->insert(start, length, bytes);
}

size_t UintBytes(uint64_t v) { return v == 0 ? 0 : 1 + VarintSize(v); }
size_t NestedBytes(size_t size) { return 1 + VarintSize(size) + size; }

}  // namespace

void EncodeEntry(const Entry& entry, std::string* out) {
  AppendNonZero(out, 1, static_cast<uint64_t>(entry.type));
  AppendNonZero(out, 2, entry.term);
  AppendNonZero(out, 3, entry.index);
  AppendNonEmpty(out, 4, entry.data.view());
}

void EncodeHardState(const HardState& state, std::string* out) {
  AppendUint(out, 1, state.term);
  AppendUint(out, 2, state.vote);
  AppendUint(out, 3, state.commit);
}

void EncodeConfState(const ConfState& state, std::string* out) {
  for (const NodeId id : state.voters) AppendUint(out, 1, id);
  for (const NodeId id : state.learners) AppendUint(out, 2, id);
  for (const NodeId id : state.voters_outgoing) AppendUint(out, 3, id);
  for (const NodeId id : state.learners_next) AppendUint(out, 4, id);
  AppendUint(out, 5, state.auto_leave ? 1 : 0);
}

void EncodeSnapshotMetadata(const SnapshotMetadata& metadata, std::string* out) {
  AppendNested(out, 1, [&](std::string* o) { EncodeConfState(metadata.conf_state, o); });
  AppendUint(out, 2, metadata.index);
  AppendUint(out, 3, metadata.term);
}

void EncodeSnapshot(const Snapshot& snapshot, std::string* out) {
  AppendNonEmpty(out, 1, snapshot.data.view());
  AppendNested(out, 2, [&](std::string* o) { EncodeSnapshotMetadata(snapshot.metadata, o); });
}

void EncodeConfChange(const ConfChange& change, std::string* out) {
  AppendNonZero(out, 1, change.id);
  AppendUint(out, 2, static_cast<uint64_t>(change.type));
  AppendUint(out, 3, change.node_id);
  AppendNonEmpty(out, 4, change.context);
}

void EncodeConfChangeV2(const ConfChangeV2& change, std::string* out) {
  AppendNonZero(out, 1, static_cast<uint64_t>(change.transition));
  for (const ConfChangeSingle& single : change.changes) {
    AppendNested(out, 2, [&](std::string* o) {
      AppendUint(o, 1, static_cast<uint64_t>(single.type));
      AppendUint(o, 2, single.node_id);
    });
  }
  AppendNonEmpty(out, 3, change.context);
}

void EncodeMessage(const Message& message, std::string* out) {
  AppendUint(out, 1, static_cast<uint64_t>(message.type));
  AppendUint(out, 2, message.to);
  AppendUint(out, 3, message.from);
  AppendNonZero(out, 4, message.term);
  AppendNonZero(out, 5, message.log_term);
  AppendNonZero(out, 6, message.index);
  for (const Entry& entry : message.entries) {
    AppendTag(out, 7, Type::kBytes);
    AppendVarint(out, entry.EncodedBytes());
    EncodeEntry(entry, out);
  }
  AppendNonZero(out, 8, message.commit);
  if (message.snapshot) {
    AppendNested(out, 9, [&](std::string* o) { EncodeSnapshot(*message.snapshot, o); });
  }
  AppendNonZero(out, 10, message.reject ? 1 : 0);
  AppendNonZero(out, 11, message.reject_hint);
  AppendNonEmpty(out, 12, message.context.view());
  AppendNonZero(out, 13, message.vote);
  for (const Message& response : message.responses) {
    AppendNested(out, 14, [&](std::string* o) { EncodeMessage(response, o); });
  }
}

size_t EncodedBytes(const Message& message) {
  size_t bytes = 2 + 1 + VarintSize(message.to) + 1 + VarintSize(message.from) +
                 UintBytes(message.term) + UintBytes(message.log_term) + UintBytes(message.index) +
                 UintBytes(message.commit) + (message.reject ? 2 : 0) +
                 UintBytes(message.reject_hint) + UintBytes(message.vote);
  for (const Entry& entry : message.entries) bytes += NestedBytes(entry.EncodedBytes());
  if (message.snapshot) {
    std::string snapshot;
    EncodeSnapshot({.data = {}, .metadata = message.snapshot->metadata}, &snapshot);
    const size_t data = message.snapshot->data.size();
    bytes += NestedBytes(snapshot.size() + (data == 0 ? 0 : NestedBytes(data)));
  }
  if (!message.context.empty()) bytes += NestedBytes(message.context.size());
  for (const Message& response : message.responses) bytes += NestedBytes(EncodedBytes(response));
  return bytes;
}

absl::StatusOr<Entry> DecodeEntry(std::string_view bytes, const Owner& owner) {
  Entry entry;
  RETURN_IF_ERROR(Parse(bytes, owner, &entry));
  return entry;
}

absl::StatusOr<HardState> DecodeHardState(std::string_view bytes) {
  HardState state;
  RETURN_IF_ERROR(Walk("HardState", bytes, [&](Reader& reader) {
    switch (reader.field()) {
      case 1:
        return ReadUint(reader, &state.term);
      case 2:
        return ReadUint(reader, &state.vote);
      case 3:
        return ReadUint(reader, &state.commit);
      default:
        return true;
    }
  }));
  return state;
}

absl::StatusOr<ConfState> DecodeConfState(std::string_view bytes) {
  ConfState state;
  RETURN_IF_ERROR(Parse(bytes, &state));
  return state;
}

absl::StatusOr<SnapshotMetadata> DecodeSnapshotMetadata(std::string_view bytes) {
  SnapshotMetadata metadata;
  RETURN_IF_ERROR(Parse(bytes, &metadata));
  return metadata;
}

absl::StatusOr<Snapshot> DecodeSnapshot(std::string_view bytes, const Owner& owner) {
  Snapshot snapshot;
  RETURN_IF_ERROR(Parse(bytes, owner, &snapshot));
  return snapshot;
}

absl::StatusOr<ConfChange> DecodeConfChange(std::string_view bytes) {
  ConfChange change;
  RETURN_IF_ERROR(Walk("ConfChange", bytes, [&](Reader& reader) {
    switch (reader.field()) {
      case 1:
        return ReadUint(reader, &change.id);
      case 2:
        return ReadEnum(reader, ConfChangeType::kAddLearnerNode, &change.type);
      case 3:
        return ReadUint(reader, &change.node_id);
      case 4:
        if (!reader.Expect(Type::kBytes)) return false;
        change.context = reader.bytes();
        return true;
      default:
        return true;
    }
  }));
  return change;
}

absl::StatusOr<ConfChangeV2> DecodeConfChangeV2(std::string_view bytes) {
  ConfChangeV2 change;
  absl::Status nested;
  RETURN_IF_ERROR(Walk("ConfChangeV2", bytes, [&](Reader& reader) {
    switch (reader.field()) {
      case 1:
        return ReadEnum(reader, ConfChangeTransition::kJointExplicit, &change.transition);
      case 2:
        if (!reader.Expect(Type::kBytes)) return false;
        nested.Update(Parse(reader.bytes(), &change.changes.emplace_back()));
        return true;
      case 3:
        if (!reader.Expect(Type::kBytes)) return false;
        change.context = reader.bytes();
        return true;
      default:
        return true;
    }
  }));
  RETURN_IF_ERROR(nested);
  return change;
}

absl::StatusOr<Message> DecodeMessage(std::string_view bytes, const Owner& owner) {
  Message message;
  RETURN_IF_ERROR(Parse(bytes, owner, 0, &message));
  return message;
}

absl::StatusOr<ConfChangeV2> DecodeConfChangeEntry(const Entry& entry) {
  switch (entry.type) {
    case EntryType::kConfChange: {
      ASSIGN_OR_RETURN(const ConfChange change, DecodeConfChange(entry.data.view()));
      return change.AsV2();
    }
    case EntryType::kConfChangeV2:
      return DecodeConfChangeV2(entry.data.view());
    case EntryType::kNormal:
      break;
  }
  return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                          "entry {} is not a configuration change", entry.index);
}

}  // namespace raft
