#include "peer/stream_codec.h"

#include <random>

#include "base/testing.h"
#include "raft/codec.h"

namespace peer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr raft::NodeId kLocal = 0x0c95ef83803ad544;
constexpr raft::NodeId kRemote = 0xcc68606c20556276;

std::string Hex(std::string_view hex) {
  std::string bytes;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ') continue;
    digits.push_back(c);
    if (digits.size() < 2) continue;
    bytes.push_back(static_cast<char>(std::stoi(digits, nullptr, 16)));
    digits.clear();
  }
  return bytes;
}

raft::Entry EntryOf(raft::Term term, raft::Index index, std::string data) {
  return {.term = term, .index = index, .data = raft::Buffer::Own(std::move(data))};
}

raft::Message Append(raft::Term term, raft::Term log_term, raft::Index index,
                     std::vector<raft::Entry> entries, raft::Index commit) {
  return {.type = raft::MessageType::kApp,
          .to = kLocal,
          .from = kRemote,
          .term = term,
          .log_term = log_term,
          .index = index,
          .commit = commit,
          .entries = std::move(entries)};
}

// Three appends that follow one another, and one after a gap.
std::vector<raft::Message> Appends() {
  return {Append(2, 1, 3, {EntryOf(2, 4, "")}, 3),
          Append(2, 2, 4, {EntryOf(2, 5, "five"), EntryOf(2, 6, std::string(3000, 's'))}, 4),
          Append(2, 2, 6, {}, 6), Append(3, 2, 6, {EntryOf(3, 7, "seven")}, 6)};
}

std::string EncodeAll(StreamKind kind, const std::vector<raft::Message>& messages) {
  StreamEncoder encoder(kind);
  std::string bytes;
  encoder.LinkHeartbeat(&bytes);
  for (const raft::Message& message : messages) {
    encoder.Encode(message, &bytes);
    encoder.LinkHeartbeat(&bytes);
  }
  return bytes;
}

absl::Status Decode(StreamKind kind, std::string_view bytes, size_t piece,
                    std::vector<raft::Message>* out) {
  StreamDecoder decoder(kind, kLocal, kRemote);
  while (!bytes.empty()) {
    const std::string_view next = bytes.substr(0, piece);
    bytes.remove_prefix(next.size());
    RETURN_IF_ERROR(
        decoder.Feed(next, [out](raft::Message message) { out->push_back(std::move(message)); }));
  }
  return absl::OkStatus();
}

TEST(StreamCodecTest, FramesAreThoseOfEtcd) {
  StreamEncoder appends(StreamKind::kMsgApp);
  std::string bytes;
  appends.LinkHeartbeat(&bytes);
  EXPECT_EQ(bytes, Hex("00"));
  bytes.clear();
  // Captured from a leader of 3.7.3, ids swapped.
  raft::Message first = Append(2, 1, 3, {EntryOf(2, 4, "")}, 3);
  first.to = kRemote;
  first.from = kLocal;
  appends.Encode(first, &bytes);
  EXPECT_EQ(bytes, Hex("02 0000000000000025"
                       "0803 10f6c4d582c28d98b4cc01 18c4aaeb81b8f0fbca0c"
                       "2002 2801 3003 3a0410021804 4003"));
  bytes.clear();
  appends.Encode(Append(2, 2, 4, {}, 9), &bytes);
  EXPECT_EQ(bytes, Hex("01 0000000000000000 0000000000000009"));

  StreamEncoder messages(StreamKind::kMessage);
  bytes.clear();
  messages.Encode({.type = raft::MessageType::kHeartbeat,
                   .to = kRemote,
                   .from = kLocal,
                   .term = 2,
                   .commit = 8},
                  &bytes);
  EXPECT_EQ(bytes, Hex("000000000000001b 0808 10f6c4d582c28d98b4cc01 18c4aaeb81b8f0fbca0c"
                       "2002 4008"));
}

TEST(StreamCodecTest, LinkHeartbeatsOfBothReleasesAreSwallowed) {
  std::vector<raft::Message> got;
  EXPECT_OK(Decode(StreamKind::kMessage,
                   Hex("0000000000000002 0808"
                       "0000000000000014 0808 1000 1800 2000 2800 3000 4000 5000 5800 6800"),
                   3, &got));
  EXPECT_OK(Decode(StreamKind::kMsgApp, Hex("00 00 00"), 1, &got));
  EXPECT_THAT(got, IsEmpty());
}

TEST(StreamCodecTest, AppendsComeOutAsTheyWentInHoweverTheyAreCut) {
  const std::string bytes = EncodeAll(StreamKind::kMsgApp, Appends());
  for (const size_t piece : {1ul, 2ul, 7ul, 8ul, 9ul, 1000ul, bytes.size()}) {
    std::vector<raft::Message> got;
    EXPECT_OK(Decode(StreamKind::kMsgApp, bytes, piece, &got));
    EXPECT_EQ(got, Appends()) << piece;
  }
}

TEST(StreamCodecTest, OtherMessagesComeOutAsTheyWentIn) {
  const std::vector<raft::Message> messages = {{.type = raft::MessageType::kProp,
                                                .to = kLocal,
                                                .from = kRemote,
                                                .entries = {{.data = raft::Buffer::Own("data")}}},
                                               {.type = raft::MessageType::kAppResp,
                                                .reject = true,
                                                .to = kLocal,
                                                .from = kRemote,
                                                .term = 2,
                                                .index = 8,
                                                .reject_hint = 1}};
  const std::string bytes = EncodeAll(StreamKind::kMessage, messages);
  for (const size_t piece : {1ul, 5ul, bytes.size()}) {
    std::vector<raft::Message> got;
    EXPECT_OK(Decode(StreamKind::kMessage, bytes, piece, &got));
    EXPECT_EQ(got, messages);
  }
}

TEST(StreamCodecTest, WhatIsCutOffIsNotDelivered) {
  for (const StreamKind kind : {StreamKind::kMsgApp, StreamKind::kMessage}) {
    const std::string bytes = EncodeAll(kind, Appends());
    size_t before = 0;
    for (size_t n = 0; n < bytes.size(); ++n) {
      std::vector<raft::Message> got;
      EXPECT_OK(Decode(kind, std::string_view(bytes).substr(0, n), n + 1, &got));
      EXPECT_GE(got.size(), before);
      before = got.size();
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], Appends()[i]);
    }
  }
}

TEST(StreamCodecTest, FlippedBitsBreakTheStreamOrChangeValuesButNothingElse) {
  for (const StreamKind kind : {StreamKind::kMsgApp, StreamKind::kMessage}) {
    const std::string whole = EncodeAll(kind, Appends());
    int broken = 0;
    for (size_t bit = 0; bit < 8 * std::min<size_t>(whole.size(), 400); ++bit) {
      std::string bytes = whole;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
      std::vector<raft::Message> got;
      const absl::Status status = Decode(kind, bytes, 64, &got);
      if (!status.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
        ++broken;
      }
    }
    EXPECT_GT(broken, 100);
  }
}

TEST(StreamCodecTest, LengthsBeyondTheLimitAreRefusedBeforeTheirBytesCome) {
  std::vector<raft::Message> got;
  EXPECT_THAT(Decode(StreamKind::kMessage, Hex("0000000020000001"), 8, &got),
              base::StatusIs(absl::StatusCode::kInvalidArgument, "broken stream: frame too long"));
  EXPECT_THAT(Decode(StreamKind::kMsgApp, Hex("02 ffffffffffffffff"), 9, &got),
              base::StatusIs(absl::StatusCode::kInvalidArgument, "broken stream: frame too long"));
  // A run of entries is bounded as a whole.
  EXPECT_THAT(Decode(StreamKind::kMsgApp,
                     Hex("01 0000000000000002 0000000000000000 0000000020000000"), 50, &got),
              base::StatusIs(absl::StatusCode::kInvalidArgument, "broken stream: frame too long"));
  EXPECT_THAT(
      Decode(StreamKind::kMsgApp, Hex("03"), 1, &got),
      base::StatusIs(absl::StatusCode::kInvalidArgument, "broken stream: unknown kind of frame"));
  EXPECT_THAT(got, IsEmpty());
}

TEST(StreamCodecTest, OnlyAppendsComeOnTheStreamOfAppends) {
  std::string bytes = Hex("02 000000000000000e");
  raft::EncodeMessage({.type = raft::MessageType::kHeartbeat, .to = 1, .from = 2, .term = 3},
                      &bytes);
  bytes[8] = static_cast<char>(bytes.size() - 9);
  std::vector<raft::Message> got;
  EXPECT_THAT(Decode(StreamKind::kMsgApp, bytes, 100, &got),
              base::StatusIs(absl::StatusCode::kInvalidArgument,
                             "broken stream: no append on a stream of appends"));
}

}  // namespace
}  // namespace peer
