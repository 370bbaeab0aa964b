#include "ledger/names.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace ledger {
namespace {

constexpr std::string_view kLogPart = "/log/";
constexpr std::string_view kChunkEnding = ".jsonl";
constexpr size_t kSeqDigits = 16;

}  // namespace

std::string LogFolder(const Place& place) { return fmt::format("{}{}", place.Folder(), kLogPart); }

std::string ChunkName(const Place& place, SeqRange range) {
  return fmt::format("{}{:016x}-{:016x}{}", LogFolder(place), range.first, range.last,
                     kChunkEnding);
}

std::string HeadName(const Place& place) { return LogFolder(place) + "head.json"; }

std::optional<SeqRange> ChunkRange(std::string_view name) {
  const size_t slash = name.rfind('/');
  const std::string_view file = slash == std::string_view::npos ? name : name.substr(slash + 1);
  if (file.size() != 2 * kSeqDigits + 1 + kChunkEnding.size() || file[kSeqDigits] != '-' ||
      !file.ends_with(kChunkEnding)) {
    return std::nullopt;
  }
  SeqRange range;
  if (!base::ParseHex16(file.substr(0, kSeqDigits), &range.first) ||
      !base::ParseHex16(file.substr(kSeqDigits + 1, kSeqDigits), &range.last) || range.first < 1 ||
      range.last < range.first) {
    return std::nullopt;
  }
  return range;
}

}  // namespace ledger
