#include "rpc/wire_text.h"

#include <array>
#include <chrono>

namespace rpc {

std::optional<base::Duration> ParseTimeout(std::string_view text) {
  constexpr size_t kDigitsMax = 8;
  if (text.size() < 2 || text.size() > kDigitsMax + 1) return std::nullopt;
  int64_t value = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  switch (text.back()) {
    case 'H':
      // 8 digits of hours are more nanoseconds than fit.
      return value > 1'000'000 ? base::Duration::max() : base::Duration(std::chrono::hours(value));
    case 'M':
      return std::chrono::minutes(value);
    case 'S':
      return std::chrono::seconds(value);
    case 'm':
      return std::chrono::milliseconds(value);
    case 'u':
      return std::chrono::microseconds(value);
    case 'n':
      return std::chrono::nanoseconds(value);
    default:
      return std::nullopt;
  }
}

std::string_view StatusDigits(absl::StatusCode code) {
  static constexpr std::array<std::string_view, 17> kDigits = {
      "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"};
  const auto number = static_cast<size_t>(code);
  return number < kDigits.size() ? kDigits[number] : kDigits[2];
}

std::string EncodeMessage(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x20 && byte <= 0x7e && c != '%') {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  return out;
}

bool IsGrpcContentType(std::string_view content_type) {
  constexpr std::string_view kBase = "application/grpc";
  if (!content_type.starts_with(kBase)) return false;
  if (content_type.size() == kBase.size()) return true;
  return content_type[kBase.size()] == '+' || content_type[kBase.size()] == ';';
}

}  // namespace rpc
