#include "base/go_text.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

namespace base {
namespace {

constexpr std::array<std::pair<std::string_view, int64_t>, 8> kUnits = {{{"ns", 1},
                                                                         {"us", 1000},
                                                                         {"µs", 1000},
                                                                         {"μs", 1000},
                                                                         {"ms", 1000000},
                                                                         {"s", 1000000000},
                                                                         {"m", 60000000000},
                                                                         {"h", 3600000000000}}};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int DigitValue(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

}  // namespace

std::optional<Duration> ParseGoDuration(std::string_view text) {
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text == "0") return Duration(0);
  if (text.empty()) return std::nullopt;
  long double total = 0;
  while (!text.empty()) {
    size_t i = 0;
    uint64_t whole = 0;
    while (i < text.size() && IsDigit(text[i])) {
      if (whole > std::numeric_limits<int64_t>::max() / 10) return std::nullopt;
      whole = whole * 10 + static_cast<uint64_t>(text[i++] - '0');
    }
    size_t digits = i;
    long double fraction = 0;
    if (i < text.size() && text[i] == '.') {
      long double scale = 0.1L;
      for (++i; i < text.size() && IsDigit(text[i]); ++i, ++digits, scale /= 10) {
        fraction += scale * static_cast<long double>(text[i] - '0');
      }
    }
    if (digits == 0) return std::nullopt;
    size_t unit_end = i;
    while (unit_end < text.size() && !IsDigit(text[unit_end]) && text[unit_end] != '.') ++unit_end;
    const std::string_view unit = text.substr(i, unit_end - i);
    int64_t scale_ns = 0;
    for (const auto& [name, ns] : kUnits) {
      if (name == unit) scale_ns = ns;
    }
    if (scale_ns == 0) return std::nullopt;
    total += (static_cast<long double>(whole) + fraction) * static_cast<long double>(scale_ns);
    text.remove_prefix(unit_end);
  }
  if (total > static_cast<long double>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  const auto ns = static_cast<int64_t>(total + 1e-6L);
  return Duration(negative ? -ns : ns);
}

std::optional<uint64_t> ParseGoUint(std::string_view text) {
  uint64_t radix = 10;
  bool prefixed = false;
  if (text.size() > 1 && text[0] == '0') {
    const char p = text[1] | 0x20;
    radix = p == 'x' ? 16 : p == 'b' ? 2 : 8;
    text.remove_prefix(p == 'x' || p == 'b' || p == 'o' ? 2 : 1);
    prefixed = true;
  }
  uint64_t value = 0;
  bool after_digit = prefixed;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      if (!prefixed || !after_digit || i + 1 == text.size()) return std::nullopt;
      after_digit = false;
      continue;
    }
    const auto digit = static_cast<uint64_t>(DigitValue(text[i]));
    if (digit >= radix) return std::nullopt;
    if (value > (std::numeric_limits<uint64_t>::max() - digit) / radix) return std::nullopt;
    value = value * radix + digit;
    after_digit = true;
  }
  if (text.empty()) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseGoInt(std::string_view text) {
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto magnitude = ParseGoUint(text);
  if (!magnitude) return std::nullopt;
  const uint64_t limit =
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + (negative ? 1 : 0);
  if (*magnitude > limit) return std::nullopt;
  return negative ? static_cast<int64_t>(0 - *magnitude) : static_cast<int64_t>(*magnitude);
}

std::optional<bool> ParseGoBool(std::string_view text) {
  for (const std::string_view yes : {"1", "t", "T", "TRUE", "true", "True"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "f", "F", "FALSE", "false", "False"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

std::string GoQuote(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    switch (c) {
      case '"':
        out += "\\\"";
        continue;
      case '\\':
        out += "\\\\";
        continue;
      case '\a':
        out += "\\a";
        continue;
      case '\b':
        out += "\\b";
        continue;
      case '\f':
        out += "\\f";
        continue;
      case '\n':
        out += "\\n";
        continue;
      case '\r':
        out += "\\r";
        continue;
      case '\t':
        out += "\\t";
        continue;
      case '\v':
        out += "\\v";
        continue;
      default:
        break;
    }
    if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else {
      // A valid multi-byte rune is printed as it is, a stray byte as an escape.
      const size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
      bool valid = n > 0 && i + n <= text.size() && c <= 0xf4;
      for (size_t k = 1; valid && k < n; ++k)
        valid = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
      if (valid) {
        out.append(text.substr(i, n));
        i += n - 1;
      } else {
        out += fmt::format("\\x{:02x}", c);
      }
    }
  }
  out.push_back('"');
  return out;
}

}  // namespace base
