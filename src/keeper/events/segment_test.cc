#include "events/segment.h"

#include "base/random.h"
#include "base/testing.h"
#include "base/wire.h"
#include "proto/keeper.pb.h"

namespace events {
namespace {

using base::StatusIs;
using testing::HasSubstr;

const SegmentHeader kHeader{.cluster = "prod",
                            .cluster_id = 0xfedcba9876543210,
                            .timeline_revision = 17,
                            .writer = 0x1122334455667788,
                            .first_revision = 100,
                            .previous_sha256 = std::string(32, 'x')};

absl::Status Nothing(const RevisionView&) { return absl::OkStatus(); }

std::string SmallSegment() {
  std::string abc, k;  // key-values of a key alone
  base::wire::AppendBytes(&abc, 1, "abc");
  base::wire::AppendBytes(&k, 1, "k");
  SegmentWriter writer(kHeader);
  writer.Add({.revision = 100,
              .seen_from = base::Duration(1'000),
              .seen_to = base::Duration(2'000),
              .events = {{false, abc}, {true, k}}});
  writer.Add({.revision = 101,
              .seen_from = base::Duration(2'000),
              .seen_to = base::Duration(3'000),
              .events = {{false, ""}}});
  return writer.Finish({{0x77, 60}, {0x78, 0}});
}

TEST(Segment, IsReadAsItWasWritten) {
  std::vector<std::string> seen;
  ASSERT_OK_AND_ASSIGN(
      const SegmentFacts facts, ReadSegment(SmallSegment(), [&](const RevisionView& r) {
        std::string line = std::to_string(r.revision) + "@" + std::to_string(r.seen_from.count()) +
                           "-" + std::to_string(r.seen_to.count());
        for (const EventView& e : r.events) {
          line += (e.tombstone ? " -" : " +") + std::string(e.key_value);
        }
        seen.push_back(line);
        return absl::OkStatus();
      }));
  EXPECT_EQ(facts.header, kHeader);
  ASSERT_EQ(facts.leases.size(), 2u);
  EXPECT_EQ(facts.leases[0].id, 0x77);
  EXPECT_EQ(facts.leases[0].ttl_seconds, 60);
  EXPECT_EQ(facts.leases[1].ttl_seconds, 0);
  EXPECT_THAT(seen, testing::ElementsAre("100@1000-2000 +\n\3abc -\n\1k", "101@2000-3000 +"));
}

TEST(Segment, IsTheMessageOfItsSchema) {
  mvccpb::KeyValue kv;
  kv.set_key("a");
  kv.set_value("b");
  kv.set_create_revision(3);
  SegmentWriter writer(kHeader);
  writer.Add({.revision = 100,
              .seen_from = base::Duration(-5),
              .seen_to = base::Duration(7),
              .events = {{true, kv.SerializeAsString()}}});
  engramkeeper::Segment segment;
  ASSERT_TRUE(segment.ParseFromString(writer.Finish({{-9, 60}})));
  EXPECT_EQ(segment.header().format(), 1u);
  EXPECT_EQ(segment.header().cluster(), "prod");
  EXPECT_EQ(segment.header().cluster_id(), 0xfedcba9876543210);
  EXPECT_EQ(segment.header().writer(), 0x1122334455667788u);
  EXPECT_EQ(segment.header().first_revision(), 100);
  ASSERT_EQ(segment.revisions_size(), 1);
  const engramkeeper::Revision& revision = segment.revisions(0);
  EXPECT_EQ(revision.seen_from(), -5);
  EXPECT_EQ(revision.events(0).type(), mvccpb::Event::DELETE);
  EXPECT_EQ(revision.events(0).kv().value(), "b");
  EXPECT_EQ(segment.footer().leases(0).id(), -9);
  EXPECT_EQ(segment.footer().last_revision(), 100);
  EXPECT_EQ(segment.footer().events(), 1u);
  // And the other way: what the library writes is read.
  int64_t read = 0;
  ASSERT_OK(ReadSegment(segment.SerializeAsString(), [&](const RevisionView& r) {
              read = r.revision;
              EXPECT_EQ(r.events[0].key_value, kv.SerializeAsString());
              return absl::OkStatus();
            }).status());
  EXPECT_EQ(read, 100);
}

TEST(Segment, CutAnywhereIsRefused) {
  const std::string whole = SmallSegment();
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THAT(ReadSegment(whole.substr(0, n), Nothing),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("segment:")))
        << n;
  }
  EXPECT_THAT(ReadSegment(whole + "x", Nothing), StatusIs(absl::StatusCode::kDataLoss, testing::_));
  EXPECT_THAT(ReadSegment(whole + whole, Nothing),
              StatusIs(absl::StatusCode::kDataLoss, testing::_));
}

TEST(Segment, FlippedBitsNeverEndInAnythingButAnAnswer) {
  const std::string whole = SmallSegment();
  for (size_t at = 0; at < whole.size() * 8; ++at) {
    std::string flipped = whole;
    flipped[at / 8] = static_cast<char>(flipped[at / 8] ^ 1 << at % 8);
    const auto read = ReadSegment(flipped, Nothing);
    EXPECT_THAT(read.status().code(),
                testing::AnyOf(absl::StatusCode::kOk, absl::StatusCode::kDataLoss,
                               absl::StatusCode::kUnimplemented));
  }
}

TEST(Segment, GapsAndNewerFormatsAreRefused) {
  engramkeeper::Segment segment;
  ASSERT_TRUE(segment.ParseFromString(SmallSegment()));
  segment.mutable_revisions(1)->set_revision(102);
  EXPECT_THAT(ReadSegment(segment.SerializeAsString(), Nothing),
              StatusIs(absl::StatusCode::kDataLoss, "segment: revision 102 follows 100"));
  segment.mutable_header()->set_format(2);
  EXPECT_THAT(ReadSegment(segment.SerializeAsString(), Nothing),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("use a newer one")));
}

TEST(Segment, TheCallersErrorEndsTheReading) {
  int calls = 0;
  EXPECT_THAT(ReadSegment(SmallSegment(),
                          [&](const RevisionView&) {
                            ++calls;
                            return absl::AbortedError("enough");
                          }),
              StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace events
