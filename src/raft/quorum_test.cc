#include "raft/quorum.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "raft/datadriven.h"

namespace raft {
namespace {

using datadriven::Case;

// The obvious way to the committed index: try each candidate and count who has it.
Index ObviousCommitted(const std::vector<NodeId>& voters, const std::map<NodeId, Index>& acks) {
  if (voters.empty()) return kNoLimit;
  Index best = 0;
  for (const NodeId candidate : voters) {
    const auto at = acks.find(candidate);
    if (at == acks.end()) continue;
    const auto count = std::count_if(voters.begin(), voters.end(), [&](NodeId id) {
      const auto it = acks.find(id);
      return it != acks.end() && it->second >= at->second;
    });
    if (static_cast<size_t>(count) > voters.size() / 2) best = std::max(best, at->second);
  }
  return best;
}

auto Lookup(const std::map<NodeId, Index>& acks) {
  return [&acks](NodeId id) -> std::optional<Index> {
    const auto it = acks.find(id);
    if (it == acks.end()) return std::nullopt;
    return it->second;
  };
}

// The bar chart of the data files: for each voter a bar as long as the number of voters below it.
std::string Chart(const std::set<NodeId>& voters, const std::map<NodeId, Index>& acks) {
  if (voters.empty()) return "<empty majority quorum>";
  const size_t n = voters.size();
  std::string out = std::string(n, ' ') + "    idx\n";
  for (const NodeId id : voters) {
    const auto ack = acks.find(id);
    const Index index = ack == acks.end() ? 0 : ack->second;
    if (ack == acks.end()) {
      out += "?" + std::string(n, ' ');
    } else {
      const auto bar =
          static_cast<size_t>(std::count_if(voters.begin(), voters.end(), [&](NodeId other) {
            const auto it = acks.find(other);
            const Index theirs = it == acks.end() ? 0 : it->second;
            return theirs < index;
          }));
      out += std::string(bar, 'x') + ">" + std::string(n - bar, ' ');
    }
    out += fmt::format(" {:5}    (id={:x})\n", index, id);
  }
  return out;
}

struct Setup {
  std::vector<NodeId> incoming, outgoing;
  std::set<NodeId> all;
  std::vector<NodeId> order;  // distinct ids as they appear
};

Setup ReadSetup(const Case& c) {
  Setup s;
  s.incoming = c.Numbers("cfg");
  if (c.Value("cfgj", "zero") != "zero") s.outgoing = c.Numbers("cfgj");
  for (const auto* half : {&s.incoming, &s.outgoing}) {
    for (const NodeId id : *half) {
      if (s.all.insert(id).second) s.order.push_back(id);
    }
  }
  std::sort(s.incoming.begin(), s.incoming.end());
  std::sort(s.outgoing.begin(), s.outgoing.end());
  return s;
}

std::string RunCommitted(const Case& c) {
  const Setup s = ReadSetup(c);
  std::map<NodeId, Index> acks;
  if (const datadriven::Argument* values = c.Find("idx")) {
    for (size_t i = 0; i < values->values.size(); ++i) {
      if (values->values[i] != "_") acks[s.order[i]] = std::stoull(values->values[i]);
    }
  }
  const Index index = JointCommitted(s.incoming, s.outgoing, Lookup(acks));
  EXPECT_EQ(index, JointCommitted(s.outgoing, s.incoming, Lookup(acks)));
  EXPECT_EQ(index,
            std::min(ObviousCommitted(s.incoming, acks), ObviousCommitted(s.outgoing, acks)));
  return Chart(s.all, acks) + (index == kNoLimit ? "∞" : std::to_string(index)) + "\n";
}

std::string RunVote(const Case& c) {
  const Setup s = ReadSetup(c);
  std::map<NodeId, bool> votes;
  if (const datadriven::Argument* values = c.Find("votes")) {
    for (size_t i = 0; i < values->values.size(); ++i) {
      if (values->values[i] != "_") votes[s.order[i]] = values->values[i] == "y";
    }
  }
  const auto voted = [&](NodeId id) -> std::optional<bool> {
    const auto it = votes.find(id);
    if (it == votes.end()) return std::nullopt;
    return it->second;
  };
  const VoteResult result = JointVote(s.incoming, s.outgoing, voted);
  EXPECT_EQ(result, JointVote(s.outgoing, s.incoming, voted));
  static constexpr const char* kNames[] = {"VotePending", "VoteLost", "VoteWon"};
  return std::string(kNames[static_cast<int>(result)]) + "\n";
}

TEST(Quorum, GivesWhatTheDataFilesSay) {
  for (const char* name : {"majority_commit", "majority_vote", "joint_commit", "joint_vote"}) {
    const std::string path =
        fmt::format("{}/tests/data/raft/quorum/{}.txt", ENGRAM_SOURCE_DIR, name);
    const std::vector<Case> cases = datadriven::ReadFile(path);
    ASSERT_FALSE(cases.empty()) << path;
    for (const Case& c : cases) {
      const std::string actual = c.command == "committed" ? RunCommitted(c) : RunVote(c);
      ASSERT_EQ(actual, c.expected) << path << ":" << c.line << ": " << c.text;
    }
  }
}

TEST(Quorum, AgreesWithTheObviousVersion) {
  const char* fixed = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed = fixed != nullptr ? std::strtoull(fixed, nullptr, 10) : 1;
  RecordProperty("seed", std::to_string(seed));
  base::SeededRandom random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::vector<NodeId> voters;
    std::map<NodeId, Index> acks;
    const uint64_t count = random.Below(13);
    for (NodeId id = 1; id <= count; ++id) {
      voters.push_back(id);
      if (!random.OneIn(4)) acks[id] = random.Below(8);
    }
    ASSERT_EQ(MajorityCommitted(voters, Lookup(acks)), ObviousCommitted(voters, acks))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace raft
