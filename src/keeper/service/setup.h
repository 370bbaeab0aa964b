// What the configuration names, opened: keys, stores, the cluster. Blocking; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "capture/cluster.h"
#include "config/config.h"
#include "ledger/load.h"
#include "vault/age_keys.h"
#include "vault/seal.h"
#include "vault/signing.h"

namespace service {

// The world outside. The references outlive whatever is given them.
struct Environment {
  base::Files& files;
  base::Clock& clock;
  base::Random& random;  // thread-safe
};

// For writing. FailedPrecondition names the file that is missing or open to others.
struct WriterKeys {
  vault::SigningKey signing;
  vault::SealOptions seal;
};
absl::StatusOr<WriterKeys> LoadWriterKeys(Environment env, const config::Config& config);

// For reading: the keys whose signatures count (the own one, when its file can be read, and
// `trusted_signers`), and the identities that open objects (none without identity_file).
struct ReaderKeys {
  std::vector<vault::VerifyingKey> trusted;
  std::vector<vault::Identity> identities;
};
absl::StatusOr<ReaderKeys> LoadReaderKeys(Environment env, const config::Config& config);

// Lowers the priority of the calling thread and of those it makes from here on (Linux), so that
// members on the same machine go first. False where it is refused, which it is only to who has a
// lower one already.
bool StepBack();

// The stores of a cluster, in the order of its configuration. A store that cannot be opened is an
// entry of its own with the reason: the others serve.
struct OpenedStore {
  std::string name;
  std::shared_ptr<stores::Store> store;  // null: see `status`
  absl::Status status;
};
std::vector<OpenedStore> OpenStores(Environment env, const config::Config& config,
                                    const config::Cluster& cluster);
// A store that is opened at its first use, and again after each failure to: what is brought to it
// waits until its disk is mounted.
std::shared_ptr<stores::Store> OpenStoreLate(Environment env, const config::Config& config,
                                             const std::string& name);
// A store of the configuration with the right to delete, where credentials of their own have it.
absl::StatusOr<std::shared_ptr<stores::Store>> OpenForPruning(Environment env,
                                                              const config::Config& config,
                                                              const std::string& name);
// Those that were opened. Unavailable, with each reason, when there is none.
absl::StatusOr<std::vector<ledger::ReadableStore>> Readable(const std::vector<OpenedStore>& stores);

absl::StatusOr<std::unique_ptr<capture::Cluster>> OpenCluster(Environment env,
                                                              const config::Cluster& cluster);

// Asks a member for a snapshot and hangs up at the first piece. PermissionDenied says what the user
// lacks.
absl::Status ProbeSnapshot(client::Client& client);

// The id of the keeper process that owns a state directory: made at the first call. 16 hex digits.
absl::StatusOr<std::string> WriterId(Environment env, const std::string& state_dir);

}  // namespace service
