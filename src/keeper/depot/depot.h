// Between what is captured and the stores: a spool on local disk, from which every object goes to
// each store of its cluster at that store's pace, and whose facts go into the log. So a snapshot is
// never held open by a slow store, and a store that was down gets its copies later.
//
// An object in the spool is two files: the sealed bytes, and its facts as a line of JSON, which is
// written last and makes it count. Both go once every store has it. Killed anywhere, the next start
// goes on with what is there.
//
// Thread-safe. One thread for each store moves the objects.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "catalog/inventory.h"
#include "ledger/log.h"
#include "stores/store.h"

namespace depot {

struct NamedStore {
  std::string name;  // of the configuration
  std::shared_ptr<stores::Store> store;
};

struct Options {
  std::string spool_dir;
  uint64_t spool_bytes_max = uint64_t{8} << 30;
  // Between two attempts at a store that failed: from the first, doubled up to the second.
  base::Duration retry_min = std::chrono::milliseconds(200);
  base::Duration retry_max = std::chrono::seconds(30);
};

struct StoreState {
  std::string name;
  bool up = true;
  std::string error;  // of the last attempt, when it failed
  uint64_t objects_waiting = 0;
  base::Duration behind{0};  // how long the oldest of them waits
};

class Depot {
 public:
  // Takes up what an earlier process left in the spool. `log` outlives the depot.
  static absl::StatusOr<std::unique_ptr<Depot>> Open(base::Files& files, base::Clock& clock,
                                                     const Options& options,
                                                     std::vector<NamedStore> stores,
                                                     ledger::LogWriter& log);
  // Stops the threads; what is not stored stays in the spool.
  ~Depot();

  // A path in the spool for a new object's bytes.
  std::string NewPath(const std::string& object_name) const;

  // Takes over the file at `path`, which NewPath gave and which is durable, as `object` (whose
  // stores are empty). Returns once it is durable in the spool. ResourceExhausted when the spool is
  // full: the file stays the caller's.
  absl::Status Submit(catalog::Object object, const std::string& path);

  // Notes facts of objects in the log and ships it to the stores that are up.
  absl::Status Note(const std::vector<ledger::Fact>& facts);

  // Waits until object `name` is in at least `copies` stores (0: in all). DeadlineExceeded with
  // what each missing store says.
  absl::Status WaitStored(const std::string& name, size_t copies, base::Duration timeout);

  // Waits until every store that does not fail has all objects, for no longer than `timeout`.
  void WaitIdle(base::Duration timeout);

  // What the archive has seen; goes into the heads of the logs.
  void SetWatched(const ledger::Watched& watched);
  // Signs the heads of the log in all stores that are up.
  void SignHeads();

  std::vector<StoreState> states() const;
  uint64_t spool_bytes() const;

 private:
  class Impl;
  explicit Depot(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace depot
