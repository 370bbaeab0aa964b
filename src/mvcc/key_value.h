// The stored form of one key-value: protobuf mvccpb.KeyValue, fields 1 to 6, empty and zero fields
// left out. What a put stores is what every response carries, byte for byte. Pure functions, safe
// on any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace mvcc {

// A decoded key-value; the views point into the bytes it was decoded from.
struct KeyValue {
  std::string_view key{};
  int64_t create_revision = 0;
  int64_t mod_revision = 0;
  int64_t version = 0;
  std::string_view value{};
  int64_t lease = 0;
};

// Exact length of the encoding.
size_t EncodedSize(const KeyValue& kv);
// Writes EncodedSize(kv) bytes at `out` and returns the end.
char* EncodeTo(const KeyValue& kv, char* out);
void AppendKeyValue(const KeyValue& kv, std::string* out);

// DataLoss when the bytes are no KeyValue. Empty bytes are a KeyValue with an empty key.
absl::StatusOr<KeyValue> DecodeKeyValue(std::string_view bytes);
// Only the key, for scans; false when the bytes are malformed.
bool DecodeKey(std::string_view bytes, std::string_view* key);

// Appends one length-delimited field (tag, length, bytes) as responses embed key-values.
void AppendField(uint32_t field, std::string_view bytes, std::string* out);

}  // namespace mvcc
