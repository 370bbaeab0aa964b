// Reads YAML into plain values that know their line. yaml-cpp's own nodes are not used: they are
// shared handles that change under assignment, know no duplicate keys and follow aliases without a
// bound. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace yaml {

struct Value {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  int line = 0;              // from 1
  std::string text;          // kScalar
  bool quoted = false;       // kScalar: written so that it is a string whatever it looks like
  std::vector<Value> items;  // kSequence: the items; kMap: the values
  // kMap: the key of each item, all different, and where it stands.
  std::vector<std::string> keys;
  std::vector<int> key_lines;

  bool is_map() const { return kind == Kind::kMap; }
  bool is_sequence() const { return kind == Kind::kSequence; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_null() const { return kind == Kind::kNull; }
  // The value of a key; nullptr where this is no map or has no such key.
  const Value* Find(std::string_view key) const;
  // The text of a key's scalar; empty where there is none.
  std::string_view TextOf(std::string_view key) const;
};
// "a map", "a list", "a text", "nothing".
const char* KindName(Value::Kind kind);

struct Limits {
  size_t bytes_max = size_t{1} << 20;
  // Values in all documents, each alias counted as what it stands for: a few lines of aliases of
  // aliases would otherwise unfold to gigabytes.
  size_t values_max = 100'000;
  size_t alias_bytes_max = size_t{4} << 20;  // texts copied by aliases
  int depth_max = 64;
};

// The documents of `text`, without empty ones. The first fault ends it: InvalidArgument with
// "LINE: what is wrong".
absl::StatusOr<std::vector<Value>> Parse(std::string_view text, const Limits& limits = {});

}  // namespace yaml
