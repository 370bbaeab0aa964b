#include "catalog/suspicion.h"

#include "base/testing.h"
#include "catalog/test_inventory.h"

namespace catalog {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Object With(int64_t revision, std::map<std::string, uint64_t> counts) {
  Object full = Full(1, revision, revision);
  full.prefix_counts = std::move(counts);
  for (const auto& [prefix, count] : full.prefix_counts) full.key_count += count;
  return full;
}

TEST(Suspicion, NothingLostIsFine) {
  const Object before = With(10, {{"/registry/pods/", 1000}, {"/registry/secrets/", 50}});
  EXPECT_EQ(Suspicion(before, With(20, before.prefix_counts)), "");
  EXPECT_EQ(Suspicion(before, With(20, {{"/registry/pods/", 501}, {"/registry/secrets/", 50}})),
            "");
  EXPECT_EQ(Suspicion(before, With(20, {{"/registry/pods/", 9000}, {"/registry/secrets/", 50}})),
            "");
}

TEST(Suspicion, MoreThanHalfOfAllKeys) {
  const Object before = With(10, {{"a/", 60}, {"b/", 60}});
  EXPECT_EQ(Suspicion(before, With(20, {{"a/", 30}, {"b/", 30}})), "");
  EXPECT_EQ(Suspicion(before, With(20, {{"a/", 29}, {"b/", 30}})),
            "in all: 61 keys of 120 are gone");
  EXPECT_EQ(Suspicion(before, With(20, {{"a/", 60}, {"b/", 40}}), {.share = 0.1}),
            "in all: 20 keys of 120 are gone");
}

TEST(Suspicion, MoreThanHalfOfALargePrefix) {
  const Object before = With(10, {{"/registry/pods/", 100}, {"/registry/big/", 5000}});
  EXPECT_EQ(Suspicion(before, With(20, {{"/registry/pods/", 49}, {"/registry/big/", 5000}})),
            "/registry/pods/: 51 keys of 100 are gone");
  const Object smaller = With(10, {{"/registry/pods/", 99}, {"/registry/big/", 5000}});
  EXPECT_EQ(Suspicion(smaller, With(20, {{"/registry/pods/", 40}, {"/registry/big/", 5000}})), "");
}

TEST(Suspicion, AWholePrefixGoneUnlessItWasSmall) {
  const Object before = With(10, {{"/registry/secrets/", 10}, {"/registry/csr/", 9}, {"x/", 900}});
  EXPECT_EQ(Suspicion(before, With(20, {{"x/", 900}})), "/registry/secrets/: all 10 keys are gone");
}

TEST(Suspicion, WhatExpiresByItselfSaysNothing) {
  const Object before = With(10, {{"/registry/events/", 9000}, {"/registry/pods/", 50}});
  EXPECT_EQ(Suspicion(before, With(20, {{"/registry/pods/", 50}})), "");
  EXPECT_THAT(Suspicion(before, With(20, {{"/registry/events/", 9000}, {"/registry/pods/", 5}})),
              HasSubstr("in all: 45 keys of 50"));
}

TEST(Suspicion, ATinyClusterIsBeingSetUp) {
  EXPECT_EQ(Suspicion(With(10, {{"a/", 9}}), With(20, {})), "");
  EXPECT_THAT(Suspicion(With(10, {{"a/", 10}}), With(20, {})), HasSubstr("all 10 keys"));
}

TEST(Suspicion, ComparesOnlyASuccessorOfTheSameTimeline) {
  const Object before = With(10, {{"a/", 1000}});
  EXPECT_EQ(Suspicion(before, With(9, {})), "");
  Object other = With(20, {});
  other.timeline = kSecond;
  EXPECT_EQ(Suspicion(before, other), "");
}

TEST(Suspicion, NamesAFewPrefixesAndCountsTheRest) {
  std::map<std::string, uint64_t> counts;
  for (int i = 0; i < 9; ++i) counts["p" + std::to_string(i) + "/"] = 20;
  const std::string reason = Suspicion(With(10, counts), With(20, {}));
  EXPECT_THAT(reason, AllOf(HasSubstr("in all: 180"), HasSubstr("p3/"), Not(HasSubstr("p4/")),
                            HasSubstr("and 5 more")));
}

}  // namespace
}  // namespace catalog
