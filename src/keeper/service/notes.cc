#include "service/notes.h"

#include "base/status.h"

namespace service {
namespace {

constexpr char kVersion[] = ENGRAM_VERSION;
constexpr base::Duration kTimeout = std::chrono::minutes(1);

}  // namespace

std::string LogsDir(const config::Config& config) {
  return base::JoinPath(config.state_dir, "logs");
}

ledger::Fact OpeningOf(const config::Cluster& cluster, const catalog::Timeline& timeline,
                       const vault::SigningKey& key, const std::string& why,
                       const std::optional<catalog::Timeline>& follows) {
  return ledger::Opened{.cluster = cluster.name,
                        .cluster_id = timeline.cluster_id,
                        .keeper_version = kVersion,
                        .public_key = key.verifying_key().ToString(),
                        .why = why,
                        .follows = follows.has_value() ? follows->Name() : ""};
}

absl::Status NoteFacts(Environment env, const config::Config& config,
                       const config::Cluster& cluster,
                       const std::vector<ledger::ReadableStore>& stores,
                       const catalog::Timeline& timeline, const std::vector<ledger::Fact>& facts) {
  ASSIGN_OR_RETURN(const WriterKeys keys, LoadWriterKeys(env, config));
  ASSIGN_OR_RETURN(const std::string writer, WriterId(env, config.state_dir));
  ASSIGN_OR_RETURN(
      const auto log,
      ledger::LogWriter::Open(env.files, env.clock, LogsDir(config),
                              {.cluster = cluster.name, .timeline = timeline, .writer = writer},
                              keys.signing));
  if (log->last_seq() == 0) {
    RETURN_IF_ERROR(
        log->Append({OpeningOf(cluster, timeline, keys.signing, "facts were stated by hand")}));
  }
  RETURN_IF_ERROR(log->Append(facts));
  absl::Status failure;
  bool shipped = false;
  for (const ledger::ReadableStore& store : stores) {
    const absl::Status status =
        log->SignHead(store.name, *store.store, {}, stores::Deadline::In(env.clock, kTimeout));
    shipped = shipped || status.ok();
    if (!status.ok()) failure = status;
  }
  return shipped ? absl::OkStatus() : failure;
}

}  // namespace service
