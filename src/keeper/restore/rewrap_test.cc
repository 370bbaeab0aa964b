// Objects in two stores, wrapped for other recipients: whole, with another key missing, and with
// the run cut off at each step.
#include "restore/rewrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/sha256.h"
#include "base/testing.h"
#include "catalog/rollup.h"
#include "restore/verify.h"
#include "stores/testing/memory_store.h"
#include "stores/testing/mortal_store.h"
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
constexpr char kWriter[] = "0123456789abcdef";

class RewrapTest : public testing::Test {
 protected:
  RewrapTest()
      : random_(3),
        old_(vault::Identity::Generate(random_)),
        new_(vault::Identity::Generate(random_)),
        stores_({{"a", NewStore()}, {"b", NewStore()}}),
        emptied_(stores_) {
    for (int i = 1; i <= 3; ++i) Put(i);
  }

  std::shared_ptr<stores::Store> NewStore() {
    return std::make_shared<stores::MortalStore>(
        std::make_unique<stores::MemoryStore>(base::SystemClock()), death_);
  }

  stores::Deadline Soon() {
    return stores::Deadline::In(base::SystemClock(), std::chrono::seconds(60));
  }
  static std::string Plain(int i) { return std::string(static_cast<size_t>(i) * 70'000, 'a'); }

  void Put(int i) {
    std::string sealed;
    catalog::Object object = Seal(catalog::Kind::kBundle, fmt::format("bundles/{}.tar.zst.age", i),
                                  Plain(i), old_, &sealed);
    for (const auto& store : stores_) {
      EXPECT_OK(store.store->Put(object.name, stores::BytesContent(sealed), Soon()));
    }
    log_.push_back(ledger::Stored{object});
  }

  catalog::Object Seal(catalog::Kind kind, const std::string& name, const std::string& plain,
                       const vault::Identity& identity, std::string* sealed) {
    vault::StringSink sink(sealed, 1 << 26);
    auto sealing = vault::SealingSink::Open({.recipients = {identity.recipient()}}, random_, sink);
    EXPECT_OK((*sealing)->Write(plain));
    EXPECT_OK((*sealing)->Finish());
    const vault::Sealed& facts = (*sealing)->sealed();
    catalog::Object object;
    object.kind = kind;
    object.timeline = kTimeline;
    object.writer = kWriter;
    object.name = fmt::format("prod/{}/{}/{}", kTimeline.Name(), kWriter, name);
    object.plain_bytes = facts.plain_bytes;
    object.stored_bytes = facts.stored_bytes;
    object.plain_sha256 = base::DigestToHex(facts.plain_sha256);
    object.stored_sha256 = base::DigestToHex(facts.stored_sha256);
    object.recipients = facts.recipients;
    object.stores = {"a", "b"};
    return object;
  }

  // As a log does: one record after the other.
  absl::Status Note(const std::vector<ledger::Fact>& facts) {
    RETURN_IF_ERROR(before_note_);
    for (const ledger::Fact& fact : facts) {
      if (death_.dead() || notes_ == 0) return absl::UnavailableError("killed");
      --notes_;
      // As it is read again.
      std::string line = ledger::EncodeLine(
          {.seq = 1, .previous = std::string(ledger::kNoPrevious), .fact = fact});
      line.pop_back();
      ASSIGN_OR_RETURN(
          const ledger::Record record,
          ledger::DecodeLine(line, fmt::format("prod/{}/{}", kTimeline.Name(), rewrapper_)));
      log_.push_back(record.fact);
    }
    return after_note_;
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
    return Rewrap({.files = *files_,
                   .clock = base::SystemClock(),
                   .random = random_,
                   .identities = identities,
                   .recipients = recipients,
                   .stores = stores_,
                   .emptied = emptied_,
                   .scratch_dir = "/state/rewrap/prod",
                   .writer = rewrapper_,
                   .note = [this](const catalog::Timeline&,
                                  const std::vector<ledger::Fact>& facts) { return Note(facts); }},
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
    EXPECT_FALSE(base::Exists(*files_, "/state/rewrap/prod"));
  }

  base::SeededRandom random_;
  stores::Death death_;
  std::unique_ptr<MemoryFiles> files_ = std::make_unique<MemoryFiles>();
  vault::Identity old_;
  vault::Identity new_;
  std::vector<ledger::ReadableStore> stores_;
  std::vector<ledger::ReadableStore> emptied_;
  std::vector<ledger::Fact> log_;
  absl::Status before_note_, after_note_;
  uint64_t notes_ = UINT64_MAX;      // so many records get into the log
  std::string rewrapper_ = kWriter;  // whose log it is
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

// --- roll-ups ---

// Segments 1 to 3 and 4 to 5 in containers that lie in one, 6 and 7 in a container that store b has
// not been read back of, and 8 for itself.
class RewrapRollUpTest : public RewrapTest {
 protected:
  static constexpr int kSegments = 8;

  RewrapRollUpTest() { Begin(); }

  // The world anew.
  void Begin() {
    death_ = {};
    notes_ = UINT64_MAX;
    log_.clear();
    sealed_.clear();
    segments_.clear();
    files_ = std::make_unique<MemoryFiles>();
    for (auto& store : stores_) store.store = NewStore();
    emptied_ = stores_;
    for (int n = 1; n <= kSegments; ++n) {
      PutSegment(n, n == 2 && key_of_second_ != nullptr ? *key_of_second_ : old_);
    }
    first_ = RollUp(1, {segments_[0], segments_[1], segments_[2]});
    second_ = RollUp(1, {segments_[3], segments_[4]});
    outer_ = RollUp(2, {first_, second_});
    late_ = RollUp(1, {segments_[5], segments_[6]});
    for (const catalog::Object* container : {&first_, &second_, &outer_, &late_}) {
      log_.push_back(ledger::Stored{*container});
      log_.push_back(ledger::Reread{container->name, "a"});
      if (container != &late_) log_.push_back(ledger::Reread{container->name, "b"});
    }
    for (int n = 1; n <= 7; ++n) Delete(segments_[static_cast<size_t>(n) - 1].name, "a");
    for (int n = 1; n <= 5; ++n) Delete(segments_[static_cast<size_t>(n) - 1].name, "b");
    for (const catalog::Object& inner : {first_, second_}) {
      for (const auto& store : stores_) Delete(inner.name, store.name);
    }
  }

  stores::Store& In(const std::string& store) { return *stores_[store == "a" ? 0 : 1].store; }
  void Delete(const std::string& name, const std::string& store) {
    EXPECT_OK(In(store).Delete(name, Soon()));
  }
  void PutSegment(int n, const vault::Identity& identity) {
    std::string sealed;
    catalog::Object object = Seal(catalog::Kind::kSegment, fmt::format("archive/live/{}.seg", n),
                                  Plain(n), identity, &sealed);
    object.first_revision = object.last_revision = n;
    object.first_seen = object.last_seen = {std::chrono::seconds(n), std::chrono::seconds(n)};
    for (const auto& store : stores_) {
      EXPECT_OK(store.store->Put(object.name, stores::BytesContent(sealed), Soon()));
    }
    sealed_[object.name] = sealed;
    log_.push_back(ledger::Stored{object});
    segments_.push_back(std::move(object));
  }
  catalog::Object RollUp(uint32_t level, const std::vector<catalog::Object>& parts) {
    catalog::RollUp roll_up{.level = level, .parts = {}};
    std::string bytes;
    for (const catalog::Object& part : parts) {
      roll_up.parts.push_back(&part);
      bytes += sealed_[part.name];
    }
    catalog::Object made = catalog::ContainerOf(roll_up, kWriter);
    made.plain_sha256 = made.stored_sha256 = base::DigestToHex(base::Sha256(bytes));
    made.stores = {"a", "b"};
    for (const auto& store : stores_) {
      EXPECT_OK(store.store->Put(made.name, stores::BytesContent(bytes), Soon()));
    }
    sealed_[made.name] = bytes;
    return made;
  }

  static int NumberOf(const catalog::Object& segment) {
    return static_cast<int>(segment.first_revision);
  }
  // By each store alone every segment is whole, whatever key it is for.
  void ExpectWhole(const std::vector<vault::Identity>& identities) {
    const ledger::Catalog known = Known();
    for (const auto& store : stores_) {
      SCOPED_TRACE("store " + store.name);
      Fetcher fetcher(base::SystemClock(), {store}, identities);
      int segments = 0;
      for (const catalog::Object& object : known.inventory.objects) {
        if (object.kind != catalog::Kind::kSegment) continue;
        ++segments;
        ASSERT_TRUE(object.Available() && object.stores.contains(store.name)) << object.name;
        ASSERT_THAT(fetcher.FetchBytes(object), base::IsOkAndHolds(Plain(NumberOf(object))))
            << object.name << " in " << object.In(store.name).name;
      }
      EXPECT_EQ(segments, kSegments);
    }
  }
  // As `prune` does with old copies that a run had to leave: the catalog names them.
  void Sweep() {
    const ledger::Catalog known = Known();
    for (const catalog::Object& object : known.inventory.objects) {
      std::vector<std::string> gone = object.former_names;
      if (object.pruned) gone.push_back(object.name);
      for (const auto& store : stores_) {
        for (const std::string& name : gone) EXPECT_OK(store.store->Delete(name, Soon()));
      }
    }
  }
  // Every segment is for the new key alone, and of the old ones no byte is left that the catalog
  // does not know as what may go.
  void ExpectRewrapped() {
    ExpectWhole({new_});
    const ledger::Catalog known = Known();
    EXPECT_THAT(PlanRewrap(known.inventory, {new_.recipient()}).roll_ups, IsEmpty());
    for (const catalog::Object& object : known.inventory.objects) {
      const bool old =
          object.kind == catalog::Kind::kRollUp && !catalog::IsRewrappedName(object.name);
      EXPECT_EQ(object.pruned, old) << object.name;
      const std::vector<std::string> gone = old ? std::vector{object.name} : object.former_names;
      for (const auto& store : stores_) {
        for (const std::string& name : gone) {
          EXPECT_THAT(store.store->Stat(name, Soon()),
                      StatusIs(absl::StatusCode::kNotFound, testing::_))
              << name << " in store " << store.name;
        }
      }
    }
    const VerifyResult verified = Verify(base::SystemClock(), random_, known, stores_, {new_},
                                         {.percent = 100, .deep = false}, {});
    EXPECT_THAT(verified.bad, IsEmpty());
    EXPECT_THAT(verified.strangers, IsEmpty());
    EXPECT_FALSE(base::Exists(*files_, "/state/rewrap/prod"));
  }

  std::map<std::string, std::string> sealed_;  // by name
  std::vector<catalog::Object> segments_;
  catalog::Object first_, second_, outer_, late_;
  const vault::Identity* key_of_second_ = nullptr;  // null: the old one, as of all others
  std::vector<std::string> left_;                   // names that `prune` sweeps
};

TEST_F(RewrapRollUpTest, SegmentsMoveIntoNewRollUps) {
  ASSERT_OK_AND_ASSIGN(const RewrapResult result, Run({old_}));
  EXPECT_EQ(result.rewrapped, 8u);
  EXPECT_THAT(result.failed, IsEmpty());
  EXPECT_THAT(result.left, IsEmpty());
  ExpectRewrapped();
  const ledger::Catalog known = Known();
  for (const catalog::Object& object : known.inventory.objects) {
    if (object.kind != catalog::Kind::kSegment || NumberOf(object) > 5) continue;
    const catalog::Extent extent = object.In("a");
    EXPECT_TRUE(catalog::IsRewrappedName(extent.name)) << extent.name;
    EXPECT_THAT(object.recipients, ElementsAre(new_.recipient().ToString()));
  }
  // Sealed bytes are the same ones: only headers differ.
  const auto body = [](const std::string& bytes) {
    return bytes.substr(bytes.find('\n', bytes.find("\n--- ") + 1) + 1);
  };
  const catalog::Object* fifth = nullptr;
  for (const catalog::Object& object : known.inventory.objects) {
    if (object.kind == catalog::Kind::kSegment && NumberOf(object) == 5) fifth = &object;
  }
  ASSERT_NE(fifth, nullptr);
  std::string bytes;
  vault::StringSink sink(&bytes, 1 << 26);
  ASSERT_OK(
      In("b").Get(fifth->In("b").name, fifth->In("b").offset, fifth->stored_bytes, sink, Soon()));
  EXPECT_EQ(body(bytes), body(sealed_[segments_[4].name]));
  // And all of it once more, from roll-ups that were made anew.
  ASSERT_OK_AND_ASSIGN(const RewrapResult again, Run({new_}));
  EXPECT_EQ(again.rewrapped, 0u);
}

TEST_F(RewrapRollUpTest, AnotherKeepersRollUpsAreMadeAnewBesideItsOwnLog) {
  rewrapper_ = "fedcba9876543210";
  ASSERT_OK(Run({old_}).status());
  ExpectRewrapped();
  for (const catalog::Object& object : Known().inventory.objects) {
    if (object.kind == catalog::Kind::kRollUp && !object.pruned) {
      EXPECT_NE(object.name.find("/fedcba9876543210/archive/"), std::string::npos) << object.name;
    }
  }
}

TEST_F(RewrapRollUpTest, WhatCannotBeOpenedStaysWithItsRollUp) {
  const vault::Identity lost = vault::Identity::Generate(random_);
  key_of_second_ = &lost;
  Begin();
  ASSERT_OK_AND_ASSIGN(const RewrapResult result, Run({old_}));
  EXPECT_EQ(result.rewrapped, 7u);
  ASSERT_THAT(result.failed, SizeIs(1));
  EXPECT_EQ(result.failed[0].name, segments_[1].name);
  EXPECT_TRUE(absl::IsPermissionDenied(result.failed[0].why)) << result.failed[0].why;
  ExpectWhole({new_, lost});
  // Once its key is found it follows, and the roll-up goes.
  ASSERT_OK_AND_ASSIGN(const RewrapResult rest, Run({lost}));
  EXPECT_EQ(rest.rewrapped, 1u);
  ExpectWhole({new_});
  EXPECT_THAT(In("a").Stat(first_.name, Soon()), StatusIs(absl::StatusCode::kNotFound, testing::_));
}

TEST_F(RewrapRollUpTest, ADamagedRollUpIsNotTheSource) {
  std::string bytes = sealed_[outer_.name];
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  Delete(outer_.name, "a");
  ASSERT_OK(In("a").Put(outer_.name, stores::BytesContent(bytes), Soon()));
  ASSERT_OK_AND_ASSIGN(const RewrapResult result, Run({old_}));
  EXPECT_THAT(result.failed, IsEmpty());
  ExpectRewrapped();
}

TEST_F(RewrapRollUpTest, KilledAtAnyCallToAStoreItGoesOn) {
  stores::ExpectGoesOnAfterEachKill(
      death_, 15, [&] { Begin(); }, [&] { return Run({old_}).status(); },
      [&] {
        ExpectWhole({old_, new_});
        if (HasFailure()) return;
        ASSERT_OK(Run({old_}).status());
        Sweep();
        ExpectRewrapped();
      });
}

TEST_F(RewrapRollUpTest, KilledAtAnyChangeOfItsDiskOrRecordOfItsLogItGoesOn) {
  uint64_t kills = 0;
  for (uint64_t at = 1;; ++at) {
    SCOPED_TRACE(fmt::format("killed at change {}", at));
    Begin();
    files_->FailAt(at, absl::InternalError("killed"));
    const auto result = Run({old_});
    const bool reached = files_->failure_reached();
    files_->FailAt(0, absl::OkStatus());
    if (!reached) {
      ASSERT_OK(result.status());
      break;
    }
    ++kills;
    files_->Crash(random_);
    ExpectWhole({old_, new_});
    ASSERT_OK(Run({old_}).status());
    Sweep();
    ExpectRewrapped();
    if (HasFailure()) return;
  }
  EXPECT_GT(kills, 10u);
  for (uint64_t records = 0; records < 4; ++records) {
    SCOPED_TRACE(fmt::format("killed after {} records", records));
    Begin();
    notes_ = records;
    EXPECT_THAT(Run({old_}), Not(IsOk()));
    notes_ = UINT64_MAX;
    ExpectWhole({old_, new_});
    ASSERT_OK(Run({old_}).status());
    ExpectWhole({new_});
    EXPECT_THAT(PlanRewrap(Known().inventory, {new_.recipient()}).roll_ups, IsEmpty());
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace restore
