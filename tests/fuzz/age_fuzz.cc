// Arbitrary bytes as what the vault reads. The first byte selects: an age file, its header alone,
// an edited file that was whole before, a file of identities, a recipient, a signing key, a packed
// object. Nothing but a status comes of what is damaged, and what is accepted is the one way to
// write it.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "vault/age.h"
#include "vault/seal.h"
#include "vault/signing.h"
#include "vault/test_age.h"

namespace {

constexpr uint64_t kPlainBytesMax = uint64_t{1} << 20;

bool IsDamage(const absl::Status& status) {
  return status.code() == absl::StatusCode::kDataLoss ||
         status.code() == absl::StatusCode::kPermissionDenied;
}

const vault::Identity& FixedIdentity() {
  static const vault::Identity identity = vault::TestIdentity(1);
  return identity;
}

void OpenFile(std::string_view bytes) {
  const auto plain = vault::AgeDecrypt({&FixedIdentity(), 1}, bytes);
  if (!plain.ok()) CHECK(IsDamage(plain.status()));
}

// A header has one form only: printed again from its parts, it is the same text.
void ParseHeaderAlone(std::string_view text) {
  const auto header = vault::ParseHeader(text);
  if (!header.ok()) {
    CHECK(header.status().code() == absl::StatusCode::kDataLoss);
    return;
  }
  std::string again = "age-encryption.org/v1\n";
  for (const vault::Stanza& stanza : header->stanzas) {
    again += "->";
    for (const std::string& argument : stanza.arguments) again += " " + argument;
    again += "\n";
    const std::string body = vault::ToBase64(vault::AsBytes(stanza.body));
    for (size_t at = 0; at <= body.size(); at += 64) again += body.substr(at, 64) + "\n";
  }
  again += "---";
  CHECK_OP(header->covered_bytes, ==, again.size());
  again += " " + vault::ToBase64(header->mac) + "\n";
  CHECK(again == text);
  const auto opened = vault::OpenHeader(text, {&FixedIdentity(), 1});
  if (!opened.ok()) CHECK(IsDamage(opened.status()));
}

// Each five bytes are one edit of a file of three chunks.
void EditFile(std::string_view edits) {
  static const std::string plain = vault::TestBytes(2 * vault::kChunkBytes + 100);
  static const std::string whole =
      vault::AgeEncrypt({&FixedIdentity().recipient(), 1}, plain).value();
  std::string file = whole;
  for (; edits.size() >= 5 && !file.empty(); edits.remove_prefix(5)) {
    const size_t at = base::LoadLe<uint32_t>(edits.data() + 1) % file.size();
    switch (edits[0] & 3) {
      case 0:
        file.resize(at);
        break;
      case 1:
        file[at] = static_cast<char>(file[at] ^ (1 << ((edits[0] >> 2) & 7)));
        break;
      case 2:
        file.erase(at, vault::kSealedChunkBytes);
        break;
      default:
        if (file.size() < 4 * whole.size()) file += file.substr(at, vault::kSealedChunkBytes);
    }
  }
  const auto opened = vault::AgeDecrypt({&FixedIdentity(), 1}, file);
  if (opened.ok()) {
    CHECK(file == whole && *opened == plain);
  } else {
    CHECK(IsDamage(opened.status()));
  }
}

void ReadKeys(std::string_view text) {
  const auto identities = vault::ParseIdentities(text);
  if (identities.ok()) {
    for (const vault::Identity& identity : *identities) {
      CHECK(text.find(identity.ToSecret().view()) != std::string_view::npos);
    }
  }
  const auto recipient = vault::Recipient::Parse(text);
  if (recipient.ok()) CHECK(recipient->ToString() == text);
}

void ReadSigningKey(std::string_view text) {
  const auto key = vault::SigningKey::Parse(text);
  if (key.ok()) CHECK(key->verifying_key().Verify("x", key->Sign("x")).ok());
  const auto alone = vault::VerifyingKey::Parse(text);
  if (alone.ok()) CHECK(text.starts_with(alone->ToString()));
}

void OpenPacked(std::string_view bytes) {
  vault::StringSource from(bytes);
  const auto source =
      vault::OpeningSource::Open({.encrypted = false, .plain_bytes_max = kPlainBytesMax}, {}, from);
  CHECK(source.ok());
  const auto plain = vault::ReadAll(**source);
  if (plain.ok()) {
    CHECK_OP(plain->size(), <=, kPlainBytesMax);
    CHECK_OP((*source)->stored_bytes(), ==, bytes.size());
  } else {
    CHECK(plain.status().code() == absl::StatusCode::kDataLoss);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      OpenFile(rest);
      break;
    case 1:
      ParseHeaderAlone(rest);
      break;
    case 2:
      EditFile(rest);
      break;
    case 3:
      ReadKeys(rest);
      break;
    case 4:
      ReadSigningKey(rest);
      break;
    default:
      OpenPacked(rest);
  }
  return 0;
}
