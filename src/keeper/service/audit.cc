#include "service/audit.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "base/sha256.h"
#include "base/status.h"
#include "base/time_text.h"
#include "ledger/record.h"

namespace service {
namespace {

using nlohmann::json;

std::string PathOf(const config::Config& config) {
  return base::JoinPath(config.state_dir, "audit.jsonl");
}

std::string Who() {
  const uid_t uid = ::getuid();
  passwd entry{};
  passwd* found = nullptr;
  char buffer[4096];
  const bool named =
      ::getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr;
  return fmt::format("{} ({})", named ? found->pw_name : "?", uid);
}

std::string DigestOf(std::string_view line) { return base::DigestToHex(base::Sha256(line)); }

// Without a last line that a crash cut short or tore.
size_t WholeBytes(std::string_view written) {
  const size_t whole = written.rfind('\n') + 1;  // npos + 1: nothing is there yet
  if (whole == 0) return 0;
  const size_t last = written.substr(0, whole - 1).rfind('\n') + 1;
  return json::accept(written.substr(last, whole - last)) ? whole : last;
}

// Waits a moment for another process that is writing its line.
absl::Status Lock(base::File& file) {
  for (int i = 0; i < 1000; ++i) {
    ASSIGN_OR_RETURN(const bool taken, file.TryLock(base::LockKind::kFlockExclusive));
    if (taken) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return base::MakeStatus(absl::StatusCode::kDeadlineExceeded, "{} is locked", file.path());
}

}  // namespace

absl::Status Audit(Environment env, const config::Config& config, const std::string& command,
                   const std::string& outcome) {
  RETURN_IF_ERROR(base::MakeDirectoriesDurably(env.files, config.state_dir, 0700));
  const std::string path = PathOf(config);
  const bool is_new = !base::Exists(env.files, path);
  ASSIGN_OR_RETURN(const auto file, env.files.Open(path, {.write = true, .create = true}));
  if (is_new) RETURN_IF_ERROR(env.files.SyncDirectory(config.state_dir));
  RETURN_IF_ERROR(Lock(*file));
  ASSIGN_OR_RETURN(std::string written, base::ReadFile(env.files, path));
  const size_t whole = WholeBytes(written);
  if (whole < written.size()) RETURN_IF_ERROR(file->Truncate(whole));
  written.resize(whole);
  std::string previous(ledger::kNoPrevious);
  if (!written.empty()) {
    const size_t before = written.rfind('\n', written.size() - 2);
    previous =
        DigestOf(std::string_view(written).substr(before == std::string::npos ? 0 : before + 1));
  }
  const json line = {{"at", base::Rfc3339(env.clock.Wall())},
                     {"who", Who()},
                     {"command", command},
                     {"outcome", outcome},
                     {"previous", previous}};
  RETURN_IF_ERROR(
      file->WriteAt(whole, line.dump(-1, ' ', true, json::error_handler_t::replace) + "\n"));
  return file->Sync();
}

absl::StatusOr<std::vector<AuditEntry>> ReadAudit(Environment env, const config::Config& config) {
  const std::string path = PathOf(config);
  std::vector<AuditEntry> entries;
  if (!base::Exists(env.files, path)) return entries;
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(env.files, path));
  std::string previous(ledger::kNoPrevious);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // cut short by a crash; the next entry removes it
    const std::string_view line(text.data() + at, end - at + 1);
    if (end + 1 == text.size() && !json::accept(line)) break;  // torn by one
    at = end + 1;
    const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto field = [&](const char* name) -> std::string {
      return parsed.is_object() && parsed.contains(name) && parsed[name].is_string()
                 ? parsed[name].get<std::string>()
                 : std::string();
    };
    const auto moment = base::ParseRfc3339(field("at"));
    if (!moment.has_value() || field("previous") != previous) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "{}: line {} does not follow the one before: it or that one was "
                              "changed, or one between was taken out",
                              path, entries.size() + 1);
    }
    previous = DigestOf(line);
    entries.push_back({.at = *moment,
                       .who = field("who"),
                       .command = field("command"),
                       .outcome = field("outcome")});
  }
  return entries;
}

}  // namespace service
