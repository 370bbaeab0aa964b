#include "wal/records.h"

#include "base/wire.h"

namespace wal {
namespace {

using base::wire::Reader;
using base::wire::Type;

// A tag of a field below 16 is one byte.
constexpr char Tag(uint32_t field, Type type) {
  return static_cast<char>(field << 3 | static_cast<uint32_t>(type));
}

void AppendEach(std::string* out, uint32_t field, const std::vector<uint64_t>& values) {
  for (const uint64_t value : values) base::wire::AppendUint(out, field, value);
}

}  // namespace

size_t EncodeEntryHead(const EntryView& entry, char* out) {
  char* p = out;
  if (entry.type != 0) {
    *p++ = Tag(1, Type::kVarint);
    p = base::wire::PutVarint(p, entry.type);
  }
  *p++ = Tag(2, Type::kVarint);
  p = base::wire::PutVarint(p, entry.term);
  *p++ = Tag(3, Type::kVarint);
  p = base::wire::PutVarint(p, entry.index);
  if (!entry.data.empty()) {
    *p++ = Tag(4, Type::kBytes);
    p = base::wire::PutVarint(p, entry.data.size());
  }
  return static_cast<size_t>(p - out);
}
// Four tags, a type of at most 5 bytes, and three varints of at most 10.
static_assert(kEntryHeadBytesMax >= 4 + 5 + 3 * 10);

void EncodeMetadata(const Metadata& metadata, std::string* out) {
  base::wire::AppendUint(out, 1, metadata.node_id);
  base::wire::AppendUint(out, 2, metadata.cluster_id);
}

void EncodeState(const HardState& state, std::string* out) {
  base::wire::AppendUint(out, 1, state.term);
  base::wire::AppendUint(out, 2, state.vote);
  base::wire::AppendUint(out, 3, state.commit);
}

void EncodeConfState(const ConfState& conf_state, std::string* out) {
  AppendEach(out, 1, conf_state.voters);
  AppendEach(out, 2, conf_state.learners);
  AppendEach(out, 3, conf_state.voters_outgoing);
  AppendEach(out, 4, conf_state.learners_next);
  if (conf_state.auto_leave.has_value())
    base::wire::AppendUint(out, 5, *conf_state.auto_leave ? 1 : 0);
}

void EncodeSnapshot(const SnapshotRecord& snapshot, std::string* out) {
  base::wire::AppendUint(out, 1, snapshot.index);
  base::wire::AppendUint(out, 2, snapshot.term);
  // etcd refuses a record above index 0 that lacks the field, so it is there even when nobody is in
  // it.
  if (snapshot.index == 0 && snapshot.conf_state.empty()) return;
  std::string conf_state;
  EncodeConfState(snapshot.conf_state, &conf_state);
  base::wire::AppendBytes(out, 3, conf_state);
}

bool DecodeMetadata(std::string_view bytes, Metadata* out) {
  *out = {};
  Reader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1 && reader.Expect(Type::kVarint)) out->node_id = reader.varint();
    if (reader.field() == 2 && reader.Expect(Type::kVarint)) out->cluster_id = reader.varint();
  }
  return reader.ok();
}

bool DecodeEntry(std::string_view bytes, EntryView* out) {
  *out = {};
  Reader reader(bytes);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        if (reader.Expect(Type::kVarint)) out->type = static_cast<uint32_t>(reader.varint());
        break;
      case 2:
        if (reader.Expect(Type::kVarint)) out->term = reader.varint();
        break;
      case 3:
        if (reader.Expect(Type::kVarint)) out->index = reader.varint();
        break;
      case 4:
        if (reader.Expect(Type::kBytes)) out->data = reader.bytes();
        break;
      default:
        break;
    }
  }
  return reader.ok();
}

bool DecodeState(std::string_view bytes, HardState* out) {
  *out = {};
  Reader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1 && reader.Expect(Type::kVarint)) out->term = reader.varint();
    if (reader.field() == 2 && reader.Expect(Type::kVarint)) out->vote = reader.varint();
    if (reader.field() == 3 && reader.Expect(Type::kVarint)) out->commit = reader.varint();
  }
  return reader.ok();
}

bool DecodeConfState(std::string_view bytes, ConfState* out) {
  *out = {};
  Reader reader(bytes);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.EachVarint([out](uint64_t id) { out->voters.push_back(id); });
        break;
      case 2:
        reader.EachVarint([out](uint64_t id) { out->learners.push_back(id); });
        break;
      case 3:
        reader.EachVarint([out](uint64_t id) { out->voters_outgoing.push_back(id); });
        break;
      case 4:
        reader.EachVarint([out](uint64_t id) { out->learners_next.push_back(id); });
        break;
      case 5:
        if (reader.Expect(Type::kVarint)) out->auto_leave = reader.varint() != 0;
        break;
      default:
        break;
    }
  }
  return reader.ok();
}

bool DecodeSnapshot(std::string_view bytes, SnapshotRecord* out) {
  *out = {};
  Reader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1 && reader.Expect(Type::kVarint)) out->index = reader.varint();
    if (reader.field() == 2 && reader.Expect(Type::kVarint)) out->term = reader.varint();
    if (reader.field() == 3 && reader.Expect(Type::kBytes) &&
        !DecodeConfState(reader.bytes(), &out->conf_state)) {
      return false;
    }
  }
  return reader.ok();
}

}  // namespace wal
