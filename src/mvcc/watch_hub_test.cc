#include "mvcc/watch_hub.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "mvcc/fixture_for_test.h"

namespace mvcc {
namespace {

// What a stream that many watchers share has been given and not yet sent.
struct Stream {
  size_t queued = 0;
  size_t limit = 0;
};

struct SharedSink final : WatchSink {
  explicit SharedSink(Stream& s) : stream(s) {}
  Stream& stream;
  int64_t last = 0;
  size_t events = 0;

  bool HasRoom() override { return stream.queued < stream.limit; }
  bool OnEvents(Watcher&, const WatchDelivery& delivery) override {
    for (const Event* event : delivery.events) {
      EXPECT_EQ(event->mod_revision, last + 1);
      last = event->mod_revision;
      stream.queued += event->body.size();
      ++events;
    }
    return HasRoom();
  }
  void OnCompacted(Watcher&, int64_t) override { ADD_FAILURE() << "compacted"; }
  void OnFailed(Watcher&, const absl::Status& status) override { EXPECT_OK(status); }
};

class WatchHubTest : public testing::Test {
 protected:
  void Open(WatchHubOptions options) {
    TestStore::Setup setup;
    setup.hub = options;
    store_ = std::make_unique<TestStore>(std::move(setup));
    ASSERT_OK(store_->Open());
    group_ = std::make_unique<WatcherGroup>(*store_->hub, [] {});
  }
  void TearDown() override {
    for (Watcher* const watcher : watchers_) group_->Remove(watcher);
    group_.reset();
  }
  Watcher* Watch(WatchSink* sink, std::string key, int64_t start) {
    WatchSpec spec{.key = std::move(key), .range_end = {}, .start_revision = start};
    watchers_.push_back(group_->Add(std::move(spec), sink, 0, nullptr).watcher);
    return watchers_.back();
  }

  std::unique_ptr<TestStore> store_;
  std::unique_ptr<WatcherGroup> group_;
  std::vector<Watcher*> watchers_;
};

// A hundred watchers of one stream that begin in the past: the stream holds one delivery more than
// its bound, not one for each watcher. All get everything in the end.
TEST_F(WatchHubTest, WatchersOfOneStreamShareItsRoom) {
  for (const size_t window : {size_t{1}, size_t{1000}}) {
    Open({.window_revisions = window, .window_bytes = 8u << 20});
    constexpr int kRevisions = 50;
    constexpr size_t kValue = 10000;
    for (int i = 0; i < kRevisions; ++i) store_->Put("k", std::string(kValue, 'v'));
    Stream stream{.limit = 100000};
    std::vector<std::unique_ptr<SharedSink>> sinks;
    for (int i = 0; i < 100; ++i) {
      sinks.push_back(std::make_unique<SharedSink>(stream));
      sinks.back()->last = 1;
      Watch(sinks.back().get(), "k", 2);
    }
    size_t most = 0;
    size_t finished = 0;
    for (int turn = 0; finished < sinks.size(); ++turn) {
      ASSERT_LT(turn, 10000);
      for (int i = 0; i < 3; ++i) group_->Drain();
      most = std::max(most, stream.queued);
      stream.queued = 0;
      for (Watcher* const watcher : watchers_) group_->Unblock(watcher);
      finished = 0;
      for (const auto& sink : sinks) finished += sink->events == kRevisions ? 1 : 0;
    }
    // One delivery may hold the whole history of the key.
    EXPECT_LE(most, stream.limit + kRevisions * (kValue + 100));
    TearDown();
    watchers_.clear();
    store_.reset();
  }
}

// The same for watchers that are up to date when a large value is put.
TEST_F(WatchHubTest, LiveWatchersOfOneStreamShareItsRoom) {
  Open({});
  constexpr size_t kValue = 1000000;
  Stream stream{.limit = 4000000};
  std::vector<std::unique_ptr<SharedSink>> sinks;
  for (int i = 0; i < 100; ++i) {
    sinks.push_back(std::make_unique<SharedSink>(stream));
    sinks.back()->last = 1;
    Watch(sinks.back().get(), "k", 0);
  }
  group_->Drain();
  store_->Put("k", std::string(kValue, 'v'));
  group_->Drain();
  EXPECT_LE(stream.queued, stream.limit + kValue + 100);
  EXPECT_EQ(store_->hub->stats().slow_watchers, 97u);
  for (int turn = 0; turn < 100; ++turn) {
    stream.queued = 0;
    for (Watcher* const watcher : watchers_) group_->Unblock(watcher);
    group_->Drain();
  }
  for (const auto& sink : sinks) EXPECT_EQ(sink->events, 1u);
}

// R26: one watcher that is far behind costs each turn of its loop a bounded slice, and the writer
// nothing: puts between the slices reach a watcher that is up to date at once.
TEST_F(WatchHubTest, R26_OneFarBehindHoldsUpNobody) {
  Open({.window_revisions = 10, .window_bytes = 8u << 20});
  constexpr int kRevisions = 20000;
  for (int i = 0; i < kRevisions; ++i) store_->Put("old", "v");
  Stream stream{.limit = SIZE_MAX};
  SharedSink behind(stream);
  behind.last = 1;
  Watch(&behind, "old", 2);
  SharedSink live(stream);
  live.last = store_->store->current_revision();
  Watch(&live, "new", 0);
  group_->Drain();
  size_t slices = 0;
  while (behind.events < kRevisions) {
    ASSERT_LT(++slices, 1000u);
    const size_t before = behind.events;
    store_->Put("new", "v");
    group_->Drain();
    EXPECT_EQ(live.events, slices) << "the live watcher waits for the one behind";
    EXPECT_LE(behind.events - before, 1000u) << "a slice without bound";
  }
  EXPECT_GE(slices, kRevisions / 1000u - 1);
}

}  // namespace
}  // namespace mvcc
