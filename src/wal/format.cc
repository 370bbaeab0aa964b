#include "wal/format.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace wal {
namespace {

constexpr std::string_view kSuffix = ".wal";
constexpr size_t kHexDigits = 16;

}  // namespace

std::string FormatSegmentName(const SegmentName& name) {
  return fmt::format("{:016x}-{:016x}{}", name.sequence, name.index, kSuffix);
}

std::optional<SegmentName> ParseSegmentName(std::string_view name) {
  if (name.size() != 2 * kHexDigits + 1 + kSuffix.size() || !name.ends_with(kSuffix) ||
      name[kHexDigits] != '-') {
    return std::nullopt;
  }
  SegmentName parsed;
  if (!base::ParseHexId(name.substr(0, kHexDigits), &parsed.sequence) ||
      !base::ParseHexId(name.substr(kHexDigits + 1, kHexDigits), &parsed.index)) {
    return std::nullopt;
  }
  return parsed;
}

}  // namespace wal
