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

// The lower-case hex of an Ed25519 public key written as 64 hex digits or as base64 of 32 bytes.
std::optional<std::string> SignerHex(std::string_view text);

}  // namespace config
