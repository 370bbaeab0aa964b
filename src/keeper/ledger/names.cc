#include "ledger/names.h"

#include <fmt/format.h>

namespace ledger {
namespace {

constexpr std::string_view kLogPart = "/log/";
constexpr std::string_view kChunkEnding = ".jsonl";
constexpr size_t kSeqDigits = 16;

std::optional<uint64_t> ParseSeq(std::string_view text) {
  uint64_t seq = 0;
  for (const char c : text) {
    const size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    seq = seq << 4 | digit;
  }
  return seq;
}

}  // namespace

std::string LogFolder(const Place& place) { return fmt::format("{}{}", place.Folder(), kLogPart); }

std::string ChunkName(const Place& place, SeqRange range) {
  return fmt::format("{}{:016x}-{:016x}{}", LogFolder(place), range.first, range.last,
                     kChunkEnding);
}

std::string HeadName(const Place& place) { return LogFolder(place) + "head.json"; }

std::optional<SeqRange> ChunkRange(std::string_view name) {
  const size_t slash = name.rfind('/');
  const std::string_view base = slash == std::string_view::npos ? name : name.substr(slash + 1);
  if (base.size() != 2 * kSeqDigits + 1 + kChunkEnding.size() || base[kSeqDigits] != '-' ||
      !base.ends_with(kChunkEnding)) {
    return std::nullopt;
  }
  const auto first = ParseSeq(base.substr(0, kSeqDigits));
  const auto last = ParseSeq(base.substr(kSeqDigits + 1, kSeqDigits));
  if (!first.has_value() || !last.has_value() || *first < 1 || *last < *first) return std::nullopt;
  return SeqRange{*first, *last};
}

}  // namespace ledger
