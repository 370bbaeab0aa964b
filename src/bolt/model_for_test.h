// An obvious model of a db file's contents, to compare transactions with. For tests; not
// thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/testing.h"
#include "bolt/db.h"

namespace bolt {

// A run's seed: from ENGRAM_TEST_SEED, or `fallback`; printed, so that a failure can be replayed.
inline uint64_t TestSeed(uint64_t fallback) {
  const char* const text = std::getenv("ENGRAM_TEST_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
  std::cout << "ENGRAM_TEST_SEED=" << seed << "\n";
  return seed;
}

struct ModelBucket {
  std::map<std::string, std::string, std::less<>> values;
  std::map<std::string, ModelBucket, std::less<>> buckets;
  uint64_t sequence = 0;
  bool operator==(const ModelBucket&) const = default;

  std::vector<std::string> Keys() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : values) keys.push_back(key);
    for (const auto& [key, bucket] : buckets) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    return keys;
  }
};

// What a bucket holds, read forwards; and the same keys must come backwards. Gives up after
// `elements_max` of them: in a damaged file buckets may hold each other, which only the consistency
// check sees.
inline absl::StatusOr<ModelBucket> ReadBucket(const Bucket& bucket,
                                              uint64_t* elements_max = nullptr) {
  ModelBucket model;
  model.sequence = bucket.sequence();
  Cursor cursor = bucket.cursor();
  std::vector<std::string> forwards;
  ASSIGN_OR_RETURN(bool valid, cursor.First());
  while (valid) {
    if (elements_max != nullptr && (*elements_max)-- == 0)
      return absl::ResourceExhaustedError("too many elements");
    const std::string key(cursor.key());
    if (!forwards.empty() && key <= forwards.back())
      return absl::InternalError("forwards out of order");
    forwards.push_back(key);
    if (cursor.is_bucket()) {
      ASSIGN_OR_RETURN(const Bucket nested, bucket.bucket(key));
      ASSIGN_OR_RETURN(model.buckets[key], ReadBucket(nested, elements_max));
    } else {
      model.values[key] = std::string(cursor.value());
      ASSIGN_OR_RETURN(const auto got, bucket.Get(key));
      if (got != cursor.value()) return absl::InternalError("Get differs from the cursor");
    }
    ASSIGN_OR_RETURN(valid, cursor.Next());
  }
  std::vector<std::string> backwards;
  ASSIGN_OR_RETURN(valid, cursor.Last());
  while (valid) {
    backwards.emplace_back(cursor.key());
    ASSIGN_OR_RETURN(valid, cursor.Prev());
  }
  std::reverse(backwards.begin(), backwards.end());
  if (forwards != backwards) return absl::InternalError("backwards differs from forwards");
  return model;
}

// The same through a write transaction.
inline absl::StatusOr<ModelBucket> ReadBucket(WriteBucket& bucket) {
  ModelBucket model;
  model.sequence = bucket.sequence();
  Cursor cursor = bucket.cursor();
  std::vector<std::string> forwards;
  ASSIGN_OR_RETURN(bool valid, cursor.First());
  while (valid) {
    const std::string key(cursor.key());
    forwards.push_back(key);
    if (cursor.is_bucket()) {
      ASSIGN_OR_RETURN(WriteBucket* const nested, bucket.bucket(key));
      ASSIGN_OR_RETURN(model.buckets[key], ReadBucket(*nested));
    } else {
      model.values[key] = std::string(cursor.value());
    }
    ASSIGN_OR_RETURN(valid, cursor.Next());
  }
  std::vector<std::string> backwards;
  ASSIGN_OR_RETURN(valid, cursor.Last());
  while (valid) {
    backwards.emplace_back(cursor.key());
    ASSIGN_OR_RETURN(valid, cursor.Prev());
  }
  std::reverse(backwards.begin(), backwards.end());
  if (forwards != backwards) return absl::InternalError("backwards differs from forwards");
  return model;
}

// Drives a WriteBucket and its model with the same random changes.
class RandomChanges {
 public:
  explicit RandomChanges(base::Random& random) : random_(random) {}

  std::string Key() {
    switch (random_.Below(4)) {
      case 0:
        return std::to_string(random_.Below(500));
      case 1:
        return "long-" + std::string(random_.Below(200), 'k') + std::to_string(random_.Below(50));
      default:
        return "k" + std::to_string(1'000'000 + random_.Below(800));
    }
  }
  std::string Value() {
    const size_t bytes = random_.OneIn(100) ? random_.Below(20'000)
                         : random_.OneIn(8) ? random_.Below(600)
                                            : random_.Below(60);
    return std::string(bytes, static_cast<char>('a' + random_.Below(26)));
  }

  // One random change of `bucket` or, now and then, of a bucket in it.
  void Change(WriteBucket& bucket, ModelBucket& model, int depth = 0) {
    const uint64_t choice = random_.Below(100);
    if (choice < 45) {
      PutOne(bucket, model, Key(), Value());
    } else if (choice < 65) {
      const std::string key = ExistingKey(model);
      absl::StatusOr<bool> deleted = bucket.Delete(key);
      if (model.buckets.contains(key)) {
        EXPECT_THAT(deleted, base::StatusIs(absl::StatusCode::kInvalidArgument));
      } else {
        EXPECT_THAT(deleted, base::IsOkAndHolds(model.values.erase(key) > 0));
      }
    } else if (choice < 70) {
      DeleteRange(bucket, model);
    } else if (choice < 75) {  // a run in order, as a log is appended to
      const uint64_t first = random_.Below(2'000);
      const uint64_t count = random_.Below(60);
      for (uint64_t i = 0; i < count; ++i)
        PutOne(bucket, model, "r" + std::to_string(1'000'000 + first + i), Value());
    } else if (choice < 80) {
      const std::string name = "b" + std::to_string(random_.Below(6));
      if (model.buckets.contains(name)) {
        EXPECT_THAT(bucket.CreateBucket(name), base::StatusIs(absl::StatusCode::kAlreadyExists));
      } else {
        EXPECT_OK(bucket.CreateBucketIfMissing(name));
        model.buckets[name];
      }
    } else if (choice < 82) {
      const std::string name = "b" + std::to_string(random_.Below(6));
      const bool there = model.buckets.erase(name) > 0;
      EXPECT_EQ(bucket.DeleteBucket(name).ok(), there);
    } else if (choice < 84) {
      EXPECT_THAT(bucket.NextSequence(), base::IsOkAndHolds(++model.sequence));
    } else if (depth < 3 && !model.buckets.empty()) {
      auto at = model.buckets.begin();
      std::advance(at, static_cast<ptrdiff_t>(random_.Below(model.buckets.size())));
      absl::StatusOr<WriteBucket*> nested = bucket.bucket(at->first);
      ASSERT_OK(nested);
      const uint64_t count = 1 + random_.Below(6);
      for (uint64_t i = 0; i < count; ++i) Change(**nested, at->second, depth + 1);
    }
    CheckSeek(bucket, model);
  }

 private:
  void PutOne(WriteBucket& bucket, ModelBucket& model, const std::string& key,
              const std::string& value) {
    if (model.buckets.contains(key)) {
      EXPECT_THAT(bucket.Put(key, value), base::StatusIs(absl::StatusCode::kInvalidArgument));
      return;
    }
    EXPECT_OK(bucket.Put(key, value));
    model.values[key] = value;
  }
  std::string ExistingKey(const ModelBucket& model) {
    const auto at = model.values.lower_bound(Key());
    return at == model.values.end() ? Key() : at->first;
  }
  void DeleteRange(WriteBucket& bucket, ModelBucket& model) {
    std::string begin = Key();
    std::string end = Key();
    const bool open = random_.OneIn(8);
    if (end < begin) std::swap(begin, end);
    const auto from = model.values.lower_bound(begin);
    const auto to = open ? model.values.end() : model.values.lower_bound(end);
    const auto nested = model.buckets.lower_bound(begin);
    absl::StatusOr<uint64_t> count =
        bucket.DeleteRange(begin, open ? std::nullopt : std::optional<std::string_view>(end));
    if (nested != model.buckets.end() && (open || nested->first < end)) {
      EXPECT_THAT(count, base::StatusIs(absl::StatusCode::kInvalidArgument));
      return;
    }
    EXPECT_THAT(count, base::IsOkAndHolds(static_cast<uint64_t>(std::distance(from, to))));
    model.values.erase(from, to);
  }
  void CheckSeek(WriteBucket& bucket, const ModelBucket& model) {
    if (!random_.OneIn(8)) return;
    const std::string key = Key();
    Cursor cursor = bucket.cursor();
    absl::StatusOr<bool> found = cursor.Seek(key);
    ASSERT_OK(found);
    const auto value = model.values.lower_bound(key);
    const auto nested = model.buckets.lower_bound(key);
    std::optional<std::string> expected;
    if (value != model.values.end()) expected = value->first;
    if (nested != model.buckets.end() && (!expected || nested->first < *expected))
      expected = nested->first;
    ASSERT_EQ(*found, expected.has_value());
    EXPECT_TRUE(!*found || cursor.key() == *expected);
    absl::StatusOr<std::optional<std::string_view>> got = bucket.Get(key);
    ASSERT_OK(got);
    const auto exact = model.values.find(key);
    ASSERT_EQ(got->has_value(), exact != model.values.end());
    EXPECT_TRUE(!got->has_value() || **got == exact->second);
  }

  base::Random& random_;
};

}  // namespace bolt
