// The signed log of one writer: append-only, hash-chained, Ed25519. LogWriter is thread-safe, the
// rest are pure functions and values. It is kept whole in the
// keeper's state directory and shipped to every store in chunks, which are write-once objects:
//
//   <cluster>/<timeline>/<writer>/log/<first seq>-<last seq>.jsonl   16 hex digits each
//       the records' lines, then one line that signs them
//   <cluster>/<timeline>/<writer>/log/head.json
//       the number and digest of the newest record, how far the archive has seen, signed; replaced
//       every minute, so that a cut tail and a keeper that stands still both show
//
// Chunks may overlap (two processes shipped at once, or small chunks were merged); a reader takes
// the longest one that goes on from where it stands.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "ledger/record.h"
#include "stores/store.h"
#include "vault/signing.h"

namespace ledger {

// Whose log, of which history.
struct Place {
  std::string cluster;
  catalog::Timeline timeline;
  std::string writer;  // 16 hex digits
  // "<cluster>/<timeline>/<writer>"
  std::string Folder() const;
  // Finds the place in the name of any object that lies in such a folder.
  static std::optional<Place> OfName(std::string_view name);
};

// How far an archive has seen, also where nothing happened: at `at` the newest revision was
// `revision`.
struct Watched {
  int64_t revision = 0;
  Time at{0};
};

// --- chunks and heads as bytes; pure ---

struct Chunk {
  std::vector<Record> records;
  std::string last_sha256;  // of the last record's line, hex
};
// `lines` are whole records from `first_seq` to `last_seq`, the last one with digest `last_sha256`.
std::string EncodeChunk(const Place& place, uint64_t first_seq, uint64_t last_seq,
                        std::string_view lines, const std::string& last_sha256,
                        const vault::SigningKey& key);
// Checks the chain, starting after `previous_sha256`, and the signature. DataLoss saying which
// record; PermissionDenied when the signature is by nobody in `trusted`.
absl::StatusOr<Chunk> DecodeChunk(const Place& place, std::string_view bytes, uint64_t first_seq,
                                  std::string_view previous_sha256,
                                  const std::vector<vault::VerifyingKey>& trusted);

struct Head {
  uint64_t seq = 0;
  std::string sha256;  // of record `seq`
  Time at{0};
  Watched watched;
};
std::string EncodeHead(const Place& place, const Head& head, const vault::SigningKey& key);
absl::StatusOr<Head> DecodeHead(const Place& place, std::string_view bytes,
                                const std::vector<vault::VerifyingKey>& trusted);

// --- writing ---

// Thread-safe, and safe beside other processes on the same state directory: each change is made
// under a lock of the file.
class LogWriter {
 public:
  // Opens the log of `place` in `dir`, or begins one. A last line that a crash cut short is
  // removed: it was never shipped. DataLoss when the chain is broken.
  static absl::StatusOr<std::unique_ptr<LogWriter>> Open(base::Files& files, base::Clock& clock,
                                                         const std::string& dir, const Place& place,
                                                         const vault::SigningKey& key);
  ~LogWriter();
  // The timelines of which `dir` holds a log of this cluster and writer.
  static absl::StatusOr<std::vector<catalog::Timeline>> TimelinesIn(base::Files& files,
                                                                    const std::string& dir,
                                                                    const std::string& cluster,
                                                                    const std::string& writer);

  // Appends one record for each fact; durable on return.
  absl::Status Append(const std::vector<Fact>& facts);
  // Sends the records that `store` does not have yet. `name` is that of the configuration.
  absl::Status Ship(const std::string& name, stores::Store& store,
                    const stores::Deadline& deadline);
  // Puts larger chunks in the place of many small ones, with the same records: one step of it, OK
  // when there is nothing to do. `pruning` is the same store with the right to delete. A chunk is
  // deleted only when the one that holds its records was listed and read back, in a later step than
  // the one that made it. DataLoss when a chunk of the store is not what this log holds, or
  // one is missing.
  absl::Status MergeChunks(stores::Store& store, stores::Store& pruning,
                           const stores::Deadline& deadline);
  // Replaces the head; the records it speaks of are shipped first.
  absl::Status SignHead(const std::string& name, stores::Store& store, const Watched& watched,
                        const stores::Deadline& deadline);

  // Calls `visit` for every record from number `first` on, as they lie in the state directory,
  // until it returns an error. Some are in memory at a time.
  absl::Status ForEachRecord(uint64_t first, absl::FunctionRef<absl::Status(const Record&)> visit);

  // Of this log; 0 when it is new.
  uint64_t last_seq();
  const Place& place() const;

 private:
  struct State;
  explicit LogWriter(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// --- reading ---

struct LogContents {
  Place place;
  std::vector<Record> records;
  std::optional<Head> head;
  // What is wrong, a line each, naming object and record. With any, `records` end where the log
  // could no longer be followed.
  std::vector<std::string> findings;
};

// Reads one log out of a store. `chunks` are the objects of its log folder as the store lists them;
// names that are no chunks are passed over. Damage is a finding; an error is that the store cannot
// be read.
absl::StatusOr<LogContents> ReadLog(stores::Store& store, const Place& place,
                                    const std::vector<std::string>& chunks,
                                    const std::vector<vault::VerifyingKey>& trusted,
                                    const stores::Deadline& deadline);

}  // namespace ledger
