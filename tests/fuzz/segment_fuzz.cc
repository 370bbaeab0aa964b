// Plain bytes of a segment: whatever they are, reading ends in an answer, and what is read is
// written again as it was.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "events/segment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  int64_t last = 0;
  uint64_t events = 0;
  const auto read = events::ReadSegment(bytes, [&](const events::RevisionView& revision) {
    CHECK(last == 0 || revision.revision == last + 1);
    last = revision.revision;
    events += revision.events.size();
    return absl::OkStatus();
  });
  if (!read.ok() || last == 0) return 0;
  std::optional<events::SegmentWriter> writer;
  writer.emplace(read->header);
  CHECK(events::ReadSegment(bytes, [&](const events::RevisionView& revision) {
          writer->Add(revision);
          return absl::OkStatus();
        }).ok());
  CHECK(writer->events() == events);
  const std::string again = writer->Finish(read->leases);
  const auto reread =
      events::ReadSegment(again, [](const events::RevisionView&) { return absl::OkStatus(); });
  CHECK(reread.ok());
  CHECK(reread->header == read->header);
  return 0;
}
