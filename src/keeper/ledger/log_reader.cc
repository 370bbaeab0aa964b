#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/status.h"
#include "ledger/log.h"
#include "ledger/names.h"

namespace ledger {
namespace {

constexpr size_t kHeadBytesMax = size_t{64} << 10;
// A writer closes a chunk at a few MiB; one that holds a single huge record may pass that.
constexpr size_t kChunkBytesMax = size_t{64} << 20;

// How often a store is listed again because a chunk is gone.
constexpr int kListAgainMax = 4;

struct NamedChunk {
  std::string name;
  SeqRange range;
};

// Follows a log from chunk to chunk.
class Follower {
 public:
  Follower(stores::Store& store, const Place& place, const std::vector<std::string>& names,
           const std::vector<vault::VerifyingKey>& trusted, const stores::Deadline& deadline)
      : store_(store), place_(place), trusted_(trusted), deadline_(deadline) {
    contents_.place = place;
    for (const std::string& name : names) Listed(name);
  }

  absl::StatusOr<LogContents> Run() {
    RETURN_IF_ERROR(ReadHead());
    while (true) {
      ASSIGN_OR_RETURN(const bool more, TakeNextChunk());
      if (!more) break;
    }
    RETURN_IF_ERROR(CheckTheOthers());
    Judge();
    return std::move(contents_);
  }

 private:
  // Whether an error is of the store rather than of what it holds.
  static bool Unreadable(const absl::Status& status) {
    return !absl::IsNotFound(status) && !absl::IsDataLoss(status) &&
           !absl::IsResourceExhausted(status) && !absl::IsOutOfRange(status);
  }

  void Listed(const std::string& name) {
    const auto range = ChunkRange(name);
    if (range.has_value()) chunks_.push_back({name, *range});
  }

  // A keeper may have merged chunks since they were listed. Whether the store was asked again.
  absl::StatusOr<bool> ListAgain() {
    if (listed_again_ == kListAgainMax) return false;
    ++listed_again_;
    chunks_.clear();
    RETURN_IF_ERROR(stores::ForEachObject(store_, LogFolder(place_), deadline_,
                                          [&](const stores::ObjectInfo& object) {
                                            Listed(object.name);
                                            return absl::OkStatus();
                                          }));
    return true;
  }

  void Finding(std::string text) { contents_.findings.push_back(std::move(text)); }

  absl::Status ReadHead() {
    const std::string name = HeadName(place_);
    const auto bytes = stores::GetBytes(store_, name, kHeadBytesMax, deadline_);
    if (!bytes.ok() && Unreadable(bytes.status())) return bytes.status();
    if (!bytes.ok()) {
      Finding(fmt::format("{}: {}", name, base::Message(bytes.status())));
      return absl::OkStatus();
    }
    auto head = DecodeHead(place_, *bytes, trusted_);
    if (head.ok()) {
      contents_.head = *std::move(head);
    } else {
      Finding(fmt::format("{}: {}", name, base::Message(head.status())));
    }
    return absl::OkStatus();
  }

  // Takes the longest readable chunk that goes on from where the log stands. Listings may lag: the
  // one record that the head speaks of may not be listed yet, but can be asked for by its name.
  absl::StatusOr<bool> TakeNextChunk() {
    const uint64_t next = contents_.records.size() + 1;
    std::vector<NamedChunk> candidates;
    for (const NamedChunk& chunk : chunks_) {
      if (chunk.range.first <= next && next <= chunk.range.last) candidates.push_back(chunk);
    }
    std::sort(candidates.begin(), candidates.end(),
              [](const NamedChunk& a, const NamedChunk& b) { return a.range.last > b.range.last; });
    if (candidates.empty() && contents_.head.has_value() && next <= contents_.head->seq) {
      candidates.push_back({ChunkName(place_, {next, contents_.head->seq}), {}});
      candidates.back().range = {next, contents_.head->seq};
    }
    std::vector<std::string> faults;
    for (const NamedChunk& chunk : candidates) {
      const absl::Status taken = Take(chunk);
      if (absl::IsNotFound(taken)) {
        ASSIGN_OR_RETURN(const bool again, ListAgain());
        if (again) return true;
      }
      if (taken.ok()) {
        taken_.insert(chunk.name);
        // What stood beside a chunk that served is a fault of the store all the same.
        for (std::string& fault : faults) Finding(std::move(fault));
        return true;
      }
      if (Unreadable(taken) && !absl::IsPermissionDenied(taken) && !absl::IsUnimplemented(taken)) {
        return taken;
      }
      faults.push_back(fmt::format("{}: {}", chunk.name, base::Message(taken)));
    }
    for (std::string& fault : faults) Finding(std::move(fault));
    return false;
  }

  absl::Status Take(const NamedChunk& chunk) {
    ASSIGN_OR_RETURN(const std::string bytes,
                     stores::GetBytes(store_, chunk.name, kChunkBytesMax, deadline_));
    const uint64_t first = chunk.range.first;
    ASSIGN_OR_RETURN(Chunk decoded,
                     DecodeChunk(place_, bytes, first, DigestBefore(first), trusted_));
    if (first + decoded.records.size() - 1 != chunk.range.last) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "it ends with record {}",
                              first + decoded.records.size() - 1);
    }
    for (size_t i = 0; i < decoded.records.size(); ++i) {
      const uint64_t seq = first + i;
      if (seq <= contents_.records.size()) continue;  // from a chunk before
      // The digest of a record is what the next one states as its predecessor's.
      digests_.push_back(i + 1 < decoded.records.size() ? decoded.records[i + 1].previous
                                                        : decoded.last_sha256);
      contents_.records.push_back(std::move(decoded.records[i]));
    }
    return absl::OkStatus();
  }

  // Chunks that were not needed, because others hold their records, must hold the same ones.
  absl::Status CheckTheOthers() {
    for (const NamedChunk& chunk : chunks_) {
      const auto [first, last] = chunk.range;
      if (taken_.contains(chunk.name) || last > contents_.records.size()) continue;
      const auto bytes = stores::GetBytes(store_, chunk.name, kChunkBytesMax, deadline_);
      if (absl::IsNotFound(bytes.status())) continue;  // merged and gone by now
      if (!bytes.ok() && Unreadable(bytes.status())) return bytes.status();
      const auto decoded = bytes.ok()
                               ? DecodeChunk(place_, *bytes, first, DigestBefore(first), trusted_)
                               : absl::StatusOr<Chunk>(bytes.status());
      if (!decoded.ok()) {
        Finding(fmt::format("{}: {}", chunk.name, base::Message(decoded.status())));
      } else if (first + decoded->records.size() - 1 != last ||
                 decoded->last_sha256 != digests_[static_cast<size_t>(last) - 1]) {
        Finding(
            fmt::format("{}: it differs from the chunks that hold the same records", chunk.name));
      }
    }
    return absl::OkStatus();
  }

  // Of the record before `seq`, which was taken.
  std::string DigestBefore(uint64_t seq) const {
    return seq == 1 ? std::string(kNoPrevious) : digests_[static_cast<size_t>(seq) - 2];
  }

  void Judge() {
    const uint64_t have = contents_.records.size();
    if (have == 0 && contents_.findings.empty()) {
      Finding(fmt::format("{}: the log is empty", place_.Folder()));
    }
    if (have > 0 && !std::holds_alternative<Opened>(contents_.records.front().fact)) {
      Finding(fmt::format("{}: the log does not begin with its opening", place_.Folder()));
    }
    uint64_t listed = 0;
    for (const NamedChunk& chunk : chunks_) listed = std::max(listed, chunk.range.last);
    if (listed > have) {
      Finding(fmt::format("{}: record {} is missing, though there are later ones up to {}",
                          place_.Folder(), have + 1, listed));
    }
    if (!contents_.head.has_value()) return;
    const Head& head = *contents_.head;
    if (head.seq > have) {
      Finding(
          fmt::format("{}: the log's tail is missing: the head speaks of {} records, {} are "
                      "there",
                      place_.Folder(), head.seq, have));
    } else if (head.seq > 0 && digests_[static_cast<size_t>(head.seq) - 1] != head.sha256) {
      Finding(fmt::format("{}: record {} is not the one that the head speaks of", place_.Folder(),
                          head.seq));
    }
  }

  stores::Store& store_;
  const Place& place_;
  const std::vector<vault::VerifyingKey>& trusted_;
  const stores::Deadline& deadline_;
  std::vector<NamedChunk> chunks_;
  std::set<std::string> taken_;  // names of those that gave records
  int listed_again_ = 0;
  std::vector<std::string> digests_;  // of each record taken
  LogContents contents_;
};

}  // namespace

absl::StatusOr<LogContents> ReadLog(stores::Store& store, const Place& place,
                                    const std::vector<std::string>& chunks,
                                    const std::vector<vault::VerifyingKey>& trusted,
                                    const stores::Deadline& deadline) {
  return Follower(store, place, chunks, trusted, deadline).Run();
}

}  // namespace ledger
