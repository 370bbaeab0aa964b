#include "text.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>

#include "base/status.h"

namespace engramctl {
namespace {

using absl::StatusCode;

absl::Status NumberError(std::string_view function, std::string_view text, std::string_view why) {
  return base::MakeStatus(StatusCode::kInvalidArgument, "strconv.{}: parsing {}: {}", function,
                          Quote(text), why);
}

// Removes the base prefix of a base-0 number and checks its underscores; 0 when the text is
// malformed.
int TakeBase(std::string_view& digits, bool& underscores_ok) {
  int base = 10;
  const std::string_view whole = digits;
  if (digits.size() >= 2 && digits[0] == '0') {
    switch (std::tolower(static_cast<unsigned char>(digits[1]))) {
      case 'x':
        base = 16;
        break;
      case 'o':
        base = 8;
        break;
      case 'b':
        base = 2;
        break;
      default:
        base = 0;
    }
    if (base != 0) {
      digits.remove_prefix(2);
    } else {
      base = 8;
      digits.remove_prefix(1);
    }
  }
  // An underscore must stand between digits (or after the prefix).
  underscores_ok = whole.empty() || (whole.front() != '_' && whole.back() != '_' &&
                                     whole.find("__") == std::string_view::npos);
  return base;
}

enum class Parsed { kOk, kSyntax, kRange };

Parsed ParseDigits(std::string_view digits, int base, uint64_t* out) {
  bool underscores_ok = false;
  const bool any_base = base == 0;
  if (any_base) base = TakeBase(digits, underscores_ok);
  if (digits.empty()) return Parsed::kSyntax;
  uint64_t value = 0;
  bool overflow = false;
  for (const char c : digits) {
    int digit = 0;
    if (c == '_' && underscores_ok) continue;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'z') {
      digit = c - 'a' + 10;
    } else if (c >= 'A' && c <= 'Z') {
      digit = c - 'A' + 10;
    } else {
      return Parsed::kSyntax;
    }
    if (digit >= base) return Parsed::kSyntax;
    uint64_t next = 0;
    overflow = overflow || __builtin_mul_overflow(value, static_cast<uint64_t>(base), &next) ||
               __builtin_add_overflow(next, static_cast<uint64_t>(digit), &next);
    value = next;
  }
  *out = value;
  return overflow ? Parsed::kRange : Parsed::kOk;
}

// Decodes one character of UTF-8; length 0 when the bytes are no valid one.
struct Decoded {
  uint32_t rune = 0;
  size_t length = 0;
};

Decoded DecodeUtf8(std::string_view bytes) {
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first < 0x80) return {first, 1};
  size_t length = 0;
  uint32_t rune = 0;
  uint32_t smallest = 0;
  if ((first & 0xe0) == 0xc0) {
    length = 2, rune = first & 0x1f, smallest = 0x80;
  } else if ((first & 0xf0) == 0xe0) {
    length = 3, rune = first & 0x0f, smallest = 0x800;
  } else if ((first & 0xf8) == 0xf0) {
    length = 4, rune = first & 0x07, smallest = 0x10000;
  } else {
    return {};
  }
  if (bytes.size() < length) return {};
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<uint8_t>(bytes[i]);
    if ((next & 0xc0) != 0x80) return {};
    rune = (rune << 6) | (next & 0x3f);
  }
  const bool surrogate = rune >= 0xd800 && rune <= 0xdfff;
  if (rune < smallest || rune > 0x10ffff || surrogate) return {};
  return {rune, length};
}

void AppendUtf8(std::string& out, uint32_t rune) {
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (rune < 0x80) {
    put(rune);
  } else if (rune < 0x800) {
    put(0xc0 | (rune >> 6));
    put(0x80 | (rune & 0x3f));
  } else if (rune < 0x10000) {
    put(0xe0 | (rune >> 12));
    put(0x80 | ((rune >> 6) & 0x3f));
    put(0x80 | (rune & 0x3f));
  } else {
    put(0xf0 | (rune >> 18));
    put(0x80 | ((rune >> 12) & 0x3f));
    put(0x80 | ((rune >> 6) & 0x3f));
    put(0x80 | (rune & 0x3f));
  }
}

// Close to unicode.IsPrint: control, format, private, surrogate, spaces other than U+0020 and
// non-characters are not.
bool IsPrintable(uint32_t rune) {
  if (rune < 0x20 || rune == 0x7f) return false;
  if (rune < 0x80) return true;
  if (rune <= 0xa0 || rune == 0xad) return false;
  if (rune == 0x1680 || (rune >= 0x2000 && rune <= 0x200f)) return false;
  if ((rune >= 0x2028 && rune <= 0x202f) || (rune >= 0x205f && rune <= 0x206f)) return false;
  if (rune == 0x3000 || rune == 0xfeff || (rune >= 0xfff0 && rune <= 0xfffb)) return false;
  if (rune >= 0xe000 && rune <= 0xf8ff) return false;
  if ((rune & 0xfffe) == 0xfffe || rune >= 0xe0000) return false;
  return true;
}

const char* ShortEscape(uint32_t rune) {
  switch (rune) {
    case '\a':
      return "\\a";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\v':
      return "\\v";
    default:
      return nullptr;
  }
}

std::optional<uint32_t> TakeNumber(std::string_view& rest, size_t count, int base) {
  if (rest.size() < count) return std::nullopt;
  uint64_t value = 0;
  if (ParseDigits(rest.substr(0, count), base, &value) != Parsed::kOk) return std::nullopt;
  rest.remove_prefix(count);
  return static_cast<uint32_t>(value);
}

// Reads what follows a backslash.
bool TakeEscape(std::string_view& rest, std::string* out) {
  if (rest.empty()) return false;
  const char c = rest.front();
  if (c >= '0' && c <= '7') {
    const auto value = TakeNumber(rest, 3, 8);
    if (!value || *value > 255) return false;
    *out += static_cast<char>(*value);
    return true;
  }
  rest.remove_prefix(1);
  constexpr std::string_view kNames = "abfnrtv\\\"";
  constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\\"";
  if (const size_t i = kNames.find(c); i != std::string_view::npos) {
    *out += kValues[i];
    return true;
  }
  const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (count == 0) return false;
  const auto value = TakeNumber(rest, count, 16);
  if (!value) return false;
  if (c == 'x') {
    *out += static_cast<char>(*value);
    return true;
  }
  if (*value > 0x10ffff || (*value >= 0xd800 && *value <= 0xdfff)) return false;
  AppendUtf8(*out, *value);
  return true;
}

absl::Status DurationError(std::string_view why, std::string_view text) {
  return base::MakeStatus(StatusCode::kInvalidArgument, "time: {} {}", why, Quote(text));
}

double UnitNanoseconds(std::string_view unit) {
  if (unit == "ns") return 1;
  if (unit == "us" || unit == "\u00b5s" || unit == "\u03bcs") return 1e3;
  if (unit == "ms") return 1e6;
  if (unit == "s") return 1e9;
  if (unit == "m") return 60e9;
  if (unit == "h") return 3600e9;
  return 0;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

absl::StatusOr<int64_t> ParseInt(std::string_view text, int base) {
  std::string_view digits = text;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  uint64_t value = 0;
  const Parsed parsed = ParseDigits(digits, base, &value);
  if (parsed == Parsed::kSyntax) return NumberError("ParseInt", text, "invalid syntax");
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (parsed == Parsed::kRange || value > kMax + (negative ? 1 : 0)) {
    return NumberError("ParseInt", text, "value out of range");
  }
  return static_cast<int64_t>(negative ? 0 - value : value);
}

absl::StatusOr<uint64_t> ParseUint(std::string_view text, int base) {
  uint64_t value = 0;
  switch (ParseDigits(text, base, &value)) {
    case Parsed::kSyntax:
      return NumberError("ParseUint", text, "invalid syntax");
    case Parsed::kRange:
      return NumberError("ParseUint", text, "value out of range");
    case Parsed::kOk:
      break;
  }
  return value;
}

absl::StatusOr<bool> ParseBool(std::string_view text) {
  for (const std::string_view yes : {"1", "t", "T", "true", "TRUE", "True"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "f", "F", "false", "FALSE", "False"}) {
    if (text == no) return false;
  }
  return NumberError("ParseBool", text, "invalid syntax");
}

absl::StatusOr<base::Duration> ParseDuration(std::string_view text) {
  std::string_view rest = text;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (rest == "0") return base::Duration(0);
  if (rest.empty()) return DurationError("invalid duration", text);
  double total = 0;
  while (!rest.empty()) {
    size_t end = 0;
    size_t digit_count = 0;
    bool dot = false;
    while (end < rest.size() && (IsDigit(rest[end]) || (rest[end] == '.' && !dot))) {
      dot = dot || rest[end] == '.';
      digit_count += IsDigit(rest[end]) ? 1 : 0;
      ++end;
    }
    if (digit_count == 0) return DurationError("invalid duration", text);
    const double number = std::stod(std::string(rest.substr(0, end)));
    rest.remove_prefix(end);
    size_t unit_end = 0;
    while (unit_end < rest.size() && !IsDigit(rest[unit_end]) && rest[unit_end] != '.') ++unit_end;
    if (unit_end == 0) return DurationError("missing unit in duration", text);
    const std::string_view unit = rest.substr(0, unit_end);
    const double scale = UnitNanoseconds(unit);
    if (scale == 0) {
      return base::MakeStatus(StatusCode::kInvalidArgument, "time: unknown unit {} in duration {}",
                              Quote(unit), Quote(text));
    }
    total += number * scale;
    rest.remove_prefix(unit_end);
  }
  if (total >= 9.2233720368547758e18) return DurationError("invalid duration", text);
  const auto nanoseconds = static_cast<int64_t>(std::llround(total));
  return base::Duration(negative ? -nanoseconds : nanoseconds);
}

std::string FormatDuration(base::Duration duration) {
  const int64_t signed_ns = duration.count();
  if (signed_ns == 0) return "0s";
  const std::string sign = signed_ns < 0 ? "-" : "";
  const uint64_t ns =
      signed_ns < 0 ? 0 - static_cast<uint64_t>(signed_ns) : static_cast<uint64_t>(signed_ns);
  // `value` in units of 10^-digits, without trailing zeros.
  const auto decimal = [](uint64_t value, int digits) {
    uint64_t unit = 1;
    for (int i = 0; i < digits; ++i) unit *= 10;
    std::string fraction = fmt::format("{:0{}}", value % unit, digits);
    while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
    return fmt::format("{}{}{}", value / unit, fraction.empty() ? "" : ".", fraction);
  };
  if (ns < 1000) return fmt::format("{}{}ns", sign, ns);
  if (ns < 1'000'000) return sign + decimal(ns, 3) + "\u00b5s";
  if (ns < 1'000'000'000) return sign + decimal(ns, 6) + "ms";
  constexpr uint64_t kMinute = 60'000'000'000;
  std::string out = sign;
  if (ns >= 60 * kMinute) out += fmt::format("{}h", ns / (60 * kMinute));
  if (ns >= kMinute) out += fmt::format("{}m", ns / kMinute % 60);
  return out + decimal(ns % kMinute, 9) + "s";
}

std::string Quote(std::string_view bytes) {
  std::string out = "\"";
  while (!bytes.empty()) {
    const Decoded decoded = DecodeUtf8(bytes);
    if (decoded.length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(bytes[0]));
      bytes.remove_prefix(1);
      continue;
    }
    const uint32_t rune = decoded.rune;
    if (rune == '"' || rune == '\\') {
      out += '\\';
      out += static_cast<char>(rune);
    } else if (IsPrintable(rune)) {
      out += bytes.substr(0, decoded.length);
    } else if (const char* escape = ShortEscape(rune); escape != nullptr) {
      out += escape;
    } else if (rune < 0x20 || rune == 0x7f) {
      out += fmt::format("\\x{:02x}", rune);
    } else if (rune < 0x10000) {
      out += fmt::format("\\u{:04x}", rune);
    } else {
      out += fmt::format("\\U{:08x}", rune);
    }
    bytes.remove_prefix(decoded.length);
  }
  return out + '"';
}

bool Unquote(std::string_view text, std::string* out) {
  out->clear();
  if (text.size() < 2 || text.front() != text.back()) return false;
  const char quote = text.front();
  std::string_view rest = text.substr(1, text.size() - 2);
  if (quote == '`') {
    if (rest.find('`') != std::string_view::npos) return false;
    for (const char c : rest) {
      if (c != '\r') *out += c;
    }
    return true;
  }
  if (quote != '"') return false;
  while (!rest.empty()) {
    const char c = rest.front();
    if (c == '"' || c == '\n') return false;
    rest.remove_prefix(1);
    if (c != '\\') {
      *out += c;
    } else if (!TakeEscape(rest, out)) {
      return false;
    }
  }
  return true;
}

std::string QuoteChar(char c) {
  if (c == '\'') return "'\\''";
  if (c == '"') return "'\"'";
  std::string quoted = Quote(std::string_view(&c, 1));
  quoted.front() = '\'';
  quoted.back() = '\'';
  return quoted;
}

std::string HexEscape(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 4);
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return out;
}

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = (group << 8) | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    }
    out += kAlphabet[group >> 18];
    out += kAlphabet[(group >> 12) & 63];
    out += i + 1 < bytes.size() ? kAlphabet[(group >> 6) & 63] : '=';
    out += i + 2 < bytes.size() ? kAlphabet[group & 63] : '=';
  }
  return out;
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Decoded decoded = DecodeUtf8(text);
    const uint32_t rune = decoded.length == 0 ? 0xfffd : decoded.rune;
    if (rune == '"' || rune == '\\') {
      out += '\\';
      out += static_cast<char>(rune);
    } else if (rune == '\b' || rune == '\f' || rune == '\n' || rune == '\r' || rune == '\t') {
      out += ShortEscape(rune);
    } else if (rune < 0x20 || rune == '<' || rune == '>' || rune == '&' || rune == 0x2028 ||
               rune == 0x2029 || decoded.length == 0) {
      out += fmt::format("\\u{:04x}", rune);
    } else {
      out += text.substr(0, decoded.length);
    }
    text.remove_prefix(decoded.length == 0 ? 1 : decoded.length);
  }
  return out + '"';
}

std::string HumanSize(uint64_t bytes) {
  if (bytes < 10) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 7> kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  const double size = static_cast<double>(bytes);
  const double exponent = std::floor(std::log(size) / std::log(1000.0));
  const double value = std::floor(size / std::pow(1000.0, exponent) * 10 + 0.5) / 10;
  const std::string_view unit = kUnits[static_cast<size_t>(exponent)];
  return value < 10 ? fmt::format("{:.1f} {}", value, unit) : fmt::format("{:.0f} {}", value, unit);
}

size_t CharacterCount(std::string_view text) {
  size_t count = 0;
  while (!text.empty()) {
    const size_t length = DecodeUtf8(text).length;
    text.remove_prefix(length == 0 ? 1 : length);
    ++count;
  }
  return count;
}

std::string_view TrimSpace(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (const std::string& part : parts) {
    if (&part != &parts.front()) out += separator;
    out += part;
  }
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string ToUpper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace engramctl
