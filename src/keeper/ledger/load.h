// The catalog of a cluster, rebuilt from the logs alone. Blocking; any thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "catalog/inventory.h"
#include "ledger/log.h"
#include "stores/store.h"

namespace ledger {

struct ReadableStore {
  std::string name;  // of the configuration
  std::shared_ptr<stores::Store> store;
};

struct LoadOptions {
  std::vector<vault::VerifyingKey> trusted;
  // Believe each log the key that it names itself: for a host on which nothing but the store is
  // left. Each such key becomes a finding.
  bool trust_any_signer = false;
  base::Duration timeout = std::chrono::minutes(2);  // for each store
};

struct Catalog {
  catalog::Inventory inventory;
  std::vector<LogContents> logs;  // the best copy of each
  // By store: the folders of logs of which another store has more records.
  std::map<std::string, std::set<std::string>> behind;
  // What is wrong, a line each, with the store's name before it.
  std::vector<std::string> findings;
  // Stores that could not be read, and why.
  std::vector<std::pair<std::string, absl::Status>> unreadable;
};

// When each writer last signed anything, in whichever timeline: a keeper that lives signs the head
// of its log every minute.
std::map<std::string, Time> LastSigned(const Catalog& catalog);

// Unavailable when no store can be read. A cluster without any log is an empty inventory.
absl::StatusOr<Catalog> LoadCatalog(base::Clock& clock, const std::vector<ReadableStore>& stores,
                                    const std::string& cluster, const LoadOptions& options);

}  // namespace ledger
