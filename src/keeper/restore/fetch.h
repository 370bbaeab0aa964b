// Gets objects out of the stores, opened and checked. Where one store fails or has damaged bytes,
// the next one is asked. Thread-safe; blocking.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "catalog/inventory.h"
#include "ledger/load.h"
#include "vault/age_keys.h"
#include "vault/stream.h"

namespace restore {

// What was wrong with a copy.
struct BadCopy {
  std::string name;   // of the object
  std::string store;  // of the configuration
  absl::Status why;
};

// A sink that owns the file it writes.
class OwnFileSink final : public vault::Sink {
 public:
  OwnFileSink(std::unique_ptr<base::File> file, std::function<void(uint64_t)> wrote)
      : file_(std::move(file)), sink_(*file_), wrote_(std::move(wrote)) {}
  absl::Status Write(std::string_view data) override {
    RETURN_IF_ERROR(sink_.Write(data));
    if (wrote_) wrote_(sink_.offset());
    return absl::OkStatus();
  }
  absl::Status Finish() override { return sink_.Finish(); }

 private:
  const std::unique_ptr<base::File> file_;
  vault::FileSink sink_;
  const std::function<void(uint64_t)> wrote_;
};

// The catalog as it is now. May be called from several threads, one at a time.
using Reload = std::function<absl::StatusOr<ledger::Catalog>()>;

class Fetcher {
 public:
  // The stores in the order in which they are asked. `reload` may be empty: who reads for long may
  // find that a daemon rolled up or re-wrapped objects meanwhile. What is not where it was is then
  // looked for where the logs have it now, once, before it counts as missing.
  Fetcher(base::Clock& clock, std::vector<ledger::ReadableStore> stores,
          std::vector<vault::Identity> identities, Reload reload = nullptr)
      : clock_(clock),
        stores_(std::move(stores)),
        identities_(std::move(identities)),
        reload_(std::move(reload)) {}

  // A stage for each attempt: `make` is called for every store that is tried and begins anew. The
  // plain bytes are right only if Fetch returns OK: both digests and the length are those that the
  // log states, and an object that should be encrypted is. Errors: PermissionDenied when no
  // identity opens it; DataLoss when every copy is damaged; Unavailable when no store answers;
  // Aborted when retention deleted it meanwhile, and there is another way to the same point.
  absl::Status Fetch(const catalog::Object& object,
                     absl::FunctionRef<absl::StatusOr<std::unique_ptr<vault::Sink>>()> make);
  // The same of a small object, as a string.
  absl::StatusOr<std::string> FetchBytes(const catalog::Object& object);

  // Copies that were found damaged or missing so far.
  std::vector<BadCopy> bad_copies() const;

 private:
  struct Attempt {
    absl::Status status;
    bool missing = false;  // in a store that should have it, or in all of them
    std::vector<BadCopy> bad_copies;
  };
  Attempt FetchAsStated(const catalog::Object& object,
                        absl::FunctionRef<absl::StatusOr<std::unique_ptr<vault::Sink>>()> make);
  // The object as the logs state it now. They are read again, unless another thread did that since
  // they had been read `reloads` times.
  absl::StatusOr<catalog::Object> StatedNow(const catalog::Object& object, uint64_t reloads);
  // `wrong_key`: the object is whole, and no identity opens it.
  absl::Status FetchFrom(const ledger::ReadableStore& from, const catalog::Object& object,
                         vault::Sink& to, bool* wrong_key);

  base::Clock& clock_;
  const std::vector<ledger::ReadableStore> stores_;
  const std::vector<vault::Identity> identities_;
  const Reload reload_;
  std::mutex reload_mutex_;  // of what follows; held while the logs are read again
  uint64_t reloads_ = 0;
  std::map<std::string, catalog::Object> stated_;  // by their first names, since the last reload
  mutable std::mutex mutex_;
  std::vector<BadCopy> bad_copies_;
};

}  // namespace restore
