// One fact of a signed log, and its line: a JSON object. Lines are hashed as they are written, so
// nothing is ever written anew. Pure functions; any thread. Format: docs/keeper/formats.md.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "catalog/inventory.h"

namespace ledger {

using catalog::Time;

// The facts. `name` is that of an object, below the store's prefix.
struct Opened {  // always the first one of a log, and only there
  std::string cluster;
  uint64_t cluster_id = 0;
  std::string keeper_version;
  std::string public_key;  // that the log is signed with
  std::string why;         // why a timeline began: "first seen", "the cluster id changed", ...
  // The timeline that lived before, by name, where the writer knew one: clocks may be set, so times
  // alone do not tell which came later.
  std::string follows;
};
struct Stored {
  catalog::Object object;  // with the stores that have it
};
struct Copied {
  std::string name, store;
};
// The stored bytes were read back and had the digest that the log states. Of a container this says
// too that the store holds its parts in it from now on: they need not be there for themselves.
struct Reread {
  std::string name, store;
};
struct Damaged {  // as are the parts of a container that this store holds in it alone
  std::string name, store, what;
};
struct Healed {
  std::string name, store, from;  // from which store
};
struct Rewrapped {   // the object is now the one called `as`, for other recipients
  std::string name;  // its first one
  std::string as;
  std::vector<std::string> recipients;
  uint64_t stored_bytes = 0;
  std::string stored_sha256;
  std::set<std::string> stores;  // that have it under the new name
};
// Segments of other containers lie in this one from now on, for other recipients. One record, so
// that they are never in neither.
struct RewrappedRollUp {
  // Read back in each of its stores. Its parts, segments, are called as they are from now on.
  catalog::Object container;
  std::vector<std::string> recipients;  // of each part
  struct Was {
    std::string name;  // the segment's first one
    std::string stored_sha256;
  };
  std::vector<Was> parts;  // those of the container, in their order
};
struct Proven {
  std::string name;
  catalog::Proof proof;
};
struct Suspected {
  std::string name, why;  // empty: no longer
};
struct Pinned {
  std::string name;
  bool pinned = true;
};
struct Annotated {
  std::string name, note;
};
struct Pruned {  // and what a container holds, with it
  std::string name, why;
};
struct HoleFound {
  catalog::Hole hole;
};
using Fact = std::variant<Opened, Stored, Copied, Reread, Damaged, Healed, Rewrapped,
                          RewrappedRollUp, Proven, Suspected, Pinned, Annotated, Pruned, HoleFound>;

struct Record {
  uint64_t seq = 0;      // from 1, without a gap
  std::string previous;  // SHA-256 of the line before, hex; of the first: 64 zeros
  Time at{0};
  Fact fact;
};

// Keeps a chain of containers that hold containers short.
inline constexpr int kLevelMax = 8;

inline constexpr std::string_view kNoPrevious =
    "0000000000000000000000000000000000000000000000000000000000000000";

// The record as a line, with its newline.
std::string EncodeLine(const Record& record);
// The other way; `line` without its newline. `log_folder` is "<cluster>/<timeline>/<writer>": what
// objects inherit from the log they stand in. DataLoss saying what is wrong; Unimplemented for a
// kind this program does not know.
absl::StatusOr<Record> DecodeLine(std::string_view line, std::string_view log_folder);

// The facts of one object as a line without a newline, for files beside the logs: a record like any
// other, of no log's chain. DecodeObject takes what belongs to `log_folder`; DataLoss otherwise.
std::string EncodeObject(const catalog::Object& object);
absl::StatusOr<catalog::Object> DecodeObject(std::string_view line, std::string_view log_folder);

// Gathers facts into what is known. One thread.
class InventoryBuilder {
 public:
  explicit InventoryBuilder(std::string cluster) { inventory_.cluster = std::move(cluster); }

  // Takes a record of a log of `timeline`. Facts of objects that are not known are NotFound: a log
  // states an object before it says anything of it. Where one log speaks of another's objects, all
  // that is Stored is to be taken first, then all that was Rewrapped, and containers after what
  // they hold, those of a lower level first. What is said of copies under a name that the object no
  // longer has is passed over.
  absl::Status Apply(const Record& record, const catalog::Timeline& timeline);
  void Watched(const catalog::Timeline& timeline, int64_t revision, Time at);

  catalog::Inventory Take() { return std::move(inventory_); }
  const catalog::Inventory& inventory() const { return inventory_; }

 private:
  friend struct FactApplier;
  catalog::Inventory inventory_;
  // An object that a container lists. Two containers may list the same one, when two keepers were
  // at it at once.
  struct Listed {
    size_t place = 0;  // in inventory_.objects
    uint64_t offset = 0;
    std::optional<Time> rewrapped;  // as it was then: the container has the bytes from before
  };
  std::unordered_map<std::string, size_t> by_name_;             // places in inventory_.objects
  std::unordered_map<std::string, std::vector<Listed>> parts_;  // of containers, by their names
};

}  // namespace ledger
