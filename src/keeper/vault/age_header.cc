#include "vault/age_header.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/status.h"
#include "vault/crypto.h"

namespace vault {
namespace {

constexpr std::string_view kVersionLine = "age-encryption.org/v1\n";
constexpr std::string_view kStanzaStart = "-> ";
constexpr std::string_view kEnd = "---";
constexpr std::string_view kX25519 = "X25519";
constexpr std::string_view kX25519Info = "age-encryption.org/v1/X25519";
constexpr size_t kBodyLineCharacters = 64;
constexpr size_t kWrappedKeyBytes = FileKey::size() + kTagBytes;
constexpr size_t kReadBytes = 4096;

absl::Status Damaged(size_t line, std::string_view what) {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "age header, line {}: {}", line, what);
}

// The salt of the key that wraps the file key: both points of the exchange.
std::array<uint8_t, 64> WrapSalt(const Point& ephemeral, const Point& recipient) {
  std::array<uint8_t, 64> salt;
  std::copy(ephemeral.begin(), ephemeral.end(), salt.begin());
  std::copy(recipient.begin(), recipient.end(), salt.begin() + 32);
  return salt;
}

base::Digest HeaderMac(const FileKey& file_key, std::string_view covered) {
  const Key key = HkdfSha256(file_key.span(), {}, "header");
  return HmacSha256(key.span(), covered);
}

// Takes the header apart line by line.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<Header> Run() {
    Header header;
    if (!text_.starts_with(kVersionLine)) {
      return Damaged(1, "not age-encryption.org/v1: no age file, or one of another version");
    }
    at_ = kVersionLine.size();
    line_number_ = 1;
    while (true) {
      const size_t line_start = at_;
      std::string_view line;
      RETURN_IF_ERROR(NextLine(&line));
      if (line.starts_with(kEnd)) {
        header.covered_bytes = line_start + kEnd.size();
        RETURN_IF_ERROR(ParseMac(line, &header));
        break;
      }
      RETURN_IF_ERROR(ParseStanza(line, &header.stanzas));
    }
    if (at_ != text_.size()) return Damaged(line_number_ + 1, "bytes behind the header");
    return header;
  }

 private:
  absl::Status NextLine(std::string_view* line) {
    ++line_number_;
    const size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) return Damaged(line_number_, "the header is cut off");
    *line = text_.substr(at_, end - at_);
    at_ = end + 1;
    return absl::OkStatus();
  }

  absl::Status ParseMac(std::string_view line, Header* header) {
    if (header->stanzas.empty()) return Damaged(line_number_, "there is no recipient");
    if (!line.starts_with("--- ")) return Damaged(line_number_, "no MAC behind \"---\"");
    const std::optional<std::string> mac = FromBase64(line.substr(4));
    if (!mac.has_value() || mac->size() != header->mac.size()) {
      return Damaged(line_number_, "the MAC is not 32 bytes of base64");
    }
    std::memcpy(header->mac.data(), mac->data(), mac->size());
    return absl::OkStatus();
  }

  absl::Status ParseStanza(std::string_view line, std::vector<Stanza>* stanzas) {
    if (!line.starts_with(kStanzaStart)) return Damaged(line_number_, "no recipient stanza");
    Stanza stanza;
    std::string_view rest = line.substr(kStanzaStart.size());
    while (true) {
      const size_t space = rest.find(' ');
      const std::string_view argument = rest.substr(0, space);
      const bool visible = std::all_of(argument.begin(), argument.end(),
                                       [](char c) { return c >= '!' && c <= '~'; });
      if (argument.empty() || !visible) return Damaged(line_number_, "malformed arguments");
      stanza.arguments.emplace_back(argument);
      if (space == std::string_view::npos) break;
      rest.remove_prefix(space + 1);
    }
    while (true) {
      std::string_view body_line;
      RETURN_IF_ERROR(NextLine(&body_line));
      const std::optional<std::string> bytes = FromBase64(body_line);
      if (body_line.size() > kBodyLineCharacters || !bytes.has_value()) {
        return Damaged(line_number_, "no line of base64");
      }
      stanza.body += *bytes;
      if (body_line.size() < kBodyLineCharacters) break;
    }
    stanzas->push_back(std::move(stanza));
    return absl::OkStatus();
  }

  const std::string_view text_;
  size_t at_ = 0;
  size_t line_number_ = 0;
};

// What the format demands of the stanzas beyond their syntax.
absl::Status CheckStanzas(const std::vector<Stanza>& stanzas) {
  for (const Stanza& stanza : stanzas) {
    const std::string& kind = stanza.arguments[0];
    if (kind == "scrypt" && stanzas.size() > 1) {
      return absl::DataLossError("age header: a passphrase stands beside other recipients");
    }
    if (kind != kX25519) continue;
    if (stanza.arguments.size() != 2) {
      return absl::DataLossError("age header: an X25519 stanza has one argument");
    }
    const std::optional<std::string> point = FromBase64(stanza.arguments[1]);
    if (!point.has_value() || point->size() != sizeof(Point)) {
      return absl::DataLossError("age header: the point of an X25519 stanza is not 32 bytes");
    }
    // Checked before anything is opened: a longer body could hide another message under the same
    // tag.
    if (stanza.body.size() != kWrappedKeyBytes) {
      return absl::DataLossError("age header: the body of an X25519 stanza is not 32 bytes");
    }
  }
  return absl::OkStatus();
}

// Nothing when the stanza is for somebody else.
absl::StatusOr<std::optional<FileKey>> OpenStanza(const Stanza& stanza, const Identity& identity) {
  Point ephemeral;
  const std::optional<std::string> point = FromBase64(stanza.arguments[1]);
  std::memcpy(ephemeral.data(), point->data(), ephemeral.size());
  Key shared;
  if (!X25519(identity.key(), ephemeral, &shared)) {
    return absl::DataLossError("age header: the point of an X25519 stanza is no honest one");
  }
  const auto salt = WrapSalt(ephemeral, identity.recipient().point());
  const Key wrap = HkdfSha256(shared.span(), salt, kX25519Info);
  FileKey file_key;
  // A zero nonce is safe: the wrapping key is used once.
  if (!OpenChaCha(wrap, Nonce{}, AsBytes(stanza.body), file_key.data())) {
    return std::optional<FileKey>();
  }
  return std::optional<FileKey>(file_key);
}

absl::StatusOr<FileKey> FindFileKey(const Header& header, std::span<const Identity> identities) {
  for (const Stanza& stanza : header.stanzas) {
    if (stanza.arguments[0] != kX25519) continue;
    for (const Identity& identity : identities) {
      ASSIGN_OR_RETURN(const std::optional<FileKey> file_key, OpenStanza(stanza, identity));
      if (file_key.has_value()) return *file_key;
    }
  }
  if (identities.empty()) {
    return base::MakeStatus(absl::StatusCode::kPermissionDenied,
                            "there is no identity to open this object with (it has {} recipients)",
                            header.stanzas.size());
  }
  return base::MakeStatus(absl::StatusCode::kPermissionDenied,
                          "none of the {} identities opens this object (it has {} recipients)",
                          identities.size(), header.stanzas.size());
}

}  // namespace

absl::StatusOr<Header> ParseHeader(std::string_view text) { return Parser(text).Run(); }

absl::StatusOr<std::string> MakeHeader(const FileKey& file_key,
                                       std::span<const Recipient> recipients,
                                       base::Random& random) {
  if (recipients.empty()) return absl::InvalidArgumentError("no recipient to encrypt for");
  std::string text(kVersionLine);
  for (const Recipient& recipient : recipients) {
    Key ephemeral;
    FillRandom(random, ephemeral.span());
    const Point share = PublicPoint(ephemeral);
    Key shared;
    if (!X25519(ephemeral, recipient.point(), &shared)) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                              "recipient {} is not a usable public key", recipient.ToString());
    }
    const auto salt = WrapSalt(share, recipient.point());
    const Key wrap = HkdfSha256(shared.span(), salt, kX25519Info);
    std::array<uint8_t, kWrappedKeyBytes> body;
    SealChaCha(wrap, Nonce{}, file_key.span(), body.data());
    text += fmt::format("{}{} {}\n{}\n", kStanzaStart, kX25519, ToBase64(share), ToBase64(body));
  }
  text += kEnd;
  const base::Digest mac = HeaderMac(file_key, text);
  text += fmt::format(" {}\n", ToBase64(mac));
  if (text.size() > kHeaderBytesMax) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{} recipients are too many",
                            recipients.size());
  }
  return text;
}

absl::StatusOr<FileKey> OpenHeader(std::string_view text, std::span<const Identity> identities) {
  ASSIGN_OR_RETURN(const Header header, ParseHeader(text));
  RETURN_IF_ERROR(CheckStanzas(header.stanzas));
  ASSIGN_OR_RETURN(const FileKey file_key, FindFileKey(header, identities));
  const base::Digest mac = HeaderMac(file_key, text.substr(0, header.covered_bytes));
  if (!EqualInConstantTime(mac, header.mac)) {
    return absl::DataLossError("age header: it was changed after it was written (its MAC differs)");
  }
  return file_key;
}

absl::StatusOr<std::string> ReadHeader(Source& from, std::string* following) {
  std::string text;
  std::string piece(kReadBytes, '\0');
  size_t line_start = 0;
  while (true) {
    const std::string_view begun =
        std::string_view(text).substr(0, std::min(text.size(), kVersionLine.size()));
    if (!kVersionLine.starts_with(begun)) {
      return Damaged(1, "not age-encryption.org/v1: no age file, or one of another version");
    }
    // Only whole lines count, and the header ends with the first that begins with "---".
    for (size_t end; (end = text.find('\n', line_start)) != std::string::npos;) {
      const bool last = text.compare(line_start, kEnd.size(), kEnd) == 0;
      line_start = end + 1;
      if (!last) continue;
      *following = text.substr(line_start);
      text.resize(line_start);
      return text;
    }
    if (text.size() >= kHeaderBytesMax) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "age header: longer than {} bytes",
                              kHeaderBytesMax);
    }
    ASSIGN_OR_RETURN(
        const size_t got,
        from.Read(piece.data(), std::min(piece.size(), kHeaderBytesMax - text.size())));
    if (got == 0) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "age header: cut off after {} bytes",
                              text.size());
    }
    text.append(piece, 0, got);
  }
}

absl::StatusOr<std::string> Rewrap(std::string_view header, std::span<const Identity> identities,
                                   std::span<const Recipient> recipients, base::Random& random) {
  ASSIGN_OR_RETURN(const FileKey file_key, OpenHeader(header, identities));
  return MakeHeader(file_key, recipients, random);
}

}  // namespace vault
