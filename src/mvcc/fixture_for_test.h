// A store with everything below it, for tests: on the real file system or a simulated disk,
// threadless or with its backend thread. Test code; one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/testing.h"
#include "base/wire.h"
#include "mvcc/store.h"
#include "mvcc/watch_hub.h"

namespace mvcc {

class ManualClock final : public base::Clock {
 public:
  base::Duration Monotonic() const override { return now; }
  base::Duration Wall() const override { return now; }
  base::Duration now = std::chrono::seconds(1000);
};

struct TestKv {
  std::string key;
  std::string value;
  int64_t created = 0;
  int64_t mod = 0;
  int64_t version = 0;
  int64_t lease = 0;
  friend bool operator==(const TestKv&, const TestKv&) = default;
  friend void PrintTo(const TestKv& kv, std::ostream* out) {
    *out << kv.key << "=" << kv.value << " c" << kv.created << " m" << kv.mod << " v" << kv.version
         << " l" << kv.lease;
  }
};

inline TestKv ToTestKv(std::string_view stored) {
  absl::StatusOr<KeyValue> kv = DecodeKeyValue(stored);
  EXPECT_OK(kv);
  if (!kv.ok()) return {};
  return {std::string(kv->key), std::string(kv->value),
          kv->create_revision,  kv->mod_revision,
          kv->version,          kv->lease};
}

// The elements of a message that holds field `field` only.
inline std::vector<TestKv> ParseKvs(std::string_view message, uint32_t field = 2) {
  std::vector<TestKv> kvs;
  base::wire::Reader reader(message);
  while (reader.Next()) {
    EXPECT_EQ(reader.field(), field);
    kvs.push_back(ToTestKv(reader.bytes()));
  }
  EXPECT_TRUE(reader.ok());
  return kvs;
}

class TestStore {
 public:
  struct Setup {
    base::Files* files = nullptr;  // null: the real one, in a scratch directory
    std::string path;
    base::Clock* clock = nullptr;
    bool threaded = false;
    StoreOptions store;
    base::Duration batch_interval = std::chrono::milliseconds(100);
    std::function<void(const absl::Status&)> on_fatal;
    WatchHubOptions hub;
    uint64_t defragment_step_bytes = 1u << 20;
    uint64_t pending_bytes_max = 64u << 20;
  };

  TestStore() : TestStore(Setup{}) {}
  explicit TestStore(Setup setup) : setup_(std::move(setup)) {
    if (setup_.files == nullptr) {
      setup_.files = &base::PosixFiles();
      setup_.path = scratch_ / "db";
    }
    if (setup_.clock == nullptr) setup_.clock = &base::SystemClock();
  }
  ~TestStore() { Close(); }

  absl::Status Open() {
    BackendOptions options;
    options.files = setup_.files;
    options.clock = setup_.clock;
    options.random = &base::SystemRandom();
    options.path = setup_.path;
    options.batch_interval = setup_.batch_interval;
    options.on_fatal = setup_.on_fatal;
    options.map_reserve_bytes = 1u << 30;
    options.defragment_step_bytes = setup_.defragment_step_bytes;
    options.pending_bytes_max = setup_.pending_bytes_max;
    ASSIGN_OR_RETURN(backend, Backend::Open(std::move(options)));
    StoreOptions store_options = setup_.store;
    if (store_options.clock == nullptr) store_options.clock = setup_.clock;
    ASSIGN_OR_RETURN(store, Store::Open(*backend, store_options));
    hub = std::make_unique<WatchHub>(*store, setup_.hub);
    if (setup_.threaded) backend->Start();
    return absl::OkStatus();
  }
  // Stop() commits; a store that is to crash is dropped with `commit` false on a simulated disk
  // that has lost its power.
  void Close() {
    if (backend != nullptr) backend->Stop().IgnoreError();
    hub.reset();
    store.reset();
    backend.reset();
  }
  absl::Status Reopen() {
    Close();
    return Open();
  }

  // One entry with one transaction.
  template <typename F>
  int64_t Txn(F f) {
    EXPECT_OK(backend->BeginEntry());
    WriteTxn txn = store->BeginWrite();
    f(txn);
    const int64_t revision = txn.End();
    backend->EndEntry(++index, 1);
    return revision;
  }
  int64_t Put(std::string_view key, std::string_view value, int64_t lease = 0) {
    return Txn([&](WriteTxn& txn) { EXPECT_OK(txn.Put(key, value, lease)); });
  }
  int64_t Delete(std::string_view key, std::string_view end = {}) {
    int64_t deleted = 0;
    Txn([&](WriteTxn& txn) {
      absl::StatusOr<int64_t> result = txn.DeleteRange(key, end);
      EXPECT_OK(result);
      if (result.ok()) deleted = *result;
    });
    return deleted;
  }
  absl::Status Compact(int64_t revision) {
    EXPECT_OK(backend->BeginEntry());
    absl::Status status = store->Compact(revision, {});
    backend->EndEntry(++index, 1);
    return status;
  }
  // Threadless: runs the loop until compactions are done.
  void FinishCompactions() {
    bool done = false;
    store->AfterCompactions([&](const absl::Status& status) {
      EXPECT_OK(status);
      done = true;
    });
    for (int i = 0; !done && i < 1000000; ++i) {
      backend->RunOnce();
      if (auto* manual = dynamic_cast<ManualClock*>(setup_.clock)) {
        manual->now += std::chrono::milliseconds(5);
      }
    }
    EXPECT_TRUE(done);
  }
  std::vector<TestKv> Get(RangeQuery query, RangeResult* result = nullptr) {
    std::string out;
    absl::StatusOr<RangeResult> got = store->Range(query, &out);
    EXPECT_OK(got);
    if (got.ok() && result != nullptr) *result = *got;
    return ParseKvs(out);
  }
  absl::Status GetStatus(RangeQuery query) {
    std::string out;
    return store->Range(query, &out).status();
  }

  base::ScratchDirectory scratch_;
  Setup setup_;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Store> store;
  std::unique_ptr<WatchHub> hub;
  uint64_t index = 0;
};

inline constexpr std::string_view kToEnd{"\0", 1};

inline uint64_t TestSeed() {
  const char* text = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed =
      text != nullptr ? std::strtoull(text, nullptr, 10) : base::SystemRandom().Next() % 1000000007;
  std::fprintf(stderr, "seed: ENGRAM_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace mvcc
