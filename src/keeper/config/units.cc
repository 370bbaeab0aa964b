#include "config/units.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

namespace config {
namespace {

struct Unit {
  std::string_view name;
  uint64_t scale;
};

constexpr std::array<Unit, 8> kTimeUnits = {{{"w", 604'800'000'000'000},
                                             {"d", 86'400'000'000'000},
                                             {"h", 3'600'000'000'000},
                                             {"m", 60'000'000'000},
                                             {"s", 1'000'000'000},
                                             {"ms", 1'000'000},
                                             {"us", 1'000},
                                             {"ns", 1}}};
constexpr uint64_t kDurationMax = uint64_t{100} * 365 * 86'400 * 1'000'000'000;

constexpr std::array<Unit, 5> kBinaryUnits = {{{"TiB", uint64_t{1} << 40},
                                               {"GiB", uint64_t{1} << 30},
                                               {"MiB", uint64_t{1} << 20},
                                               {"KiB", uint64_t{1} << 10},
                                               {"B", 1}}};
constexpr std::array<Unit, 4> kDecimalUnits = {
    {{"TB", 1'000'000'000'000}, {"GB", 1'000'000'000}, {"MB", 1'000'000}, {"kB", 1'000}}};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view TakeWhile(std::string_view* text, bool (*fits)(char)) {
  size_t n = 0;
  while (n < text->size() && fits((*text)[n])) ++n;
  const std::string_view taken = text->substr(0, n);
  text->remove_prefix(n);
  return taken;
}

// A decimal number at the start of `text`, multiplied by the scale that `unit_of` gives for the
// unit behind it.
struct Number {
  uint64_t whole = 0;
  uint64_t fraction = 0;        // of fraction_scale
  uint64_t fraction_scale = 1;  // 10^digits
};

std::optional<Number> TakeNumber(std::string_view* text) {
  Number number;
  const std::string_view whole = TakeWhile(text, IsDigit);
  if (whole.empty() || whole.size() > 19) return std::nullopt;
  for (const char c : whole) number.whole = number.whole * 10 + static_cast<uint64_t>(c - '0');
  if (text->empty() || text->front() != '.') return number;
  text->remove_prefix(1);
  const std::string_view digits = TakeWhile(text, IsDigit);
  if (digits.empty() || digits.size() > 6) return std::nullopt;
  for (const char c : digits) {
    number.fraction = number.fraction * 10 + static_cast<uint64_t>(c - '0');
    number.fraction_scale *= 10;
  }
  return number;
}

std::optional<uint64_t> Scale(const Number& number, uint64_t scale) {
  if (number.whole > std::numeric_limits<int64_t>::max() / scale) return std::nullopt;
  // scale < 2^50 and fraction < 10^6 < 2^20: the product may pass 2^64 only for the largest unit,
  // hence the division first.
  const uint64_t part = scale / number.fraction_scale * number.fraction +
                        scale % number.fraction_scale * number.fraction / number.fraction_scale;
  const uint64_t total = number.whole * scale + part;
  if (total > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return total;
}

template <size_t N>
const Unit* FindUnit(const std::array<Unit, N>& units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

}  // namespace

std::optional<base::Duration> ParseDuration(std::string_view text) {
  if (text == "0") return base::Duration(0);
  uint64_t total = 0;
  uint64_t last_scale = std::numeric_limits<uint64_t>::max();
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    const std::optional<Number> number = TakeNumber(&text);
    if (!number) return std::nullopt;
    const Unit* unit =
        FindUnit(kTimeUnits, TakeWhile(&text, [](char c) { return c >= 'a' && c <= 'z'; }));
    if (unit == nullptr || unit->scale >= last_scale) return std::nullopt;
    last_scale = unit->scale;
    const std::optional<uint64_t> part = Scale(*number, unit->scale);
    if (!part || *part > kDurationMax - total) return std::nullopt;
    total += *part;
  }
  return base::Duration(static_cast<int64_t>(total));
}

std::string DurationText(base::Duration d) {
  uint64_t left = static_cast<uint64_t>(d.count());
  std::string text;
  for (const Unit& unit : kTimeUnits) {
    // Weeks are read but not written: "14d" is what people say.
    if (unit.name == "w" || left < unit.scale) continue;
    text += fmt::format("{}{}", left / unit.scale, unit.name);
    left %= unit.scale;
  }
  return text.empty() ? "0s" : text;
}

std::optional<uint64_t> ParseSize(std::string_view text) {
  const std::optional<Number> number = TakeNumber(&text);
  if (!number) return std::nullopt;
  if (text.empty()) {
    return number->fraction_scale == 1 ? Scale(*number, 1) : std::nullopt;
  }
  if (const Unit* unit = FindUnit(kBinaryUnits, text)) return Scale(*number, unit->scale);
  if (const Unit* unit = FindUnit(kDecimalUnits, text)) return Scale(*number, unit->scale);
  return std::nullopt;
}

std::string SizeText(uint64_t bytes) {
  if (bytes == 0) return "0B";
  for (const Unit& unit : kBinaryUnits) {
    if (bytes % unit.scale == 0) return fmt::format("{}{}", bytes / unit.scale, unit.name);
  }
  return fmt::format("{}B", bytes);
}

std::optional<uint64_t> ParseRate(std::string_view text) {
  if (!text.ends_with("/s")) return std::nullopt;
  text.remove_suffix(2);
  return ParseSize(text);
}

std::string RateText(uint64_t bytes_per_second) { return SizeText(bytes_per_second) + "/s"; }

}  // namespace config
