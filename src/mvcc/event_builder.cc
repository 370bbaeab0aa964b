#include "mvcc/event_builder.h"

#include <cstring>

#include "base/wire.h"
#include "mvcc/key_value.h"

namespace mvcc {
namespace {

using base::wire::PutVarint;
using base::wire::VarintSize;

// Fields of mvccpb.Event: 1 type (DELETE = 1, left out for PUT), 2 kv, 3 prev_kv.
constexpr char kTypeTag = 1 << 3;
constexpr char kKvTag = 2 << 3 | 2;
constexpr char kPrevKvTag = 3 << 3 | 2;

size_t MessageFieldSize(size_t bytes) { return 1 + VarintSize(bytes) + bytes; }

char* PutMessageHead(char* p, char tag, size_t bytes) {
  *p++ = tag;
  return PutVarint(p, bytes);
}
char* PutMessage(char* p, char tag, std::string_view bytes) {
  p = PutMessageHead(p, tag, bytes.size());
  std::memcpy(p, bytes.data(), bytes.size());
  return p + bytes.size();
}

}  // namespace

// A deletion's KeyValue has the key and the revision of the deletion.
KeyValue EventBuilder::DeletedKeyValue(const Item& item) {
  KeyValue kv;
  kv.key = item.key;
  kv.mod_revision = item.revision;
  return kv;
}

void EventBuilder::Add(Revision revision, bool tombstone, std::string_view key,
                       std::string_view stored, std::optional<std::string_view> previous) {
  items_.push_back({revision.main, tombstone, key, stored, previous});
}

std::shared_ptr<const EventBatch> EventBuilder::Build(int64_t first_revision, int64_t last_revision,
                                                      bool has_previous) {
  auto batch = std::make_shared<EventBatch>();
  batch->first_revision = first_revision;
  batch->last_revision = last_revision;
  batch->has_previous = has_previous;
  size_t total = 0;
  for (const Item& item : items_) {
    total += item.tombstone ? 2 + MessageFieldSize(EncodedSize(DeletedKeyValue(item)))
                            : MessageFieldSize(item.stored.size());
    if (item.previous.has_value()) total += MessageFieldSize(item.previous->size());
  }
  batch->buffer.resize(total);
  batch->events.reserve(items_.size());
  char* p = batch->buffer.data();
  for (const Item& item : items_) {
    const char* const start = p;
    const char* key = nullptr;
    if (item.tombstone) {
      const KeyValue kv = DeletedKeyValue(item);
      *p++ = kTypeTag;
      *p++ = 1;
      p = PutMessageHead(p, kKvTag, EncodedSize(kv));
      // In the encoding the key follows its tag and length.
      key = p + (item.key.empty() ? 0 : 1 + VarintSize(item.key.size()));
      p = EncodeTo(kv, p);
    } else {
      p = PutMessageHead(p, kKvTag, item.stored.size());
      key = item.key.empty() ? p : p + (item.key.data() - item.stored.data());
      std::memcpy(p, item.stored.data(), item.stored.size());
      p += item.stored.size();
    }
    const char* const end = p;
    if (item.previous.has_value()) p = PutMessage(p, kPrevKvTag, *item.previous);
    batch->events.push_back({.key = {key, item.key.size()},
                             .mod_revision = item.revision,
                             .tombstone = item.tombstone,
                             .body = {start, static_cast<size_t>(end - start)},
                             .body_with_prev = {start, static_cast<size_t>(p - start)}});
  }
  items_.clear();
  return batch;
}

}  // namespace mvcc
