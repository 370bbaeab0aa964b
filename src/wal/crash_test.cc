// Power cuts and disk errors at every step of a log's life, on a simulated disk, against a model of
// what may be left.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/testing.h"
#include "support/memory_files.h"
#include "wal/log.h"
#include "wal/scan.h"
#include "wal/test_log.h"

namespace wal {
namespace {

using Operation = test_support::MemoryFiles::Operation;

constexpr LogOptions kOptions{.segment_bytes = 4096};
constexpr char kDirectory[] = "/member/wal";

// A disk whose failing writes stop at a border of sectors, as they do in a kernel's page cache: a
// write that begins inside a sector is passed on in two parts.
class SectorFile final : public base::File {
 public:
  explicit SectorFile(std::unique_ptr<base::File> file) : file_(std::move(file)) {}
  const std::string& path() const override { return file_->path(); }
  absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override {
    return file_->ReadAt(offset, out, n);
  }
  absl::Status WriteAt(uint64_t offset, std::string_view data) override {
    const auto first = std::min<uint64_t>(kSectorBytes - offset % kSectorBytes, data.size());
    RETURN_IF_ERROR(file_->WriteAt(offset, data.substr(0, first)));
    if (first == data.size()) return absl::OkStatus();
    return file_->WriteAt(offset + first, data.substr(first));
  }
  absl::Status Append(std::string_view data) override { return file_->Append(data); }
  absl::StatusOr<uint64_t> Size() const override { return file_->Size(); }
  absl::Status Truncate(uint64_t size) override { return file_->Truncate(size); }
  absl::Status Allocate(uint64_t size) override { return file_->Allocate(size); }
  absl::Status Sync() override { return file_->Sync(); }
  absl::StatusOr<std::unique_ptr<base::Mapping>> Map(uint64_t bytes) override {
    return file_->Map(bytes);
  }
  absl::StatusOr<bool> TryLock(base::LockKind kind) override { return file_->TryLock(kind); }

 private:
  const std::unique_ptr<base::File> file_;
};

class SectorFiles final : public base::Files {
 public:
  explicit SectorFiles(base::Files& files) : files_(files) {}
  absl::StatusOr<std::unique_ptr<base::File>> Open(const std::string& path,
                                                   const base::OpenOptions& options) override {
    ASSIGN_OR_RETURN(auto file, files_.Open(path, options));
    return std::make_unique<SectorFile>(std::move(file));
  }
  absl::StatusOr<base::FileInfo> Stat(const std::string& path) override {
    return files_.Stat(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& dir) override {
    return files_.List(dir);
  }
  absl::Status MakeDirectory(const std::string& path, uint32_t mode) override {
    return files_.MakeDirectory(path, mode);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_.Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override { return files_.Remove(path); }
  absl::Status SyncDirectory(const std::string& dir) override { return files_.SyncDirectory(dir); }
  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override {
    return files_.FreeBytes(path);
  }

 private:
  base::Files& files_;
};

// What a reader of the log would find.
struct Content {
  std::vector<Entry> entries;  // from index 1 on
  HardState state;
  SnapshotRecord snapshot;  // the newest one at or below the commit index
};

// A log on a disk that fails, and the contents it may have after a power cut: one for each record
// written since the last call that promised durability. Each step returns false once the log has
// failed.
class Machine {
 public:
  explicit Machine(uint64_t seed) : random_(seed) { disk_.Put("/member/keep", ""); }

  test_support::MemoryFiles& disk() { return disk_; }
  base::SeededRandom& random() { return random_; }
  Log& log() { return *log_; }
  const Content& content() const { return possible_.back(); }
  // The newest commit index given to the log, which no rewrite may pass.
  uint64_t commit() const {
    return pending_.has_value() ? pending_->commit : content().state.commit;
  }

  bool Start() {
    const auto exists = HasLog(files_, kDirectory);
    if (!exists.ok()) return false;
    if (!*exists) {
      EXPECT_FALSE(created_) << "a log that was promised is gone";
      auto log = Log::Create(files_, kDirectory, kTestMetadata, kOptions);
      if (!log.ok()) return Failed(log.status());
      log_ = std::move(*log);
      created_ = true;
      return true;
    }
    auto opened = OpenNewest(files_, kDirectory, kOptions);
    if (!opened.ok()) return Failed(opened.status());
    created_ = true;
    log_ = std::move(opened->log);
    Check(opened->recovered);
    return true;
  }

  bool Save(uint64_t from, uint64_t count, uint64_t term, std::optional<HardState> state,
            bool sync) {
    std::vector<Entry> entries;
    for (uint64_t i = from; i < from + count; ++i) {
      std::string data(random_.Below(900), '\0');
      // Runs of zeros are what a torn write looks like, so there are some.
      for (char& c : data) c = random_.OneIn(3) ? '\0' : static_cast<char>(random_.Next());
      entries.push_back(MakeEntry(i, term, std::move(data)));
    }
    if (state.has_value()) pending_ = state;
    if (!entries.empty() || sync) {
      Content next = content();
      for (const Entry& entry : entries) {
        next.entries.resize(entry.index - 1);
        next.entries.push_back(entry);
        possible_.push_back(next);
      }
      WritePending();
    }
    return Done(log_->Save(Views(entries), state, sync), sync);
  }

  bool SaveSnapshot(uint64_t index) {
    const SnapshotRecord record = MakeSnapshot(index, content().entries[index - 1].term);
    WritePending();
    Content next = content();
    next.snapshot = record;
    possible_.push_back(next);
    return Done(log_->SaveSnapshotRecord(record), true);
  }

  bool Release(uint64_t index) {
    log_->ReleaseTo(index);
    return Done(log_->Purge(2).status(), false);
  }

  bool Preallocate() { return Done(log_->PreallocateNext(), false); }

  bool Close() {
    WritePending();
    if (!Done(log_->Close(), true)) return false;
    log_.reset();
    return true;
  }

  void PowerCut() {
    pending_.reset();
    disk_.Crash(random_);
    log_.reset();
  }

 private:
  void WritePending() {
    if (!pending_.has_value()) return;
    Content next = content();
    next.state = *pending_;
    possible_.push_back(next);
    pending_.reset();
  }

  bool Failed(const absl::Status& status) {
    EXPECT_TRUE(absl::IsInternal(status) || absl::IsResourceExhausted(status))
        << "only the injected error: " << status;
    return false;
  }

  bool Done(const absl::Status& status, bool durable) {
    if (!status.ok()) return Failed(status);
    if (durable) possible_.erase(possible_.begin(), possible_.end() - 1);
    return true;
  }

  // Finds which of the possible contents the log has, and takes it from there.
  void Check(const Recovered& recovered) {
    EXPECT_EQ(recovered.metadata, kTestMetadata);
    const auto match =
        std::find_if(possible_.begin(), possible_.end(), [&recovered](const Content& content) {
          const uint64_t start = content.snapshot.index;
          return content.state == recovered.state &&
                 content.entries.size() == start + recovered.entries.size() &&
                 std::equal(recovered.entries.begin(), recovered.entries.end(),
                            content.entries.begin() + static_cast<ptrdiff_t>(start));
        });
    ASSERT_NE(match, possible_.end())
        << "recovered " << recovered.entries.size() << " entries"
        << (recovered.entries.empty() ? "" : fmt::format(" from {}", recovered.entries[0].index))
        << ", commit " << recovered.state.commit << ", " << possible_.size()
        << " possibilities, newest has " << content().entries.size() << " entries, commit "
        << content().state.commit << ", snapshot " << content().snapshot.index;
    EXPECT_TRUE(recovered.snapshot_found);
    const Content found = *match;
    possible_ = {found};  // what was recovered is durable from here on
    if (found.snapshot.index == found.entries.size()) return;
    const auto entries =
        log_->ReadEntries(found.snapshot.index + 1, found.entries.size() + 1, 1 << 30);
    ASSERT_OK(entries);
    EXPECT_EQ(*entries, recovered.entries);
  }

  test_support::MemoryFiles disk_;
  SectorFiles files_{disk_};
  base::SeededRandom random_;
  std::unique_ptr<Log> log_;
  bool created_ = false;
  std::vector<Content> possible_ = {{}};
  std::optional<HardState> pending_;  // a state that Save only remembered
};

uint64_t Seed() {
  const char* given = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : base::SystemRandom().Next();
  std::cout << "ENGRAM_TEST_SEED=" << seed << std::endl;
  return seed;
}

HardState StateOf(const Machine& machine, uint64_t commit) {
  const auto& entries = machine.content().entries;
  return {.term = entries.empty() ? 1 : entries.back().term, .vote = 1, .commit = commit};
}

// A life in which everything happens: create, save, overwrite, cut with and without a prepared
// segment, snapshot, release, purge, stop, start.
bool Live(Machine* machine) {
  if (!machine->Start()) return false;
  for (int round = 0; round < 3; ++round) {
    const uint64_t last = machine->content().entries.size();
    if (round != 1 && !machine->Preallocate()) return false;
    if (!machine->Save(last + 1, 4, 1, StateOf(*machine, last), true)) return false;
    if (!machine->Save(last + 3, 3, 2, std::nullopt, false)) return false;
    if (!machine->Save(0, 0, 0, StateOf(*machine, last + 2), false)) return false;
    if (!machine->Save(last + 6, 4, 2, StateOf(*machine, last + 4), true)) return false;
    if (!machine->SaveSnapshot(last + 4)) return false;
    if (!machine->Release(last + 4)) return false;
  }
  return machine->Close() && machine->Start();
}

TEST(Crash, EveryStepOfALifeMayBeTheLast) {
  const uint64_t seed = Seed();
  uint64_t step = 1;
  bool reached = true;
  for (; reached; ++step) {
    for (uint64_t variant = 0; variant < 6; ++variant) {
      SCOPED_TRACE(testing::Message() << "step " << step << " variant " << variant);
      Machine machine(seed + variant);
      machine.disk().FailAt(step, absl::InternalError("injected"));
      const bool finished = Live(&machine);
      reached = machine.disk().failure_reached();
      ASSERT_EQ(finished, !reached);
      machine.PowerCut();
      // The start itself may be cut short, too.
      machine.disk().FailAt(1 + machine.random().Below(8), absl::InternalError("injected"));
      if (!machine.Start()) {
        machine.PowerCut();
        ASSERT_TRUE(machine.Start());
      }
      if (testing::Test::HasFailure()) return;
    }
  }
  std::cout << step - 2 << " steps" << std::endl;
  EXPECT_GT(step, 50U);
}

// One random step; false when the log has failed.
bool Step(Machine* machine) {
  base::SeededRandom& random = machine->random();
  const Content& content = machine->content();
  const uint64_t last = content.entries.size();
  const uint64_t open = last - machine->commit();  // entries not committed
  const uint64_t term = StateOf(*machine, 0).term;
  switch (random.Below(10)) {
    case 0:  // a new leader overwrites what is not committed
      if (open == 0) return true;
      return machine->Save(last - random.Below(open), 1 + random.Below(3), term + 1, std::nullopt,
                           true);
    case 1:
      return machine->Save(0, 0, 0, StateOf(*machine, last - random.Below(open + 1)), false);
    case 2: {
      const uint64_t index = content.state.commit;
      if (index <= content.snapshot.index) return true;
      return machine->SaveSnapshot(index) && machine->Release(index);
    }
    case 3:
      return machine->Preallocate();
    case 4:
      return machine->Save(last + 1, 1 + random.Below(4), term, std::nullopt, false);
    default:
      return machine->Save(last + 1, random.Below(4), term,
                           StateOf(*machine, last - random.Below(open + 1)), true);
  }
}

TEST(Crash, RandomLivesEndInPowerCuts) {
  const uint64_t seed = Seed();
  for (uint64_t life = 0; life < 12; ++life) {
    SCOPED_TRACE(testing::Message() << "life " << life);
    Machine machine(seed + life);
    base::SeededRandom& random = machine.random();
    for (int cut = 0; cut < 25; ++cut) {
      if (random.OneIn(2))
        machine.disk().FailAt(1 + random.Below(60), absl::InternalError("injected"));
      if (machine.Start()) {
        for (uint64_t steps = random.Below(40); steps > 0 && Step(&machine); --steps) {
          if (testing::Test::HasFailure()) return;
        }
      }
      machine.PowerCut();
      if (testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(machine.Start());
  }
}

TEST(Crash, OneSaveIsOneWriteAndOneSync) {
  test_support::MemoryFiles disk;
  ASSERT_OK_AND_ASSIGN(const auto log, Log::Create(disk, "/wal", kTestMetadata, kOptions));
  const auto before = disk.counters();
  ASSERT_OK(SaveRange(log.get(), 1, 5, 1, 300));
  const auto after = disk.counters();
  EXPECT_EQ(after[Operation::kWrite] - before[Operation::kWrite], 1U);
  EXPECT_EQ(after[Operation::kSync] - before[Operation::kSync], 1U);
  EXPECT_EQ(after[Operation::kTruncate], before[Operation::kTruncate]);
  ASSERT_OK(log->Save({}, HardState{.term = 1, .vote = 1, .commit = 5}, false));
  EXPECT_EQ(disk.counters()[Operation::kWrite], after[Operation::kWrite])
      << "a commit index alone waits";
}

TEST(Crash, AFailureIsFinal) {
  Machine machine(1);
  ASSERT_TRUE(machine.Start());
  machine.disk().FailAt(2, absl::ResourceExhaustedError("no space left on device"),
                        /*only_once=*/true);
  ASSERT_FALSE(machine.Save(1, 1, 1, std::nullopt, true));
  const absl::Status first = machine.log().failure();
  EXPECT_THAT(first, base::StatusIs(absl::StatusCode::kResourceExhausted));
  const EntryView entry{.term = 1, .index = 1};
  EXPECT_EQ(machine.log().Save({&entry, 1}, std::nullopt, true), first);
  EXPECT_EQ(machine.log().SaveSnapshotRecord({}), first);
  EXPECT_EQ(machine.log().Sync(), first);
  EXPECT_EQ(machine.log().Close(), first);
}

// A disk without room for the reserve still lets the member start.
TEST(Crash, FullDiskStartsWithoutPreallocation) {
  Machine machine(1);
  ASSERT_TRUE(machine.Start());
  ASSERT_TRUE(machine.Save(1, 2, 1, std::nullopt, true));
  ASSERT_TRUE(machine.Close());
  const std::string path = SegmentPath(machine.disk(), kDirectory, 0);
  {
    ASSERT_OK_AND_ASSIGN(const auto file, machine.disk().Open(path, {.write = true}));
    ASSERT_OK(file->Truncate(RecordOffsets(machine.disk(), path).back()));
    ASSERT_OK(file->Sync());
  }
  machine.disk().SetCapacity(1);
  ASSERT_TRUE(machine.Start());
  EXPECT_FALSE(machine.Save(3, 9, 1, std::nullopt, true));
}

}  // namespace
}  // namespace wal
