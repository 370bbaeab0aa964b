// Speed and memory of the key index at a million keys of 32 bytes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "mvcc/key_index.h"

namespace mvcc {
namespace {

constexpr size_t kKeys = 1000000;
constexpr size_t kKeyBytes = 32;
const std::string kFromKey("\0", 1);

// 0: random bytes; 1: pods and leases as Kubernetes names them, in random order.
std::vector<std::string> MakeKeys(int64_t shape) {
  base::SeededRandom random(7);
  std::vector<std::string> keys(kKeys);
  for (size_t i = 0; i < kKeys; ++i) {
    std::string& key = keys[i];
    if (shape == 0) {
      for (int n = 0; n < 4; ++n) {
        const uint64_t word = random.Next();
        key.append(reinterpret_cast<const char*>(&word), 8);
      }
    } else {
      key = "/registry/pods/ns-" + std::to_string(100 + i % 200) + "/";
      const std::string number = std::to_string(i * 2654435761 % 1000000007);
      key += std::string(kKeyBytes - key.size() - number.size(), '0') + number;
    }
  }
  for (size_t i = kKeys - 1; i > 0; --i) std::swap(keys[i], keys[random.Below(i + 1)]);
  return keys;
}

const std::vector<std::string>& KeysOf(int64_t shape) {
  static const std::vector<std::string> kinds[] = {MakeKeys(0), MakeKeys(1)};
  return kinds[shape];
}

// The same keys in another order, side by side in memory: a request's key is in the cache when it
// is looked up, so fetching it from a million strings would be measured in vain.
const std::string& ShuffledBytes(int64_t shape) {
  static const auto shuffled = [](const std::vector<std::string>& keys) {
    std::string bytes;
    for (size_t i = 0; i < kKeys; ++i) bytes += keys[i * 7919 % kKeys];
    return bytes;
  };
  static const std::string kinds[] = {shuffled(KeysOf(0)), shuffled(KeysOf(1))};
  return kinds[shape];
}
std::string_view KeyAt(const std::string& bytes, size_t i) {
  return std::string_view(bytes).substr(i % kKeys * kKeyBytes, kKeyBytes);
}

KeyIndex Inserted(const std::vector<std::string>& keys, int64_t* main) {
  KeyIndex index;
  for (const std::string& key : keys) index.Put(key, {++*main, 0});
  return index;
}

void BM_InsertInRandomOrder(benchmark::State& state) {
  const std::vector<std::string>& keys = KeysOf(state.range(0));
  for (auto _ : state) {
    int64_t main = 1;
    const KeyIndex index = Inserted(keys, &main);
    state.counters["bytes_per_key"] = static_cast<double>(index.memory_bytes()) / kKeys;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kKeys));
}
BENCHMARK(BM_InsertInRandomOrder)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void BM_Load(benchmark::State& state) {
  const std::vector<std::string>& keys = KeysOf(state.range(0));
  for (auto _ : state) {
    std::vector<KeyIndexLoader::Shard> shards(2);
    for (size_t i = 0; i < kKeys; ++i) {
      const int64_t main = static_cast<int64_t>(i) + 2;
      shards[i * 2 / kKeys].Put(keys[i], main, {main, 0}, 1, 0);
    }
    const auto index = KeyIndexLoader::Build(std::move(shards), [](std::string_view, int64_t) {});
    state.counters["bytes_per_key"] = static_cast<double>(index->memory_bytes()) / kKeys;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kKeys));
}
BENCHMARK(BM_Load)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void BM_Get(benchmark::State& state) {
  const std::vector<std::string>& keys = KeysOf(state.range(0));
  int64_t main = 1;
  const KeyIndex index = Inserted(keys, &main);
  const std::string& bytes = ShuffledBytes(state.range(0));
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(index.Get(KeyAt(bytes, i++), KeyIndex::kNow));
}
BENCHMARK(BM_Get)->Arg(0)->Arg(1);

// A million keys, each put three times in the end.
void BM_PutExisting(benchmark::State& state) {
  const std::vector<std::string>& keys = KeysOf(state.range(0));
  int64_t main = 1;
  KeyIndex index = Inserted(keys, &main);
  const std::string& bytes = ShuffledBytes(state.range(0));
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(index.Put(KeyAt(bytes, i++), {++main, 0}));
  state.counters["bytes_per_key"] = static_cast<double>(index.memory_bytes()) / kKeys;
}
BENCHMARK(BM_PutExisting)->Arg(0)->Arg(1)->Iterations(2 * kKeys);

void BM_PutHotKey(benchmark::State& state) {
  KeyIndex index;
  int64_t main = 1;
  for (auto _ : state) index.Put("hot", {++main, 0});
  state.counters["bytes_per_change"] =
      static_cast<double>(index.memory_bytes()) / static_cast<double>(main);
}
BENCHMARK(BM_PutHotKey)->Iterations(1000000);

void BM_VisitPerKey(benchmark::State& state) {
  const std::vector<std::string>& keys = KeysOf(state.range(0));
  int64_t main = 1;
  const KeyIndex index = Inserted(keys, &main);
  for (auto _ : state) {
    KeyIndex::Slice slice{false, ""};
    while (!slice.done) {
      slice = index.Visit(slice.resume_key, kFromKey, KeyIndex::kNow, 1000,
                          [](std::string_view key, const KeyState& key_state) {
                            benchmark::DoNotOptimize(key.data());
                            benchmark::DoNotOptimize(key_state);
                            return true;
                          });
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kKeys));
}
BENCHMARK(BM_VisitPerKey)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void BM_CountNow(benchmark::State& state) {
  const std::vector<std::string>& keys = KeysOf(1);
  int64_t main = 1;
  const KeyIndex index = Inserted(keys, &main);
  const std::string& bytes = ShuffledBytes(1);
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(index.CountNow(KeyAt(bytes, i++), kFromKey));
}
BENCHMARK(BM_CountNow);

// A million keys put twice; drops the first half of the changes.
void BM_CompactAMillion(benchmark::State& state) {
  const std::vector<std::string>& keys = KeysOf(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    int64_t main = 1;
    KeyIndex index = Inserted(keys, &main);
    for (const std::string& key : keys) index.Put(key, {++main, 0});
    size_t dropped = 0;
    KeyIndex::Slice slice{false, ""};
    state.ResumeTiming();
    while (!slice.done) {
      slice = index.Compact(main, slice.resume_key, 1000,
                            [&dropped](const RevisionKey&, bool kept) { dropped += kept ? 0 : 1; });
    }
    state.counters["dropped"] = static_cast<double>(dropped);
    state.counters["bytes_per_key"] = static_cast<double>(index.memory_bytes()) / kKeys;
  }
}
BENCHMARK(BM_CompactAMillion)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace mvcc
