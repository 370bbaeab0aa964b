// Chunks and heads of a log as bytes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/sha256.h"
#include "base/status.h"
#include "base/time_text.h"
#include "ledger/log.h"
#include "vault/crypto.h"

namespace ledger {
namespace {

using nlohmann::json;

std::string Sha256Hex(std::string_view text) { return base::DigestToHex(base::Sha256(text)); }

// What is signed of a chunk: the chain makes the last digest stand for all records before it, and
// the folder keeps a chunk from being shown as another log's.
std::string ChunkStatement(const Place& place, uint64_t first_seq, uint64_t last_seq,
                           std::string_view last_sha256) {
  return fmt::format("engram-keeper log chunk 1\n{}\n{} {}\n{}\n", place.Folder(), first_seq,
                     last_seq, last_sha256);
}

std::string HeadStatement(const Place& place, std::string_view line) {
  return fmt::format("engram-keeper log head 1\n{}\n{}\n", place.Folder(), line);
}

std::string SignatureLine(const vault::SigningKey& key, std::string_view statement) {
  const vault::Signature signature = key.Sign(statement);
  const json line = {{"signed_by", key.verifying_key().Id()},
                     {"signature", vault::ToBase64(signature)}};
  return line.dump() + "\n";
}

absl::Status CheckSignature(std::string_view line, std::string_view statement,
                            const std::vector<vault::VerifyingKey>& trusted) {
  const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* name) -> std::string {
    if (!parsed.is_object() || !parsed.contains(name) || !parsed[name].is_string()) return {};
    return parsed[name].get<std::string>();
  };
  const std::string by = text("signed_by");
  const auto bytes = vault::FromBase64(text("signature"));
  vault::Signature signature;
  if (by.empty() || !bytes.has_value() || bytes->size() != signature.size()) {
    return absl::DataLossError("the signature is missing or malformed");
  }
  std::copy(bytes->begin(), bytes->end(), signature.begin());
  bool known = false;
  for (const vault::VerifyingKey& key : trusted) {
    if (key.Id() != by) continue;
    known = true;
    if (key.Verify(statement, signature).ok()) return absl::OkStatus();
  }
  if (!known) {
    return base::MakeStatus(absl::StatusCode::kPermissionDenied,
                            "signed by key {}, which is not among the trusted ones",
                            json(by).dump(-1, ' ', true, json::error_handler_t::replace));
  }
  return base::MakeStatus(absl::StatusCode::kDataLoss, "the signature of key {} does not fit", by);
}

// Takes the next line off `bytes`, without its newline; nothing when there is no whole one.
std::optional<std::string_view> TakeLine(std::string_view* bytes) {
  const size_t end = bytes->find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = bytes->substr(0, end);
  bytes->remove_prefix(end + 1);
  return line;
}

}  // namespace

std::string Place::Folder() const {
  return fmt::format("{}/{}/{}", cluster, timeline.Name(), writer);
}

std::optional<Place> Place::OfName(std::string_view name) {
  std::vector<std::string_view> parts;
  while (parts.size() < 3) {
    const size_t slash = name.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    parts.push_back(name.substr(0, slash));
    name.remove_prefix(slash + 1);
  }
  const auto timeline = catalog::Timeline::Parse(std::string(parts[1]));
  if (!timeline.has_value() || parts[0].empty() || parts[2].size() != 16) return std::nullopt;
  return Place{
      .cluster = std::string(parts[0]), .timeline = *timeline, .writer = std::string(parts[2])};
}

std::string EncodeChunk(const Place& place, uint64_t first_seq, uint64_t last_seq,
                        std::string_view lines, const std::string& last_sha256,
                        const vault::SigningKey& key) {
  return std::string(lines) +
         SignatureLine(key, ChunkStatement(place, first_seq, last_seq, last_sha256));
}

absl::StatusOr<Chunk> DecodeChunk(const Place& place, std::string_view bytes, uint64_t first_seq,
                                  std::string_view previous_sha256,
                                  const std::vector<vault::VerifyingKey>& trusted) {
  Chunk chunk;
  chunk.last_sha256 = previous_sha256;
  const std::string folder = place.Folder();
  while (true) {
    const std::optional<std::string_view> line = TakeLine(&bytes);
    if (!line.has_value()) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "cut off after record {}",
                              first_seq + chunk.records.size() - 1);
    }
    if (bytes.empty()) {  // the last one signs those before
      if (chunk.records.empty()) return absl::DataLossError("it holds no records");
      RETURN_IF_ERROR(CheckSignature(
          *line,
          ChunkStatement(place, first_seq, first_seq + chunk.records.size() - 1, chunk.last_sha256),
          trusted));
      return chunk;
    }
    const uint64_t seq = first_seq + chunk.records.size();
    absl::StatusOr<Record> record = DecodeLine(*line, folder);
    if (!record.ok()) {
      return base::Annotate(record.status(), fmt::format("at record {}", seq));
    }
    if (record->seq != seq) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "record {} stands where {} should",
                              record->seq, seq);
    }
    if (record->previous != chunk.last_sha256) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "record {} does not follow the one before it: that was edited, "
                              "removed or exchanged",
                              seq);
    }
    chunk.last_sha256 = Sha256Hex(fmt::format("{}\n", *line));
    chunk.records.push_back(*std::move(record));
  }
}

std::string EncodeHead(const Place& place, const Head& head, const vault::SigningKey& key) {
  const json line = {{"seq", head.seq},
                     {"sha256", head.sha256},
                     {"at", base::Rfc3339(head.at)},
                     {"watched_revision", head.watched.revision},
                     {"watched_at", base::Rfc3339(head.watched.at)}};
  const std::string text = line.dump();
  return text + "\n" + SignatureLine(key, HeadStatement(place, text));
}

absl::StatusOr<Head> DecodeHead(const Place& place, std::string_view bytes,
                                const std::vector<vault::VerifyingKey>& trusted) {
  const std::optional<std::string_view> line = TakeLine(&bytes);
  const std::optional<std::string_view> signature =
      line.has_value() ? TakeLine(&bytes) : std::nullopt;
  if (!signature.has_value() || !bytes.empty()) {
    return absl::DataLossError("the head is malformed or cut off");
  }
  // What is signed is what is parsed: nothing is believed before.
  RETURN_IF_ERROR(CheckSignature(*signature, HeadStatement(place, *line), trusted));
  const json parsed = json::parse(*line, nullptr, /*allow_exceptions=*/false);
  Head head;
  const auto text = [&](const char* name) -> std::string {
    return parsed.is_object() && parsed.contains(name) && parsed[name].is_string()
               ? parsed[name].get<std::string>()
               : std::string();
  };
  const auto count = [&](const char* name) -> std::optional<uint64_t> {
    if (!parsed.is_object() || !parsed.contains(name) || !parsed[name].is_number_unsigned()) {
      return std::nullopt;
    }
    return parsed[name].get<uint64_t>();
  };
  const auto at = base::ParseRfc3339(text("at"));
  const auto watched_at = base::ParseRfc3339(text("watched_at"));
  const auto seq = count("seq");
  const auto revision = count("watched_revision");
  head.sha256 = text("sha256");
  if (!at.has_value() || !watched_at.has_value() || !seq.has_value() || !revision.has_value() ||
      *revision > uint64_t{INT64_MAX} || head.sha256.size() != 64) {
    return absl::DataLossError("the head is malformed");
  }
  head.seq = *seq;
  head.at = *at;
  head.watched = {.revision = static_cast<int64_t>(*revision), .at = *watched_at};
  return head;
}

}  // namespace ledger
