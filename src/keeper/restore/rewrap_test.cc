// Objects in two stores, wrapped for other recipients: whole, with another key missing, and with
// the run cut off at each step.
#include "restore/rewrap.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "base/testing.h"
#include "restore/verify.h"
#include "stores/testing/memory_store.h"
#include "support/memory_files.h"
#include "vault/seal.h"

namespace restore {
namespace {

using base::IsOk;
using base::StatusIs;
using test_support::MemoryFiles;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const catalog::Timeline kTimeline{.cluster_id = 0xabc, .first_revision = 1};

class RewrapTest : public testing::Test {
 protected:
  RewrapTest()
      : random_(3),
        old_(vault::Identity::Generate(random_)),
        new_(vault::Identity::Generate(random_)),
        stores_({{"a", std::make_shared<stores::MemoryStore>(base::SystemClock())},
                 {"b", std::make_shared<stores::MemoryStore>(base::SystemClock())}}),
        emptied_(stores_) {
    for (int i = 1; i <= 3; ++i) Put(i);
  }

  stores::Deadline Soon() {
    return stores::Deadline::In(base::SystemClock(), std::chrono::seconds(60));
  }
  static std::string Plain(int i) { return std::string(static_cast<size_t>(i) * 70'000, 'a'); }

  void Put(int i) {
    std::string sealed;
    vault::StringSink sink(&sealed, 1 << 26);
    auto sealing = vault::SealingSink::Open({.recipients = {old_.recipient()}}, random_, sink);
    EXPECT_OK((*sealing)->Write(Plain(i)));
    EXPECT_OK((*sealing)->Finish());
    const vault::Sealed& facts = (*sealing)->sealed();
    catalog::Object object;
    object.kind = catalog::Kind::kBundle;
    object.timeline = kTimeline;
    object.writer = "0123456789abcdef";
    object.name =
        fmt::format("prod/{}/{}/bundles/{}.tar.zst.age", kTimeline.Name(), object.writer, i);
    object.plain_bytes = facts.plain_bytes;
    object.stored_bytes = facts.stored_bytes;
    object.plain_sha256 = base::DigestToHex(facts.plain_sha256);
    object.stored_sha256 = base::DigestToHex(facts.stored_sha256);
    object.recipients = facts.recipients;
    object.stores = {"a", "b"};
    for (const auto& store : stores_) {
      EXPECT_OK(store.store->Put(object.name, stores::BytesContent(sealed), Soon()));
    }
    log_.push_back(ledger::Stored{object});
  }

  // What the logs say now.
  ledger::Catalog Known() {
    ledger::InventoryBuilder builder("prod");
    int at = 0;
    for (const ledger::Fact& fact : log_) {
      EXPECT_OK(builder.Apply({.at = base::Duration(++at), .fact = fact}, kTimeline));
    }
    ledger::Catalog known;
    known.inventory = builder.Take();
    return known;
  }

  absl::StatusOr<RewrapResult> Run(const std::vector<vault::Identity>& identities) {
    const std::vector<vault::Recipient> recipients = {new_.recipient()};
    const ledger::Catalog known = Known();
    return Rewrap({.files = files_,
                   .clock = base::SystemClock(),
                   .random = random_,
                   .identities = identities,
                   .recipients = recipients,
                   .stores = stores_,
                   .emptied = emptied_,
                   .scratch_dir = "/state/rewrap/prod",
                   .note =
                       [this](const catalog::Timeline&, const std::vector<ledger::Fact>& facts) {
                         RETURN_IF_ERROR(before_note_);
                         log_.insert(log_.end(), facts.begin(), facts.end());
                         return after_note_;
                       }},
                  known.inventory, PlanRewrap(known.inventory, recipients));
  }

  // Everything is whole, opens with the new key alone, and nothing else lies about.
  void ExpectDone() {
    const ledger::Catalog known = Known();
    const VerifyResult verified = Verify(base::SystemClock(), random_, known, stores_, {new_},
                                         {.percent = 100, .deep = true}, {});
    EXPECT_THAT(verified.bad, IsEmpty());
    EXPECT_THAT(verified.strangers, IsEmpty());
    EXPECT_EQ(verified.read_back, 6u);
    Fetcher fetcher(base::SystemClock(), stores_, {new_});
    for (size_t i = 0; i < known.inventory.objects.size(); ++i) {
      const catalog::Object& object = known.inventory.objects[i];
      EXPECT_THAT(fetcher.FetchBytes(object), base::IsOkAndHolds(Plain(static_cast<int>(i) + 1)));
      EXPECT_THAT(object.recipients, ElementsAre(new_.recipient().ToString()));
      for (const auto& store : stores_) {
        EXPECT_THAT(store.store->Stat(object.FirstName(), Soon()),
                    StatusIs(absl::StatusCode::kNotFound, testing::_));
      }
    }
    EXPECT_FALSE(base::Exists(files_, "/state/rewrap/prod"));
  }

  base::SeededRandom random_;
  MemoryFiles files_;
  vault::Identity old_;
  vault::Identity new_;
  std::vector<ledger::ReadableStore> stores_;
  std::vector<ledger::ReadableStore> emptied_;
  std::vector<ledger::Fact> log_;
  absl::Status before_note_, after_note_;
};

TEST_F(RewrapTest, WrapsEverythingForTheNewKey) {
  ASSERT_OK_AND_ASSIGN(const RewrapResult result, Run({old_}));
  EXPECT_EQ(result.rewrapped, 3u);
  EXPECT_THAT(result.failed, IsEmpty());
  EXPECT_THAT(result.left, IsEmpty());
  ExpectDone();
  const ledger::Catalog known = Known();
  EXPECT_THAT(PlanRewrap(known.inventory, {new_.recipient()}).objects, IsEmpty());
}

TEST_F(RewrapTest, WhatNoIdentityOpensIsNamedAndStays) {
  ASSERT_OK_AND_ASSIGN(const RewrapResult result, Run({new_}));
  EXPECT_EQ(result.rewrapped, 0u);
  ASSERT_THAT(result.failed, SizeIs(3));
  for (const BadCopy& bad : result.failed)
    EXPECT_TRUE(absl::IsPermissionDenied(bad.why)) << bad.why;
  EXPECT_THAT(log_, SizeIs(3));
  ASSERT_OK(Run({old_}).status());
  ExpectDone();
}

TEST_F(RewrapTest, GoesOnWithTheSameBytesWhenItWasCutOffBeforeTheLogSpoke) {
  before_note_ = absl::UnavailableError("killed");
  EXPECT_THAT(Run({old_}), Not(IsOk()));
  before_note_ = absl::OkStatus();
  ASSERT_OK_AND_ASSIGN(const RewrapResult result, Run({old_}));
  EXPECT_EQ(result.rewrapped, 3u);
  ExpectDone();
}

TEST_F(RewrapTest, IsDoneWhenItWasCutOffAfterTheLogSpoke) {
  after_note_ = absl::UnavailableError("killed");
  EXPECT_THAT(Run({old_}), Not(IsOk()));
  after_note_ = absl::OkStatus();
  ASSERT_OK_AND_ASSIGN(const RewrapResult result, Run({old_}));
  EXPECT_EQ(result.rewrapped, 0u);
  // The old copies are named by the catalog: whoever prunes deletes them.
  for (const catalog::Object& object : Known().inventory.objects) {
    ASSERT_THAT(object.former_names, SizeIs(1));
    for (const auto& store : stores_) {
      EXPECT_OK(store.store->Delete(object.former_names[0], Soon()));
    }
  }
  ExpectDone();
}

TEST_F(RewrapTest, OldCopiesThatMayNotBeDeletedAreTold) {
  emptied_.pop_back();
  ASSERT_OK_AND_ASSIGN(const RewrapResult result, Run({old_}));
  EXPECT_EQ(result.rewrapped, 3u);
  ASSERT_THAT(result.left, SizeIs(3));
  for (const BadCopy& left : result.left) EXPECT_EQ(left.store, "b");
  const VerifyResult verified = Verify(base::SystemClock(), random_, Known(), stores_, {new_},
                                       {.percent = 100, .deep = true}, {});
  EXPECT_THAT(verified.bad, IsEmpty());
  EXPECT_THAT(verified.strangers, IsEmpty());
}

TEST_F(RewrapTest, ADamagedCopyIsNotTheSource) {
  const std::string name = Known().inventory.objects[0].name;
  ASSERT_OK_AND_ASSIGN(std::string bytes,
                       stores::GetBytes(*stores_[0].store, name, 1 << 26, Soon()));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_OK(stores_[0].store->Delete(name, Soon()));
  ASSERT_OK(stores_[0].store->Put(name, stores::BytesContent(bytes), Soon()));
  ASSERT_OK(Run({old_}).status());
  ExpectDone();
}

}  // namespace
}  // namespace restore
