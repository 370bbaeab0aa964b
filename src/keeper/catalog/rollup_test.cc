// What is put into which container, and when.
#include "catalog/rollup.h"

#include <set>

#include "base/testing.h"
#include "catalog/retention.h"
#include "catalog/test_inventory.h"

namespace catalog {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const RollUpPolicy kPolicy{.spans = {At(10), At(60)}, .settle = At(2)};

// A segment of one revision, seen at that second.
Object At1(int64_t revision) { return Segment(revision, revision, revision, revision); }

std::vector<Object> Seconds(int64_t first, int64_t last) {
  std::vector<Object> segments;
  for (int64_t second = first; second <= last; ++second) segments.push_back(At1(second));
  return segments;
}

std::vector<std::string> Names(const std::vector<RollUp>& due) {
  std::vector<std::string> names;
  for (const RollUp& roll_up : due) {
    names.push_back(std::to_string(roll_up.level) + ":" +
                    std::to_string(roll_up.parts.front()->first_revision) + "-" +
                    std::to_string(roll_up.parts.back()->last_revision));
  }
  return names;
}

// Carries out what is due, as a keeper would that has one store.
void Carry(Inventory* inventory, const std::vector<RollUp>& due) {
  std::vector<Object> containers;
  for (const RollUp& roll_up : due) {
    Object container = ContainerOf(roll_up, roll_up.parts[0]->writer);
    container.stores = container.rolls = {"disk"};
    for (const Part& part : container.parts) {
      for (Object& object : inventory->objects) {
        if (object.name != part.name) continue;
        object.container = container.name;
        object.container_offset = part.offset;
        object.held["disk"] = {.name = container.name, .offset = part.offset};
      }
    }
    containers.push_back(std::move(container));
  }
  for (Object& container : containers) inventory->objects.push_back(std::move(container));
}

TEST(RollUp, ASpanIsDueOnceItEndedAndSettled) {
  const Inventory inventory = Of(Seconds(100, 109));
  EXPECT_THAT(DueRollUps(At(111), inventory, "w1", "w1", kPolicy), IsEmpty());
  EXPECT_THAT(Names(DueRollUps(At(112), inventory, "w1", "w1", kPolicy)), ElementsAre("1:100-109"));
  EXPECT_THAT(DueRollUps(At(112), inventory, "w2", "w2", kPolicy), IsEmpty());
  EXPECT_THAT(DueRollUps(At(112), inventory, "w1", "w1", {}), IsEmpty());
}

TEST(RollUp, WhatAClockThatWasAheadSawDoesNotWaitForIt) {
  const Inventory inventory = Of({Segment(1, 5, 86'400, 86'410), Segment(6, 9, 86'411, 86'420),
                                  Segment(10, 12, 100, 110), Segment(13, 15, 111, 120)});
  const std::vector<RollUp> due =
      DueRollUps(At(130), inventory, "w1", "w1", {.spans = {At(600)}, .settle = At(60)});
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].parts.front()->first_revision, 1);
  EXPECT_EQ(due[0].parts.back()->last_revision, 9);
}

TEST(RollUp, OnlyWhatIsWholeAndAlone) {
  Inventory inventory = Of(Seconds(100, 106));
  inventory.objects[0].pruned = true;
  inventory.objects[1].stores.clear();
  inventory.objects[2].damaged = {"disk"};
  inventory.objects[3].container = "another";
  EXPECT_THAT(Names(DueRollUps(At(200), inventory, "w1", "w1", kPolicy)), ElementsAre("1:104-106"));
  inventory.objects[4].pruned = inventory.objects[5].pruned = true;
  EXPECT_THAT(DueRollUps(At(200), inventory, "w1", "w1", kPolicy), IsEmpty())
      << "one alone stays so";
}

TEST(RollUp, AContainerIsBounded) {
  Inventory inventory = Of(Seconds(100, 109));
  RollUpPolicy policy = kPolicy;
  policy.bytes_max = 45;  // of segments of 10
  EXPECT_THAT(Names(DueRollUps(At(112), inventory, "w1", "w1", policy)),
              ElementsAre("1:100-103", "1:104-107", "1:108-109"));
  policy.bytes_max = 1000;
  policy.parts_max = 9;
  EXPECT_THAT(Names(DueRollUps(At(112), inventory, "w1", "w1", policy)), ElementsAre("1:100-108"));
  policy.bytes_max = 9;
  EXPECT_THAT(DueRollUps(At(112), inventory, "w1", "w1", policy), IsEmpty()) << "each is too large";
}

TEST(RollUp, ALongerSpanTakesWhatTheShorterOnesMadeAndLeft) {
  Inventory inventory = Of(Seconds(121, 140));
  inventory.objects.push_back(At1(150));  // alone in its span
  std::vector<RollUp> due = DueRollUps(At(1000), inventory, "w1", "w1", kPolicy);
  EXPECT_THAT(Names(due), ElementsAre("1:121-129", "1:130-139"));
  Carry(&inventory, due);
  due = DueRollUps(At(1000), inventory, "w1", "w1", kPolicy);
  ASSERT_THAT(Names(due), ElementsAre("2:121-150"));
  EXPECT_THAT(due[0].parts, SizeIs(4)) << "two containers and two segments";
  Carry(&inventory, due);
  EXPECT_THAT(DueRollUps(At(1000), inventory, "w1", "w1", kPolicy), IsEmpty());
  const Object& outer = inventory.objects.back();
  EXPECT_EQ(outer.level, 2u);
  EXPECT_EQ(outer.stored_bytes, 210u);
  EXPECT_EQ(outer.events, 21u);
  EXPECT_THAT(PartsOf(inventory, outer), SizeIs(4));
}

TEST(RollUp, ANameIsUsedOnce) {
  Inventory inventory = Of(Seconds(100, 104));
  Carry(&inventory, DueRollUps(At(112), inventory, "w1", "w1", kPolicy));
  for (Object& object : inventory.objects) object.pruned = true;
  const std::string before = inventory.objects.back().name;
  for (Object& late : Seconds(100, 104)) inventory.objects.push_back(late);
  const std::vector<RollUp> due = DueRollUps(At(112), inventory, "w1", "w1", kPolicy);
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_NE(ContainerOf(due[0], "w1").name, before);
}

TEST(RollUp, TimelinesAreNotMixed) {
  Inventory inventory = Of(Seconds(100, 103));
  inventory.objects[2].timeline = inventory.objects[3].timeline = kSecond;
  EXPECT_THAT(DueRollUps(At(112), inventory, "w1", "w1", kPolicy), SizeIs(2));
}

TEST(RollUp, AnothersSegmentsGoIntoContainersOfWhoMakesThem) {
  const Inventory inventory = Of(Seconds(100, 104));
  const std::vector<RollUp> due = DueRollUps(At(112), inventory, "w1", "w2", kPolicy);
  ASSERT_THAT(due, SizeIs(1));
  const Object container = ContainerOf(due[0], "w2");
  EXPECT_EQ(container.writer, "w2");
  EXPECT_NE(container.name.find("/w2/archive/1/"), std::string::npos) << container.name;
  // Its names are those of w2's containers.
  Inventory taken = inventory;
  taken.objects.push_back(container);
  EXPECT_NE(ContainerOf(DueRollUps(At(112), taken, "w1", "w2", kPolicy)[0], "w2").name,
            container.name);
}

TEST(RollUp, OneKeeperThatLivesRollsUpForThoseThatAreGone) {
  const Time after = At(100);
  const std::map<std::string, Time> last = {
      {"a", At(10)}, {"b", At(899)}, {"c", At(901)}, {"d", At(1000)}, {"e", At(2000)}};
  EXPECT_THAT(WritersToRollUpFor(At(1000), last, "c", after), ElementsAre("a", "b"));
  EXPECT_THAT(WritersToRollUpFor(At(1000), last, "d", after), IsEmpty()) << "c does it";
  EXPECT_THAT(WritersToRollUpFor(At(1000), last, "e", after), IsEmpty());
  // Who asks lives, whatever is known of it.
  EXPECT_THAT(WritersToRollUpFor(At(1000), last, "a", after), ElementsAre("b"));
  EXPECT_THAT(WritersToRollUpFor(At(1000), last, "bb", after), ElementsAre("a", "b"));
}

TEST(RollUp, ALayoutHasEveryByteOfEveryPartOnce) {
  base::SeededRandom random(FirstSeed(5));
  SCOPED_TRACE("ENGRAM_SEED=" + std::to_string(FirstSeed(5)));
  for (int round = 0; round < 300; ++round) {
    Inventory inventory = RandomHistory(&random).inventory;
    std::set<std::string> before;
    for (Object& object : inventory.objects) {
      object.container.clear();
      object.stored_bytes = 1 + random.Below(50);
    }
    const RollUpPolicy policy{.spans = {At(60), At(600), At(6000)},
                              .bytes_max = 20 + random.Below(400),
                              .parts_max = 2 + random.Below(20)};
    size_t rounds = 0;
    while (true) {
      const std::vector<RollUp> due = DueRollUps(At(2'000'000'000), inventory, "w1", "w1", policy);
      if (due.empty()) break;
      ASSERT_LT(++rounds, 5u) << "it comes to an end";
      for (const RollUp& roll_up : due) {
        const Object container = ContainerOf(roll_up, roll_up.parts[0]->writer);
        ASSERT_LE(container.stored_bytes, policy.bytes_max);
        ASSERT_LE(container.parts.size(), policy.parts_max);
        ASSERT_GE(container.parts.size(), 2u);
        uint64_t end = 0;
        for (const Part& part : container.parts) {
          ASSERT_EQ(part.offset, end);
          end += part.bytes;
        }
        ASSERT_EQ(end, container.stored_bytes);
        ASSERT_TRUE(before.insert(container.name).second) << container.name;
      }
      Carry(&inventory, due);
    }
    // A container of containers goes as one, with all it holds, or stays so.
    const RetentionPlan plan = Retain(At(2'000'000'000), inventory,
                                      {.window = At(static_cast<int64_t>(random.Below(90'000)))});
    std::set<std::string> kept;
    for (const Kept& keep : plan.keeps) kept.insert(keep.object->name);
    for (const Deletion& deletion : plan.deletions) {
      for (const Object* object : deletion.objects) {
        ASSERT_FALSE(kept.contains(object->container)) << object->name;
        for (const Object* part : PartsOf(inventory, *object)) {
          ASSERT_FALSE(kept.contains(part->name)) << part->name;
        }
      }
      ASSERT_EQ(deletion.names.front(), deletion.name);
    }
  }
}

TEST(RollUp, WhatLiesBesideItsContainerIsDeletedWithIt) {
  Inventory inventory = Of(Seconds(100, 103));
  inventory.objects.push_back(Full(200, 200, 200));
  for (size_t i = 0; i < 4; ++i) inventory.objects[i].stores = {"disk", "offsite"};
  Carry(&inventory, DueRollUps(At(112), inventory, "w1", "w1", kPolicy));
  const std::string container = inventory.objects.back().name;
  inventory.objects[1].held["offsite"] = {.name = container, .offset = 10};
  const RetentionPlan plan = Retain(At(300), inventory, {.hourly = 1});
  ASSERT_THAT(plan.deletions, SizeIs(1));
  EXPECT_THAT(plan.deletions[0].names,
              ElementsAre(container, inventory.objects[0].name, inventory.objects[2].name,
                          inventory.objects[3].name));
  EXPECT_EQ(plan.deletions[0].objects.front()->name, container);
  EXPECT_EQ(plan.deletions[0].objects.size(), 5u);
  EXPECT_EQ(plan.deletions[0].stored_bytes, 40u) << "each byte counts once";
}

}  // namespace
}  // namespace catalog
