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

const char* WantedName(Wanted wanted) { return wanted == Wanted::kFull ? "full" : "bundle"; }

std::string Text(const json& answer) {
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string ErrorText(const absl::Status& status) {
  return Text(
      {{"code", static_cast<int>(status.code())}, {"message", std::string(base::Message(status))}});
}

json ObjectJson(const catalog::Object& object) {
  return {{"code", 0}, {"name", object.name}, {"stored", ledger::EncodeObject(object)}};
}

std::string FullText(const BackupResult& result) {
  json out = ObjectJson(result.object);
  out["endpoint"] = result.member.endpoint;
  out["member"] = result.member.member_id;
  out["leader"] = result.member.leader;
  out["nanoseconds"] = result.received_in.count();
  out["yielded"] = result.yielded ? 1 : 0;
  return Text(out);
}

json TroublesJson(const std::vector<bundle::Trouble>& troubles) {
  json out = json::array();
  for (const bundle::Trouble& t : troubles) out.push_back({{"path", t.path}, {"what", t.what}});
  return out;
}

std::string BundleText(const BundleResult& result) {
  json out = ObjectJson(result.object);
  out["entries"] = result.taken.entries;
  out["bytes"] = result.taken.bytes;
  out["refused"] = TroublesJson(result.taken.refused);
  out["changed"] = TroublesJson(result.taken.changed);
  out["certificates"] = result.report.certificates;
  if (result.report.first_expiry_days.has_value()) {
    out["first_expiry_days"] = *result.report.first_expiry_days;
  }
  out["findings"] = json::array();
  for (const bundle::Finding& f : result.report.findings) {
    out["findings"].push_back(
        {{"level", static_cast<int>(f.level)}, {"subject", f.subject}, {"text", f.text}});
  }
  return Text(out);
}

// An answer, each field with its default where it is missing or of another type: it was written by
// a process of this state directory, and only a crash can have cut it short.
class Answered {
 public:
  explicit Answered(const json& value) : value_(value) {}

  int64_t Count(const char* name) const {
    const json* at = Find(name);
    return at != nullptr && at->is_number_integer() ? at->get<int64_t>() : 0;
  }
  uint64_t Id(const char* name) const {
    const json* at = Find(name);
    return at != nullptr && at->is_number_integer() ? at->get<uint64_t>() : 0;
  }
  std::string Words(const char* name) const {
    const json* at = Find(name);
    return at != nullptr && at->is_string() ? at->get<std::string>() : "";
  }
  bool Has(const char* name) const { return Find(name) != nullptr; }
  template <typename F>
  void ForEach(const char* name, F visit) const {
    const json* at = Find(name);
    if (at == nullptr || !at->is_array()) return;
    for (const json& one : *at) visit(Answered(one));
  }

  absl::StatusOr<catalog::Object> Object() const {
    const absl::Status damaged = absl::DataLossError("the daemon's answer cannot be read");
    if (!value_.is_object()) return damaged;
    if (const int64_t code = Count("code"); code != 0) {
      return absl::Status(static_cast<absl::StatusCode>(code), Words("message"));
    }
    const auto place = ledger::Place::OfName(Words("name"));
    if (!place.has_value()) return damaged;
    return ledger::DecodeObject(Words("stored"), place->Folder());
  }

 private:
  const json* Find(const char* name) const {
    if (!value_.is_object()) return nullptr;
    const auto at = value_.find(name);
    return at == value_.end() ? nullptr : &*at;
  }
  const json& value_;
};

absl::StatusOr<BackupResult> ParseFull(const std::string& text) {
  const json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Answered answer(parsed);
  ASSIGN_OR_RETURN(catalog::Object object, answer.Object());
  BackupResult result{.object = std::move(object),
                      .received_in = base::Duration(answer.Count("nanoseconds")),
                      .yielded = answer.Count("yielded") != 0};
  result.member.endpoint = answer.Words("endpoint");
  result.member.member_id = answer.Id("member");
  result.member.leader = answer.Id("leader");
  return result;
}

absl::StatusOr<BundleResult> ParseBundle(const std::string& text) {
  const json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Answered answer(parsed);
  BundleResult result;
  ASSIGN_OR_RETURN(result.object, answer.Object());
  result.taken.entries = answer.Id("entries");
  result.taken.bytes = answer.Id("bytes");
  for (auto [name, troubles] :
       {std::pair("refused", &result.taken.refused), std::pair("changed", &result.taken.changed)}) {
    answer.ForEach(name, [list = troubles](const Answered& one) {
      list->push_back({.path = one.Words("path"), .what = one.Words("what")});
    });
  }
  result.report.certificates = answer.Id("certificates");
  if (answer.Has("first_expiry_days")) {
    result.report.first_expiry_days = answer.Count("first_expiry_days");
  }
  answer.ForEach("findings", [&](const Answered& one) {
    result.report.findings.push_back(
        {.level = static_cast<bundle::Finding::Level>(one.Count("level")),
         .subject = one.Words("subject"),
         .text = one.Words("text")});
  });
  return result;
}

}  // namespace

std::string Requests::PathOf(const std::string& name) const { return base::JoinPath(dir_, name); }

absl::Status Requests::Ask(const Asked& asked) {
  const std::string path = PathOf(asked.id);
  if (base::Exists(files_, path) || base::Exists(files_, path + std::string(kAnswerEnding))) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(base::MakeDirectories(files_, dir_, 0700));
  return base::WriteFileAtomically(files_, path, WantedName(asked.wanted), 0600);
}

absl::StatusOr<std::optional<std::string>> Requests::TakeText(const std::string& id) {
  const std::string path = PathOf(id) + std::string(kAnswerEnding);
  if (!base::Exists(files_, path)) return std::nullopt;
  ASSIGN_OR_RETURN(std::string text, base::ReadFile(files_, path));
  Withdraw(id);
  return text;
}

absl::StatusOr<std::optional<BackupResult>> Requests::TakeFull(const std::string& id) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeText(id));
  if (!text.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(BackupResult result, ParseFull(*text));
  return result;
}

absl::StatusOr<std::optional<BundleResult>> Requests::TakeBundle(const std::string& id) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeText(id));
  if (!text.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(BundleResult result, ParseBundle(*text));
  return result;
}

void Requests::Withdraw(const std::string& id) {
  // Either may be gone.
  files_.Remove(PathOf(id)).IgnoreError();
  files_.Remove(PathOf(id) + std::string(kAnswerEnding)).IgnoreError();
}

std::vector<Requests::Asked> Requests::Open() const {
  std::vector<Asked> open;
  if (!base::Exists(files_, dir_)) return open;
  const auto names = files_.List(dir_);
  if (!names.ok()) return open;
  for (const std::string& name : *names) {
    if (name.find('.') != std::string::npos) continue;
    const auto text = base::ReadFile(files_, PathOf(name));
    if (!text.ok()) continue;  // withdrawn meanwhile
    for (const Wanted wanted : {Wanted::kFull, Wanted::kBundle}) {
      if (*text == WantedName(wanted)) open.push_back({.id = name, .wanted = wanted});
    }
  }
  return open;
}

void Requests::Answer(const std::vector<Asked>& asked, const absl::StatusOr<BackupResult>& result) {
  AnswerText(asked, Wanted::kFull, result.ok() ? FullText(*result) : ErrorText(result.status()));
}

void Requests::Answer(const std::vector<Asked>& asked, const absl::StatusOr<BundleResult>& result) {
  AnswerText(asked, Wanted::kBundle,
             result.ok() ? BundleText(*result) : ErrorText(result.status()));
}

void Requests::AnswerText(const std::vector<Asked>& asked, Wanted wanted, const std::string& text) {
  for (const Asked& one : asked) {
    if (one.wanted != wanted) continue;
    const absl::Status written =
        base::WriteFileAtomically(files_, PathOf(one.id) + std::string(kAnswerEnding), text, 0600);
    if (!written.ok()) {
      LOG_WARN("a process that asked for something gets no answer", {"wanted", WantedName(wanted)},
               {"error", written});
    }
    files_.Remove(PathOf(one.id)).IgnoreError();  // withdrawn meanwhile
  }
}

void Requests::Clear() {
  if (!base::Exists(files_, dir_)) return;
  const auto names = files_.List(dir_);
  if (!names.ok()) return;
  for (const std::string& name : *names) files_.Remove(PathOf(name)).IgnoreError();
}

}  // namespace service
