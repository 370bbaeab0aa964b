// Snapshot files that etcd wrote: what is in them, members restored from them, damaged copies, and
// failures at every step.
#include <sys/stat.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/random.h"
#include "base/testing.h"
#include "bolt/db.h"
#include "mvcc/key_value.h"
#include "snapshot/check.h"
#include "snapshot/defragment.h"
#include "snapshot/inspect.h"
#include "snapshot/migrate.h"
#include "snapshot/records.h"
#include "snapshot/restore.h"
#include "snapshot/trailer.h"
#include "support/memory_files.h"
#include "wal/scan.h"
#include "wal/snap_file.h"

namespace snapshot {
namespace {

using base::IsOk;
using base::StatusIs;
using nlohmann::json;
using test_support::MemoryFiles;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kPath[] = "/s.db";
constexpr uint64_t kPage = 4096;

std::string DataFile(const std::string& name) {
  auto contents =
      base::ReadFile(base::PosixFiles(), std::string(ENGRAM_SOURCE_DIR "/tests/data/") + name);
  EXPECT_THAT(contents, IsOk());
  return contents.ok() ? *contents : std::string();
}

std::string Golden(const std::string& version) {
  return DataFile("bolt/etcd-" + version + "-snapshot.db");
}

json GoldenAnswers(const std::string& name) {
  return json::parse(DataFile("snapshot/" + name + ".json"));
}

std::string FromBase64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>(bits >> count & 0xff));
  }
  return out;
}

int64_t Number(const json& object, const char* name) {
  return object.contains(name) ? std::stoll(object[name].get<std::string>()) : 0;
}

struct LiveValue {
  int64_t create = 0, mod = 0, version = 0, lease = 0;
  std::string value;
  friend bool operator==(const LiveValue&, const LiveValue&) = default;
};
using LiveKeys = std::map<std::string, LiveValue>;

LiveKeys LiveKeysOf(const json& answers) {
  LiveKeys keys;
  for (const json& kv : answers["kvs"]) {
    keys[FromBase64(kv["key"].get<std::string>())] = {
        Number(kv, "create_revision"), Number(kv, "mod_revision"), Number(kv, "version"),
        Number(kv, "lease"), FromBase64(kv.value("value", ""))};
  }
  return keys;
}

// As a server would have them after a start: a bump's record belongs to the empty key and is
// nobody's.
LiveKeys LiveKeysOf(const bolt::ReadTx& tx) {
  LiveKeys keys;
  EXPECT_OK(ForEachRecord(tx, [&](const KeyRecord& record) {
    const std::string key(record.user_key);
    if (record.revision.tombstone || record.value.empty()) {
      keys.erase(key);
      return absl::OkStatus();
    }
    const auto kv = mvcc::DecodeKeyValue(record.value);
    EXPECT_THAT(kv, IsOk());
    keys[key] = {kv->create_revision, kv->mod_revision, kv->version, kv->lease,
                 std::string(kv->value)};
    return absl::OkStatus();
  }));
  return keys;
}

RestoreOptions GoldenOptions() {
  return {.snapshot_path = kPath,
          .name = "golden",
          .data_dir = "/data",
          .initial_cluster = "golden=http://127.0.0.1:28101",
          .initial_advertise_peer_urls = "http://127.0.0.1:28101",
          .initial_cluster_token = "restored",
          // Address space is dear under sanitizers.
          .map_reserve_bytes = 1 << 20};
}

absl::StatusOr<RestorePlan> RestoreWith(base::Files& files, RestoreOptions options) {
  RestoreObserver quiet;
  return Restore(files, base::SystemClock(), std::move(options), quiet);
}

absl::Status CheckIsClean(base::Files& files, const std::string& path) {
  ASSIGN_OR_RETURN(const CheckResult result, Check(files, base::SystemClock(), path));
  return result.findings.empty() ? absl::OkStatus() : absl::DataLossError(result.findings.front());
}

class SnapshotTest : public testing::TestWithParam<std::string> {
 protected:
  SnapshotTest() { files_.Put(kPath, Golden(GetParam())); }

  OpenedDb Open(const std::string& path) {
    auto opened = OpenChecked(files_, base::SystemClock(), path, {});
    EXPECT_THAT(opened, IsOk());
    return opened.ok() ? std::move(*opened) : OpenedDb();
  }

  MemoryFiles files_;
};

INSTANTIATE_TEST_SUITE_P(Versions, SnapshotTest, testing::Values("3.6", "3.7"));

TEST_P(SnapshotTest, IsInspectedAsEtcdutlDoes) {
  const json status = GoldenAnswers(GetParam() + "-snapshot")["status"];
  ASSERT_OK_AND_ASSIGN(const Summary summary, Inspect(files_, base::SystemClock(), kPath));
  EXPECT_EQ(summary.hash, status["hash"].get<uint32_t>());
  EXPECT_EQ(summary.revision, status["revision"].get<int64_t>());
  EXPECT_EQ(summary.total_keys, status["totalKey"].get<uint64_t>());
  EXPECT_EQ(summary.total_bytes, status["totalSize"].get<uint64_t>());
  EXPECT_EQ(summary.version, status["version"].get<std::string>());
  EXPECT_TRUE(summary.has_trailer);
}

TEST_P(SnapshotTest, HashesAsItsServerDid) {
  const json answers = GoldenAnswers(GetParam() + "-snapshot");
  for (const json& wanted : answers["hashkv"]) {
    ASSERT_OK_AND_ASSIGN(const HashKv hash, HashKvOffline(files_, base::SystemClock(), kPath,
                                                          wanted["revision"].get<int64_t>()));
    EXPECT_EQ(hash.hash, wanted["hash"].get<uint32_t>());
    EXPECT_EQ(hash.hash_revision, Number(wanted, "hash_revision"));
    EXPECT_EQ(hash.compact_revision, Number(wanted, "compact_revision"));
  }
  EXPECT_THAT(
      HashKvOffline(files_, base::SystemClock(), kPath, 100000),
      StatusIs(absl::StatusCode::kOutOfRange, "mvcc: required revision is a future revision"));
}

TEST_P(SnapshotTest, RestoredAnswersWhatEtcdAnswered) {
  const json answers = GoldenAnswers(GetParam() + "-restored");
  ASSERT_OK_AND_ASSIGN(const RestorePlan plan, RestoreWith(files_, GoldenOptions()));
  EXPECT_EQ(std::to_string(plan.cluster_id), answers["cluster_id"].get<std::string>());
  EXPECT_EQ(std::to_string(plan.local_id), answers["member_id"].get<std::string>());
  EXPECT_OK(CheckIsClean(files_, "/data"));
  const OpenedDb opened = Open("/data/member/snap/db");
  EXPECT_EQ(LiveKeysOf(*opened.tx), LiveKeysOf(answers));
  for (const json& wanted : answers["hashkv"]) {
    ASSERT_OK_AND_ASSIGN(const HashKv hash,
                         HashKvOf(*opened.tx, wanted["revision"].get<int64_t>()));
    EXPECT_EQ(hash.hash, wanted["hash"].get<uint32_t>());
  }
  // The leases came along.
  ASSERT_OK_AND_ASSIGN(const auto leases, FindBucket(*opened.tx, "lease"));
  size_t count = 0;
  EXPECT_OK(ForEach(*leases, [&](std::string_view, std::string_view) {
    ++count;
    return absl::OkStatus();
  }));
  EXPECT_EQ(count, answers["leases"].size());
}

TEST_P(SnapshotTest, BumpedAnswersWhatEtcdAnswered) {
  const json answers = GoldenAnswers(GetParam() + "-restored-bumped");
  RestoreOptions options = GoldenOptions();
  options.bump_revision = 1000000;
  options.mark_compacted = true;
  ASSERT_OK(RestoreWith(files_, std::move(options)));
  EXPECT_OK(CheckIsClean(files_, "/data"));
  const OpenedDb opened = Open("/data/member/snap/db");
  EXPECT_EQ(LiveKeysOf(*opened.tx), LiveKeysOf(answers));
  EXPECT_THAT(LatestRevision(*opened.tx),
              base::IsOkAndHolds(std::stoll(answers["revision"].get<std::string>())));
  for (const json& wanted : answers["hashkv"]) {
    const auto hash = HashKvOf(*opened.tx, wanted["revision"].get<int64_t>());
    if (wanted.contains("error")) {
      EXPECT_THAT(hash, StatusIs(absl::StatusCode::kOutOfRange,
                                 "mvcc: required revision has been compacted"));
    } else {
      EXPECT_EQ(hash->hash, wanted["hash"].get<uint32_t>());
      EXPECT_EQ(hash->compact_revision, Number(wanted, "compact_revision"));
    }
  }
}

TEST(Restore, WritesTheLogByteForByte) {
  MemoryFiles files;
  files.Put(kPath, Golden("3.7"));
  ASSERT_OK(RestoreWith(files, GoldenOptions()));
  const std::string name = "0000000000000000-0000000000000000.wal";
  const std::string golden = DataFile("wal/3.7-restored/" + name);
  ASSERT_OK_AND_ASSIGN(const std::string log, files.Contents("/data/member/wal/" + name));
  EXPECT_EQ(log.size(), 64'000'000U);
  EXPECT_TRUE(log.substr(0, golden.size()) == golden);
}

TEST(Restore, KnowsTheMembersOfThePlanOnly) {
  MemoryFiles files;
  files.Put(kPath, Golden("3.7"));
  RestoreOptions options = GoldenOptions();
  options.name = "b";
  options.initial_cluster =
      "a=http://127.0.0.1:1,b=http://127.0.0.1:2,c=http://127.0.0.1:3,c=http://127.0.0.1:4";
  options.initial_advertise_peer_urls = "http://127.0.0.1:2";
  options.initial_cluster_token = "another";
  ASSERT_OK_AND_ASSIGN(const RestorePlan plan, RestoreWith(files, std::move(options)));
  ASSERT_EQ(plan.members.size(), 3U);
  EXPECT_EQ(plan.members.at(plan.local_id).name, "b");

  ASSERT_OK_AND_ASSIGN(const OpenedDb opened,
                       OpenChecked(files, base::SystemClock(), "/data/member/snap/db", {}));
  std::map<uint64_t, cluster::Member> stored;
  ASSERT_OK_AND_ASSIGN(const auto members, FindBucket(*opened.tx, "members"));
  EXPECT_OK(ForEach(*members, [&](std::string_view key, std::string_view value) -> absl::Status {
    uint64_t id = 0;
    EXPECT_TRUE(base::ParseHexId(key, &id));
    ASSIGN_OR_RETURN(stored[id], cluster::DecodeMember(value));
    return absl::OkStatus();
  }));
  EXPECT_EQ(stored, plan.members);

  std::vector<uint64_t> ids;
  for (const auto& [id, member] : plan.members) ids.push_back(id);
  ASSERT_OK_AND_ASSIGN(const wal::SnapshotScan scan,
                       wal::ValidSnapshotRecords(files, "/data/member/wal"));
  EXPECT_EQ(scan.snapshots.back().conf_state.voters, ids);
  EXPECT_EQ(scan.metadata.node_id, plan.local_id);
  EXPECT_EQ(scan.state, (wal::HardState{.term = 1, .vote = ids[0], .commit = 3}));
  ASSERT_OK_AND_ASSIGN(
      const wal::SnapFile marker,
      wal::ReadSnapFile(files, "/data/member/snap/0000000000000001-0000000000000003.snap"));
  EXPECT_EQ(marker.record, scan.snapshots.back());
}

TEST(Restore, PutsTheLogWhereItIsWanted) {
  for (const char* wal_dir :
       {"/other/deep/wal", "/data/member/wal", "/data/member/log/", "/data/../data/member/x/wal"}) {
    MemoryFiles files;
    files.Put(kPath, Golden("3.7"));
    RestoreOptions options = GoldenOptions();
    options.wal_dir = wal_dir;
    ASSERT_OK(RestoreWith(files, std::move(options))) << wal_dir;
    const std::string place =
        std::string(wal_dir) == "/data/../data/member/x/wal" ? "/data/member/x/wal" : wal_dir;
    ASSERT_OK_AND_ASSIGN(
        const CheckResult result,
        Check(files, base::SystemClock(), "/data",
              {.wal_dir = place.ends_with('/') ? place.substr(0, place.size() - 1) : place}));
    EXPECT_THAT(result.findings, IsEmpty()) << wal_dir;
  }
}

TEST(Restore, RefusesWhatEtcdRefuses) {
  MemoryFiles files;
  files.Put(kPath, Golden("3.7"));
  files.Put("/full/something", "x");
  ASSERT_OK(files.MakeDirectory("/void", 0700));
  const auto refused = [&](auto change) {
    RestoreOptions options = GoldenOptions();
    change(options);
    return RestoreWith(files, std::move(options)).status();
  };
  EXPECT_THAT(refused([](RestoreOptions& o) { o.data_dir = "/full"; }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "data-dir \"/full\" not empty or could not be read"));
  EXPECT_THAT(
      refused([](RestoreOptions& o) { o.data_dir = "/full/something"; }),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not empty or could not be read")));
  EXPECT_THAT(refused([](RestoreOptions& o) { o.wal_dir = "/void"; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, "wal-dir \"/void\" exists"));
  EXPECT_THAT(refused([](RestoreOptions& o) { o.bump_revision = 1; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--mark-compacted required if --revision-bump > 0"));
  EXPECT_THAT(refused([](RestoreOptions& o) { o.mark_compacted = true; }), Not(IsOk()));
  EXPECT_THAT(refused([](RestoreOptions& o) { o.name = "m"; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "couldn't find local name \"m\" in the initial cluster configuration"));
  EXPECT_THAT(
      refused([](RestoreOptions& o) {
        o.bump_revision = ~uint64_t{0};
        o.mark_compacted = true;
      }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too much above revision 180")));
  EXPECT_THAT(files.AllPaths(), ElementsAre("/", "/full", "/full/something", "/s.db", "/void"));
}

TEST(Restore, ComparesOwnUrlsByAddress) {
  MemoryFiles files;
  files.Put(kPath, Golden("3.7"));
  RestoreOptions options = GoldenOptions();
  options.initial_cluster = "golden=http://node.example:2380";
  options.initial_advertise_peer_urls = "http://10.0.0.7:2380";
  EXPECT_THAT(PlanRestore(files, options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("missing from")));
  options.resolve = [](const std::string& host) -> absl::StatusOr<std::string> {
    EXPECT_EQ(host, "node.example");
    return "10.0.0.7";
  };
  EXPECT_OK(PlanRestore(files, options));
}

TEST(Restore, RefusesDamagedFilesAndLeavesNothing) {
  const std::string whole = Golden("3.7");
  std::string flipped = whole;
  flipped[flipped.find("3.7.0")] = '9';
  std::string zero_page = whole;
  zero_page.replace(4 * kPage, kPage, std::string(kPage, '\0'));
  struct Case {
    std::string bytes;
    bool skip;
    const char* text;
  };
  const Case cases[] = {
      {"", false, "seek /s.db: invalid argument"},
      {std::string(100, '\0'), false, "snapshot missing hash but --skip-hash-check=false"},
      {whole.substr(0, whole.size() - 32), false, "snapshot missing hash"},
      {whole.substr(0, whole.size() - 5000), true, "expected 12 pages"},
      {flipped, false, "expected sha256 ["},
      {zero_page, true, "page 4"},
      {std::string(8 * kPage, '\0'), true, "invalid database"}};
  for (const Case& c : cases) {
    MemoryFiles files;
    files.Put(kPath, c.bytes);
    RestoreOptions options = GoldenOptions();
    options.skip_hash_check = c.skip;
    options.wal_dir = "/deep/wal";
    options.data_dir = "/some/where/data";
    EXPECT_THAT(RestoreWith(files, std::move(options)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(c.text)));
    EXPECT_THAT(files.AllPaths(), ElementsAre("/", "/s.db")) << c.text;
  }
}

TEST(Restore, TakesAFileWithoutHashWhereAllowed) {
  MemoryFiles files;
  const std::string whole = Golden("3.7");
  files.Put(kPath, whole.substr(0, whole.size() - 32));
  RestoreOptions options = GoldenOptions();
  options.skip_hash_check = true;
  EXPECT_OK(RestoreWith(files, std::move(options)));
  EXPECT_OK(CheckIsClean(files, "/data"));
}

RestoreOptions WithLogElsewhere(bool elsewhere) {
  RestoreOptions options = GoldenOptions();
  if (elsewhere) options.wal_dir = "/deep/er/wal";
  return options;
}

// One failing operation at every step: the restore says so and nothing is left.
TEST(Restore, LeavesNothingAfterAnyFailure) {
  for (const bool elsewhere : {false, true}) {
    for (uint64_t n = 1;; ++n) {
      MemoryFiles files;
      files.Put(kPath, Golden("3.7"));
      files.FailAt(n, absl::ResourceExhaustedError("no space left on device"), /*only_once=*/true);
      const auto restored = RestoreWith(files, WithLogElsewhere(elsewhere));
      if (!files.failure_reached()) {
        EXPECT_THAT(restored, IsOk());
        EXPECT_GT(n, 30U);
        break;
      }
      if (restored.ok()) {
        // What failed was not needed, e.g. a file prepared ahead.
        EXPECT_OK(CheckIsClean(files, elsewhere ? "/data/member/snap/db" : "/data"));
        continue;
      }
      const std::vector<std::string> left = files.AllPaths();
      const bool published = std::find(left.begin(), left.end(), "/data/member") != left.end();
      // Only the sync of the directories behind the last rename may fail with the member in place.
      EXPECT_TRUE(published || left == (std::vector<std::string>{"/", "/s.db"}))
          << "operation " << n << ": " << restored.status() << "\n"
          << testing::PrintToString(left);
      if (published) {
        ASSERT_OK_AND_ASSIGN(const CheckResult result,
                             Check(files, base::SystemClock(), "/data",
                                   {.wal_dir = elsewhere ? "/deep/er/wal" : ""}));
        EXPECT_THAT(result.findings, IsEmpty()) << n;
      }
    }
  }
}

// The power goes at a random step: there is a whole member or none, and a second try goes through.
TEST(Restore, IsWholeOrAbsentAfterAPowerCut) {
  const char* given = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 20261130;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  base::SeededRandom random(seed);
  for (int round = 0; round < 40; ++round) {
    MemoryFiles files;
    files.Put(kPath, Golden("3.7"));
    files.FailAt(1 + random.Below(60), absl::UnavailableError("power is off"));
    const absl::Status first = RestoreWith(files, GoldenOptions()).status();
    files.Crash(random);
    const bool there = base::Exists(files, "/data/member");
    EXPECT_TRUE(there || !first.ok());
    if (there) {
      EXPECT_OK(CheckIsClean(files, "/data")) << "round " << round;
      continue;
    }
    ASSERT_OK(RestoreWith(files, GoldenOptions())) << "round " << round;
    EXPECT_OK(CheckIsClean(files, "/data"));
    ASSERT_OK_AND_ASSIGN(const auto names, files.List("/data"));
    EXPECT_THAT(names, ElementsAre("member"));
  }
}

TEST(Restore, HoldsItsDirectoryAgainstAnother) {
  MemoryFiles files;
  files.Put(kPath, Golden("3.7"));
  class Second final : public RestoreObserver {
   public:
    explicit Second(base::Files& files) : files_(files) {}
    void Trimming() override {
      EXPECT_THAT(RestoreWith(files_, GoldenOptions()),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           "another restore into /data is under way"));
    }

   private:
    base::Files& files_;
  };
  Second second(files);
  EXPECT_OK(Restore(files, base::SystemClock(), GoldenOptions(), second));
  EXPECT_OK(CheckIsClean(files, "/data"));
}

// The same damage, whoever looks.
TEST(Damage, GetsOneVerdict) {
  const std::string whole = Golden("3.7");
  std::map<std::string, std::string> variants;
  variants["flipped value"] = whole;
  variants["flipped value"][whole.find("3.7.0")] = '9';
  variants["flipped hash"] = whole;
  variants["flipped hash"].back() = static_cast<char>(whole.back() ^ 1);
  variants["cut"] = whole.substr(0, whole.size() - 5000);
  variants["zero page"] = whole;
  variants["zero page"].replace(5 * kPage, kPage, std::string(kPage, '\0'));
  variants["swapped page"] = whole;
  variants["swapped page"].replace(5 * kPage, kPage, whole.substr(6 * kPage, kPage));
  variants["no meta"] = whole;
  variants["no meta"].replace(0, 2 * kPage, std::string(2 * kPage, '\0'));
  for (const auto& [name, bytes] : variants) {
    MemoryFiles files;
    files.Put(kPath, bytes);
    EXPECT_THAT(Inspect(files, base::SystemClock(), kPath), StatusIs(absl::StatusCode::kDataLoss))
        << name;
    EXPECT_THAT(HashKvOffline(files, base::SystemClock(), kPath, 0),
                StatusIs(absl::StatusCode::kDataLoss))
        << name;
    EXPECT_THAT(CheckIsClean(files, kPath), StatusIs(absl::StatusCode::kDataLoss)) << name;
    EXPECT_THAT(RestoreWith(files, GoldenOptions()), StatusIs(absl::StatusCode::kDataLoss)) << name;
    EXPECT_TRUE(*files.Contents(kPath) == bytes) << name;
  }
}

// Any byte changed anywhere: no crash, no hang, and with the hash in place never a success.
TEST(Damage, InAnyByteIsNoticed) {
  const char* given = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 7;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  base::SeededRandom random(seed);
  const std::string whole = Golden("3.7");
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole;
    const size_t at = random.Below(bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1 + random.Below(255)));
    MemoryFiles files;
    files.Put(kPath, bytes);
    EXPECT_THAT(Inspect(files, base::SystemClock(), kPath), Not(IsOk())) << "byte " << at;
    // Without the hash the structure alone must hold: any answer but a crash.
    files.Put(kPath, bytes.substr(0, bytes.size() - kTrailerBytes));
    (void)Inspect(files, base::SystemClock(), kPath).ok();
    (void)HashKvOffline(files, base::SystemClock(), kPath, 0).ok();
    (void)Check(files, base::SystemClock(), kPath).ok();
  }
}

TEST(Damage, CutAnywhereIsNoticed) {
  const std::string whole = Golden("3.7");
  for (size_t size = 0; size + 33 < whole.size(); size += 1021) {
    MemoryFiles files;
    files.Put(kPath, whole.substr(0, size));
    EXPECT_THAT(Inspect(files, base::SystemClock(), kPath), Not(IsOk())) << size;
    EXPECT_THAT(HashKvOffline(files, base::SystemClock(), kPath, 0), Not(IsOk())) << size;
  }
}

TEST(Looking, ChangesNoFileAndNeedsNoWritePermission) {
  base::ScratchDirectory scratch;
  base::Files& files = base::PosixFiles();
  const std::string path = scratch / "s.db";
  const std::string whole = Golden("3.7");
  ASSERT_OK(base::WriteFileAtomically(files, path, whole, 0400));
  ASSERT_EQ(::chmod(path.c_str(), 0400), 0);
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  EXPECT_OK(Inspect(files, base::SystemClock(), path));
  EXPECT_OK(HashKvOffline(files, base::SystemClock(), path, 100));
  EXPECT_OK(CheckIsClean(files, path));
  EXPECT_THAT(VerifyTrailer(files, path), base::IsOkAndHolds(true));
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
  EXPECT_TRUE(*base::ReadFile(files, path) == whole);
}

TEST(Looking, WaitsForTheLockAsLongAsTold) {
  MemoryFiles files;
  files.Put(kPath, Golden("3.7"));
  ASSERT_OK_AND_ASSIGN(const auto server, files.Open(kPath, {.write = true}));
  ASSERT_THAT(server->TryLock(base::LockKind::kFlockExclusive), base::IsOkAndHolds(true));
  EXPECT_THAT(
      Inspect(files, base::SystemClock(), kPath, {.lock_timeout = std::chrono::milliseconds(1)}),
      StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Inspect(files, base::SystemClock(), "/missing"),
              StatusIs(absl::StatusCode::kNotFound, "stat /missing: no such file or directory"));
}

TEST(HashKv, FollowsTheVectorsOfCompaction) {
  struct Vector {
    int64_t compacted, revision;
    uint32_t hash;
  };
  // Puts of foo (2, 3), of a and b in one transaction (4), a deleted (5).
  const Vector vectors[] = {{-1, 1, 1084519789}, {-1, 2, 3844182922}, {-1, 3, 2832016003},
                            {-1, 4, 1348230827}, {-1, 5, 1975018331}, {3, 4, 1646143616},
                            {3, 5, 3376592997},  {5, 5, 2715934664}};
  for (const Vector& vector : vectors) {
    MemoryFiles files;
    ASSERT_OK_AND_ASSIGN(
        auto db, bolt::DB::Open(files, kPath, {.map_reserve_bytes = 0}, base::SystemClock()));
    ASSERT_OK_AND_ASSIGN(auto tx, db->BeginWrite());
    ASSERT_OK_AND_ASSIGN(bolt::WriteBucket * keys, tx->CreateBucket("key"));
    const auto put = [&](int64_t main, int64_t sub, bool tombstone, std::string_view hex) {
      std::string value;
      for (size_t i = 0; i < hex.size(); i += 2) {
        value.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
      }
      EXPECT_OK(keys->Put(mvcc::EncodeRevisionKey({main, sub}, tombstone), value));
    };
    put(2, 0, false, "0a03666f6f1002180220012a036f6e65");
    put(3, 0, false, "0a03666f6f1002180320022a0374776f");
    put(4, 0, false, "0a01611004180420012a0131");
    put(4, 1, false, "0a01621004180420012a0132");
    put(5, 0, true, "0a0161");
    if (vector.compacted > 0) {
      ASSERT_OK_AND_ASSIGN(bolt::WriteBucket * meta, tx->CreateBucket("meta"));
      EXPECT_OK(meta->Put("finishedCompactRev", mvcc::EncodeRevisionKey({vector.compacted, 0})));
    }
    ASSERT_OK(tx->Commit());
    ASSERT_OK_AND_ASSIGN(const HashKv hash, HashKvOf(*db->BeginRead(), vector.revision));
    EXPECT_EQ(hash.hash, vector.hash) << vector.compacted << ", " << vector.revision;
    EXPECT_EQ(hash.compact_revision, vector.compacted);
  }
}

TEST(Check, NamesWhatDoesNotFitTogether) {
  MemoryFiles files;
  files.Put(kPath, Golden("3.7"));
  ASSERT_OK(RestoreWith(files, GoldenOptions()));
  const auto findings = [&] {
    auto result = Check(files, base::SystemClock(), "/data");
    EXPECT_THAT(result, IsOk());
    return result.ok() ? result->findings : std::vector<std::string>();
  };
  const auto set_meta = [&](std::string_view key, uint64_t value) {
    auto db = bolt::DB::Open(files, "/data/member/snap/db", {.map_reserve_bytes = 0},
                             base::SystemClock());
    auto tx = (*db)->BeginWrite();
    std::string bytes(8, '\0');
    base::StoreBe64(bytes.data(), value);
    EXPECT_OK((*(*tx)->bucket("meta"))->Put(key, bytes));
    EXPECT_OK((*tx)->Commit());
  };
  EXPECT_THAT(findings(), IsEmpty());
  set_meta("consistent_index", 9);
  EXPECT_THAT(findings(),
              ElementsAre(HasSubstr("consistent index 9 lies above the log's last entry 1")));
  set_meta("consistent_index", 0);
  EXPECT_THAT(findings(),
              ElementsAre(HasSubstr("consistent index 0 lies below the log's snapshot at 1")));
  set_meta("consistent_index", 1);
  set_meta("term", 5);
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("term 5 is above the log's term 1")));
  set_meta("term", 1);
  EXPECT_THAT(findings(), IsEmpty());
  ASSERT_OK(base::RemoveTree(files, "/data/member/wal"));
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("no write-ahead log is there")));
}

TEST(Defragment, KeepsTheContentAndOneFile) {
  MemoryFiles files;
  files.Put(kPath, Golden("3.7"));
  ASSERT_OK(RestoreWith(files, GoldenOptions()));
  const std::string db_path = "/data/member/snap/db";
  ASSERT_OK_AND_ASSIGN(const Summary before, Inspect(files, base::SystemClock(), db_path));
  for (uint64_t n = 1;; ++n) {
    files.FailAt(n, absl::InternalError("input/output error"), /*only_once=*/true);
    const auto result =
        Defragment(files, base::SystemClock(), db_path, {}, [](const DefragmentSizes&) {});
    const bool reached = files.failure_reached();
    files.FailAt(0, absl::OkStatus());
    ASSERT_OK_AND_ASSIGN(const Summary after, Inspect(files, base::SystemClock(), db_path));
    EXPECT_EQ(after.hash, before.hash) << n;
    ASSERT_OK_AND_ASSIGN(const auto names, files.List("/data/member/snap"));
    EXPECT_THAT(names, ElementsAre("0000000000000001-0000000000000001.snap", "db")) << n;
    if (reached) continue;
    ASSERT_OK(result);
    EXPECT_LE(result->after.size_bytes, result->before.size_bytes);
    break;
  }
  EXPECT_OK(CheckIsClean(files, "/data"));
}

TEST(Migrate, WritesTheVersionOrSaysWhyNot) {
  MemoryFiles files;
  files.Put(kPath, Golden("3.7"));
  ASSERT_OK(RestoreWith(files, GoldenOptions()));
  const auto migrate = [&](int minor, bool force = false) {
    MigrateObserver quiet;
    return Migrate(files, base::SystemClock(),
                   {.data_dir = "/data", .target = {3, minor, 0}, .force = force}, quiet);
  };
  const auto version = [&] {
    auto summary = Inspect(files, base::SystemClock(), "/data/member/snap/db");
    return summary.ok() ? summary->version : std::string(base::Message(summary.status()));
  };
  EXPECT_OK(migrate(6));
  EXPECT_EQ(version(), "3.6.0");
  EXPECT_OK(migrate(5));
  EXPECT_EQ(version(), "");
  EXPECT_OK(migrate(7));
  EXPECT_EQ(version(), "3.7.0");
  EXPECT_THAT(migrate(8),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "cannot create migration plan: version \"3.8.0\" is not supported"));
  EXPECT_EQ(version(), "3.7.0");
  EXPECT_OK(migrate(9, /*force=*/true));
  EXPECT_EQ(version(), "3.9.0");
}

}  // namespace
}  // namespace snapshot
