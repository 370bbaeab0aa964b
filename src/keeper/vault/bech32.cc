#include "vault/bech32.h"

#include <array>

#include "base/status.h"
#include "vault/secret.h"

namespace vault {
namespace {

constexpr std::string_view kAlphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
constexpr size_t kDataDigits = (32 * 8 + 4) / 5;  // of five bits each; the last holds one bit
constexpr size_t kChecksumDigits = 6;
using Digits = SecretBytes<kDataDigits + kChecksumDigits>;

bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
char Lower(char c) { return IsUpper(c) ? static_cast<char>(c - 'A' + 'a') : c; }
char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
bool InUpperCase(std::string_view prefix) { return !prefix.empty() && IsUpper(prefix[0]); }

// The BCH code of BIP 173, one digit a step.
class Checksum {
 public:
  explicit Checksum(std::string_view prefix) {
    for (const char c : prefix) Add(static_cast<uint32_t>(Lower(c)) >> 5);
    Add(0);
    for (const char c : prefix) Add(static_cast<uint32_t>(Lower(c)) & 31);
  }
  void Add(uint32_t digit) {
    static constexpr std::array<uint32_t, 5> kGenerator = {0x3b6a57b2, 0x26508e6d, 0x1ea119fa,
                                                           0x3d4233dd, 0x2a1462b3};
    const uint32_t top = value_ >> 25;
    value_ = (value_ & 0x1ffffff) << 5 ^ digit;
    for (size_t i = 0; i < kGenerator.size(); ++i) {
      if ((top >> i & 1) != 0) value_ ^= kGenerator[i];
    }
  }
  uint32_t value() const { return value_; }

 private:
  uint32_t value_ = 1;
};

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(base::ToAbsl(what));
}

}  // namespace

std::string EncodeBech32(std::string_view prefix, std::span<const uint8_t, 32> key) {
  Digits digits;
  for (size_t i = 0; i < kDataDigits; ++i) {
    uint32_t digit = 0;
    for (size_t bit = i * 5; bit < i * 5 + 5; ++bit) {
      const uint32_t value = bit < 256 ? uint32_t{key[bit / 8]} >> (7 - bit % 8) & 1 : 0;
      digit = digit << 1 | value;
    }
    digits.data()[i] = static_cast<uint8_t>(digit);
  }
  Checksum checksum(prefix);
  for (size_t i = 0; i < kDataDigits; ++i) checksum.Add(digits.data()[i]);
  for (size_t i = 0; i < kChecksumDigits; ++i) checksum.Add(0);
  const uint32_t final = checksum.value() ^ 1;
  for (size_t i = 0; i < kChecksumDigits; ++i) {
    digits.data()[kDataDigits + i] =
        static_cast<uint8_t>(final >> 5 * (kChecksumDigits - 1 - i) & 31);
  }
  std::string text;
  text.reserve(prefix.size() + 1 + digits.size());
  text.append(prefix).push_back('1');
  for (const uint8_t digit : digits.span()) {
    text.push_back(InUpperCase(prefix) ? Upper(kAlphabet[digit]) : kAlphabet[digit]);
  }
  return text;
}

absl::Status DecodeBech32(std::string_view prefix, std::string_view text,
                          std::span<uint8_t, 32> key) {
  Digits digits;
  if (!text.starts_with(prefix) || text.size() <= prefix.size() || text[prefix.size()] != '1') {
    return Malformed(fmt::format("does not begin with {}1", prefix));
  }
  const std::string_view data = text.substr(prefix.size() + 1);
  if (data.size() != digits.size()) {
    return Malformed(fmt::format("has {} characters instead of {}", text.size(),
                                 prefix.size() + 1 + digits.size()));
  }
  const bool upper = InUpperCase(prefix);
  Checksum checksum(prefix);
  for (size_t i = 0; i < data.size(); ++i) {
    const bool wrong_case = upper ? Upper(data[i]) != data[i] : Lower(data[i]) != data[i];
    const size_t digit = kAlphabet.find(Lower(data[i]));
    if (wrong_case || digit == std::string_view::npos) {
      return Malformed(fmt::format("character {} cannot be in a key", prefix.size() + 2 + i));
    }
    digits.data()[i] = static_cast<uint8_t>(digit);
    checksum.Add(static_cast<uint32_t>(digit));
  }
  if (checksum.value() != 1) return Malformed("the checksum does not fit: mistyped or cut off");
  if ((digits.data()[kDataDigits - 1] & 15) != 0) return Malformed("stray bits at the end");
  for (size_t i = 0; i < 32; ++i) {
    uint32_t byte = 0;
    for (size_t bit = i * 8; bit < i * 8 + 8; ++bit) {
      byte = byte << 1 | (uint32_t{digits.data()[bit / 5]} >> (4 - bit % 5) & 1);
    }
    key[i] = static_cast<uint8_t>(byte);
  }
  return absl::OkStatus();
}

}  // namespace vault
