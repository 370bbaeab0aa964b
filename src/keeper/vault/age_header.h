// The header of an age v1 file: who can open it. Pure functions, thread-safe; ReadHeader blocks as
// its source does.
//
//   age-encryption.org/v1\n
//   -> X25519 <ephemeral point>\n       one stanza a recipient; other kinds are passed over
//   <file key, sealed for that recipient>\n
//   --- <HMAC-SHA-256 of all up to and with "---">\n
//
// Everything is base64 without padding; the lines of a body have 64 characters, the last one fewer.
// The payload begins with the byte behind the last newline.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/random.h"
#include "base/sha256.h"
#include "vault/age_keys.h"
#include "vault/secret.h"
#include "vault/stream.h"

namespace vault {

using FileKey = SecretBytes<16>;

// age sets no bound of its own; this is room for 600 recipients.
inline constexpr size_t kHeaderBytesMax = size_t{64} << 10;

struct Stanza {
  std::vector<std::string> arguments;  // at least one: the kind
  std::string body;
};

struct Header {
  std::vector<Stanza> stanzas;  // at least one
  base::Digest mac{};
  size_t covered_bytes = 0;  // what the MAC is of: the text up to and with "---"
};

// Takes the whole header and nothing behind it; DataLoss names the line that is not as the format
// wants it.
absl::StatusOr<Header> ParseHeader(std::string_view text);

// InvalidArgument when there is no recipient, or one whose key is none.
absl::StatusOr<std::string> MakeHeader(const FileKey& file_key,
                                       std::span<const Recipient> recipients, base::Random& random);

// Parses the header and opens it. PermissionDenied "none of the N identities opens this object";
// DataLoss when the header was changed. A stanza that was damaged cannot be told from one for
// somebody else, so that is PermissionDenied, too.
absl::StatusOr<FileKey> OpenHeader(std::string_view text, std::span<const Identity> identities);

// Reads the header off the source. `following` receives what was read behind it.
absl::StatusOr<std::string> ReadHeader(Source& from, std::string* following);

// A header for the same file key and other recipients, so that the payload behind it may stay.
// Whoever could read the old header can still read that copy: this adds readers, it revokes
// nothing.
absl::StatusOr<std::string> Rewrap(std::string_view header, std::span<const Identity> identities,
                                   std::span<const Recipient> recipients, base::Random& random);

}  // namespace vault
