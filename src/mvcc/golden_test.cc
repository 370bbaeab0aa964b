// Db files that etcd wrote, read by the store and compared with what etcd answered from them.
#include <zstd.h>

#include <nlohmann/json.hpp>

#include "mvcc/fixture_for_test.h"
#include "support/memory_files.h"

namespace mvcc {
namespace {

using base::IsOk;
using base::StatusIs;
using nlohmann::json;

std::string Base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    unsigned value = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) {
      value = value << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= n ? kDigits[value >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

int64_t Number(const json& value) {
  return value.is_string() ? std::stoll(value.get<std::string>()) : value.get<int64_t>();
}
int64_t Number(const json& object, const char* name) {
  return object.contains(name) ? Number(object[name]) : 0;
}

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    ASSERT_OK_AND_ASSIGN(const std::string packed,
                         base::ReadFile(base::PosixFiles(),
                                        ENGRAM_SOURCE_DIR "/tests/data/mvcc/" + name + ".db.zst"));
    std::string plain(32 << 20, '\0');
    const size_t n = ZSTD_decompress(plain.data(), plain.size(), packed.data(), packed.size());
    ASSERT_FALSE(ZSTD_isError(n));
    plain.resize(n);
    disk.Put("/member/db", plain);
    ASSERT_OK_AND_ASSIGN(
        const std::string text,
        base::ReadFile(base::PosixFiles(), ENGRAM_SOURCE_DIR "/tests/data/etcd/" + name + ".json"));
    expected = json::parse(text);
    ASSERT_OK(t.Open());
    index_in_file = t.backend->consistent_index();
  }

  static TestStore::Setup OnDisk(test_support::MemoryFiles* disk) {
    TestStore::Setup setup;
    setup.files = disk;
    setup.path = "/member/db";
    return setup;
  }

  test_support::MemoryFiles disk;
  TestStore t{OnDisk(&disk)};
  json expected;
  uint64_t index_in_file = 0;
};

void CheckAll(TestStore& t, const json& expected) {
  const int64_t revision = Number(expected["revision"]);
  EXPECT_EQ(t.store->current_revision(), revision);
  RangeResult r;
  const std::vector<TestKv> all = t.Get({.key = kToEnd, .range_end = kToEnd}, &r);
  const json& kvs = expected["kvs"];
  ASSERT_EQ(all.size(), kvs.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(Base64(all[i].key), kvs[i]["key"].get<std::string>());
    EXPECT_EQ(Base64(all[i].value), kvs[i].value("value", ""));
    EXPECT_EQ(all[i].created, Number(kvs[i], "create_revision"));
    EXPECT_EQ(all[i].mod, Number(kvs[i], "mod_revision"));
    EXPECT_EQ(all[i].version, Number(kvs[i], "version"));
    EXPECT_EQ(all[i].lease, Number(kvs[i], "lease"));
  }
  for (const auto& [at, answer] : expected["at"].items()) {
    const RangeQuery query{.key = kToEnd, .range_end = kToEnd, .revision = std::stoll(at)};
    if (answer.is_string()) {
      EXPECT_THAT(t.GetStatus(query),
                  StatusIs(absl::StatusCode::kOutOfRange, answer.get<std::string>()));
      continue;
    }
    const std::vector<TestKv> then = t.Get(query, &r);
    ASSERT_EQ(then.size(), answer.size()) << at;
    EXPECT_EQ(r.count, static_cast<int64_t>(answer.size()));
    for (size_t i = 0; i < then.size(); ++i) {
      EXPECT_EQ(Base64(then[i].key), answer[i][0].get<std::string>());
      EXPECT_EQ(Base64(then[i].value), answer[i][1].get<std::string>());
      EXPECT_EQ(then[i].created, Number(answer[i][2]));
      EXPECT_EQ(then[i].mod, Number(answer[i][3]));
      EXPECT_EQ(then[i].version, Number(answer[i][4]));
    }
  }
  int compared = 0;
  for (const json& hash : expected["hashkv"]) {
    const absl::StatusOr<HashKv> got = t.store->HashByRevision(Number(hash["revision"]));
    if (hash.contains("error")) {
      EXPECT_THAT(got, StatusIs(absl::StatusCode::kOutOfRange, hash["error"].get<std::string>()));
      continue;
    }
    ASSERT_OK(got);
    EXPECT_EQ(got->hash_revision, Number(hash["hash_revision"]));
    // Hashes compare only where the compact revisions agree: a running server may have answered
    // from its memory.
    if (got->compact_revision != Number(hash["compact_revision"])) continue;
    EXPECT_EQ(got->hash, hash["hash"].get<uint32_t>()) << hash;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST_P(GoldenTest, ReadsAsEtcdAnswered) {
  if (std::string(GetParam()).find("killed") != std::string::npos) {
    // The log holds the rest; what is here must be a prefix.
    EXPECT_LE(t.store->current_revision(), Number(expected["revision"]));
    EXPECT_GT(index_in_file, 0u);
    return;
  }
  t.FinishCompactions();
  CheckAll(t, expected);
  if (testing::Test::HasFailure()) return;
  ASSERT_OK(t.backend->Defragment());
  CheckAll(t, expected);
  ASSERT_OK(t.Reopen());
  CheckAll(t, expected);
  EXPECT_EQ(t.backend->consistent_index(), index_in_file);
  const int64_t revision = t.store->current_revision();
  EXPECT_EQ(t.Put("after", "wards"), revision + 1);
}

INSTANTIATE_TEST_SUITE_P(, GoldenTest,
                         testing::Values("3.7-stopped", "3.7-compacted", "3.7-restored-bumped",
                                         "3.6-compacted", "3.6-restored-bumped",
                                         "3.7-killed-after-snapshot"));

}  // namespace
}  // namespace mvcc
