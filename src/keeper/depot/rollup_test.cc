// Segments become containers; a keeper that dies at any call to a store, or at any change of its
// disk, loses nothing, counts nothing twice and ends up where one that lived does.
#include "depot/rollup.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/testing.h"
#include "catalog/test_inventory.h"
#include "ledger/load.h"
#include "stores/testing/faulty_store.h"
#include "stores/testing/manual_time.h"
#include "stores/testing/memory_store.h"
#include "stores/testing/mortal_store.h"
#include "support/memory_files.h"

namespace depot {
namespace {

using base::StatusIs;
using test_support::MemoryFiles;
using testing::HasSubstr;
using testing::IsEmpty;

const ledger::Place kPlace{.cluster = "prod",
                           .timeline = {.cluster_id = 0xabc, .first_revision = 1},
                           .writer = "0123456789abcdef"};
constexpr int kSegments = 12;  // of a second each
constexpr std::chrono::seconds kShort(5), kLong(15), kPartsStay(5);

class RollUpTest : public testing::Test {
 protected:
  RollUpTest() : random_(3), key_(vault::SigningKey::Generate(random_)) {
    base::SetLogLevel(base::LogLevel::kWarn);
    Begin();
  }

  // The world anew: segments in two stores, and the log that states them.
  void Begin() {
    death_ = {};
    files_ = std::make_unique<MemoryFiles>();
    clock_ = std::make_unique<stores::ManualClock>();
    stores_.clear();
    for (const char* name : {"a", "b"}) {
      auto faulty =
          std::make_unique<stores::FaultyStore>(std::make_unique<stores::MemoryStore>(*clock_), 1,
                                                stores::FaultRates{}, stores::RealSleeper());
      faulty_[name] = faulty.get();
      mortal_[name] = std::make_shared<stores::MortalStore>(std::move(faulty), death_);
      stores_.push_back({name, mortal_[name], mortal_[name]});
    }
    bytes_.clear();
    const auto log = OpenLog();
    ASSERT_OK(log->Append({ledger::Opened{.cluster = "prod"}}));
    for (int n = 0; n < kSegments; ++n) ASSERT_OK(log->Append({ledger::Stored{PutSegment(n)}}));
    for (const RollUpStore& store : stores_) {
      ASSERT_OK(log->SignHead(store.name, *store.store, {}, Soon()));
    }
    clock_->Advance(std::chrono::seconds(100));
  }

  std::unique_ptr<ledger::LogWriter> OpenLog() {
    auto log = ledger::LogWriter::Open(*files_, *clock_, "/state/logs", kPlace, key_);
    EXPECT_OK(log.status());
    return log.ok() ? *std::move(log) : nullptr;
  }
  stores::Deadline Soon() const { return stores::Deadline::In(*clock_, std::chrono::hours(1)); }

  catalog::Object PutSegment(int n) {
    std::string bytes = fmt::format("the sealed bytes of segment {}", n);
    bytes.append(static_cast<size_t>(n % 7), '.');
    catalog::Object object;
    object.kind = catalog::Kind::kSegment;
    object.name = fmt::format("{}/archive/live/{:02}.seg", kPlace.Folder(), n);
    object.timeline = kPlace.timeline;
    object.writer = kPlace.writer;
    object.first_revision = object.last_revision = n + 1;
    object.events = 1;
    object.first_seen = object.last_seen = {clock_->Wall() + std::chrono::seconds(n),
                                            clock_->Wall() + std::chrono::seconds(n)};
    object.plain_bytes = object.stored_bytes = bytes.size();
    object.plain_sha256 = object.stored_sha256 = base::DigestToHex(base::Sha256(bytes));
    for (const RollUpStore& store : stores_) {
      EXPECT_OK(store.store->Put(object.name, stores::BytesContent(bytes), Soon()));
      object.stores.insert(store.name);
    }
    bytes_[object.name] = bytes;
    return object;
  }

  absl::StatusOr<ledger::Catalog> LoadAll(const std::vector<ledger::ReadableStore>& from) {
    ASSIGN_OR_RETURN(
        ledger::Catalog catalog,
        ledger::LoadCatalog(*clock_, from, "prod", {.trusted = {key_.verifying_key()}}));
    if (!catalog.findings.empty()) return absl::DataLossError(catalog.findings.front());
    if (!catalog.unreadable.empty()) return catalog.unreadable.front().second;
    return catalog;
  }
  absl::StatusOr<catalog::Inventory> Load(const std::vector<ledger::ReadableStore>& from) {
    ASSIGN_OR_RETURN(ledger::Catalog catalog, LoadAll(from));
    return std::move(catalog.inventory);
  }

  // One pass of a keeper that starts, as service/housekeeper.cc makes it.
  absl::Status Pass() {
    ASSIGN_OR_RETURN(const auto log,
                     ledger::LogWriter::Open(*files_, *clock_, "/state/logs", kPlace, key_));
    for (const RollUpStore& store : stores_) {
      RETURN_IF_ERROR(log->Ship(store.name, *store.store, Soon()));
      RETURN_IF_ERROR(log->MergeChunks(*store.store, *store.pruning, Soon()));
    }
    if (living_ == nullptr) return NewRollUps(*log)->Pass();
    return living_->Pass();
  }
  std::unique_ptr<RollUps> NewRollUps(ledger::LogWriter& log) {
    return std::make_unique<RollUps>(*files_, *clock_, stores_, log, Options());
  }
  static RollUpOptions Options() {
    return {.policy = {.spans = {kShort, kLong}, .taken = {}, .settle = std::chrono::seconds(1)},
            .parts_stay = kPartsStay,
            .scratch_path = "/state/container"};
  }
  absl::Status Passes(int n) {
    for (int i = 0; i < n; ++i) {
      RETURN_IF_ERROR(Pass());
      clock_->Advance(kPartsStay + std::chrono::seconds(1));
    }
    return absl::OkStatus();
  }

  std::set<std::string> Listed(const std::string& store) {
    std::set<std::string> names;
    EXPECT_OK(stores::ForEachObject(*mortal_[store], kPlace.Folder() + "/archive/", Soon(),
                                    [&](const stores::ObjectInfo& info) {
                                      names.insert(info.name);
                                      return absl::OkStatus();
                                    }));
    return names;
  }

  // By each store alone, its log and its objects, every segment is there once and whole.
  void CheckEachStore() {
    for (const RollUpStore& store : stores_) {
      SCOPED_TRACE("store " + store.name);
      const auto inventory = Load({{store.name, store.store}});
      ASSERT_OK(inventory.status());
      std::set<std::string> segments;
      for (const catalog::Object& object : inventory->objects) {
        if (object.kind != catalog::Kind::kSegment) continue;
        EXPECT_TRUE(segments.insert(object.name).second) << object.name << " twice";
        ASSERT_TRUE(object.stores.contains(store.name)) << object.name;
        const catalog::Extent extent = object.In(store.name);
        std::string bytes;
        vault::StringSink sink(&bytes, 1000);
        ASSERT_OK(store.store->Get(extent.name, extent.offset, object.stored_bytes, sink, Soon()))
            << object.name << " in " << extent.name;
        EXPECT_EQ(bytes, bytes_[object.name]);
      }
      EXPECT_EQ(segments.size(), static_cast<size_t>(kSegments));
    }
  }

  base::SeededRandom random_;
  const vault::SigningKey key_;
  stores::Death death_;
  std::unique_ptr<MemoryFiles> files_;
  std::unique_ptr<stores::ManualClock> clock_;
  std::map<std::string, std::shared_ptr<stores::MortalStore>> mortal_;
  std::map<std::string, stores::FaultyStore*> faulty_;
  std::vector<RollUpStore> stores_;
  std::map<std::string, std::string> bytes_;  // of the segments
  std::unique_ptr<RollUps> living_;           // null: each pass is one of a keeper that starts
};

TEST_F(RollUpTest, ContainersReplaceTheirParts) {
  ASSERT_OK(Pass());
  EXPECT_GT(Listed("a").size(), static_cast<size_t>(kSegments)) << "the parts stay for a while";
  CheckEachStore();
  ASSERT_OK(Passes(5));
  CheckEachStore();
  EXPECT_EQ(Listed("a"), Listed("b"));
  EXPECT_THAT(Listed("a"), testing::ElementsAre(HasSubstr("/archive/1/"), HasSubstr("/archive/2/")))
      << "what is alone in a longer span stays as it is";
  // It comes to an end.
  const uint64_t before = OpenLog()->last_seq();
  ASSERT_OK(Passes(3));
  EXPECT_EQ(OpenLog()->last_seq(), before);
}

TEST_F(RollUpTest, AKeeperThatLivesOnRemembersLittle) {
  const auto log = OpenLog();
  living_ = NewRollUps(*log);
  ASSERT_OK(Passes(6));
  CheckEachStore();
  EXPECT_EQ(Listed("a").size(), 2u);
  EXPECT_EQ(living_->remembered(), 2u) << "the outermost containers alone";
  // What comes back under its own name is taken away again: it is held.
  const std::string one = fmt::format("{}/archive/live/05.seg", kPlace.Folder());
  ASSERT_OK(stores_[0].store->Put(one, stores::BytesContent(bytes_[one]), Soon()));
  ASSERT_OK(Pass());
  EXPECT_FALSE(Listed("a").contains(one));
  living_.reset();
}

TEST_F(RollUpTest, KilledAtAnyCallToAStoreItGoesOn) {
  ASSERT_OK(Passes(6));
  const std::set<std::string> wanted = Listed("a");
  stores::ExpectGoesOnAfterEachKill(
      death_, 50, [&] { Begin(); }, [&] { return Passes(6); },
      [&] {
        CheckEachStore();
        if (HasFailure()) return;
        ASSERT_OK(Passes(6));
        CheckEachStore();
        EXPECT_EQ(Listed("a"), wanted);
        EXPECT_EQ(Listed("b"), wanted);
      });
}

TEST_F(RollUpTest, KilledAtAnyChangeOfItsDiskItGoesOn) {
  ASSERT_OK(Passes(6));
  const std::set<std::string> wanted = Listed("a");
  uint64_t kills = 0;
  for (uint64_t at = 1;; ++at) {
    SCOPED_TRACE(fmt::format("killed at change {}", at));
    Begin();
    files_->FailAt(at, absl::InternalError("killed"));
    const absl::Status status = Passes(6);
    const bool reached = files_->failure_reached();
    files_->FailAt(0, absl::OkStatus());
    if (!reached) {
      ASSERT_OK(status);
      break;
    }
    ++kills;
    files_->Crash(random_);
    CheckEachStore();
    ASSERT_OK(Passes(6));
    CheckEachStore();
    EXPECT_EQ(Listed("a"), wanted);
    EXPECT_EQ(Listed("b"), wanted);
    if (HasFailure()) return;
  }
  EXPECT_GT(kills, 20u);
}

TEST_F(RollUpTest, WhereNothingMayBeDeletedNothingIsRolledUp) {
  mortal_["b"]->SetKeeps(true);
  const std::set<std::string> before = Listed("a");
  EXPECT_THAT(Pass(), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("store b")));
  EXPECT_EQ(Listed("a"), before);
  EXPECT_EQ(Listed("b"), before);
}

TEST_F(RollUpTest, ADamagedPartStaysForItselfOrComesFromTheOtherStore) {
  const std::string one = fmt::format("{}/archive/live/05.seg", kPlace.Folder());
  const std::string other = fmt::format("{}/archive/live/06.seg", kPlace.Folder());
  ASSERT_OK(faulty_["a"]->DamageObject(one, 3, Soon()));
  ASSERT_OK(faulty_["a"]->DamageObject(other, 3, Soon()));
  ASSERT_OK(faulty_["b"]->LoseObject(other, Soon()));
  ASSERT_OK(Passes(6));
  EXPECT_FALSE(Listed("a").contains(one)) << "the other store had it";
  EXPECT_TRUE(Listed("a").contains(other)) << "nobody has it whole: what is left is kept";
}

TEST_F(RollUpTest, AContainerThatIsDamagedBeforeItsPartsGoIsMadeAgain) {
  ASSERT_OK(Pass());
  std::string container;
  for (const std::string& name : Listed("a")) {
    if (name.find("/archive/1/") != std::string::npos) container = name;
  }
  ASSERT_NE(container, "");
  // As a store does that lies: the log says that it was put, but not yet that it was read back.
  const auto log = OpenLog();
  ASSERT_OK(log->Append({ledger::Damaged{container, "a", "seen by verify"}}));
  ASSERT_OK(faulty_["a"]->DamageObject(container, 3, Soon()));
  ASSERT_OK(Passes(6));
  CheckEachStore();
  EXPECT_EQ(Listed("a"), Listed("b"));
}

TEST_F(RollUpTest, WhatLiesUnderItsNameUnstatedIsOverwritten) {
  ASSERT_OK(Pass());
  std::string container;
  for (const std::string& name : Listed("a")) {
    if (name.find("/archive/1/") != std::string::npos) container = name;
  }
  Begin();
  ASSERT_OK(stores_[0].store->Put(container, stores::BytesContent("half of it"), Soon()));
  const std::string stray = kPlace.Folder() + "/archive/1/stray.seg";
  ASSERT_OK(stores_[0].store->Put(stray, stores::BytesContent("of nobody"), Soon()));
  const std::string fresh = kPlace.Folder() + "/archive/live/fresh.seg";
  ASSERT_OK(stores_[0].store->Put(fresh, stores::BytesContent("not noted yet"), Soon()));
  ASSERT_OK(Passes(6));
  CheckEachStore();
  EXPECT_FALSE(Listed("a").contains(stray));
  EXPECT_TRUE(Listed("a").contains(fresh)) << "the spool may be about to note it";
}

TEST_F(RollUpTest, AStoreThatIsDownStopsThePass) {
  faulty_["b"]->SetDown(true);
  EXPECT_THAT(Pass(), StatusIs(absl::StatusCode::kUnavailable, testing::_));
  EXPECT_EQ(Listed("a").size(), static_cast<size_t>(kSegments));
  faulty_["b"]->SetDown(false);
  ASSERT_OK(Passes(6));
  CheckEachStore();
}

// --- for a keeper that is gone ---

const ledger::Place kHeir{
    .cluster = "prod", .timeline = kPlace.timeline, .writer = "00000000000000aa"};
const ledger::Place kOther{
    .cluster = "prod", .timeline = kPlace.timeline, .writer = "ffffffffffffffff"};

// The segments are those of a keeper that is gone; others roll them up.
class OthersTest : public RollUpTest {
 protected:
  // As service/housekeeper.cc does it, by a keeper that starts.
  absl::Status PassOf(const ledger::Place& own, bool see_all = true) {
    ASSIGN_OR_RETURN(const auto log,
                     ledger::LogWriter::Open(*files_, *clock_, "/state/logs", own, key_));
    const Noting note = [&](const std::vector<ledger::Fact>& facts) -> absl::Status {
      if (log->last_seq() == 0) RETURN_IF_ERROR(log->Append({ledger::Opened{.cluster = "prod"}}));
      RETURN_IF_ERROR(log->Append(facts));
      for (const RollUpStore& store : stores_) {
        RETURN_IF_ERROR(log->SignHead(store.name, *store.store, {}, Soon()));
      }
      return absl::OkStatus();
    };
    if (log->last_seq() > 0) RETURN_IF_ERROR(note({}));
    if (see_all || !known_.has_value()) {
      std::vector<ledger::ReadableStore> readable;
      for (const RollUpStore& store : stores_) readable.push_back({store.name, store.store});
      ASSIGN_OR_RETURN(known_, LoadAll(readable));
    }
    return RollUpFor(*files_, *clock_, stores_, *known_, kPlace, own.writer, note, Options());
  }
  absl::Status PassesOf(const ledger::Place& own, int n) {
    for (int i = 0; i < n; ++i) {
      RETURN_IF_ERROR(PassOf(own));
      clock_->Advance(kPartsStay + std::chrono::seconds(1));
    }
    return absl::OkStatus();
  }
  // A log that was only begun is not believed, and its writer sees to that when it starts again.
  void SignFirstHeads() {
    for (const ledger::Place& place : {kHeir, kOther}) {
      const auto log = ledger::LogWriter::Open(*files_, *clock_, "/state/logs", place, key_);
      ASSERT_OK(log.status());
      for (const RollUpStore& store : stores_) {
        const bool headed = store.store->Stat(place.Folder() + "/log/head.json", Soon()).ok();
        if ((*log)->last_seq() == 0 || headed) continue;
        ASSERT_OK((*log)->SignHead(store.name, *store.store, {}, Soon()));
      }
    }
  }
  // What lies in a store of all archives.
  std::set<std::string> AllIn(const std::string& store) {
    std::set<std::string> names;
    EXPECT_OK(stores::ForEachObject(*mortal_[store], "prod/", Soon(),
                                    [&](const stores::ObjectInfo& info) {
                                      if (info.name.find("/archive/") != info.name.npos) {
                                        names.insert(info.name);
                                      }
                                      return absl::OkStatus();
                                    }));
    return names;
  }

  std::optional<ledger::Catalog> known_;
};

TEST_F(OthersTest, TheirSegmentsGoIntoOwnContainers) {
  const std::string stray = kPlace.Folder() + "/archive/1/stray.seg";
  ASSERT_OK(stores_[0].store->Put(stray, stores::BytesContent("on its way"), Soon()));
  ASSERT_OK(PassesOf(kHeir, 5));
  CheckEachStore();
  EXPECT_TRUE(Listed("a").contains(stray)) << "its keeper may be about to note it";
  EXPECT_THAT(Listed("b"), IsEmpty());
  EXPECT_THAT(AllIn("b"), testing::Each(HasSubstr("/00000000000000aa/archive/")));
  EXPECT_LT(AllIn("b").size(), 5u);
  const auto before = AllIn("b");
  ASSERT_OK(PassesOf(kHeir, 2));
  EXPECT_EQ(AllIn("b"), before);
}

TEST_F(OthersTest, KilledAtAnyCallToAStoreItGoesOn) {
  ASSERT_OK(PassesOf(kHeir, 6));
  const std::set<std::string> wanted = AllIn("a");
  stores::ExpectGoesOnAfterEachKill(
      death_, 50, [&] { Begin(); }, [&] { return PassesOf(kHeir, 6); },
      [&] {
        // A log without its head is completed by who wrote it.
        ASSERT_OK(PassesOf(kHeir, 6));
        CheckEachStore();
        // What was put and not stated by who was killed is removed with the own segments'
        // leftovers.
        std::set<std::string> stated = AllIn("a");
        const auto known = Load({{"a", stores_[0].store}});
        ASSERT_OK(known.status());
        std::erase_if(stated, [&](const std::string& name) {
          return std::none_of(known->objects.begin(), known->objects.end(),
                              [&](const catalog::Object& o) { return o.name == name; });
        });
        EXPECT_EQ(stated, wanted);
      });
}

TEST_F(OthersTest, TwoAtOnceOrOneThatComesBackLoseNothing) {
  // Each step is a pass of one of the three keepers, that may be killed, and of which the heirs may
  // go by what somebody saw long ago.
  for (uint64_t i = 0; i < catalog::SeedCount(60); ++i) {
    const uint64_t seed = catalog::FirstSeed(7) + i;
    SCOPED_TRACE(fmt::format("ENGRAM_SEED={}", seed));
    Begin();
    known_.reset();
    base::SeededRandom random(seed);
    for (int step = 0; step < 12; ++step) {
      death_ = {.at = random.OneIn(2) ? 1 + random.Below(60) : 0, .after = random.OneIn(2)};
      const bool see_all = random.OneIn(2);
      switch (random.Below(3)) {
        case 0:
          Pass().IgnoreError();
          break;
        case 1:
          PassOf(kHeir, see_all).IgnoreError();
          break;
        default:
          PassOf(kOther, see_all).IgnoreError();
      }
      death_ = {};
      if (random.OneIn(2)) clock_->Advance(kPartsStay + std::chrono::seconds(1));
      SignFirstHeads();
      CheckEachStore();
      if (HasFailure()) return;
    }
    for (int last = 0; last < 4; ++last) {
      for (const ledger::Place& place : {kHeir, kOther}) ASSERT_OK(PassesOf(place, 1));
    }
    CheckEachStore();
    EXPECT_THAT(Listed("a"), testing::Not(testing::Contains(HasSubstr("/archive/live/"))));
    if (HasFailure()) return;
  }
}

TEST_F(OthersTest, WhoComesBackLetsGoOfWhatAnotherRolledUp) {
  const auto log = OpenLog();
  living_ = NewRollUps(*log);
  for (const char* name : {"a", "b"}) mortal_[name]->SetKeeps(true);
  EXPECT_THAT(Pass(), StatusIs(absl::StatusCode::kPermissionDenied, testing::_));
  EXPECT_GT(living_->remembered(), 0u);
  for (const char* name : {"a", "b"}) mortal_[name]->SetKeeps(false);
  ASSERT_OK(PassesOf(kHeir, 2));
  ASSERT_OK_AND_ASSIGN(const catalog::Inventory known,
                       Load({{"a", stores_[0].store}, {"b", stores_[1].store}}));
  living_->Settle(known);
  EXPECT_EQ(living_->remembered(), 0u);
  const uint64_t before = OpenLog()->last_seq();
  ASSERT_OK(Passes(3));
  EXPECT_EQ(OpenLog()->last_seq(), before);
  CheckEachStore();
  living_.reset();
}

}  // namespace
}  // namespace depot
