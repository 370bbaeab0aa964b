#include "capture/assembler.h"

#include "base/status.h"
#include "mvcc/key_value.h"
#include "proto/rpc.pb.h"

namespace capture {

absl::StatusOr<std::string_view> StoredValue(const events::EventView& event, std::string* scratch) {
  if (!event.tombstone) return event.key_value;
  std::string_view key;
  if (!mvcc::DecodeKey(event.key_value, &key)) {
    return absl::DataLossError("an event's key-value is malformed");
  }
  scratch->clear();
  mvcc::AppendKeyValue({.key = key}, scratch);
  return *scratch;
}

absl::Status Assembler::Take(const etcdserverpb::WatchResponse& response, base::Duration seen_from,
                             base::Duration seen_to, absl::FunctionRef<void(int64_t id)> lease_met,
                             absl::FunctionRef<absl::Status(const WholeRevision&)> each) {
  for (const mvccpb::Event& event : response.events()) {
    const int64_t revision = event.kv().mod_revision();
    if (revision < next_revision_) {
      if (pending() || revision <= 0) {
        return base::MakeStatus(absl::StatusCode::kDataLoss,
                                "the watch delivered revision {} after {}", revision,
                                next_revision_);
      }
      continue;  // of a watch that was opened one earlier, to see that history is still the same
    }
    if (pending() && revision > next_revision_) RETURN_IF_ERROR(Complete(each));
    if (revision != next_revision_) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "the watch delivered revision {} where {} should come", revision,
                              next_revision_);
    }
    if (!pending()) seen_from_ = seen_from;
    seen_to_ = seen_to;
    PendingEvent& taken = events_.emplace_back();
    taken.tombstone = event.type() == mvccpb::Event::DELETE;
    taken.key_value = event.kv().SerializeAsString();
    pending_bytes_ += taken.key_value.size();
    if (event.kv().lease() != 0) lease_met(event.kv().lease());
  }
  if (pending() && !response.fragment()) return Complete(each);
  return absl::OkStatus();
}

absl::Status Assembler::Complete(absl::FunctionRef<absl::Status(const WholeRevision&)> each) {
  WholeRevision whole;
  whole.view.revision = next_revision_;
  // Between two of its fragments the clock may have been set back.
  whole.view.seen_from = std::min(seen_from_, seen_to_);
  whole.view.seen_to = seen_to_;
  std::string scratch;
  for (const PendingEvent& event : events_) {
    const events::EventView view{.tombstone = event.tombstone, .key_value = event.key_value};
    ASSIGN_OR_RETURN(const std::string_view stored, StoredValue(view, &scratch));
    digester_.Add(event.tombstone, stored);
    whole.view.events.push_back(view);
  }
  whole.digest = digester_.Take();
  const absl::Status status = each(whole);
  ++next_revision_;
  events_.clear();
  pending_bytes_ = 0;
  return status;
}

}  // namespace capture
