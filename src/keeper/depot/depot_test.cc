// The spool between capture and stores: copies catch up, and a kill at any moment loses nothing
// that was submitted and invents nothing that was not.
#include "depot/depot.h"

#include <fmt/format.h>

#include <functional>
#include <thread>

#include "base/random.h"
#include "base/sha256.h"
#include "base/testing.h"
#include "ledger/load.h"
#include "stores/testing/faulty_store.h"
#include "stores/testing/memory_store.h"
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
constexpr base::Duration kLong = std::chrono::seconds(60);

class DepotTest : public testing::Test {
 protected:
  DepotTest()
      : random_(3), key_(vault::SigningKey::Generate(random_)), a_(NewStore(1)), b_(NewStore(2)) {}

  std::shared_ptr<stores::FaultyStore> NewStore(uint64_t seed) {
    return std::make_shared<stores::FaultyStore>(
        std::make_unique<stores::MemoryStore>(base::SystemClock()), seed, stores::FaultRates{},
        stores::RealSleeper());
  }

  // As a keeper that starts: log and depot on whatever the disk holds.
  absl::Status Open() {
    depot_.reset();
    log_.reset();
    ASSIGN_OR_RETURN(
        log_, ledger::LogWriter::Open(files_, base::SystemClock(), "/state/logs", kPlace, key_));
    if (log_->last_seq() == 0) RETURN_IF_ERROR(log_->Append({ledger::Opened{.cluster = "prod"}}));
    ASSIGN_OR_RETURN(depot_, Depot::Open(files_, base::SystemClock(),
                                         {.spool_dir = "/state/spool",
                                          .spool_bytes_max = 1000,
                                          .retry_min = std::chrono::milliseconds(1),
                                          .retry_max = std::chrono::milliseconds(5)},
                                         {{"a", a_}, {"b", b_}}, *log_));
    return absl::OkStatus();
  }

  absl::Status Submit(int n) {
    const std::string bytes = fmt::format("the bytes of object {}", n);
    catalog::Object object;
    object.kind = catalog::Kind::kSegment;
    object.name = fmt::format("{}/archive/live/{}.seg", kPlace.Folder(), n);
    object.timeline = kPlace.timeline;
    object.writer = kPlace.writer;
    object.first_revision = object.last_revision = n;
    object.plain_bytes = object.stored_bytes = bytes.size();
    object.plain_sha256 = object.stored_sha256 = base::DigestToHex(base::Sha256(bytes));
    const std::string path = depot_->NewPath(object.name);
    ASSIGN_OR_RETURN(const auto file,
                     files_.Open(path, {.write = true, .create = true, .truncate = true}));
    RETURN_IF_ERROR(file->WriteAt(0, bytes));
    RETURN_IF_ERROR(file->Sync());
    return depot_->Submit(object, path);
  }

  static std::string Name(int n) {
    return fmt::format("{}/archive/live/{}.seg", kPlace.Folder(), n);
  }

  static void WaitUntil(const std::function<bool()>& holds) {
    const base::Duration until = base::SystemClock().Monotonic() + kLong;
    while (!holds() && base::SystemClock().Monotonic() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(holds());
  }
  // Everything is everywhere, and the spool knows it.
  void WaitEmpty() {
    WaitUntil([this] { return depot_->spool_bytes() == 0; });
  }

  catalog::Inventory Load(const std::shared_ptr<stores::FaultyStore>& store) {
    auto catalog = ledger::LoadCatalog(base::SystemClock(), {{"x", store}}, "prod",
                                       {.trusted = {key_.verifying_key()}});
    EXPECT_OK(catalog.status());
    if (!catalog.ok()) return {};
    EXPECT_THAT(catalog->findings, IsEmpty());
    return std::move(catalog->inventory);
  }

  MemoryFiles files_;
  base::SeededRandom random_;
  const vault::SigningKey key_;
  std::shared_ptr<stores::FaultyStore> a_, b_;
  std::unique_ptr<ledger::LogWriter> log_;
  std::unique_ptr<Depot> depot_;
};

TEST_F(DepotTest, BringsEveryObjectToEveryStore) {
  ASSERT_OK(Open());
  for (int n = 1; n <= 5; ++n) ASSERT_OK(Submit(n));
  for (int n = 1; n <= 5; ++n) ASSERT_OK(depot_->WaitStored(Name(n), 0, kLong));
  depot_->SignHeads();
  for (const auto& store : {a_, b_}) {
    const catalog::Inventory inventory = Load(store);
    ASSERT_EQ(inventory.objects.size(), 5u);
    for (const catalog::Object& object : inventory.objects) {
      EXPECT_EQ(object.stores, (std::set<std::string>{"a", "b"}));
    }
  }
  WaitEmpty();
  EXPECT_THAT(*files_.List("/state/spool"), IsEmpty());
}

TEST_F(DepotTest, IsIdleWhenTheStoresThatAnswerHaveAll) {
  ASSERT_OK(Open());
  b_->SetDown(true);
  for (int n = 1; n <= 20; ++n) ASSERT_OK(Submit(n));
  depot_->WaitIdle(kLong);
  EXPECT_OK(depot_->WaitStored(Name(20), 1, base::Duration(0)));
  EXPECT_FALSE(depot_->states()[1].up);
}

TEST_F(DepotTest, AStoreThatIsDownHoldsNobodyUpAndCatchesUp) {
  b_->SetDown(true);
  ASSERT_OK(Open());
  for (int n = 1; n <= 3; ++n) ASSERT_OK(Submit(n));
  for (int n = 1; n <= 3; ++n) ASSERT_OK(depot_->WaitStored(Name(n), 1, kLong));
  WaitUntil([this] { return !depot_->states()[1].up; });
  EXPECT_THAT(depot_->WaitStored(Name(1), 0, std::chrono::milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("stored in 1 of 2: b:")));
  const std::vector<StoreState> states = depot_->states();
  EXPECT_TRUE(states[0].up);
  EXPECT_FALSE(states[1].up);
  EXPECT_EQ(states[1].objects_waiting, 3u);
  b_->SetDown(false);
  for (int n = 1; n <= 3; ++n) ASSERT_OK(depot_->WaitStored(Name(n), 0, kLong));
  depot_->SignHeads();
  EXPECT_EQ(Load(b_).objects.size(), 3u);
}

TEST_F(DepotTest, AFullSpoolRefusesAndTakesAgainOnceThereIsRoom) {
  a_->SetDown(true);
  b_->SetDown(true);
  ASSERT_OK(Open());
  absl::Status status;
  int n = 0;
  while (status.ok() && n < 100) status = Submit(++n);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("spool")));
  ASSERT_GT(n, 10);
  a_->SetDown(false);
  b_->SetDown(false);
  WaitEmpty();
  EXPECT_OK(Submit(n));
}

TEST_F(DepotTest, WhatOneStoreRefusesForGoodDoesNotHoldUpTheRest) {
  ASSERT_OK(Open());
  // Somebody else's bytes under the name that object 1 will have.
  const stores::Deadline deadline = stores::Deadline::In(base::SystemClock(), kLong);
  ASSERT_OK(a_->Put(Name(1), stores::BytesContent("forged"), deadline));
  ASSERT_OK(Submit(1));
  ASSERT_OK(Submit(2));
  ASSERT_OK(depot_->WaitStored(Name(2), 0, kLong));
  ASSERT_OK(depot_->WaitStored(Name(1), 1, kLong));
  EXPECT_THAT(depot_->WaitStored(Name(1), 0, std::chrono::milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("a: ")));
}

TEST_F(DepotTest, StoresThatLoseAnswersGetEachObjectOnce) {
  a_->SetRates({.unavailable = 3, .lost_answer = 3});
  b_->SetRates({.unavailable = 4, .lost_answer = 2});
  ASSERT_OK(Open());
  for (int n = 1; n <= 20; ++n) ASSERT_OK(Submit(n));
  for (int n = 1; n <= 20; ++n) ASSERT_OK(depot_->WaitStored(Name(n), 0, kLong));
  EXPECT_GT(a_->faults() + b_->faults(), 0u);
  a_->SetRates({});
  b_->SetRates({});
  depot_->SignHeads();
  EXPECT_EQ(Load(a_).objects.size(), 20u);
  EXPECT_EQ(Load(b_).objects.size(), 20u);
}

// The process is killed, and the power cut, at each of its changes of the disk in turn.
TEST_F(DepotTest, KilledAnywhereItGoesOn) {
  uint64_t kills = 0;
  for (uint64_t at = 1;; ++at) {
    SCOPED_TRACE(fmt::format("killed at change {}", at));
    depot_.reset();
    log_.reset();
    ASSERT_OK(base::RemoveTree(files_, "/state"));
    ASSERT_OK(base::MakeDirectories(files_, "/state", 0700));
    ASSERT_OK(files_.SyncDirectory("/"));
    a_ = NewStore(at);
    b_ = NewStore(at + 1000);
    std::set<std::string> submitted;
    files_.FailAt(at, absl::InternalError("killed"));
    absl::Status status = Open();
    for (int n = 1; n <= 3 && status.ok(); ++n) {
      status = Submit(n);
      if (status.ok()) submitted.insert(Name(n));
    }
    if (status.ok()) {
      // Some way on the disk fails below the workers; they must be seen to stop or to be done.
      for (const std::string& name : submitted) {
        depot_->WaitStored(name, 0, std::chrono::milliseconds(50)).IgnoreError();
      }
    }
    const bool reached = files_.failure_reached();
    depot_.reset();
    log_.reset();
    files_.FailAt(0, absl::OkStatus());
    if (!reached) break;
    ++kills;
    files_.Crash(random_);

    ASSERT_OK(Open());
    for (const std::string& name : submitted) ASSERT_OK(depot_->WaitStored(name, 0, kLong));
    ASSERT_OK(Submit(4));
    ASSERT_OK(depot_->WaitStored(Name(4), 0, kLong));
    depot_->SignHeads();
    for (const auto& store : {a_, b_}) {
      std::set<std::string> known;
      for (const catalog::Object& object : Load(store).objects) {
        EXPECT_TRUE(known.insert(object.name).second) << object.name << " twice";
        // What the log states is there and whole.
        std::string bytes = *stores::GetBytes(*store, object.name, 1000,
                                              stores::Deadline::In(base::SystemClock(), kLong));
        EXPECT_EQ(base::DigestToHex(base::Sha256(bytes)), object.stored_sha256);
      }
      for (const std::string& name : submitted) EXPECT_TRUE(known.contains(name)) << name;
    }
  }
  EXPECT_GT(kills, 20u);
}

}  // namespace
}  // namespace depot
