// Protobuf wire format by hand, for the few messages that are on hot paths or below the protobuf
// library: WAL records, raft messages, stored key-values. Writers append to a std::string; the
// reader never reads past its view. Source: the protocol buffers encoding specification. Not
// thread-safe (values), functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace base::wire {

enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline size_t VarintSize(uint64_t v) {
  return static_cast<size_t>((9 * (64 - __builtin_clzll(v | 1)) + 64) / 64);
}

// Writes at p (room for 10 bytes); returns the end.
inline char* PutVarint(char* p, uint64_t v) {
  while (v >= 0x80) {
    *p++ = static_cast<char>(v | 0x80);
    v >>= 7;
  }
  *p++ = static_cast<char>(v);
  return p;
}

inline void AppendVarint(std::string* out, uint64_t v) {
  char buf[10];
  out->append(buf, static_cast<size_t>(PutVarint(buf, v) - buf));
}
inline void AppendTag(std::string* out, uint32_t field, Type type) {
  AppendVarint(out, (static_cast<uint64_t>(field) << 3) | static_cast<uint64_t>(type));
}
// Always written, also when zero.
inline void AppendUint(std::string* out, uint32_t field, uint64_t v) {
  AppendTag(out, field, Type::kVarint);
  AppendVarint(out, v);
}
// proto3 scalar: left out when zero.
inline void AppendNonZero(std::string* out, uint32_t field, uint64_t v) {
  if (v != 0) AppendUint(out, field, v);
}
// Always written, also when empty.
inline void AppendBytes(std::string* out, uint32_t field, std::string_view bytes) {
  AppendTag(out, field, Type::kBytes);
  AppendVarint(out, bytes.size());
  out->append(bytes);
}
inline void AppendNonEmpty(std::string* out, uint32_t field, std::string_view bytes) {
  if (!bytes.empty()) AppendBytes(out, field, bytes);
}

// Walks the fields of one message:
//
//   Reader r(bytes);
//   while (r.Next()) {
//     if (r.field() == 1) x = r.varint();
//   }
//   if (!r.ok()) ...
//
// Unknown fields of any wire type, groups included, are skipped. After a malformed byte Next() is
// false and ok() false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : p_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool Next();
  bool ok() const { return ok_; }
  uint32_t field() const { return field_; }
  Type type() const { return type_; }
  // The value of a varint or fixed field; 0 where the field is of type bytes.
  uint64_t varint() const { return value_; }
  // The payload of a field of type bytes; empty otherwise. Valid as long as the bytes given to the
  // constructor.
  std::string_view bytes() const { return bytes_; }
  // Whether the field has the wire type its schema asks for; a mismatch makes the message
  // malformed.
  bool Expect(Type type) {
    if (type_ == type) return true;
    ok_ = false;
    return false;
  }
  // For repeated integers, which may arrive packed: calls f(value) for each.
  template <typename F>
  void EachVarint(F f) {
    if (type_ == Type::kVarint) return f(value_);
    if (!Expect(Type::kBytes)) return;
    const char* p = bytes_.data();
    const char* end = p + bytes_.size();
    while (p < end) {
      uint64_t v = 0;
      if (!ReadVarint(&p, end, &v)) {
        ok_ = false;
        return;
      }
      f(v);
    }
  }

  // False when the varint is cut off or longer than 10 bytes.
  static bool ReadVarint(const char** p, const char* end, uint64_t* v);

 private:
  bool Fail() {
    ok_ = false;
    return false;
  }
  bool SkipGroup(uint32_t field, int depth);

  const char* p_;
  const char* end_;
  bool ok_ = true;
  uint32_t field_ = 0;
  Type type_ = Type::kVarint;
  uint64_t value_ = 0;
  std::string_view bytes_;
};

}  // namespace base::wire
