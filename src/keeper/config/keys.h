// The texts of public keys: a mistyped recipient would make backups that nobody can open, so its
// checksum is looked at before the first one is written. Pure functions, thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace config {

// Why `text` is no age X25519 recipient ("age1...", Bech32); empty: it is one. A text that looks
// like a private key is not repeated.
std::string RecipientFault(std::string_view text);

// The public line of a signing key file, "engram-signing-public-1 <base64>", from the line itself
// or its base64 alone; nullopt for anything else. Nothing of a secret line is repeated by callers.
std::optional<std::string> SignerText(std::string_view text);

}  // namespace config
