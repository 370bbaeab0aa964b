#include "raft/codec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "base/testing.h"

namespace raft {
namespace {

std::string FromHex(std::string_view hex) {
  std::string out;
  int high = -1;
  for (const char c : hex) {
    if (c == ' ') continue;
    const int digit = c <= '9' ? c - '0' : c - 'a' + 10;
    if (high < 0) {
      high = digit;
    } else {
      out.push_back(static_cast<char>(high * 16 + digit));
      high = -1;
    }
  }
  return out;
}

template <typename T>
std::string Encoded(void (*encode)(const T&, std::string*), const T& value) {
  std::string out;
  encode(value, &out);
  return base::ToHex(out);
}

std::string Plain(std::string_view hex) { return base::ToHex(FromHex(hex)); }

// Bytes captured from etcd 3.6 and 3.7.
TEST(Codec, WritesWhatEtcdWrites) {
  EXPECT_EQ(Encoded(EncodeHardState, HardState{.term = 2, .vote = 0, .commit = 7}),
            Plain("08 02 10 00 18 07"));
  EXPECT_EQ(Encoded(EncodeConfState, ConfState{.voters = {1, 2},
                                               .learners = {3},
                                               .voters_outgoing = {1},
                                               .learners_next = {4},
                                               .auto_leave = true}),
            Plain("08 01 08 02 10 03 18 01 20 04 28 01"));
  EXPECT_EQ(Encoded(EncodeSnapshotMetadata,
                    SnapshotMetadata{.conf_state = {.voters = {1}}, .index = 5, .term = 2}),
            Plain("0a 04 08 01 28 00 10 05 18 02"));
  EXPECT_EQ(
      Encoded(EncodeConfChange,
              ConfChange{.id = 9, .type = ConfChangeType::kAddNode, .node_id = 3, .context = "c"}),
      Plain("08 09 10 00 18 03 22 01 63"));
  const ConfChangeV2 v2{.transition = ConfChangeTransition::kJointExplicit,
                        .changes = {{.type = ConfChangeType::kAddNode, .node_id = 3},
                                    {.type = ConfChangeType::kRemoveNode, .node_id = 1}},
                        .context = "c"};
  EXPECT_EQ(Encoded(EncodeConfChangeV2, v2),
            Plain("08 02 12 04 08 00 10 03 12 04 08 01 10 01 1a 01 63"));
  EXPECT_EQ(Encoded(EncodeConfChangeV2, ConfChangeV2()), "");
  EXPECT_EQ(Encoded(EncodeEntry, Entry{.term = 2, .index = 4}), Plain("10 02 18 04"));
}

TEST(Codec, ReadsTheAllZeroStyleOfEtcd36) {
  ASSERT_OK_AND_ASSIGN(const Message message,
                       DecodeMessage(FromHex("0800 1000 1800 2000 2800 3000 4000 5000 5800 6800")));
  EXPECT_EQ(message, Message());
  ASSERT_OK_AND_ASSIGN(const Entry entry, DecodeEntry(FromHex("08 00 10 02 18 04")));
  EXPECT_EQ(entry, (Entry{.term = 2, .index = 4}));
  ASSERT_OK_AND_ASSIGN(const ConfChangeV2 leave, DecodeConfChangeV2(FromHex("08 00")));
  EXPECT_TRUE(leave.LeavesJoint());
  ASSERT_OK_AND_ASSIGN(const Message nothing, DecodeMessage(""));
  EXPECT_EQ(nothing, Message());
}

TEST(Codec, AcceptsPackedIntegersAnyOrderAndUnknownFields) {
  // auto_leave first, voters packed, an unknown field 31 of bytes and a group 30.
  ASSERT_OK_AND_ASSIGN(
      const ConfState state,
      DecodeConfState(FromHex("28 01 fa 01 02 ff ff f3 01 08 05 f4 01 0a 03 01 02 07")));
  EXPECT_EQ(state, (ConfState{.voters = {1, 2, 7}, .auto_leave = true}));
}

TEST(Codec, MergesRepeatedEmbeddedMessages) {
  // SnapshotMetadata with conf_state twice: voters 1, then voters 2 and auto_leave.
  ASSERT_OK_AND_ASSIGN(const SnapshotMetadata metadata,
                       DecodeSnapshotMetadata(FromHex("0a 02 08 01 0a 04 08 02 28 01 10 05")));
  EXPECT_EQ(metadata,
            (SnapshotMetadata{.conf_state = {.voters = {1, 2}, .auto_leave = true}, .index = 5}));
}

TEST(Codec, RefusesMalformedBytes) {
  const std::vector<std::string> malformed = {
      "08",                 // no value
      "10 80",              // cut varint
      "3a 05 10",           // entry beyond the end
      "08 18",              // unknown message type
      "3a 02 08 03",        // unknown entry type
      "0a 00",              // a type that is bytes
      "4a 02 12 05",        // metadata beyond its snapshot
      "3a 04 22 05 61 62",  // data beyond its entry
      "00 00",              // field 0
  };
  for (const std::string& hex : malformed) {
    EXPECT_THAT(DecodeMessage(FromHex(hex)), base::StatusIs(absl::StatusCode::kInvalidArgument))
        << hex;
  }
  // Messages nest only as deep as they ever need to.
  std::string nested;
  for (int i = 0; i < 10; ++i) {
    Message outer;
    std::string wrapped = FromHex("72");
    wrapped.push_back(static_cast<char>(nested.size()));
    nested = wrapped + nested;
  }
  EXPECT_THAT(DecodeMessage(nested), base::StatusIs(absl::StatusCode::kInvalidArgument));
}

uint64_t Number(base::Random& random) {
  switch (random.Below(4)) {
    case 0:
      return 0;
    case 1:
      return random.Below(200);
    default:
      return random.Next() >> random.Below(64);
  }
}

std::string Bytes(base::Random& random) {
  std::string bytes(random.Below(20), 'x');
  for (char& c : bytes) c = static_cast<char>(random.Next());
  return bytes;
}

Message RandomMessage(base::Random& random, int depth) {
  Message m{.type = static_cast<MessageType>(random.Below(kMessageTypeCount)),
            .reject = random.OneIn(2),
            .to = Number(random),
            .from = Number(random),
            .term = Number(random),
            .log_term = Number(random),
            .index = Number(random),
            .commit = Number(random),
            .vote = Number(random),
            .reject_hint = Number(random),
            .context = Buffer::Own(Bytes(random))};
  for (uint64_t i = random.Below(4); i > 0; --i) {
    m.entries.push_back({.term = Number(random),
                         .index = Number(random),
                         .type = static_cast<EntryType>(random.Below(3)),
                         .data = Buffer::Copy(Bytes(random))});
  }
  if (random.OneIn(3)) {
    m.snapshot = std::make_shared<const Snapshot>(
        Snapshot{.data = Buffer::Own(Bytes(random)),
                 .metadata = {.conf_state = {.voters = {Number(random), Number(random)},
                                             .learners = {Number(random)},
                                             .auto_leave = random.OneIn(2)},
                              .index = Number(random),
                              .term = Number(random)}});
  }
  if (depth < 2 && random.OneIn(3)) m.responses.push_back(RandomMessage(random, depth + 1));
  return m;
}

TEST(Codec, ReadsBackWhatItWrites) {
  base::SeededRandom random(11);
  for (int round = 0; round < 5000; ++round) {
    const Message message = RandomMessage(random, 0);
    std::string bytes;
    EncodeMessage(message, &bytes);
    ASSERT_EQ(bytes.size(), EncodedBytes(message));
    ASSERT_OK_AND_ASSIGN(const Message copied, DecodeMessage(bytes));
    ASSERT_EQ(copied, message);
    const auto owner = std::make_shared<const std::string>(bytes);
    ASSERT_OK_AND_ASSIGN(const Message aliased, DecodeMessage(*owner, owner));
    ASSERT_EQ(aliased, message);
    for (const Entry& entry : message.entries) {
      std::string alone;
      EncodeEntry(entry, &alone);
      ASSERT_EQ(alone.size(), entry.EncodedBytes());
    }
  }
}

TEST(Codec, SurvivesDamagedBytes) {
  base::SeededRandom random(12);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    EncodeMessage(RandomMessage(random, 0), &bytes);
    for (uint64_t i = random.Below(4); i > 0 && !bytes.empty(); --i) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    }
    bytes.resize(random.Below(bytes.size() + 1));
    const absl::StatusOr<Message> message = DecodeMessage(bytes);
    if (!message.ok()) continue;
    std::string again;
    EncodeMessage(*message, &again);
    ASSERT_OK_AND_ASSIGN(const Message reread, DecodeMessage(again));
    ASSERT_EQ(reread, *message);
  }
}

TEST(Buffer, AliasKeepsItsOwnerAlive) {
  auto owner = std::make_shared<const std::string>("some bytes");
  const Buffer buffer = Buffer::Alias(owner, std::string_view(*owner).substr(5));
  const std::weak_ptr<const std::string> watch = owner;
  owner.reset();
  EXPECT_EQ(buffer.view(), "bytes");
  EXPECT_FALSE(watch.expired());
}

}  // namespace
}  // namespace raft
