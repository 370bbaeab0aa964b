#include "base/bytes.h"

#include <fmt/format.h>

#include <charconv>

namespace base {

std::string ToHex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    out.push_back(kDigits[b >> 4]);
    out.push_back(kDigits[b & 15]);
  }
  return out;
}

std::string IdToHex(uint64_t id) { return fmt::format("{:x}", id); }

bool ParseHexId(std::string_view text, uint64_t* id) {
  if (text.empty() || text.size() > 16) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *id, 16);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseHex16(std::string_view text, uint64_t* value) {
  return text.size() == 16 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         ParseHexId(text, value);
}

}  // namespace base
