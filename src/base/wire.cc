#include "base/wire.h"

#include "base/bytes.h"

namespace base::wire {
namespace {
constexpr uint64_t kStartGroup = 3;
constexpr uint64_t kEndGroup = 4;
constexpr int kGroupDepthMax = 16;
}  // namespace

bool Reader::ReadVarint(const char** p, const char* end, uint64_t* v) {
  uint64_t result = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (*p == end) return false;
    const auto byte = static_cast<unsigned char>(*(*p)++);
    // The tenth byte holds the one bit that is left; protobuf drops what lies above.
    if (shift < 64) result |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *v = result;
      return true;
    }
  }
  return false;
}

bool Reader::Next() {
  while (ok_ && p_ < end_) {
    uint64_t tag = 0;
    if (!ReadVarint(&p_, end_, &tag) || tag >> 3 == 0 || tag >> 32 != 0) return Fail();
    field_ = static_cast<uint32_t>(tag >> 3);
    value_ = 0;
    bytes_ = {};
    switch (tag & 7) {
      case 0:
        type_ = Type::kVarint;
        return ReadVarint(&p_, end_, &value_) || Fail();
      case 1:
        type_ = Type::kFixed64;
        if (end_ - p_ < 8) return Fail();
        value_ = LoadLe<uint64_t>(p_);
        p_ += 8;
        return true;
      case 2: {
        type_ = Type::kBytes;
        uint64_t size = 0;
        if (!ReadVarint(&p_, end_, &size) || size > static_cast<uint64_t>(end_ - p_)) return Fail();
        bytes_ = {p_, static_cast<size_t>(size)};
        p_ += size;
        return true;
      }
      case 5:
        type_ = Type::kFixed32;
        if (end_ - p_ < 4) return Fail();
        value_ = LoadLe<uint32_t>(p_);
        p_ += 4;
        return true;
      case kStartGroup:
        if (!SkipGroup(field_, 0)) return Fail();
        break;
      default:
        return Fail();
    }
  }
  return false;
}

bool Reader::SkipGroup(uint32_t field, int depth) {
  if (depth > kGroupDepthMax) return false;
  while (p_ < end_) {
    uint64_t tag = 0;
    uint64_t value = 0;
    if (!ReadVarint(&p_, end_, &tag)) return false;
    const auto inner = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
      case 0:
        if (!ReadVarint(&p_, end_, &value)) return false;
        break;
      case 1:
        if (end_ - p_ < 8) return false;
        p_ += 8;
        break;
      case 2:
        if (!ReadVarint(&p_, end_, &value) || value > static_cast<uint64_t>(end_ - p_))
          return false;
        p_ += value;
        break;
      case kStartGroup:
        if (!SkipGroup(inner, depth + 1)) return false;
        break;
      case kEndGroup:
        return inner == field;
      case 5:
        if (end_ - p_ < 4) return false;
        p_ += 4;
        break;
      default:
        return false;
    }
  }
  return false;
}

}  // namespace base::wire
