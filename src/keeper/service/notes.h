// Facts that people state about backups, outside of a daemon. Blocking; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ledger/load.h"
#include "ledger/log.h"
#include "service/setup.h"

namespace service {

// Writes facts into this keeper's log of a timeline, which is begun where there is none, and brings
// it to the stores. OK once one store has it; the others get it with what follows.
absl::Status NoteFacts(Environment env, const config::Config& config,
                       const config::Cluster& cluster,
                       const std::vector<ledger::ReadableStore>& stores,
                       const catalog::Timeline& timeline, const std::vector<ledger::Fact>& facts);

// The first record of a log. `follows`: the timeline that lived before, where one is known.
ledger::Fact OpeningOf(const config::Cluster& cluster, const catalog::Timeline& timeline,
                       const vault::SigningKey& key, const std::string& why,
                       const std::optional<catalog::Timeline>& follows = std::nullopt);
// Where the logs of a state directory lie.
std::string LogsDir(const config::Config& config);

}  // namespace service
