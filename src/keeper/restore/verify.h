// Whether what the logs state is what the stores hold. Blocking; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "ledger/load.h"
#include "restore/fetch.h"

namespace restore {

struct VerifyOptions {
  // Of the objects, how many per cent are read back, chosen at random; the newest full always is.
  // The others are looked for and measured.
  int percent = 0;
  // What is read back is opened too: decrypted, unpacked, segments parsed. Needs identities.
  bool deep = false;
  // The catalog as it is now, where a daemon may roll up or prune meanwhile: what is gone is looked
  // for there before it counts as missing. May be empty.
  Reload reload;
};

struct VerifyResult {
  uint64_t objects = 0;    // copies looked at
  uint64_t read_back = 0;  // of them
  uint64_t bytes_read = 0;
  std::vector<BadCopy> bad;  // missing, of another length, damaged
  // Objects in the store that no log speaks of: nothing that is restored, but not ours.
  std::vector<std::string> strangers;
};

VerifyResult Verify(base::Clock& clock, base::Random& random, const ledger::Catalog& catalog,
                    const std::vector<ledger::ReadableStore>& stores,
                    const std::vector<vault::Identity>& identities, const VerifyOptions& options,
                    const std::function<void(uint64_t done, uint64_t total)>& progress);

}  // namespace restore
