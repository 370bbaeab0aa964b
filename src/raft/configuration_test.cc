#include "raft/configuration.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/testing.h"
#include "raft/datadriven.h"
#include "raft/describe.h"

namespace raft {
namespace {

using datadriven::Case;

std::string Set(const std::vector<NodeId>& ids) { return fmt::format("({})", fmt::join(ids, " ")); }

std::string Text(const Group& group) {
  const Configuration& config = group.config;
  std::string out = "voters=" + Set(config.incoming);
  if (config.joint()) out += "&&" + Set(config.outgoing);
  if (!config.learners.empty()) out += " learners=" + Set(config.learners);
  if (!config.learners_next.empty()) out += " learners_next=" + Set(config.learners_next);
  if (config.auto_leave) out += " autoleave";
  out += "\n";
  for (const auto& [id, progress] : group.progress) {
    const MemberProgress view{.id = id,
                              .state = progress.state(),
                              .match = progress.match(),
                              .next = progress.next(),
                              .learner = progress.is_learner,
                              .recent_active = progress.recent_active,
                              .paused = progress.paused()};
    out += fmt::format("{}: {}\n", id, describe::Describe(view));
  }
  return out;
}

NewMember At(Index last_index) { return {.last_index = last_index, .max_inflight_msgs = 10}; }

TEST(Configuration, ChangesAsTheDataFilesSay) {
  const std::string folder = ENGRAM_SOURCE_DIR "/tests/data/raft/confchange";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    ++files;
    Group group;
    Index last_index = 0;
    for (const Case& c : datadriven::ReadFile(entry.path())) {
      const std::vector<ConfChangeSingle> changes = describe::ParseChanges(c.input);
      absl::StatusOr<Group> after = group;
      if (c.command == "simple") after = ChangeSimply(group, changes, At(last_index));
      if (c.command == "enter-joint") {
        after = EnterJoint(group, c.Flag("autoleave"), changes, At(last_index));
      }
      if (c.command == "leave-joint") after = LeaveJoint(group);
      if (after.ok()) group = *after;
      ++last_index;
      const std::string actual =
          after.ok() ? Text(group) : std::string(base::Message(after.status())) + "\n";
      ASSERT_EQ(actual, c.expected) << entry.path() << ":" << c.line << ": " << c.text;
    }
  }
  EXPECT_EQ(files, 9);
}

// Wherever random changes lead, the configuration survives being stored and read back.
TEST(Configuration, IsMadeAgainFromItsConfState) {
  base::SeededRandom random(7);
  for (int run = 0; run < 200; ++run) {
    Group group = *MakeGroup({.voters = {1, 2, 3}}, At(1));
    for (int step = 0; step < 30; ++step) {
      ConfChangeV2 change;
      change.transition = static_cast<ConfChangeTransition>(random.Below(3));
      const uint64_t count = random.Below(4);
      for (uint64_t i = 0; i < count; ++i) {
        change.changes.push_back(
            {.type = static_cast<ConfChangeType>(random.Below(4)), .node_id = random.Below(7)});
      }
      const absl::StatusOr<Group> after = Change(group, change, At(1));
      if (!after.ok()) continue;
      group = *after;
      ASSERT_OK_AND_ASSIGN(const Group again, MakeGroup(group.config.ToConfState(), At(1)));
      ASSERT_EQ(again.config, group.config);
      ASSERT_EQ(Text(again), Text(group));
    }
  }
}

TEST(Configuration, RefusesImpossibleConfStates) {
  const std::vector<ConfState> impossible = {
      {.voters = {1, 0}},
      {.voters = {1, 1}},
      {.learners = {1}},
      {.voters = {1}, .learners = {1}},
      {.voters = {1}, .learners = {2}, .voters_outgoing = {2}},
      {.voters = {1}, .learners_next = {2}},
      {.voters = {1}, .voters_outgoing = {1}, .learners_next = {1}},
      {.voters = {1}, .auto_leave = true},
      {.voters_outgoing = {1}},
  };
  for (const ConfState& state : impossible) {
    EXPECT_THAT(MakeGroup(state, At(1)), base::StatusIs(absl::StatusCode::kInvalidArgument))
        << describe::Describe(state);
  }
}

}  // namespace
}  // namespace raft
