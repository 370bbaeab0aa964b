#include "vault/age_keys.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "vault/bech32.h"

namespace vault {
namespace {

constexpr std::string_view kRecipientPrefix = "age";
constexpr std::string_view kIdentityPrefix = "AGE-SECRET-KEY-";
constexpr size_t kQuotedBytesMax = 80;

}  // namespace

absl::StatusOr<Recipient> Recipient::Parse(std::string_view text) {
  if (text.starts_with(kIdentityPrefix)) {
    return absl::InvalidArgumentError("a secret key stands where a recipient (age1...) belongs");
  }
  Point point;
  const absl::Status status = DecodeBech32(kRecipientPrefix, text, point);
  if (!status.ok()) {
    return base::Annotate(status, fmt::format("recipient \"{}\"", text.substr(0, kQuotedBytesMax)));
  }
  return Recipient(point);
}

std::string Recipient::ToString() const { return EncodeBech32(kRecipientPrefix, point_); }

Identity Identity::Generate(base::Random& random) {
  Key key;
  FillRandom(random, key.span());
  return Identity(key);
}

absl::StatusOr<Identity> Identity::Parse(std::string_view text) {
  Key key;
  const absl::Status status = DecodeBech32(kIdentityPrefix, text, key.span());
  if (!status.ok()) return base::Annotate(status, "identity");
  return Identity(key);
}

Secret Identity::ToSecret() const { return Secret(EncodeBech32(kIdentityPrefix, key_.span())); }

absl::StatusOr<std::vector<Identity>> ParseIdentities(std::string_view text) {
  if (text.starts_with("age-encryption.org/") || text.starts_with("-----BEGIN AGE")) {
    return absl::InvalidArgumentError(
        "the identity file is itself encrypted: decrypt it with age first, or give a command that "
        "does");
  }
  std::vector<Identity> identities;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    absl::StatusOr<Identity> identity = Identity::Parse(line);
    if (!identity.ok()) return base::Annotate(identity.status(), fmt::format("line {}", number));
    identities.push_back(*std::move(identity));
  }
  if (identities.empty()) {
    return absl::InvalidArgumentError("no identity (AGE-SECRET-KEY-1...) in the identity file");
  }
  return identities;
}

}  // namespace vault
