#include "support/memory_files.h"

#include "base/testing.h"

namespace test_support {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;

std::unique_ptr<base::File> Create(MemoryFiles& files, const std::string& path) {
  auto file = files.Open(path, {.write = true, .create = true});
  EXPECT_OK(file);
  return std::move(file).value();
}

TEST(MemoryFiles, SyncedDataWithSyncedNameSurvives) {
  MemoryFiles files;
  auto file = Create(files, "/f");
  ASSERT_OK(file->WriteAt(0, "kept"));
  ASSERT_OK(file->Sync());
  ASSERT_OK(files.SyncDirectory("/"));
  ASSERT_OK(file->WriteAt(0, "lost"));
  files.CrashAll(false);
  EXPECT_THAT(files.Contents("/f"), IsOkAndHolds("kept"));
  EXPECT_THAT(file->WriteAt(0, "x"), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(MemoryFiles, UnsyncedNamesAreLost) {
  MemoryFiles files;
  auto file = Create(files, "/f");
  ASSERT_OK(file->WriteAt(0, "kept"));
  ASSERT_OK(file->Sync());
  files.CrashAll(false);
  EXPECT_FALSE(base::Exists(files, "/f"));
}

TEST(MemoryFiles, RenameIsAtomic) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MemoryFiles files;
    files.Put("/d/a", "new");
    files.Put("/e/b", "old");
    ASSERT_OK(files.Rename("/d/a", "/e/b"));
    base::SeededRandom random(seed);
    files.Crash(random);
    const bool moved = !base::Exists(files, "/d/a");
    EXPECT_THAT(files.Contents("/e/b"), IsOkAndHolds(moved ? "new" : "old"));
  }
}

TEST(MemoryFiles, RenameNewReplacesNothing) {
  MemoryFiles files;
  files.Put("/d/a", "new");
  files.Put("/e/b", "old");
  EXPECT_THAT(files.RenameNew("/d/a", "/e/b"), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(files.Contents("/e/b"), IsOkAndHolds("old"));
  EXPECT_OK(files.RenameNew("/d/a", "/e/c"));
  EXPECT_THAT(files.Contents("/e/c"), IsOkAndHolds("new"));
  EXPECT_FALSE(base::Exists(files, "/d/a"));
}

TEST(PosixFiles, RenameNewReplacesNothing) {
  base::Files& files = base::PosixFiles();
  base::ScratchDirectory scratch;
  ASSERT_OK(base::WriteFileAtomically(files, scratch / "a", "new", 0600));
  ASSERT_OK(base::WriteFileAtomically(files, scratch / "b", "old", 0600));
  EXPECT_THAT(files.RenameNew(scratch / "a", scratch / "b"),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(base::ReadFile(files, scratch / "b"), IsOkAndHolds("old"));
  EXPECT_OK(files.RenameNew(scratch / "a", scratch / "c"));
  EXPECT_THAT(files.List(scratch.path()), IsOkAndHolds(testing::ElementsAre("b", "c")));
  EXPECT_THAT(files.RenameNew(scratch / "a", scratch / "d"), StatusIs(absl::StatusCode::kNotFound));
}

// A page of 'a' that 'b' was written over when the power went.
void OverwriteAndCrash(uint64_t seed, MemoryFiles* files, std::string* contents) {
  files->Put("/f", std::string(4096, 'a'));
  ASSERT_OK_AND_ASSIGN(auto file, files->Open("/f", {.write = true}));
  ASSERT_OK(file->WriteAt(0, std::string(4096, 'b')));
  base::SeededRandom random(seed);
  files->Crash(random);
  ASSERT_OK_AND_ASSIGN(*contents, files->Contents("/f"));
}

TEST(MemoryFiles, TornWritesKeepWholeSectors) {
  bool torn = false;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    MemoryFiles files;
    std::string contents;
    ASSERT_NO_FATAL_FAILURE(OverwriteAndCrash(seed, &files, &contents));
    ASSERT_EQ(contents.size(), 4096u);
    for (size_t at = 0; at < contents.size(); at += 512) {
      const std::string sector = contents.substr(at, 512);
      EXPECT_TRUE(sector == std::string(512, 'a') || sector == std::string(512, 'b'));
      torn |= sector[0] != contents[0];
    }
  }
  EXPECT_TRUE(torn);
}

TEST(MemoryFiles, CrashIsReproducible) {
  std::string first;
  for (int run = 0; run < 2; ++run) {
    MemoryFiles files;
    files.Put("/f", "");
    ASSERT_OK_AND_ASSIGN(auto file, files.Open("/f", {.write = true}));
    for (uint64_t i = 0; i < 50; ++i) {
      ASSERT_OK(file->WriteAt(i * 700, std::string(1500, static_cast<char>('a' + i % 26))));
      if (i == 20) {
        ASSERT_OK(file->Truncate(3000));
      }
    }
    base::SeededRandom random(7);
    files.Crash(random);
    ASSERT_OK_AND_ASSIGN(const std::string contents, files.Contents("/f"));
    if (run == 0) first = contents;
    EXPECT_EQ(contents, first);
  }
}

TEST(MemoryFiles, MappingShowsLaterWrites) {
  MemoryFiles files;
  auto file = Create(files, "/f");
  ASSERT_OK_AND_ASSIGN(const auto mapping, file->Map(uint64_t{1} << 30));
  ASSERT_OK(file->WriteAt(10'000, "hello"));
  EXPECT_EQ(std::string_view(mapping->data() + 10'000, 5), "hello");
  EXPECT_EQ(mapping->data()[9'999], 0);
  ASSERT_OK(file->Truncate(10'002));
  ASSERT_OK(file->Truncate(20'000));
  EXPECT_EQ(std::string_view(mapping->data() + 10'000, 5), std::string_view("he\0\0\0", 5));
  files.CrashAll(false);
  EXPECT_EQ(mapping->data()[10'000], 'h');
}

TEST(MemoryFiles, LocksExcludeByKind) {
  MemoryFiles files;
  auto one = Create(files, "/f");
  auto two = Create(files, "/f");
  EXPECT_THAT(one->TryLock(base::LockKind::kFlockShared), IsOkAndHolds(true));
  EXPECT_THAT(two->TryLock(base::LockKind::kFlockShared), IsOkAndHolds(true));
  EXPECT_THAT(two->TryLock(base::LockKind::kFlockExclusive), IsOkAndHolds(false));
  EXPECT_THAT(two->TryLock(base::LockKind::kOfdWrite), IsOkAndHolds(true));
  one.reset();
  EXPECT_THAT(two->TryLock(base::LockKind::kFlockExclusive), IsOkAndHolds(true));
}

TEST(MemoryFiles, FailsFromTheNthChangeOn) {
  MemoryFiles files;
  auto file = Create(files, "/f");
  files.FailAt(2, absl::InternalError("broken"));
  EXPECT_OK(file->WriteAt(0, "a"));
  EXPECT_FALSE(files.failure_reached());
  EXPECT_THAT(file->Sync(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_TRUE(files.failure_reached());
  EXPECT_THAT(file->WriteAt(0, std::string(2048, 'b')), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(file->Size(), IsOkAndHolds(1024u));
  EXPECT_EQ(files.ChangesSinceFailAt(), 3u);
  files.FailAt(1, absl::InternalError("once"), true);
  EXPECT_THAT(file->Sync(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_OK(file->Sync());
}

TEST(MemoryFiles, AFailingWriteEndsAtASectorOfTheFile) {
  MemoryFiles files;
  auto file = Create(files, "/f");
  ASSERT_OK(file->WriteAt(0, std::string(100, 'a')));
  files.FailAt(1, absl::InternalError("broken"), true);
  EXPECT_FALSE(file->WriteAt(100, std::string(2048, 'b')).ok());
  EXPECT_THAT(file->Size(), IsOkAndHolds(1024u));  // the border below 100 + 1024
  files.FailAt(1, absl::InternalError("broken"), true);
  EXPECT_FALSE(file->WriteAt(1030, std::string(800, 'c')).ok());
  EXPECT_THAT(file->Size(), IsOkAndHolds(1024u));  // half of it passes no border
}

TEST(MemoryFiles, TornWritesAreCounted) {
  bool met[2] = {};
  for (uint64_t seed = 0; seed < 100; ++seed) {
    MemoryFiles files;
    std::string contents;
    ASSERT_NO_FATAL_FAILURE(OverwriteAndCrash(seed, &files, &contents));
    const bool torn = contents != std::string(4096, contents[0]);
    EXPECT_EQ(files.TornWrites("/f"), torn ? 1u : 0u) << "seed " << seed;
    met[torn] = true;
  }
  EXPECT_TRUE(met[0] && met[1]);
}

TEST(MemoryFiles, AnOpenThatTruncatesMayFail) {
  MemoryFiles files;
  files.Put("/f", "contents");
  files.FailAt(1, absl::InternalError("broken"), true);
  EXPECT_THAT(files.Open("/f", {.write = true, .truncate = true}),
              StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(files.Contents("/f"), IsOkAndHolds("contents"));
  ASSERT_OK(files.Open("/f", {.write = true, .truncate = true}));
  EXPECT_THAT(files.Contents("/f"), IsOkAndHolds(""));
}

TEST(MemoryFiles, CapacityIsALimit) {
  MemoryFiles files;
  files.SetCapacity(3 * 4096);
  auto file = Create(files, "/f");
  ASSERT_OK(file->Allocate(8192));
  ASSERT_OK(file->WriteAt(0, std::string(8192, 'x')));
  EXPECT_THAT(files.FreeBytes("/f"), IsOkAndHolds(4096u));
  EXPECT_THAT(file->WriteAt(8192, std::string(8192, 'x')),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(file->WriteAt(8192, std::string(4096, 'x')));
  EXPECT_THAT(file->Allocate(16384), StatusIs(absl::StatusCode::kResourceExhausted));
  file.reset();
  ASSERT_OK(files.Remove("/f"));
  EXPECT_EQ(files.used_bytes(), 0u);
}

TEST(MemoryFiles, DirectoriesBehave) {
  MemoryFiles files;
  ASSERT_OK(base::MakeDirectories(files, "/a/b", 0700));
  EXPECT_THAT(files.Open("/x/f", {.write = true, .create = true}),
              StatusIs(absl::StatusCode::kNotFound));
  auto file = Create(files, "/a/b/f");
  EXPECT_THAT(files.Remove("/a/b"), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(files.Rename("/a/b", "/c"));
  EXPECT_THAT(files.List("/c"), IsOkAndHolds(std::vector<std::string>{"f"}));
  EXPECT_EQ(files.AllPaths(), (std::vector<std::string>{"/", "/a", "/c", "/c/f"}));
  EXPECT_THAT(files.Open("/c/f", {.write = true, .create = true, .exclusive = true}),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

}  // namespace
}  // namespace test_support
