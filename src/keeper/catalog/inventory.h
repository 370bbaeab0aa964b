// What is known of a cluster's backups: the facts that the signed logs state, gathered. Plain
// values; the functions over them (windows.h, retention.h) are pure, so any thread may use them on
// values of its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"

namespace catalog {

// Nanoseconds since 1970-01-01T00:00:00Z.
using Time = base::Duration;

// When something happened, as far as the keeper can know: not before `from`, not after `to`.
struct Seen {
  Time from{0};
  Time to{0};
};

enum class Kind {
  kFull,     // one snapshot
  kSegment,  // every event of a range of revisions
  kBundle,   // the control plane's files
  kDrill,    // the report of a drill
  kRollUp,   // a container: the stored bytes of segments, or of smaller containers, in a row
};
// "full", "segment", "bundle", "drill", "roll-up".
const char* KindName(Kind kind);

// One branch of a cluster's history. Revisions of different timelines are never compared.
struct Timeline {
  uint64_t cluster_id = 0;
  int64_t first_revision = 0;  // the newest one when the timeline was first seen
  friend auto operator<=>(const Timeline&, const Timeline&) = default;
  // "<cluster id>-<first revision>", 16 hex digits each: the name of its folder.
  std::string Name() const;
  static std::optional<Timeline> Parse(const std::string& name);
};

// Evidence that a full equals what the cluster held at its revision.
struct Proof {
  enum class Method {
    kRows,        // rows of (from, to] are those that the archive or another full has
    kHashOfFile,  // HashKV at (revision, compact_revision), computed from the file's own bytes
    kHashByRpc,   // the same triple as a member answered
    kRestored,    // a drill restored it and found it right
  };
  Method method = Method::kRows;
  int64_t from = 0;  // kRows: exclusive
  int64_t to = 0;    // kRows: inclusive; the others: the revision
  int64_t compact_revision = 0;
  uint32_t hash = 0;
  uint64_t rows = 0;    // kRows: how many were compared
  std::string against;  // "archive", the name of the other full, or the member's id
  Time at{0};
};
const char* ProofMethodName(Proof::Method method);

// What a container holds of another object: all its stored bytes, at `offset`.
struct Part {
  std::string name;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const Part&, const Part&) = default;
};

// Where the bytes of an object lie in a store.
struct Extent {
  std::string name;  // of the object in the store: its own, or that of a container
  uint64_t offset = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// What of a KMS an encryption configuration in a bundle names.
struct KmsKey {
  std::string provider;  // its name there
  std::string version;   // "v2"
  std::string endpoint;  // of the plugin: "unix:///var/run/kms.sock"
  std::string key_id;    // that the plugin encrypted with then; empty: it did not say
  friend bool operator==(const KmsKey&, const KmsKey&) = default;
};

// One object that a log says exists. Fields that a kind does not have stay at their defaults.
struct Object {
  Kind kind = Kind::kFull;
  std::string name;  // below the store's prefix: <cluster>/<timeline>/<writer>/fulls/...
  // What it was called before it was re-wrapped, oldest first. Copies of these names may go.
  std::vector<std::string> former_names;
  Timeline timeline;
  std::string writer;  // the keeper process that wrote it, 16 hex digits

  uint64_t plain_bytes = 0;
  uint64_t stored_bytes = 0;
  std::string plain_sha256;             // hex
  std::string stored_sha256;            // hex
  std::vector<std::string> recipients;  // age public keys; empty: not encrypted

  // kFull: `last_revision` is its own revision F and `compact_revision` C: every row of (C, F] is
  // in it, so each revision of [C, F] can be restored from it. kSegment: first..last without a gap.
  int64_t first_revision = 0;
  int64_t last_revision = 0;
  int64_t compact_revision = 0;
  // kFull: when the snapshot was asked for and when its first byte came: revision F was the newest
  // somewhere between. kSegment: `first_seen` belongs to the first revision and `last_seen` to the
  // last.
  Seen first_seen;
  Seen last_seen;

  std::string previous_sha256;  // kSegment: plain_sha256 of the segment before it in this writer's
                                // chain; empty for the first
  uint64_t events = 0;          // kSegment

  // kSegment, kRollUp: the container that was made of it and others; empty: none. It says nothing
  // of any store: see `held`.
  std::string container;
  uint64_t container_offset = 0;
  // The stores in which a container was read back and is right, and where in it the object lies: it
  // is read from there, and need not be there for itself any more. Always the outermost container.
  std::map<std::string, Extent> held;
  uint32_t level = 0;           // kRollUp: from 1; holds what is of lower levels
  std::vector<Part> parts;      // kRollUp, in a record: what it holds. In an inventory it is empty:
                                // there the parts themselves say it
  std::set<std::string> rolls;  // kRollUp: the stores in which it holds its parts

  uint64_t member_id = 0;       // kFull: who sent it
  uint64_t raft_index = 0;      // kFull: of that member, just before
  std::string server_version;   // "3.7.3"
  std::string storage_version;  // kFull: "3.7.0"; empty before 3.6
  std::string keeper_version;
  std::string kubernetes_version;  // kFull, kBundle: of the API server; empty: unknown
  std::vector<KmsKey> kms;         // kBundle
  uint64_t key_count = 0;          // kFull: live keys
  std::map<std::string, uint64_t>
      prefix_counts;  // kFull: live keys of each top-level prefix, "/registry/pods/"

  // kFull: how values in it are encrypted at rest: "k8s:enc:aescbc:v1:key1:".
  std::set<std::string> encryptions;
  std::string strain;  // kFull: how the member that sent it suffered, and what was done; usually ""

  std::vector<Proof> proofs;
  std::string suspect;  // why it is not trusted as a successor of the one before; empty: it is
  bool pinned = false;
  std::string note;
  std::set<std::string> stores;   // where it is whole, by the names of the configuration
  std::set<std::string> damaged;  // where it was found damaged or missing since
  std::optional<Time> rewrapped;  // when the log last gave it other bytes under another name
  std::optional<Time> reread;     // when its stored bytes were last read back and right
  bool pruned = false;            // removed on purpose; listed for the record only

  // What the log that stated it called it: the same for ever.
  const std::string& FirstName() const { return former_names.empty() ? name : former_names[0]; }
  // Whether something else than the file itself vouches for it.
  bool Proven() const {
    if (!suspect.empty()) return false;
    for (const Proof& proof : proofs) {
      if (proof.method != Proof::Method::kHashOfFile) return true;
    }
    return false;
  }
  // Whether any store has it whole.
  bool Available() const { return !pruned && !stores.empty(); }
  // Where it is read in a store.
  Extent In(const std::string& store) const {
    const auto at = held.find(store);
    return at == held.end() ? Extent{.name = name, .offset = 0} : at->second;
  }
};

// A range of revisions that were lost to the archive: compacted before they were seen.
struct Hole {
  Timeline timeline;
  int64_t first_revision = 0;
  int64_t last_revision = 0;
  Time from{0};     // when the archive stood still
  Time to{0};       // when it went on
  std::string why;  // "compacted at 1141020 while the keeper was down"
};

struct Inventory {
  std::string cluster;
  std::vector<Object> objects;  // in the order of their logs, writer by writer
  std::vector<Hole> holes;
  // How far each timeline's archive has been watched, also where nothing happened: at `second` the
  // newest revision was `first`.
  std::map<Timeline, std::pair<int64_t, Time>> watched;
  // The order in which the timelines were first seen: the last one is the living one.
  std::vector<Timeline> timelines;
};

}  // namespace catalog
