#include "service/requests.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "ledger/log.h"
#include "ledger/record.h"

namespace service {
namespace {

using nlohmann::json;

constexpr std::string_view kAnswerEnding = ".answer";

std::string AnswerText(const absl::StatusOr<BackupResult>& result) {
  if (!result.ok()) {
    return json({{"code", static_cast<int>(result.status().code())},
                 {"message", std::string(base::Message(result.status()))}})
        .dump(-1, ' ', false, json::error_handler_t::replace);
  }
  return json({{"code", 0},
               {"name", result->object.name},
               {"stored", ledger::EncodeObject(result->object)},
               {"endpoint", result->member.endpoint},
               {"member", result->member.member_id},
               {"leader", result->member.leader},
               {"nanoseconds", result->received_in.count()}})
      .dump();
}

absl::StatusOr<BackupResult> ParseAnswer(const std::string& text) {
  const json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const absl::Status damaged = absl::DataLossError("the daemon's answer cannot be read");
  if (!parsed.is_object()) return damaged;
  const auto count = [&](const char* name) {
    return parsed.contains(name) && parsed[name].is_number_integer() ? parsed[name].get<uint64_t>()
                                                                     : 0;
  };
  const auto words = [&](const char* name) {
    return parsed.contains(name) && parsed[name].is_string() ? parsed[name].get<std::string>() : "";
  };
  if (const uint64_t code = count("code"); code != 0) {
    return absl::Status(static_cast<absl::StatusCode>(code), words("message"));
  }
  const auto place = ledger::Place::OfName(words("name"));
  if (!place.has_value()) return damaged;
  ASSIGN_OR_RETURN(catalog::Object object, ledger::DecodeObject(words("stored"), place->Folder()));
  BackupResult result{.object = std::move(object),
                      .received_in = base::Duration(static_cast<int64_t>(count("nanoseconds")))};
  result.member.endpoint = words("endpoint");
  result.member.member_id = count("member");
  result.member.leader = count("leader");
  return result;
}

}  // namespace

std::string Requests::PathOf(const std::string& name) const { return base::JoinPath(dir_, name); }

absl::Status Requests::Ask(const std::string& id) {
  if (base::Exists(files_, PathOf(id)) ||
      base::Exists(files_, PathOf(id) + std::string(kAnswerEnding))) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(base::MakeDirectories(files_, dir_, 0700));
  return base::WriteFileAtomically(files_, PathOf(id), "", 0600);
}

absl::StatusOr<std::optional<BackupResult>> Requests::TakeAnswer(const std::string& id) {
  const std::string path = PathOf(id) + std::string(kAnswerEnding);
  if (!base::Exists(files_, path)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(files_, path));
  Withdraw(id);
  ASSIGN_OR_RETURN(BackupResult result, ParseAnswer(text));
  return result;
}

void Requests::Withdraw(const std::string& id) {
  // Either may be gone.
  files_.Remove(PathOf(id)).IgnoreError();
  files_.Remove(PathOf(id) + std::string(kAnswerEnding)).IgnoreError();
}

std::vector<std::string> Requests::Open() const {
  std::vector<std::string> open;
  if (!base::Exists(files_, dir_)) return open;
  const auto names = files_.List(dir_);
  if (!names.ok()) return open;
  for (const std::string& name : *names) {
    if (name.find('.') == std::string::npos) open.push_back(name);
  }
  return open;
}

void Requests::Answer(const std::vector<std::string>& ids,
                      const absl::StatusOr<BackupResult>& result) {
  for (const std::string& id : ids) {
    const absl::Status written = base::WriteFileAtomically(
        files_, PathOf(id) + std::string(kAnswerEnding), AnswerText(result), 0600);
    if (!written.ok()) {
      LOG_WARN("a process that asked for a full gets no answer", {"error", written});
    }
    files_.Remove(PathOf(id)).IgnoreError();  // withdrawn meanwhile
  }
}

void Requests::Clear() {
  if (!base::Exists(files_, dir_)) return;
  const auto names = files_.List(dir_);
  if (!names.ok()) return;
  for (const std::string& name : *names) files_.Remove(PathOf(name)).IgnoreError();
}

}  // namespace service
