#include "mvcc/key_value.h"

#include <cstring>

#include "base/status.h"
#include "base/wire.h"

namespace mvcc {
namespace {

using base::wire::PutVarint;
using base::wire::VarintSize;

size_t BytesFieldSize(std::string_view bytes) {
  return bytes.empty() ? 0 : 1 + VarintSize(bytes.size()) + bytes.size();
}
size_t IntFieldSize(int64_t v) { return v == 0 ? 0 : 1 + VarintSize(static_cast<uint64_t>(v)); }

// All field numbers are below 16, so a tag is one byte.
char* PutBytesField(char* p, int field, std::string_view bytes) {
  if (bytes.empty()) return p;
  *p++ = static_cast<char>(field << 3 | 2);
  p = PutVarint(p, bytes.size());
  std::memcpy(p, bytes.data(), bytes.size());
  return p + bytes.size();
}
char* PutIntField(char* p, int field, int64_t v) {
  if (v == 0) return p;
  *p++ = static_cast<char>(field << 3);
  return PutVarint(p, static_cast<uint64_t>(v));
}

}  // namespace

size_t EncodedSize(const KeyValue& kv) {
  return BytesFieldSize(kv.key) + IntFieldSize(kv.create_revision) + IntFieldSize(kv.mod_revision) +
         IntFieldSize(kv.version) + BytesFieldSize(kv.value) + IntFieldSize(kv.lease);
}

char* EncodeTo(const KeyValue& kv, char* out) {
  out = PutBytesField(out, 1, kv.key);
  out = PutIntField(out, 2, kv.create_revision);
  out = PutIntField(out, 3, kv.mod_revision);
  out = PutIntField(out, 4, kv.version);
  out = PutBytesField(out, 5, kv.value);
  return PutIntField(out, 6, kv.lease);
}

void AppendKeyValue(const KeyValue& kv, std::string* out) {
  const size_t old = out->size();
  out->resize(old + EncodedSize(kv));
  EncodeTo(kv, out->data() + old);
}

absl::StatusOr<KeyValue> DecodeKeyValue(std::string_view bytes) {
  KeyValue kv;
  base::wire::Reader reader(bytes);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        if (reader.Expect(base::wire::Type::kBytes)) kv.key = reader.bytes();
        break;
      case 2:
        kv.create_revision = static_cast<int64_t>(reader.varint());
        break;
      case 3:
        kv.mod_revision = static_cast<int64_t>(reader.varint());
        break;
      case 4:
        kv.version = static_cast<int64_t>(reader.varint());
        break;
      case 5:
        if (reader.Expect(base::wire::Type::kBytes)) kv.value = reader.bytes();
        break;
      case 6:
        kv.lease = static_cast<int64_t>(reader.varint());
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "stored key-value of {} bytes: expected a KeyValue message",
                            bytes.size());
  }
  return kv;
}

bool DecodeKey(std::string_view bytes, std::string_view* key) {
  // Writers put the key first, so the usual record is decided by its first two bytes.
  if (!bytes.empty() && bytes[0] == 0x0a) {
    const char* p = bytes.data() + 1;
    const char* end = bytes.data() + bytes.size();
    uint64_t length = 0;
    if (!base::wire::Reader::ReadVarint(&p, end, &length)) return false;
    if (length > static_cast<uint64_t>(end - p)) return false;
    *key = {p, length};
    return true;
  }
  absl::StatusOr<KeyValue> kv = DecodeKeyValue(bytes);
  if (!kv.ok()) return false;
  *key = kv->key;
  return true;
}

void AppendField(uint32_t field, std::string_view bytes, std::string* out) {
  char head[20];
  char* p = PutVarint(head, (static_cast<uint64_t>(field) << 3) | 2);
  p = PutVarint(p, bytes.size());
  out->append(head, static_cast<size_t>(p - head));
  out->append(bytes);
}

}  // namespace mvcc
