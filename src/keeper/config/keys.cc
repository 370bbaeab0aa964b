#include "config/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace config {
namespace {

constexpr std::string_view kBech32Digits = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kSignerWord = "engram-signing-public-1 ";
// "age1", 52 digits for 32 bytes, 6 of checksum.
constexpr size_t kRecipientChars = 62;

// One step of BIP 173's checksum.
uint32_t Polymod(uint32_t checksum, uint32_t value) {
  constexpr std::array<uint32_t, 5> kGenerator = {0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd,
                                                  0x2a1462b3};
  const uint32_t top = checksum >> 25;
  checksum = ((checksum & 0x1ffffff) << 5) ^ value;
  for (size_t i = 0; i < kGenerator.size(); ++i) {
    if (((top >> i) & 1) != 0) checksum ^= kGenerator[i];
  }
  return checksum;
}

bool ChecksumFits(std::string_view human_part, std::string_view digits) {
  uint32_t checksum = 1;
  for (const char c : human_part) checksum = Polymod(checksum, static_cast<uint32_t>(c) >> 5);
  checksum = Polymod(checksum, 0);
  for (const char c : human_part) checksum = Polymod(checksum, static_cast<uint32_t>(c) & 31);
  for (const char c : digits) {
    checksum = Polymod(checksum, static_cast<uint32_t>(kBech32Digits.find(c)));
  }
  return checksum == 1;
}

std::optional<std::string> Base64Bytes(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kBase64Digits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 0xff));
      bits &= (1U << count) - 1;
    }
  }
  return bits == 0 ? std::optional(bytes) : std::nullopt;
}

}  // namespace

std::string RecipientFault(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  if (upper.starts_with("AGE-SECRET-KEY-")) {
    return "this is a private key: put its public key (age1...) here, and make a new pair, since "
           "whoever can read this file can now open the backups";
  }
  if (!text.starts_with("age1")) {
    return fmt::format("`{}` is no age recipient: they begin with age1", text);
  }
  const std::string_view digits = text.substr(4);
  if (digits.find_first_not_of(kBech32Digits) != std::string_view::npos) {
    return fmt::format("`{}` is no age recipient: it holds characters that none has", text);
  }
  if (text.size() != kRecipientChars) {
    return fmt::format("`{}` is no age recipient: {} characters, not {}", text, text.size(),
                       kRecipientChars);
  }
  if (!ChecksumFits("age", digits)) {
    return fmt::format(
        "`{}` is no age recipient: its checksum does not fit, look for a typing "
        "mistake",
        text);
  }
  return "";
}

std::optional<std::string> SignerText(std::string_view text) {
  if (text.starts_with(kSignerWord)) text.remove_prefix(kSignerWord.size());
  // 32 bytes: 43 digits, with or without the padding.
  if (text.size() == 44 && text.back() == '=') text.remove_suffix(1);
  if (text.size() != 43) return std::nullopt;
  const std::optional<std::string> bytes = Base64Bytes(text);
  if (!bytes || bytes->size() != 32) return std::nullopt;
  return fmt::format("{}{}", kSignerWord, text);
}

}  // namespace config
