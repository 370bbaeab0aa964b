// What the store costs by itself, without log and network: prints one line per measurement. Run it
// from a release build; the first argument is the number of keys (1,000,000 if missing), the second
// a directory for the db file.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "mvcc/store.h"
#include "mvcc/watch_hub.h"

namespace mvcc {
namespace {

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
double Now() { return std::chrono::duration<double>(base::SystemClock().Monotonic()).count(); }
double AnonymousMiB() {
  // Second and sixth number of statm are pages; what matters here is resident less shared.
  long total = 0;
  long resident = 0;
  long shared = 0;
  FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld %ld", &total, &resident, &shared) != 3)
    return 0;
  std::fclose(file);
  return static_cast<double>(resident - shared) * 4096 / (1 << 20);
}

class Meter {
 public:
  explicit Meter(std::string name) : name_(std::move(name)), wall_(Now()), cpu_(CpuSeconds()) {}
  void Done(int64_t operations) {
    const double wall = Now() - wall_;
    const double cpu = CpuSeconds() - cpu_;
    fmt::print("{:<44} {:8.3f} s wall {:8.3f} s cpu {:9.0f} ns cpu each, {:.0f} MiB\n", name_, wall,
               cpu, cpu * 1e9 / static_cast<double>(operations), AnonymousMiB());
    std::fflush(stdout);
  }

 private:
  const std::string name_;
  const double wall_;
  const double cpu_;
};

struct CountingSink final : WatchSink {
  uint64_t bytes = 0;
  bool HasRoom() override { return true; }
  bool OnEvents(Watcher&, const WatchDelivery& delivery) override {
    for (const Event* event : delivery.events) bytes += event->body.size();
    return true;
  }
  void OnCompacted(Watcher&, int64_t) override {}
  void OnFailed(Watcher&, const absl::Status&) override {}
};

std::string KeyOf(uint64_t i) { return fmt::format("/registry/pods/default/{:09}", i); }

struct Bench {
  std::string path;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Store> store;
  uint64_t index = 0;

  void Open() {
    BackendOptions options;
    options.files = &base::PosixFiles();
    options.clock = &base::SystemClock();
    options.random = &base::SystemRandom();
    options.path = path;
    options.on_fatal = [](const absl::Status& status) {
      fmt::print("fatal: {}\n", status.ToString());
      std::abort();
    };
    auto opened = Backend::Open(std::move(options));
    CHECK(opened.ok());
    backend = *std::move(opened);
    auto made = Store::Open(*backend, {.clock = &base::SystemClock()});
    CHECK(made.ok());
    store = *std::move(made);
    backend->Start();
  }
  void Close() {
    CHECK(backend->Stop().ok());
    store.reset();
    backend.reset();
  }
  void Put(std::string_view key, std::string_view value) {
    CHECK(backend->BeginEntry().ok());
    WriteTxn txn = store->BeginWrite();
    CHECK(txn.Put(key, value, 0).ok());
    txn.End();
    backend->EndEntry(++index, 1);
  }
  // Puts at a steady pace until `done`; prints the latencies.
  void PacedPuts(const char* name, uint64_t keys, const std::function<bool()>& done) {
    base::SeededRandom random(3);
    const std::string value(256, 'p');
    std::vector<double> times;
    while (!done()) {
      const double start = Now();
      Put(KeyOf(random.Below(keys)), value);
      times.push_back(Now() - start);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    std::sort(times.begin(), times.end());
    fmt::print("{:<44} {} puts, p50 {:.1f} us, p99 {:.1f} us, max {:.1f} us\n", name, times.size(),
               times[times.size() / 2] * 1e6, times[times.size() * 99 / 100] * 1e6,
               times.back() * 1e6);
    std::fflush(stdout);
  }
};

void Main(uint64_t keys, const std::string& dir) {
  Bench b;
  b.path = dir + "/store_benchmark.db";
  base::PosixFiles().Remove(b.path).IgnoreError();
  b.Open();
  const std::string value(256, 'v');
  base::SeededRandom random(1);
  std::vector<uint64_t> order(keys);
  for (uint64_t i = 0; i < keys; ++i) order[i] = i;
  for (uint64_t i = keys; i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  {
    Meter meter("put new keys, 256 B, random order");
    for (const uint64_t i : order) b.Put(KeyOf(i), value);
    CHECK(b.backend->ForceCommit().ok());
    meter.Done(static_cast<int64_t>(keys));
  }
  malloc_trim(0);
  fmt::print("index {:.1f} bytes a key, anonymous {:.0f} MiB\n",
             static_cast<double>(b.store->stats().index_bytes) / static_cast<double>(keys),
             AnonymousMiB());
  {
    Meter meter("get, random key");
    std::string out;
    for (int i = 0; i < 1000000; ++i) {
      out.clear();
      CHECK(b.store->Range({.key = KeyOf(random.Below(keys))}, &out).ok());
    }
    meter.Done(1000000);
  }
  {
    Meter meter("range of 10,000 keys, per key");
    std::string out;
    for (int i = 0; i < 100; ++i) {
      out.clear();
      CHECK(
          b.store->Range({.key = KeyOf(random.Below(keys)), .range_end = "0", .limit = 10000}, &out)
              .ok());
    }
    meter.Done(1000000);
  }
  {
    Meter meter("count of everything");
    std::string out;
    for (int i = 0; i < 100000; ++i) {
      CHECK(b.store->Range({.key = "/", .range_end = "0", .count_only = true}, &out).ok());
    }
    meter.Done(100000);
  }
  b.PacedPuts("paced puts at rest", keys, [n = 0]() mutable { return ++n > 5000; });
  {
    std::atomic<bool> done{false};
    Meter meter("defragmentation");
    b.backend->StartDefragment([&](const absl::Status& status) {
      CHECK(status.ok());
      done = true;
    });
    b.PacedPuts("paced puts while defragmenting", keys, [&] { return done.load(); });
    meter.Done(1);
  }
  {
    Meter meter("put existing keys");
    for (uint64_t i = 0; i < keys; ++i) b.Put(KeyOf(random.Below(keys)), value);
    CHECK(b.backend->ForceCommit().ok());
    meter.Done(static_cast<int64_t>(keys));
  }
  {
    std::atomic<bool> done{false};
    Meter meter("physical compaction of that");
    CHECK(b.backend->BeginEntry().ok());
    CHECK(b.store
              ->Compact(b.store->current_revision(), {.finished =
                                                          [&](const absl::Status& s) {
                                                            CHECK(s.ok());
                                                            done = true;
                                                          }})
              .ok());
    b.backend->EndEntry(++b.index, 1);
    b.PacedPuts("paced puts while compacting", keys, [&] { return done.load(); });
    meter.Done(static_cast<int64_t>(keys));
  }
  {
    WatchHub hub(*b.store, {});
    std::atomic<bool> woken{false};
    WatcherGroup group(hub, [&] { woken = true; });
    std::vector<CountingSink> sinks(2000);
    std::vector<Watcher*> watchers;
    for (CountingSink& sink : sinks) {
      watchers.push_back(group.Add({.key = "watched"}, &sink, 0, nullptr).watcher);
    }
    Meter meter("2,000 watchers x 5,000 puts of one key");
    for (int i = 0; i < 5000; ++i) {
      b.Put("watched", value);
      if (i % 10 == 9) group.Drain();
    }
    while (group.Drain()) {
    }
    meter.Done(2000 * 5000);
    for (Watcher* watcher : watchers) group.Remove(watcher);
    CountingSink history;
    Watcher* const old =
        group
            .Add({.key = "/", .range_end = "0", .start_revision = b.store->compact_revision()},
                 &history, 0, nullptr)
            .watcher;
    Meter replay("replay of the history to one watcher");
    while (group.Drain()) {
    }
    replay.Done(static_cast<int64_t>(keys));
    group.Remove(old);
  }
  b.Close();
  {
    Meter meter("restart");
    b.Open();
    meter.Done(static_cast<int64_t>(keys));
  }
  fmt::print("index {:.1f} bytes a key, anonymous {:.0f} MiB\n",
             static_cast<double>(b.store->stats().index_bytes) / static_cast<double>(keys),
             AnonymousMiB());
  {
    Meter meter("HashKV");
    CHECK(b.store->HashByRevision(0).ok());
    meter.Done(static_cast<int64_t>(keys));
  }
  b.Close();
  base::PosixFiles().Remove(b.path).IgnoreError();
}

}  // namespace
}  // namespace mvcc

int main(int argc, char** argv) {
  mvcc::Main(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000000, argc > 2 ? argv[2] : "/tmp");
  return 0;
}
