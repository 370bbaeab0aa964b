// Arbitrary bytes as a WAL segment, as a whole log and as a marker file: readers must answer with a
// status, and what a repair leaves must be readable. The first byte selects.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "support/memory_files.h"
#include "wal/log.h"
#include "wal/scan.h"
#include "wal/segment_reader.h"
#include "wal/snap_file.h"
#include "wal/v2_store.h"

namespace {

constexpr char kDirectory[] = "/wal";
constexpr char kSegment[] = "/wal/0000000000000000-0000000000000000.wal";
constexpr wal::LogOptions kOptions{.segment_bytes = 4096};

// The records of one segment, with all their decoders.
void ReadSegment(std::string_view bytes, bool last) {
  test_support::MemoryFiles files;
  files.Put(kSegment, bytes);
  const auto file = files.Open(kSegment, {});
  CHECK(file.ok());
  wal::SegmentReader reader(**file, kSegment, {.limit = bytes.size(), .last_segment = last});
  wal::RecordView record;
  while (true) {
    const auto outcome = reader.Next(&record);
    if (!outcome.ok()) CHECK(absl::IsDataLoss(outcome.status()));
    if (!outcome.ok() || *outcome != wal::ReadOutcome::kRecord) break;
    wal::EntryView entry;
    wal::HardState state;
    wal::Metadata metadata;
    wal::SnapshotRecord snapshot;
    wal::DecodeEntry(record.data, &entry);
    wal::DecodeState(record.data, &state);
    wal::DecodeMetadata(record.data, &metadata);
    wal::DecodeSnapshot(record.data, &snapshot);
  }
  CHECK_OP(reader.offset(), <=, bytes.size());
}

// A start from a damaged log. Once it succeeds, the log takes a save and a second start finds it.
void OpenLog(std::string_view bytes) {
  test_support::MemoryFiles files;
  files.Put(kSegment, bytes);
  wal::Verify(files, kDirectory, {}).IgnoreError();
  const auto scan = wal::ValidSnapshotRecords(files, kDirectory);
  if (!scan.ok()) return;
  const wal::SnapshotRecord start = scan->snapshots.back();
  uint64_t saved = 0;
  {
    auto opened = wal::Log::Open(files, kDirectory, start, kOptions);
    if (!opened.ok()) return;
    if (opened->log->last_index() >= ~uint64_t{0} - 1) return;
    saved = opened->log->last_index() + 1;
    const wal::EntryView entry{.term = 1, .index = saved, .type = 0, .data = "x"};
    CHECK(opened->log->Save({&entry, 1}, std::nullopt, true).ok());
    CHECK(opened->log->ReadEntries(saved, saved + 1, 1).ok());
  }
  const auto again = wal::Log::Open(files, kDirectory, start, kOptions);
  CHECK(again.ok());
  CHECK_OP(again->log->last_index(), ==, saved);
  CHECK(!again->recovered.torn_tail.has_value());
}

void ReadMarker(std::string_view bytes) {
  const auto snap = wal::DecodeSnapFile(bytes, "marker");
  if (!snap.ok()) {
    CHECK(absl::IsDataLoss(snap.status()));
    return;
  }
  const auto again = wal::DecodeSnapFile(wal::EncodeSnapFile(*snap), "marker");
  CHECK(!again.ok() || *again == *snap);
}

void ReadMembership(std::string_view bytes) {
  const auto membership = wal::DecodeV2Store(bytes);
  if (!membership.ok()) return;
  CHECK(wal::DecodeV2Store(wal::EncodeV2Store(*membership)).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      ReadSegment(bytes, true);
      break;
    case 1:
      ReadSegment(bytes, false);
      break;
    case 2:
      OpenLog(bytes);
      break;
    case 3:
      ReadMarker(bytes);
      break;
    default:
      ReadMembership(bytes);
      break;
  }
  return 0;
}
