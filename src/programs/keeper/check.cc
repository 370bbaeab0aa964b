// check: is everything in place before it is needed? One line each.
#include <fmt/format.h>

#include <cmath>

#include "base/status.h"
#include "capture/cluster.h"
#include "commands.h"
#include "config/load.h"

namespace keeper {
namespace {

class Checks {
 public:
  void Ok(std::string what, std::string text) { Add("ok", std::move(what), std::move(text)); }
  void Failed(std::string what, std::string text) {
    Add("FAILED", std::move(what), std::move(text));
    failed_ = true;
  }
  void Warning(std::string what, std::string text) {
    Add("warning", std::move(what), std::move(text));
  }
  void Status(const std::string& what, const absl::Status& status, std::string text) {
    status.ok() ? Ok(what, std::move(text)) : Failed(what, client::ErrorText(status));
  }
  bool failed() const { return failed_; }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  nlohmann::json Json() const {
    nlohmann::json out = nlohmann::json::array();
    for (const auto& row : rows_) {
      out.push_back({{"result", row[0]}, {"what", row[1]}, {"text", row[2]}});
    }
    return out;
  }

 private:
  void Add(std::string result, std::string what, std::string text) {
    rows_.push_back({std::move(result), std::move(what), std::move(text)});
  }
  std::vector<std::vector<std::string>> rows_;
  bool failed_ = false;
};

constexpr base::Duration kTimeout = std::chrono::seconds(10);
constexpr base::Duration kSkewMax = std::chrono::seconds(60);

void CheckStores(const Session& session, const config::Cluster& cluster, Checks& checks) {
  for (const service::OpenedStore& store :
       service::OpenStores(session.env, session.config, cluster)) {
    const std::string what = "store " + store.name;
    if (store.store == nullptr) {
      checks.Failed(what, std::string(base::Message(store.status)));
      continue;
    }
    const auto description =
        store.store->Describe(stores::Deadline::In(session.env.clock, kTimeout));
    if (!description.ok()) {
      checks.Failed(what, std::string(base::Message(description.status())));
      continue;
    }
    std::string text = description->where;
    if (description->free_bytes.has_value()) {
      text += fmt::format(", {} free", SizeText(*description->free_bytes));
    }
    checks.Ok(what, text);
    for (const std::string& warning : description->warnings) checks.Warning(what, warning);
    if (description->clock_skew.has_value() &&
        std::chrono::abs(*description->clock_skew) > kSkewMax) {
      checks.Failed(what,
                    fmt::format("this machine's clock is {} {} of its own: set it",
                                SpanText(std::chrono::abs(*description->clock_skew)),
                                *description->clock_skew < base::Duration(0) ? "ahead" : "behind"));
    }
  }
}

// As the daemon saw it: it alone can tell that a clock was set.
void CheckClock(const Session& session, const config::Cluster& cluster, Checks& checks) {
  const service::ClockState clock = RememberedBy(session, cluster).clock;
  const std::string text = service::ClockText(clock, cluster.retention);
  if (!text.empty()) return checks.Warning("clock", text);
  checks.Ok("clock", clock.looked == catalog::Time(0)
                         ? "no daemon has watched it yet"
                         : "as steady as the daemon could see, at " + MomentText(clock.looked));
}

void CheckCluster(const Session& session, const config::Cluster& cluster, Checks& checks) {
  const std::string what = "cluster " + cluster.name;
  const auto opened = service::OpenCluster(session.env, cluster);
  if (!opened.ok()) return checks.Failed(what, client::ErrorText(opened.status()));
  const std::vector<capture::MemberState> members = (*opened)->Survey(kTimeout);
  size_t answering = 0;
  std::string version;
  for (const capture::MemberState& member : members) {
    if (!member.status.ok()) {
      checks.Failed(what, fmt::format("{}: {}", member.endpoint, client::ErrorText(member.status)));
      continue;
    }
    ++answering;
    version = member.version;
    for (const std::string& error : member.errors) {
      checks.Warning(what, fmt::format("{}: {}", member.endpoint, error));
    }
  }
  const auto chosen = capture::ChooseMember(members);
  if (!chosen.ok()) return checks.Failed(what, std::string(base::Message(chosen.status())));
  checks.Ok(what, fmt::format("{} of {} members, etcd {}", answering, members.size(), version));
  // Snapshot needs the root role where auth is on: the first piece of one says whether it is there.
  const auto client = (*opened)->Only(chosen->endpoint);
  if (!client.ok()) return checks.Failed(what, client::ErrorText(client.status()));
  checks.Status(what, service::ProbeSnapshot(**client), "a snapshot may be taken");
}

int Run(const Invocation& invocation) {
  Session session;
  const int opened = Open(invocation, &session);
  if (opened != kOk) return opened;
  Checks checks;
  const auto loaded = config::Load(session.env.files, invocation.flags->String("config"));
  checks.Ok("configuration", fmt::format("{} clusters, {} stores", session.config.clusters.size(),
                                         session.config.stores.size()));
  if (loaded.ok()) {
    for (const std::string& warning : loaded->warnings) checks.Warning("configuration", warning);
  }
  const auto writer = service::LoadWriterKeys(session.env, session.config);
  checks.Status(
      "keys", writer.status(),
      fmt::format("{} recipients, a signing key", session.config.encryption.recipients.size()));
  const auto reader = service::LoadReaderKeys(session.env, session.config);
  if (!reader.ok()) {
    checks.Failed("keys", std::string(base::Message(reader.status())));
  } else if (writer.ok() && !reader->identities.empty()) {
    bool opens = false;
    for (const vault::Identity& identity : reader->identities) {
      for (const vault::Recipient& recipient : writer->seal.recipients) {
        opens = opens || identity.recipient() == recipient;
      }
    }
    opens ? checks.Ok("keys", "the identity here opens what is written")
          : checks.Failed("keys",
                          "no identity in identity_file belongs to a recipient: what is "
                          "written could not be restored here");
  }
  const absl::Status state =
      base::MakeDirectories(session.env.files, session.config.state_dir, 0700);
  const auto free = state.ok() ? session.env.files.FreeBytes(session.config.state_dir)
                               : absl::StatusOr<uint64_t>(state);
  checks.Status("state directory", free.status(),
                free.ok() ? SizeText(*free) + " free" : std::string());
  for (const config::Cluster& cluster : session.config.clusters) {
    if (!session.words.empty() && session.words[0] != cluster.name) continue;
    CheckClock(session, cluster, checks);
    CheckCluster(session, cluster, checks);
    CheckStores(session, cluster, checks);
  }
  Print(session, checks.Json(), [&] { return Table(checks.rows()); });
  return checks.failed() ? kUnreachable : kOk;
}

}  // namespace

Command CheckCommand() {
  return {.name = "check",
          .usage = "[cluster]",
          .summary = "Check configuration, keys, clusters and stores",
          .run = Run};
}

}  // namespace keeper
