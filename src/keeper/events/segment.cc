#include "events/segment.h"

#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"
#include "base/wire.h"

namespace events {
namespace {

using base::wire::Reader;
using base::wire::Type;

constexpr uint32_t kHeaderField = 1, kRevisionField = 2, kFooterField = 3;
constexpr size_t kDigestBytes = 32;

void AppendFixed64(std::string* out, uint32_t field, uint64_t value) {
  base::wire::AppendTag(out, field, Type::kFixed64);
  for (int shift = 0; shift < 64; shift += 8) {
    out->push_back(static_cast<char>(value >> shift & 0xff));
  }
}

std::string EncodeHeader(const SegmentHeader& header) {
  std::string out;
  base::wire::AppendUint(&out, 1, kSegmentFormat);
  base::wire::AppendNonEmpty(&out, 2, header.cluster);
  AppendFixed64(&out, 3, header.cluster_id);
  base::wire::AppendNonZero(&out, 4, static_cast<uint64_t>(header.timeline_revision));
  AppendFixed64(&out, 5, header.writer);
  base::wire::AppendNonZero(&out, 6, static_cast<uint64_t>(header.first_revision));
  base::wire::AppendNonEmpty(&out, 7, header.previous_sha256);
  return out;
}

// An event's own encoding: type (left out for a put), then the key-value.
size_t EventBytes(const EventView& event) {
  return (event.tombstone ? 2 : 0) + 1 + base::wire::VarintSize(event.key_value.size()) +
         event.key_value.size();
}

absl::Status Damaged(std::string_view what) {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "segment: {}", what);
}
absl::Status Damaged(int64_t revision, std::string_view what) {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "segment: revision {}: {}", revision, what);
}

absl::StatusOr<SegmentHeader> DecodeHeader(std::string_view bytes) {
  SegmentHeader header;
  uint64_t format = 0;
  Reader r(bytes);
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        if (r.Expect(Type::kVarint)) format = r.varint();
        break;
      case 2:
        if (r.Expect(Type::kBytes)) header.cluster = r.bytes();
        break;
      case 3:
        if (r.Expect(Type::kFixed64)) header.cluster_id = r.varint();
        break;
      case 4:
        if (r.Expect(Type::kVarint)) header.timeline_revision = static_cast<int64_t>(r.varint());
        break;
      case 5:
        if (r.Expect(Type::kFixed64)) header.writer = r.varint();
        break;
      case 6:
        if (r.Expect(Type::kVarint)) header.first_revision = static_cast<int64_t>(r.varint());
        break;
      case 7:
        if (r.Expect(Type::kBytes)) header.previous_sha256 = r.bytes();
        break;
      default:
        break;
    }
  }
  if (format > kSegmentFormat) {
    return base::MakeStatus(absl::StatusCode::kUnimplemented,
                            "segment has format {}, and this program knows {}: use a newer one",
                            format, kSegmentFormat);
  }
  if (!r.ok() || format != kSegmentFormat || header.first_revision <= 0) {
    return Damaged("the header is malformed");
  }
  if (!header.previous_sha256.empty() && header.previous_sha256.size() != kDigestBytes) {
    return Damaged("the header names a digest that is none");
  }
  return header;
}

bool DecodeEvent(std::string_view bytes, EventView* event) {
  Reader r(bytes);
  bool has_key_value = false;
  while (r.Next()) {
    if (r.field() == 1 && r.Expect(Type::kVarint)) {
      if (r.varint() > 1) return false;
      event->tombstone = r.varint() == 1;
    } else if (r.field() == 2 && r.Expect(Type::kBytes)) {
      event->key_value = r.bytes();
      has_key_value = true;
    }
  }
  return r.ok() && has_key_value;
}

bool DecodeLease(std::string_view bytes, LeaseGrant* lease) {
  Reader r(bytes);
  while (r.Next()) {
    if (r.field() == 1 && r.Expect(Type::kVarint)) lease->id = static_cast<int64_t>(r.varint());
    if (r.field() == 2 && r.Expect(Type::kVarint)) {
      lease->ttl_seconds = static_cast<int64_t>(r.varint());
    }
  }
  return r.ok() && lease->id != 0;
}

bool DecodeFooter(std::string_view bytes, int64_t last_revision, uint64_t events,
                  std::vector<LeaseGrant>* leases) {
  uint64_t stated_last = 0, stated_events = 0;
  Reader r(bytes);
  while (r.Next()) {
    if (r.field() == 1 && r.Expect(Type::kVarint)) stated_last = r.varint();
    if (r.field() == 2 && r.Expect(Type::kVarint)) stated_events = r.varint();
    if (r.field() == 3 && r.Expect(Type::kBytes) &&
        !DecodeLease(r.bytes(), &leases->emplace_back())) {
      return false;
    }
  }
  return r.ok() && stated_last == static_cast<uint64_t>(last_revision) && stated_events == events;
}

absl::Status DecodeRevision(std::string_view bytes, RevisionView* out) {
  out->revision = 0;
  out->seen_from = out->seen_to = base::Duration(0);
  out->events.clear();
  Reader r(bytes);
  while (r.Next()) {
    switch (r.field()) {
      case 1:
        if (r.Expect(Type::kVarint)) out->revision = static_cast<int64_t>(r.varint());
        break;
      case 2:
        if (r.Expect(Type::kFixed64))
          out->seen_from = base::Duration(static_cast<int64_t>(r.varint()));
        break;
      case 3:
        if (r.Expect(Type::kFixed64))
          out->seen_to = base::Duration(static_cast<int64_t>(r.varint()));
        break;
      case 4: {
        EventView event;
        if (!r.Expect(Type::kBytes) || !DecodeEvent(r.bytes(), &event)) {
          return Damaged(out->revision, "an event is malformed");
        }
        out->events.push_back(event);
        break;
      }
      default:
        break;
    }
  }
  if (!r.ok() || out->events.empty()) return Damaged(out->revision, "the record is malformed");
  return absl::OkStatus();
}

}  // namespace

SegmentWriter::SegmentWriter(SegmentHeader header)
    : header_(std::move(header)), next_revision_(header_.first_revision) {
  base::wire::AppendBytes(&bytes_, kHeaderField, EncodeHeader(header_));
}

void SegmentWriter::Add(const RevisionView& revision) {
  CHECK(revision.revision == next_revision_);
  CHECK(!revision.events.empty());
  if (empty()) {
    first_seen_from_ = revision.seen_from;
    first_seen_to_ = revision.seen_to;
  }
  last_seen_from_ = revision.seen_from;
  last_seen_to_ = revision.seen_to;
  std::string head;
  base::wire::AppendUint(&head, 1, static_cast<uint64_t>(revision.revision));
  AppendFixed64(&head, 2, static_cast<uint64_t>(revision.seen_from.count()));
  AppendFixed64(&head, 3, static_cast<uint64_t>(revision.seen_to.count()));
  size_t size = head.size();
  for (const EventView& event : revision.events) {
    const size_t event_bytes = EventBytes(event);
    size += 1 + base::wire::VarintSize(event_bytes) + event_bytes;
  }
  base::wire::AppendTag(&bytes_, kRevisionField, Type::kBytes);
  base::wire::AppendVarint(&bytes_, size);
  bytes_ += head;
  for (const EventView& event : revision.events) {
    base::wire::AppendTag(&bytes_, 4, Type::kBytes);
    base::wire::AppendVarint(&bytes_, EventBytes(event));
    if (event.tombstone) base::wire::AppendUint(&bytes_, 1, 1);
    base::wire::AppendBytes(&bytes_, 2, event.key_value);
  }
  events_ += revision.events.size();
  ++next_revision_;
}

std::string SegmentWriter::Finish(const std::vector<LeaseGrant>& leases) {
  std::string footer;
  base::wire::AppendUint(&footer, 1, static_cast<uint64_t>(next_revision_ - 1));
  base::wire::AppendUint(&footer, 2, events_);
  for (const LeaseGrant& lease : leases) {
    std::string one;
    base::wire::AppendUint(&one, 1, static_cast<uint64_t>(lease.id));
    base::wire::AppendNonZero(&one, 2, static_cast<uint64_t>(lease.ttl_seconds));
    base::wire::AppendBytes(&footer, 3, one);
  }
  base::wire::AppendBytes(&bytes_, kFooterField, footer);
  return std::move(bytes_);
}

absl::StatusOr<SegmentFacts> ReadSegment(
    std::string_view bytes, absl::FunctionRef<absl::Status(const RevisionView&)> each) {
  SegmentFacts facts;
  bool has_header = false, has_footer = false;
  int64_t next = 0;
  uint64_t events = 0;
  RevisionView revision;
  Reader r(bytes);
  while (r.Next()) {
    if (has_footer || r.type() != Type::kBytes) {
      return Damaged("what follows the footer is not of it");
    }
    if (!has_header) {
      if (r.field() != kHeaderField) return Damaged("it does not begin with a header");
      ASSIGN_OR_RETURN(facts.header, DecodeHeader(r.bytes()));
      has_header = true;
      next = facts.header.first_revision;
    } else if (r.field() == kRevisionField) {
      RETURN_IF_ERROR(DecodeRevision(r.bytes(), &revision));
      if (revision.revision != next) {
        return base::MakeStatus(absl::StatusCode::kDataLoss, "segment: revision {} follows {}",
                                revision.revision, next - 1);
      }
      ++next;
      events += revision.events.size();
      RETURN_IF_ERROR(each(revision));
    } else if (r.field() == kFooterField) {
      has_footer = true;
      if (!DecodeFooter(r.bytes(), next - 1, events, &facts.leases)) {
        return Damaged("its footer does not agree with what it holds");
      }
    } else {
      return Damaged("it holds a field that is none of its format");
    }
  }
  if (!r.ok()) return Damaged("it is malformed or cut off");
  if (!has_footer) return Damaged("it is cut off: the footer is missing");
  return facts;
}

}  // namespace events
