#include "service/state_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/status.h"
#include "ledger/log.h"
#include "ledger/record.h"

namespace service {
namespace {

using nlohmann::json;

std::string DigestHex(const capture::RowDigest& digest) {
  return base::ToHex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::optional<capture::RowDigest> ParseDigestHex(const std::string& hex) {
  capture::RowDigest digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < hex.size(); ++i) {
    const size_t value = std::string_view("0123456789abcdef").find(hex[i]);
    if (value == std::string_view::npos) return std::nullopt;
    uint8_t& byte = digest[i / 2];
    byte = static_cast<uint8_t>(i % 2 == 0 ? value << 4 : byte | value);
  }
  return digest;
}

}  // namespace

std::string StatePath(const std::string& state_dir, const std::string& cluster) {
  return base::JoinPath(base::JoinPath(base::JoinPath(state_dir, "clusters"), cluster),
                        "state.json");
}

absl::StatusOr<StateFile> LoadState(base::Files& files, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(files, path));
  const json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto damaged = [&] {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "{} is damaged", path);
  };
  const auto has = [&](const char* name, bool (json::*is)() const noexcept) {
    return parsed.contains(name) && (parsed[name].*is)();
  };
  if (!parsed.is_object()) return damaged();
  for (const char* name : {"cluster_id", "raft_index"}) {
    if (!has(name, &json::is_number_unsigned)) return damaged();
  }
  for (const char* name :
       {"timeline_revision", "revision", "archived_revision", "archived_at", "watched_at"}) {
    if (!has(name, &json::is_number_integer)) return damaged();
  }
  for (const char* name : {"archived_digest", "previous_sha256", "last_full", "last_full_name"}) {
    if (!has(name, &json::is_string)) return damaged();
  }
  StateFile state;
  state.timeline = {.cluster_id = parsed["cluster_id"],
                    .first_revision = parsed["timeline_revision"]};
  state.mark = {.cluster_id = parsed["cluster_id"],
                .revision = parsed["revision"],
                .raft_index = parsed["raft_index"]};
  state.archive.revision = parsed["archived_revision"];
  state.archive.digest = ParseDigestHex(parsed["archived_digest"]);
  state.archive.at = catalog::Time(parsed["archived_at"].get<int64_t>());
  state.watched_at = catalog::Time(parsed["watched_at"].get<int64_t>());
  state.archive.previous_sha256 = parsed["previous_sha256"];
  // Not there in files of keepers that had no schedule for it.
  if (const json retention = parsed.value("retention", json::object()); retention.is_object()) {
    const auto count = [&](const char* name) {
      const auto at = retention.find(name);
      return at != retention.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
    };
    state.retention.at = catalog::Time(count("at"));
    state.retention.objects = static_cast<uint64_t>(count("objects"));
    state.retention.bytes = static_cast<uint64_t>(count("bytes"));
    const auto stopped = retention.find("stopped");
    if (stopped != retention.end() && stopped->is_string()) {
      state.retention.stopped = stopped->get<std::string>();
    }
  }
  if (const json clock = parsed.value("clock", json::object()); clock.is_object()) {
    const auto nanoseconds = [&](const char* name) {
      const auto at = clock.find(name);
      return base::Duration(at != clock.end() && at->is_number_integer() ? at->get<int64_t>()
                                                                         : int64_t{0});
    };
    state.clock = {.looked = nanoseconds("looked"),
                   .ahead = nanoseconds("ahead"),
                   .set_at = nanoseconds("set_at")};
  }
  const std::string line = parsed["last_full"];
  if (line.empty()) return state;
  const auto place = ledger::Place::OfName(parsed["last_full_name"].get<std::string>());
  if (!place.has_value()) return damaged();
  auto full = ledger::DecodeObject(line, place->Folder());
  if (!full.ok()) return damaged();
  state.last_full = *std::move(full);
  return state;
}

absl::Status SaveState(base::Files& files, const std::string& path, const StateFile& state) {
  std::string full;
  if (state.last_full.has_value()) {
    full = ledger::EncodeObject(*state.last_full);
  }
  const json out = {
      {"cluster_id", state.timeline.cluster_id},
      {"timeline_revision", state.timeline.first_revision},
      {"revision", state.mark.revision},
      {"raft_index", state.mark.raft_index},
      {"archived_revision", state.archive.revision},
      {"archived_digest",
       state.archive.digest.has_value() ? DigestHex(*state.archive.digest) : std::string()},
      {"archived_at", state.archive.at.count()},
      {"watched_at", state.watched_at.count()},
      {"previous_sha256", state.archive.previous_sha256},
      {"last_full", full},
      {"last_full_name", state.last_full.has_value() ? state.last_full->name : std::string()},
      {"retention",
       {{"at", state.retention.at.count()},
        {"objects", state.retention.objects},
        {"bytes", state.retention.bytes},
        {"stopped", state.retention.stopped}}},
      {"clock",
       {{"looked", state.clock.looked.count()},
        {"ahead", state.clock.ahead.count()},
        {"set_at", state.clock.set_at.count()}}}};
  return base::WriteFileAtomically(
      files, path, out.dump(-1, ' ', true, json::error_handler_t::replace) + "\n", 0600);
}

}  // namespace service
