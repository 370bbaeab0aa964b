// A full and segments made by hand, stored in memory, restored to every revision.
#include "restore/restore.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "base/testing.h"
#include "bolt/db.h"
#include "catalog/rollup.h"
#include "events/segment.h"
#include "mvcc/key_value.h"
#include "restore/heal.h"
#include "restore/verify.h"
#include "snapshot/records.h"
#include "stores/testing/faulty_store.h"
#include "stores/testing/memory_store.h"
#include "support/memory_files.h"
#include "vault/seal.h"

namespace restore {
namespace {

using base::StatusIs;
using test_support::MemoryFiles;
using testing::HasSubstr;
using testing::IsEmpty;

const catalog::Timeline kTimeline{.cluster_id = 0xabc, .first_revision = 1};
constexpr base::Duration kLong = std::chrono::seconds(60);

class RestoreTest : public testing::Test {
 protected:
  RestoreTest()
      : random_(5),
        identity_(vault::Identity::Generate(random_)),
        a_(NewStore(1)),
        b_(NewStore(2)) {
    golden_ = *base::ReadFile(base::PosixFiles(),
                              ENGRAM_SOURCE_DIR "/tests/data/bolt/etcd-3.7-snapshot.db");
    files_.Put("/golden.db", golden_);
    const auto opened = snapshot::OpenChecked(files_, base::SystemClock(), "/golden.db", {});
    EXPECT_OK(opened.status());
    bounds_ = *snapshot::BoundsOf(*opened->tx);
    hash_ = *snapshot::HashKvOf(*opened->tx, 0);
    inventory_.cluster = "prod";
    inventory_.timelines = {kTimeline};
    inventory_.objects.push_back(PutFull());
    for (int i = 0; i < 3; ++i) inventory_.objects.push_back(PutSegment(i));
  }

  std::shared_ptr<stores::FaultyStore> NewStore(uint64_t seed) {
    return std::make_shared<stores::FaultyStore>(
        std::make_unique<stores::MemoryStore>(base::SystemClock()), seed, stores::FaultRates{},
        stores::RealSleeper());
  }
  static stores::Deadline Soon() { return stores::Deadline::In(base::SystemClock(), kLong); }

  // Seals bytes and puts them into both stores.
  catalog::Object Put(catalog::Object object, std::string_view plain) {
    std::string sealed;
    vault::StringSink sink(&sealed, 1 << 26);
    auto sealing = vault::SealingSink::Open({.recipients = {identity_.recipient()}}, random_, sink);
    EXPECT_OK((*sealing)->Write(plain));
    EXPECT_OK((*sealing)->Finish());
    const vault::Sealed& facts = (*sealing)->sealed();
    object.timeline = kTimeline;
    object.writer = "0123456789abcdef";
    object.plain_bytes = facts.plain_bytes;
    object.stored_bytes = facts.stored_bytes;
    object.plain_sha256 = base::DigestToHex(facts.plain_sha256);
    object.stored_sha256 = base::DigestToHex(facts.stored_sha256);
    object.recipients = facts.recipients;
    object.stores = {"a", "b"};
    EXPECT_OK(a_->Put(object.name, stores::BytesContent(sealed), Soon()));
    EXPECT_OK(b_->Put(object.name, stores::BytesContent(sealed), Soon()));
    return object;
  }

  catalog::Object PutFull() {
    catalog::Object full;
    full.kind = catalog::Kind::kFull;
    full.name = "prod/t/w/fulls/1.db.zst.age";
    full.last_revision = bounds_.revision;
    full.compact_revision = bounds_.compact_revision;
    full.first_revision = 1;
    full.last_seen = {base::Duration(1), base::Duration(2)};
    full.proofs = {{.method = catalog::Proof::Method::kHashOfFile,
                    .to = bounds_.revision,
                    .compact_revision = 0,
                    .hash = hash_.hash}};
    return Put(full, golden_);
  }

  // Ten revisions of one put each, of which every third has a lease, and a deletion beside it.
  catalog::Object PutSegment(int number) {
    const int64_t first = bounds_.revision + 1 + 10 * number;
    events::SegmentWriter writer({.cluster = "prod",
                                  .cluster_id = kTimeline.cluster_id,
                                  .timeline_revision = kTimeline.first_revision,
                                  .writer = 1,
                                  .first_revision = first});
    for (int64_t r = first; r < first + 10; ++r) {
      std::string put, deleted;
      mvcc::AppendKeyValue({.key = fmt::format("new/{}", r),
                            .create_revision = r,
                            .mod_revision = r,
                            .version = 1,
                            .value = "v",
                            .lease = r % 3 == 0 ? 4000 + r : 0},
                           &put);
      mvcc::AppendKeyValue({.key = fmt::format("new/{}", r - 5), .mod_revision = r}, &deleted);
      writer.Add({.revision = r,
                  .seen_from = base::Duration(r),
                  .seen_to = base::Duration(r + 1),
                  .events = {{false, put}, {true, deleted}}});
    }
    catalog::Object segment;
    segment.kind = catalog::Kind::kSegment;
    segment.name = fmt::format("prod/t/w/archive/live/{}.seg", number);
    segment.first_revision = first;
    segment.last_revision = first + 9;
    segment.events = 20;
    segment.first_seen = {base::Duration(first), base::Duration(first + 1)};
    segment.last_seen = {base::Duration(first + 9), base::Duration(first + 10)};
    return Put(segment, writer.Finish({{4000 + first + (3 - first % 3) % 3, 77}}));
  }

  Fetcher NewFetcher() { return Fetcher(base::SystemClock(), {{"a", a_}, {"b", b_}}, {identity_}); }
  catalog::RestorePoint Point(catalog::Target target) {
    const auto found = catalog::Find(inventory_, target);
    EXPECT_OK(found.status());
    return std::get<catalog::RestorePoint>(*found);
  }
  absl::StatusOr<Report> RunTo(catalog::Target target, Options options = {.data_dir = "/out/m"}) {
    Fetcher fetcher = NewFetcher();
    const Plan plan =
        MakePlan(inventory_, Point(target), std::chrono::minutes(1), base::Duration(0));
    return restore::Run(files_, base::SystemClock(), random_, fetcher, plan, options, {});
  }

  // Puts the three segments into one container, in whose stores they are no longer for themselves.
  void RollUpIn(const std::set<std::string>& where) {
    catalog::RollUp roll_up{.level = 1, .parts = {}};
    std::string bytes;
    for (size_t i = 1; i <= 3; ++i) {
      roll_up.parts.push_back(&inventory_.objects[i]);
      bytes += *stores::GetBytes(*b_, inventory_.objects[i].name, 1 << 20, Soon());
    }
    catalog::Object made = catalog::ContainerOf(roll_up, roll_up.parts[0]->writer);
    made.stores = made.rolls = where;
    made.plain_sha256 = made.stored_sha256 = base::DigestToHex(base::Sha256(bytes));
    for (const std::string& name : where) {
      stores::FaultyStore& store = name == "a" ? *a_ : *b_;
      EXPECT_OK(store.Put(made.name, stores::BytesContent(bytes), Soon()));
      for (size_t i = 1; i <= 3; ++i) {
        catalog::Object& part = inventory_.objects[i];
        part.container = made.name;
        part.container_offset = made.parts[i - 1].offset;
        part.held[name] = {.name = made.name, .offset = part.container_offset};
        EXPECT_OK(store.Delete(part.name, Soon()));
      }
    }
    inventory_.objects.push_back(std::move(made));
  }
  const catalog::Object& container() const { return inventory_.objects.back(); }

  VerifyResult Verified(int percent, bool deep) {
    const ledger::Catalog catalog{
        .inventory = inventory_, .logs = {}, .findings = {}, .unreadable = {}};
    return Verify(base::SystemClock(), random_, catalog, {{"a", a_}, {"b", b_}}, {identity_},
                  {.percent = percent, .deep = deep}, {});
  }
  absl::StatusOr<HealResult> Healed() {
    return Heal(files_, base::SystemClock(), inventory_, {{"a", a_}, {"b", b_}}, true, "/heal");
  }
  absl::Status Restored() {
    RETURN_IF_ERROR(base::RemoveTree(files_, "/out/m"));
    return RunTo(catalog::Latest{}).status();
  }

  MemoryFiles files_;
  base::SeededRandom random_;
  vault::Identity identity_;
  std::shared_ptr<stores::FaultyStore> a_, b_;
  std::string golden_;
  snapshot::Bounds bounds_;
  snapshot::HashKv hash_;
  catalog::Inventory inventory_;
};

TEST_F(RestoreTest, EveryRevisionIsRestoredToItsOwnRows) {
  ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
  for (int64_t r = 2; r <= bounds_.revision + 30; r += r < bounds_.revision ? 17 : 1) {
    SCOPED_TRACE(r);
    ASSERT_OK_AND_ASSIGN(const Report report, RunTo(r, {.data_dir = "/out/m", .bump = false}));
    ASSERT_TRUE(report.built.proof.has_value());
    EXPECT_EQ(report.built.proof->hash, hash_.hash);
    const auto db = snapshot::OpenChecked(files_, base::SystemClock(), "/out/m/member/snap/db", {});
    ASSERT_OK(db.status());
    ASSERT_OK_AND_ASSIGN(const snapshot::Bounds bounds, snapshot::BoundsOf(*db->tx));
    EXPECT_EQ(bounds.revision, r);
    if (r <= bounds_.revision) {
      ASSERT_OK_AND_ASSIGN(const snapshot::HashKv is, snapshot::HashKvOf(*db->tx, r));
      ASSERT_OK_AND_ASSIGN(const snapshot::HashKv was,
                           snapshot::HashKvOffline(files_, base::SystemClock(), "/golden.db", r));
      EXPECT_EQ(is.hash, was.hash);
    } else {
      EXPECT_EQ(report.built.replay.rows_added, static_cast<uint64_t>(2 * (r - bounds_.revision)));
    }
    ASSERT_OK(base::RemoveTree(files_, "/out/m"));
    EXPECT_THAT(*files_.List("/out"), IsEmpty());
  }
}

TEST_F(RestoreTest, IsBumpedAboveEverythingThatWasSeen) {
  ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
  ASSERT_OK_AND_ASSIGN(const Report report, RunTo(int64_t{5}));
  EXPECT_EQ(report.bumped_to, bounds_.revision + 30 + 1'000'000);
  // On an earlier timeline, too: that the cluster was once taken back to less is no reason to show
  // its clients those revisions again.
  catalog::Object earlier;
  earlier.kind = catalog::Kind::kSegment;
  earlier.timeline = {.cluster_id = 7, .first_revision = 1};
  earlier.last_revision = 5'000'000;
  inventory_.objects.push_back(earlier);
  ASSERT_OK(base::RemoveTree(files_, "/out/m"));
  ASSERT_OK_AND_ASSIGN(const Report again, RunTo(int64_t{5}));
  EXPECT_EQ(again.bumped_to, 6'000'000);
  EXPECT_THAT(RunTo(int64_t{5}, {.data_dir = "/out/n", .bump_to = 5}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not above")));
}

TEST_F(RestoreTest, ADamagedCopyIsNamedAndTheOtherOneServes) {
  ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
  ASSERT_OK(a_->DamageObject(inventory_.objects[0].name, 1000, Soon()));
  ASSERT_OK(a_->TruncateObject(inventory_.objects[1].name, 0, Soon()));
  ASSERT_OK(a_->LoseObject(inventory_.objects[2].name, Soon()));
  ASSERT_OK_AND_ASSIGN(const Report report, RunTo(catalog::Latest{}));
  EXPECT_EQ(report.bad_copies.size(), 3u);
  for (const BadCopy& bad : report.bad_copies) EXPECT_EQ(bad.store, "a");
  ASSERT_OK(base::RemoveTree(files_, "/out/m"));
  ASSERT_OK(b_->DamageObject(inventory_.objects[0].name, 2000, Soon()));
  EXPECT_THAT(RunTo(catalog::Latest{}), StatusIs(absl::StatusCode::kDataLoss, testing::_));
  EXPECT_THAT(*files_.List("/out"), IsEmpty());
}

// --- what lies in a container ---

TEST_F(RestoreTest, SegmentsAreReadOutOfContainers) {
  ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
  RollUpIn({"a", "b"});
  ASSERT_OK_AND_ASSIGN(const Report report, RunTo(catalog::Latest{}));
  EXPECT_THAT(report.bad_copies, IsEmpty());
  EXPECT_EQ(report.built.replay.rows_added, 60u);
  ASSERT_OK(base::RemoveTree(files_, "/out/m"));
  // A bit in one part: that part comes from the other store, and the copy is named.
  const auto at = static_cast<size_t>(inventory_.objects[2].container_offset + 40);
  ASSERT_OK(a_->DamageObject(container().name, at, Soon()));
  ASSERT_OK_AND_ASSIGN(const Report other, RunTo(catalog::Latest{}));
  ASSERT_EQ(other.bad_copies.size(), 1u);
  EXPECT_EQ(other.bad_copies[0].name, inventory_.objects[2].name);
  ASSERT_OK(base::RemoveTree(files_, "/out/m"));
  ASSERT_OK(b_->TruncateObject(container().name, at, Soon()));
  EXPECT_THAT(RunTo(catalog::Latest{}), StatusIs(absl::StatusCode::kDataLoss, testing::_));
}

TEST_F(RestoreTest, AContainerInOneStoreAndItsPartsInTheOther) {
  ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
  RollUpIn({"a"});
  ASSERT_OK(RunTo(catalog::Latest{}).status());
  ASSERT_OK(base::RemoveTree(files_, "/out/m"));
  ASSERT_OK(a_->LoseObject(container().name, Soon()));
  ASSERT_OK(RunTo(catalog::Latest{}).status());
  EXPECT_EQ(Verified(100, false).bad.size(), 1u);
  EXPECT_EQ(Verified(100, true).bad.size(), 4u) << "each part that is opened is missed";
  // No store has the container, and yet it comes back.
  ASSERT_OK_AND_ASSIGN(const HealResult healed, Healed());
  EXPECT_THAT(healed.failed, IsEmpty());
  EXPECT_THAT(Verified(100, true).bad, IsEmpty());
  ASSERT_OK(Restored());
}

TEST_F(RestoreTest, ADamagedContainerIsFoundAndHealedFromTheOtherStore) {
  RollUpIn({"a", "b"});
  EXPECT_THAT(Verified(100, false).bad, IsEmpty());
  EXPECT_THAT(Verified(100, true).bad, IsEmpty());
  EXPECT_THAT(Verified(100, false).strangers, IsEmpty());
  ASSERT_OK(a_->DamageObject(container().name, 40, Soon()));
  const VerifyResult found = Verified(100, false);
  ASSERT_EQ(found.bad.size(), 1u);
  EXPECT_EQ(found.bad[0].name, container().name);
  ASSERT_OK_AND_ASSIGN(const HealResult healed, Healed());
  EXPECT_EQ(healed.healed, 1u);
  EXPECT_THAT(healed.failed, IsEmpty());
  EXPECT_THAT(Verified(100, true).bad, IsEmpty());
}

TEST_F(RestoreTest, ANewStoreGetsContainersNotTheirParts) {
  RollUpIn({"a"});
  for (size_t i = 1; i <= 3; ++i) {
    ASSERT_OK(b_->Delete(inventory_.objects[i].name, Soon()));
    inventory_.objects[i].stores.erase("b");
  }
  ASSERT_OK_AND_ASSIGN(const HealResult result, Healed());
  EXPECT_EQ(result.copied, 1u);
  EXPECT_THAT(result.failed, IsEmpty());
  EXPECT_EQ(result.facts.at(kTimeline).size(), 2u) << "copied, and read back";
  EXPECT_OK(b_->Stat(container().name, Soon()).status());
  EXPECT_THAT(b_->Stat(inventory_.objects[1].name, Soon()), testing::Not(base::IsOk()));
}

TEST_F(RestoreTest, WhatMovedWhileItWasVerifiedIsNotMissing) {
  ledger::Catalog before{.inventory = inventory_, .logs = {}, .findings = {}, .unreadable = {}};
  RollUpIn({"a", "b"});
  VerifyOptions options{.percent = 100};
  const auto verify = [&] {
    return Verify(base::SystemClock(), random_, before, {{"a", a_}, {"b", b_}}, {identity_},
                  options, {});
  };
  EXPECT_EQ(verify().bad.size(), 6u);
  options.reload = [&]() -> absl::StatusOr<ledger::Catalog> {
    return ledger::Catalog{.inventory = inventory_, .logs = {}, .findings = {}, .unreadable = {}};
  };
  EXPECT_THAT(verify().bad, IsEmpty());
  EXPECT_THAT(verify().strangers, IsEmpty());
  ASSERT_OK(a_->LoseObject(container().name, Soon()));
  EXPECT_EQ(verify().bad.size(), 3u);
}

// A daemon works while a restore reads: what it meets was somewhere else when the plan was made.
TEST_F(RestoreTest, WhatMovesWhileItIsRestoredIsReadFromItsNewPlace) {
  const Plan plan =
      MakePlan(inventory_, Point(catalog::Latest{}), std::chrono::minutes(1), base::Duration(0));
  int reloads = 0;
  const auto restored = [&](std::function<void()> while_it_runs) {
    EXPECT_OK(base::RemoveTree(files_, "/out/m"));
    Fetcher fetcher(base::SystemClock(), {{"a", a_}, {"b", b_}}, {identity_}, [&] {
      ++reloads;
      return absl::StatusOr<ledger::Catalog>(
          ledger::Catalog{.inventory = inventory_, .logs = {}, .findings = {}, .unreadable = {}});
    });
    // The full's bytes come first, and the segments not before the last of them.
    bool done = false;
    return restore::Run(files_, base::SystemClock(), random_, fetcher, plan, {.data_dir = "/out/m"},
                        {.fetched = [&](uint64_t bytes, uint64_t) {
                          if (done || bytes < plan.materials.base.plain_bytes) return;
                          done = true;
                          while_it_runs();
                        }});
  };
  ASSERT_OK_AND_ASSIGN(const Report moved, restored([&] { RollUpIn({"a", "b"}); }));
  EXPECT_EQ(reloads, 1);
  EXPECT_THAT(moved.bad_copies, IsEmpty()) << "nothing was damaged";
  EXPECT_EQ(moved.built.replay.rows_added, 60u);
  // What no log knows of is missing.
  const auto lost = restored([&] {
    for (const auto& store : {a_, b_}) ASSERT_OK(store->LoseObject(container().name, Soon()));
  });
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kDataLoss, testing::_));
  // What retention let go is no damage.
  for (size_t i = 1; i <= 3; ++i) inventory_.objects[i].pruned = true;
  EXPECT_THAT(restored([] {}), StatusIs(absl::StatusCode::kAborted, HasSubstr("run the command")));
}

TEST_F(RestoreTest, WhatWasRewrappedWhileItIsReadIsReadUnderItsNewName) {
  const catalog::Object before = inventory_.objects[1];
  const std::string bytes = *stores::GetBytes(*a_, before.name, 1 << 20, Soon());
  catalog::Object& now = inventory_.objects[1];
  now.former_names = {before.name};
  now.name = "prod/t/w/archive/live/0.rewrapped.seg";
  for (const auto& store : {a_, b_}) {
    ASSERT_OK(store->Put(now.name, stores::BytesContent(bytes), Soon()));
    ASSERT_OK(store->Delete(before.name, Soon()));
  }
  EXPECT_THAT(NewFetcher().FetchBytes(before), StatusIs(absl::StatusCode::kDataLoss, testing::_));
  Fetcher fetcher(base::SystemClock(), {{"a", a_}, {"b", b_}}, {identity_}, [&] {
    return absl::StatusOr<ledger::Catalog>(
        ledger::Catalog{.inventory = inventory_, .logs = {}, .findings = {}, .unreadable = {}});
  });
  ASSERT_OK_AND_ASSIGN(const std::string read, fetcher.FetchBytes(before));
  EXPECT_EQ(read.size(), before.plain_bytes);
  EXPECT_THAT(fetcher.bad_copies(), IsEmpty());
  // From then on it is asked for where it is.
  ASSERT_OK(fetcher.FetchBytes(before).status());
}

TEST_F(RestoreTest, SwappedObjectsAreFound) {
  ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
  std::swap(inventory_.objects[1].name, inventory_.objects[2].name);
  EXPECT_THAT(RunTo(catalog::Latest{}), StatusIs(absl::StatusCode::kDataLoss, testing::_));
}

TEST_F(RestoreTest, AWrongKeyIsSaid) {
  identity_ = vault::Identity::Generate(random_);
  EXPECT_THAT(RunTo(catalog::Latest{}), StatusIs(absl::StatusCode::kPermissionDenied, testing::_));
}

TEST_F(RestoreTest, AProofThatFailsIsNoRestore) {
  ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
  inventory_.objects[0].proofs[0].hash ^= 1;
  const auto report = RunTo(catalog::Latest{});
  EXPECT_THAT(report, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("proof failed")));
  EXPECT_TRUE(IsUnproven(report.status()));
  EXPECT_THAT(*files_.List("/out"), IsEmpty());
}

TEST_F(RestoreTest, WithoutAnyProofItMustBeAskedFor) {
  ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
  inventory_.objects[0].proofs.clear();
  const auto report = RunTo(catalog::Latest{});
  EXPECT_TRUE(IsUnproven(report.status()));
  EXPECT_OK(RunTo(catalog::Latest{}, {.data_dir = "/out/m", .unproven = true}).status());
}

TEST_F(RestoreTest, ATargetThatExistsIsNotTouched) {
  ASSERT_OK(base::MakeDirectories(files_, "/out/m", 0700));
  EXPECT_THAT(RunTo(catalog::Latest{}), StatusIs(absl::StatusCode::kAlreadyExists, testing::_));
}

// The disk fails at each change in turn: nothing that could be taken for a member is left, and the
// next attempt succeeds.
TEST_F(RestoreTest, InterruptedAnywhereItStartsClean) {
  for (uint64_t at = 1;; at += 7) {
    SCOPED_TRACE(at);
    ASSERT_OK(base::RemoveTree(files_, "/out"));
    ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
    files_.FailAt(at, absl::ResourceExhaustedError("write: no space left on device"));
    const auto report = RunTo(catalog::Latest{});
    const bool reached = files_.failure_reached();
    files_.FailAt(0, absl::OkStatus());
    if (!reached) {
      ASSERT_OK(report.status());
      break;
    }
    EXPECT_TRUE(report.ok() || !base::Exists(files_, "/out/m/member"));
    files_.Crash(random_);
    if (base::Exists(files_, "/out/m")) continue;  // it was in place when the disk failed
    ASSERT_OK(base::MakeDirectories(files_, "/out", 0700));
    ASSERT_OK(RunTo(catalog::Latest{}).status());
  }
}

}  // namespace
}  // namespace restore
