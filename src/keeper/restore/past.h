// A moment of the past as something to read. Blocking; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "catalog/inventory.h"
#include "catalog/plan.h"
#include "restore/fetch.h"

namespace restore {

struct Entry {
  std::string value;
  int64_t create_revision = 0;
  int64_t mod_revision = 0;
  int64_t version = 0;
  int64_t lease = 0;
};

// A key and its entry as one line of JSON, for export. Key and value are texts where they are
// UTF-8, else "key_base64" and "value_base64".
std::string EntryLine(const std::string& key, const Entry& entry);

class Moment {
 public:
  Moment();
  Moment(Moment&&) noexcept;
  Moment& operator=(Moment&&) noexcept;
  ~Moment();  // removes its file

  // Builds the moment's db in `dir`, which is made; proven as a restore's. Errors: BuildDb's.
  static absl::StatusOr<Moment> Open(base::Files& files, base::Clock& clock, base::Random& random,
                                     Fetcher& fetcher, const catalog::Inventory& inventory,
                                     const catalog::RestorePoint& point, const std::string& dir);

  int64_t revision() const;
  const std::string& path() const;  // of the db, until this goes
  // The live keys in [begin, end), or from `begin` on.
  absl::StatusOr<std::map<std::string, Entry>> State(const std::string& begin,
                                                     const std::optional<std::string>& end) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One change of a key.
struct Change {
  int64_t revision = 0;
  catalog::Seen seen;
  bool deleted = false;
  int64_t version = 0;
  int64_t lease = 0;
  uint64_t bytes = 0;  // of the value
};

// Every version of a key that backups of the living timeline hold, oldest first.
absl::StatusOr<std::vector<Change>> HistoryOf(base::Files& files, base::Clock& clock,
                                              base::Random& random, Fetcher& fetcher,
                                              const catalog::Inventory& inventory,
                                              const std::string& key, const std::string& dir);

}  // namespace restore
