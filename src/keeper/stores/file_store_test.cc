// The folder store on a bad day: power cuts at every operation, a full or read-only disk,
// leftovers.
#include "stores/file_store.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/random.h"
#include "base/testing.h"
#include "stores/testing/manual_time.h"
#include "support/memory_files.h"

namespace stores {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class FileStoreTest : public testing::Test {
 protected:
  FileStoreTest() {
    EXPECT_OK(files_.MakeDirectory("/store", 0700));
    EXPECT_OK(files_.SyncDirectory("/"));
  }
  std::unique_ptr<FileStore> Open(base::Files& files, const std::string& root) {
    return FileStore::Open(files, clock_, random_, {.root = root}).value();
  }
  Deadline Soon() const { return Deadline::In(clock_, std::chrono::minutes(5)); }
  absl::StatusOr<std::string> Get(Store& store, std::string_view name) {
    return GetBytes(store, name, 10 << 20, Soon());
  }

  ManualClock clock_;
  base::SeededRandom random_{1};
  test_support::MemoryFiles files_;
};

// Cuts the power at the n-th operation of a Put, for every n; the cut loses, keeps and tears.
TEST_F(FileStoreTest, APowerCutLeavesTheWholeObjectOrNone) {
  const std::string bytes(600'000, 'b');  // several writes
  const std::string name = "cluster/writer/fulls/1.db.zst.age";
  uint64_t at = 0;
  int whole = 0;
  int none = 0;
  bool reached = true;
  while (reached) {
    ++at;
    for (uint64_t seed = 0; seed < 12; ++seed) {
      test_support::MemoryFiles files;
      ASSERT_OK(files.MakeDirectory("/store", 0700));
      ASSERT_OK(files.SyncDirectory("/"));
      base::SeededRandom chance(seed);
      absl::Status put;
      {
        const auto store = Open(files, "/store");
        files.FailAt(at, absl::UnavailableError("power is off"));
        put = store->Put(name, BytesContent(bytes), Soon());
        reached = files.failure_reached();
        EXPECT_EQ(put.ok(), !reached) << at;
        files.FailAt(0, absl::OkStatus());
        files.Crash(chance);
      }
      const auto store = Open(files, "/store");
      const auto got = Get(*store, name);
      ASSERT_TRUE(got.ok() || !put.ok()) << "an OK is durable";
      if (got.ok()) {
        ASSERT_TRUE(*got == bytes) << at << " seed " << seed;
        ++whole;
      } else {
        ASSERT_THAT(got, StatusIs(absl::StatusCode::kNotFound));
        ++none;
      }
      // What is half done is in nobody's way.
      ASSERT_OK(store->Put(name, BytesContent(bytes), Soon()));
      files.CrashAll(false);
      ASSERT_TRUE(Get(*store, name).value() == bytes);
      clock_.Advance(std::chrono::hours(2));
      ASSERT_OK(store->Sweep(std::chrono::hours(1), Soon()));
      ASSERT_THAT(files.List("/store/.incoming"), IsOkAndHolds(testing::IsEmpty()));
    }
  }
  EXPECT_GT(at, 8U);
  EXPECT_GT(whole, 12) << "also of calls whose answer was an error";
  EXPECT_GT(none, 12);
}

TEST_F(FileStoreTest, APowerCutLeavesTheOldHeadOrTheNew) {
  const std::string old_head(5'000, 'o');
  const std::string new_head(6'000, 'n');
  bool reached = true;
  for (uint64_t at = 1; reached; ++at) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      test_support::MemoryFiles files;
      ASSERT_OK(files.MakeDirectory("/store", 0700));
      ASSERT_OK(files.SyncDirectory("/"));
      base::SeededRandom chance(seed);
      absl::Status replaced;
      {
        const auto store = Open(files, "/store");
        ASSERT_OK(store->Replace("log/head", old_head, Soon()));
        files.FailAt(at, absl::UnavailableError("power is off"));
        replaced = store->Replace("log/head", new_head, Soon());
        reached = files.failure_reached();
        files.FailAt(0, absl::OkStatus());
        files.Crash(chance);
      }
      const auto store = Open(files, "/store");
      ASSERT_OK_AND_ASSIGN(const std::string head, Get(*store, "log/head"));
      ASSERT_TRUE(head == new_head || (head == old_head && !replaced.ok())) << at;
    }
  }
}

// An error without a power cut: the name stays free, and nothing is left.
TEST_F(FileStoreTest, AnErrorAtAnyOperationIsReportedAndLeavesNoHalf) {
  const std::string bytes(600'000, 'b');
  bool reached = true;
  for (uint64_t at = 1; reached; ++at) {
    test_support::MemoryFiles files;
    ASSERT_OK(files.MakeDirectory("/store", 0700));
    const auto store = Open(files, "/store");
    files.FailAt(at, absl::InternalError("write /x: input/output error"), true);
    const absl::Status put = store->Put("a/b", BytesContent(bytes), Soon());
    reached = files.failure_reached();
    files.FailAt(0, absl::OkStatus());
    if (!reached) break;
    EXPECT_THAT(put, StatusIs(absl::StatusCode::kInternal, HasSubstr("kernel's log"))) << at;
    const auto got = Get(*store, "a/b");
    EXPECT_TRUE(got.ok() ? *got == bytes : absl::IsNotFound(got.status())) << at;
    EXPECT_OK(store->Put("a/b", BytesContent(bytes), Soon())) << at;
    const auto left = files.List("/store/.incoming");
    EXPECT_TRUE(!left.ok() || left->empty()) << at;
  }
}

TEST_F(FileStoreTest, AFullDiskIsNamedAndTakesNoNames) {
  const auto store = Open(files_, "/store");
  ASSERT_OK(store->Put("small", BytesContent("x"), Soon()));
  files_.SetCapacity(300'000);
  const std::string bytes(600'000, 'b');
  EXPECT_THAT(store->Put("big", BytesContent(bytes), Soon()),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("no space left"), HasSubstr("prune"), HasSubstr("/store"),
                             Not(HasSubstr("\n")))));
  EXPECT_THAT(store->Stat("big", Soon()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Get(*store, "small"), IsOkAndHolds("x"));
  EXPECT_OK(store->Put("small2", BytesContent("y"), Soon())) << "what it took is given back";
  ASSERT_OK_AND_ASSIGN(const Description description, store->Describe(Soon()));
  ASSERT_TRUE(description.free_bytes.has_value());
  EXPECT_LT(*description.free_bytes, 300'000U);
}

TEST_F(FileStoreTest, AReadOnlyDiskIsNamed) {
  const auto store = Open(files_, "/store");
  ASSERT_OK(store->Put("a", BytesContent("x"), Soon()));
  files_.FailAt(1, absl::PermissionDeniedError("open /store/b: read-only file system"));
  const auto named = StatusIs(absl::StatusCode::kPermissionDenied,
                              AllOf(HasSubstr("/store"), HasSubstr("mounted read-only?")));
  EXPECT_THAT(store->Put("b", BytesContent("x"), Soon()), named);
  EXPECT_THAT(store->Replace("head", "x", Soon()), named);
  EXPECT_THAT(store->Delete("a", Soon()), named);
  EXPECT_THAT(store->Describe(Soon()), named) << "found out by trying";
  EXPECT_THAT(Get(*store, "a"), IsOkAndHolds("x"));
}

// The store's disk is not blamed for the disk that the content comes from.
TEST_F(FileStoreTest, AnErrorOfTheContentComesBackAsItIs) {
  class Broken final : public Content {
   public:
    uint64_t bytes() const override { return 10; }
    const base::Digest& sha256() const override { return sha256_; }
    absl::StatusOr<size_t> ReadAt(uint64_t, char*, size_t) const override {
      return absl::InternalError("read /spool/x: input/output error");
    }

   private:
    const base::Digest sha256_{};
  };
  const auto store = Open(files_, "/store/");
  EXPECT_THAT(store->Put("a", Broken(), Soon()),
              StatusIs(absl::StatusCode::kInternal, "read /spool/x: input/output error"));
  EXPECT_THAT(files_.List("/store/.incoming"), IsOkAndHolds(testing::IsEmpty()));
}

TEST_F(FileStoreTest, AMissingFolderIsNoEmptyStore) {
  EXPECT_THAT(FileStore::Open(files_, clock_, random_, {.root = "/mnt/backup"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("mount its disk")));
  files_.Put("/file", "x");
  EXPECT_THAT(FileStore::Open(files_, clock_, random_, {.root = "/file"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not a folder")));
  const auto store = Open(files_, "/store");
  ASSERT_OK(files_.Remove("/store"));
  EXPECT_THAT(store->List({}, Soon()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store->Put("a", BytesContent("x"), Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/store is gone")));
}

TEST_F(FileStoreTest, FoldersThatSomebodyRemovedAreMadeAgain) {
  const auto store = Open(files_, "/store");
  ASSERT_OK(store->Put("a/b", BytesContent("x"), Soon()));
  ASSERT_OK(base::RemoveTree(files_, "/store/a"));
  EXPECT_OK(store->Put("a/b", BytesContent("y"), Soon()));
  ASSERT_OK(base::RemoveTree(files_, "/store/a"));
  ASSERT_OK(base::RemoveTree(files_, "/store/.incoming"));
  EXPECT_OK(store->Replace("a/head", "z", Soon()));
  files_.CrashAll(false);
  EXPECT_THAT(Get(*store, "a/head"), IsOkAndHolds("z"));
}

TEST_F(FileStoreTest, SweepTakesOnlyWhatIsOldAndIncoming) {
  const auto store = Open(files_, "/store");
  ASSERT_OK(store->Put("a", BytesContent("x"), Soon()));
  files_.Put("/store/.incoming/notes.txt", "of somebody");
  const auto leave_behind = [&](uint64_t at) {
    files_.FailAt(at, absl::UnavailableError("killed"));
    EXPECT_FALSE(store->Put("b", BytesContent("half"), Soon()).ok());
    files_.FailAt(0, absl::OkStatus());
  };
  leave_behind(2);  // the write; removing fails as well
  clock_.Advance(std::chrono::hours(3));
  leave_behind(2);
  EXPECT_EQ(files_.List("/store/.incoming").value().size(), 3U);
  EXPECT_THAT(store->Sweep(std::chrono::hours(2), Soon()), IsOkAndHolds(1U));
  EXPECT_THAT(store->Sweep(std::chrono::hours(2), Soon()), IsOkAndHolds(0U));
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(store->Sweep(base::Duration::zero(), Soon()), IsOkAndHolds(1U));
  EXPECT_THAT(files_.List("/store/.incoming"), IsOkAndHolds(testing::ElementsAre("notes.txt")));
  EXPECT_THAT(Get(*store, "a"), IsOkAndHolds("x"));
}

TEST_F(FileStoreTest, IsForItsOwnerOnly) {
  base::ScratchDirectory scratch;
  const auto store = Open(base::PosixFiles(), scratch.path());
  ASSERT_OK(store->Put("a/b/c", BytesContent("x"), Soon()));
  ASSERT_OK(store->Replace("a/head", "x", Soon()));
  for (const auto& [name, mode] :
       {std::pair("a", 0700U), std::pair("a/b", 0700U), std::pair("a/b/c", 0600U),
        std::pair("a/head", 0600U), std::pair(".incoming", 0700U)}) {
    EXPECT_EQ(base::PosixFiles().Stat(scratch / name).value().mode, mode) << name;
  }
}

TEST_F(FileStoreTest, WarnsWhenItSharesADisk) {
  base::ScratchDirectory scratch;
  ASSERT_OK_AND_ASSIGN(
      const auto store,
      FileStore::Open(base::PosixFiles(), clock_, random_,
                      {.root = scratch.path(), .apart_from = {scratch.path(), "/proc", "/none"}}));
  ASSERT_OK_AND_ASSIGN(const Description description, store->Describe(Soon()));
  ASSERT_EQ(description.warnings.size(), 1U);
  EXPECT_THAT(description.warnings[0], HasSubstr("same disk as " + scratch.path()));
  EXPECT_THAT(base::PosixFiles().List(scratch / ".incoming"), IsOkAndHolds(testing::IsEmpty()));
}

TEST_F(FileStoreTest, WhatIsNotOursIsNotListed) {
  const auto store = Open(files_, "/store");
  ASSERT_OK(store->Put("a/b", BytesContent("x"), Soon()));
  files_.Put("/store/lost+found/x", "y");
  files_.Put("/store/.snapshot/a/b", "y");
  files_.Put("/store/a/.nfs0001", "y");
  EXPECT_EQ(store->List({}, Soon()).value(),
            (std::vector<ObjectInfo>{{.name = "a/b", .bytes = 1}}));
}

}  // namespace
}  // namespace stores
