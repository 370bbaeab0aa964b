// Semantics of Put and Txn as clients know them, through the log and as reads of their own.
#include "member/txn.h"

#include "lease/lessor.h"
#include "member/errors.h"
#include "member/fixture_for_test.h"
#include "mvcc/store.h"

namespace member {
namespace {

using testing::ElementsAre;

const std::string kToEnd(1, '\0');

pb::RequestOp PutOp(const std::string& key, const std::string& value, int64_t lease = 0) {
  pb::RequestOp op;
  op.mutable_request_put()->set_key(key);
  op.mutable_request_put()->set_value(value);
  op.mutable_request_put()->set_lease(lease);
  return op;
}
pb::RequestOp DeleteOp(const std::string& key, const std::string& end = "") {
  pb::RequestOp op;
  op.mutable_request_delete_range()->set_key(key);
  op.mutable_request_delete_range()->set_range_end(end);
  return op;
}
pb::RequestOp RangeOp(const std::string& key, const std::string& end = "", int64_t revision = 0) {
  pb::RequestOp op;
  op.mutable_request_range()->set_key(key);
  op.mutable_request_range()->set_range_end(end);
  op.mutable_request_range()->set_revision(revision);
  return op;
}
pb::RequestOp TxnOp(const pb::TxnRequest& txn) {
  pb::RequestOp op;
  *op.mutable_request_txn() = txn;
  return op;
}
pb::Compare Mod(const std::string& key, pb::Compare::CompareResult result, int64_t revision) {
  pb::Compare compare;
  compare.set_key(key);
  compare.set_target(pb::Compare::MOD);
  compare.set_result(result);
  compare.set_mod_revision(revision);
  return compare;
}
pb::Compare Value(const std::string& key, pb::Compare::CompareResult result,
                  const std::string& value) {
  pb::Compare compare;
  compare.set_key(key);
  compare.set_target(pb::Compare::VALUE);
  compare.set_result(result);
  compare.set_value(value);
  return compare;
}

class TxnTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(t.StartReady()); }

  pb::TxnResponse Do(const pb::TxnRequest& txn) {
    const ApplyResult result = t.Do(RequestKind::kTxn, txn);
    EXPECT_OK(result.status);
    revision = result.revision;
    pb::TxnResponse response;
    EXPECT_TRUE(response.ParseFromString(result.body));
    return response;
  }
  absl::Status Refusal(const pb::TxnRequest& txn) {
    const auto before = t.Keys();
    const int64_t revision_before = t.revision();
    const ApplyResult result = t.Do(RequestKind::kTxn, txn);
    EXPECT_EQ(t.Keys(), before) << "a refused txn must leave nothing";
    EXPECT_EQ(t.revision(), revision_before);
    EXPECT_EQ(result.revision, revision_before);
    return result.status;
  }
  bool Holds(const pb::Compare& compare) {
    pb::TxnRequest txn;
    *txn.add_compare() = compare;
    // The same on the path of a read and on that of the log.
    const auto read = ReadTxn(t.member->store(), txn);
    EXPECT_OK(read);
    pb::TxnResponse response;
    EXPECT_TRUE(read.ok() && response.ParseFromString(read->body));
    const bool holds = Do(txn).succeeded();
    EXPECT_EQ(response.succeeded(), holds);
    return holds;
  }
  ApplyResult DoPut(const pb::PutRequest& put) { return t.Do(RequestKind::kPut, put); }

  TestMember t;
  int64_t revision = 0;  // of the last txn's header
};

TEST_F(TxnTest, IgnoreValueAndIgnoreLease) {
  t.Grant(7, 100);
  pb::PutRequest put;
  put.set_key("a");
  put.set_ignore_value(true);
  EXPECT_EQ(DoPut(put).status, KeyNotFoundError());
  put.set_ignore_value(false);
  put.set_ignore_lease(true);
  EXPECT_EQ(DoPut(put).status, KeyNotFoundError());
  EXPECT_EQ(t.revision(), 1);

  t.Put("a", "1", 7);
  put.set_value("2");  // keeps the lease
  EXPECT_OK(DoPut(put).status);
  EXPECT_THAT(t.Keys(), ElementsAre("a=2 c2 m3 v2 l7"));
  put.set_ignore_lease(false);
  put.set_ignore_value(true);
  put.clear_value();  // keeps the value, and lets the lease go
  EXPECT_OK(DoPut(put).status);
  EXPECT_THAT(t.Keys(), ElementsAre("a=2 c2 m4 v3 l0"));
  // The lease is looked at first.
  put.set_key("missing");
  put.set_lease(-5);
  EXPECT_EQ(DoPut(put).status, lease::LeaseNotFoundError());
}

TEST_F(TxnTest, PrevKvIsTheStateBefore) {
  pb::PutRequest put;
  put.set_key("a");
  put.set_value("1");
  put.set_prev_kv(true);
  pb::PutResponse response;
  ASSERT_TRUE(response.ParseFromString(DoPut(put).body));
  EXPECT_FALSE(response.has_prev_kv());
  put.set_value("2");
  ASSERT_TRUE(response.ParseFromString(DoPut(put).body));
  EXPECT_EQ(response.prev_kv().value(), "1");
  EXPECT_EQ(response.prev_kv().mod_revision(), 2);
  EXPECT_EQ(response.prev_kv().version(), 1);
}

TEST_F(TxnTest, ComparesOfAMissingKey) {
  const std::vector<pb::Compare::CompareTarget> numbers{pb::Compare::VERSION, pb::Compare::CREATE,
                                                        pb::Compare::MOD, pb::Compare::LEASE};
  for (const auto target : numbers) {
    SCOPED_TRACE(target);
    pb::Compare compare;
    compare.set_key("missing");
    compare.set_target(target);
    compare.set_result(pb::Compare::EQUAL);
    EXPECT_TRUE(Holds(compare));  // as 0
    compare.set_result(pb::Compare::GREATER);
    EXPECT_FALSE(Holds(compare));
  }
  for (const auto result :
       {pb::Compare::EQUAL, pb::Compare::NOT_EQUAL, pb::Compare::GREATER, pb::Compare::LESS}) {
    EXPECT_FALSE(Holds(Value("missing", result, "")));
    EXPECT_FALSE(Holds(Value("missing", result, "x")));
  }
}

TEST_F(TxnTest, ComparesOfAKey) {
  t.Grant(7, 100);
  t.Put("a", "m", 7);
  t.Put("a", "m", 7);
  EXPECT_TRUE(Holds(Value("a", pb::Compare::EQUAL, "m")));
  EXPECT_TRUE(Holds(Value("a", pb::Compare::GREATER, "l")));
  EXPECT_FALSE(Holds(Value("a", pb::Compare::GREATER, "ma")));
  EXPECT_TRUE(Holds(Value("a", pb::Compare::LESS, "ma")));
  EXPECT_TRUE(Holds(Mod("a", pb::Compare::EQUAL, 3)));
  EXPECT_TRUE(Holds(Mod("a", pb::Compare::NOT_EQUAL, 2)));
  EXPECT_FALSE(Holds(Mod("a", pb::Compare::LESS, 3)));
  pb::Compare compare;
  compare.set_key("a");
  compare.set_target(pb::Compare::CREATE);
  compare.set_create_revision(2);
  EXPECT_TRUE(Holds(compare));
  compare.set_target(pb::Compare::LEASE);
  EXPECT_FALSE(Holds(compare));  // the operand of another target counts as 0
  compare.set_lease(7);
  EXPECT_TRUE(Holds(compare));
  compare.set_target(pb::Compare::VERSION);
  compare.set_version(2);
  EXPECT_TRUE(Holds(compare));
}

TEST_F(TxnTest, ARangeCompareHoldsForEveryKey) {
  t.Put("a", "1");
  t.Put("b", "2");
  t.Put("c", "2");
  pb::Compare compare = Value("a", pb::Compare::EQUAL, "2");
  compare.set_range_end(kToEnd);
  EXPECT_FALSE(Holds(compare));
  compare.set_key("b");
  EXPECT_TRUE(Holds(compare));
  compare.set_key("a");
  compare.set_range_end("b");
  EXPECT_FALSE(Holds(compare));
  compare = Mod("b", pb::Compare::GREATER, 2);
  compare.set_range_end("d");
  EXPECT_TRUE(Holds(compare));
  // An empty interval is as good as a missing key.
  compare.set_key("x");
  compare.set_range_end("z");
  EXPECT_FALSE(Holds(compare));
  compare.set_result(pb::Compare::LESS);
  EXPECT_TRUE(Holds(compare));
  compare = Value("x", pb::Compare::NOT_EQUAL, "2");
  compare.set_range_end("z");
  EXPECT_FALSE(Holds(compare));
}

TEST_F(TxnTest, HeadersInsideSayWhatWasChangedSoFar) {
  t.Put("a", "1");
  t.Put("b", "1");
  pb::TxnRequest txn;
  *txn.add_success() = RangeOp("a");
  *txn.add_success() = DeleteOp("missing");
  *txn.add_success() = PutOp("a", "2");
  *txn.add_success() = RangeOp("a");
  *txn.add_success() = DeleteOp("missing");
  pb::TxnRequest nested;
  *nested.add_success() = DeleteOp("b");
  *txn.add_success() = TxnOp(nested);
  *txn.add_success() = RangeOp("a", "", 3);
  const pb::TxnResponse response = Do(txn);
  EXPECT_EQ(revision, 4);
  EXPECT_TRUE(response.succeeded());
  ASSERT_EQ(response.responses_size(), 7);
  EXPECT_EQ(response.responses(0).response_range().header().revision(), 3);
  EXPECT_EQ(response.responses(0).response_range().kvs(0).value(), "1");
  EXPECT_EQ(response.responses(1).response_delete_range().header().revision(), 3);
  EXPECT_EQ(response.responses(2).response_put().header().revision(), 4);
  EXPECT_EQ(response.responses(3).response_range().header().revision(), 4);
  EXPECT_EQ(response.responses(3).response_range().kvs(0).value(), "2");
  EXPECT_EQ(response.responses(4).response_delete_range().header().revision(), 4);
  const pb::TxnResponse& inner = response.responses(5).response_txn();
  EXPECT_TRUE(inner.has_header());
  EXPECT_EQ(inner.header().revision(), 0);
  EXPECT_EQ(inner.responses(0).response_delete_range().deleted(), 1);
  EXPECT_EQ(inner.responses(0).response_delete_range().header().revision(), 4);
  // The revision before the txn, from within it.
  EXPECT_EQ(response.responses(6).response_range().kvs(0).value(), "1");
  EXPECT_THAT(t.Keys(), ElementsAre("a=2 c2 m4 v2 l0"));
}

TEST_F(TxnTest, WithoutAChangeThereIsNoRevision) {
  t.Put("a", "1");
  pb::TxnRequest txn;
  *txn.add_success() = DeleteOp("missing", kToEnd);
  *txn.add_success() = RangeOp("a");
  Do(txn);
  EXPECT_EQ(revision, 2);
  EXPECT_EQ(t.revision(), 2);
  Do(pb::TxnRequest());
  EXPECT_EQ(revision, 2);
}

TEST_F(TxnTest, NestedComparesSeeTheStateBefore) {
  t.Put("a", "1");
  pb::TxnRequest nested;
  *nested.add_compare() = Mod("a", pb::Compare::EQUAL, 2);
  *nested.add_success() = PutOp("seen", "before");
  *nested.add_failure() = PutOp("seen", "after");
  pb::TxnRequest txn;
  *txn.add_success() = PutOp("a", "2");
  *txn.add_success() = TxnOp(nested);
  const pb::TxnResponse response = Do(txn);
  EXPECT_TRUE(response.responses(1).response_txn().succeeded());
  EXPECT_THAT(t.Keys(), ElementsAre("a=2 c2 m3 v2 l0", "seen=before c3 m3 v1 l0"));
}

TEST_F(TxnTest, TheOtherBranchIsNotLookedAt) {
  pb::TxnRequest txn;
  *txn.add_compare() = Mod("a", pb::Compare::GREATER, 0);
  *txn.add_success() = PutOp("a", "1", /*lease=*/99);
  *txn.add_success() = RangeOp("a", "", 1000);
  *txn.add_failure() = PutOp("a", "2");
  EXPECT_FALSE(Do(txn).succeeded());
  EXPECT_THAT(t.Keys(), ElementsAre("a=2 c2 m2 v1 l0"));
}

TEST_F(TxnTest, AFailureLeavesNothing) {
  t.Put("a", "1");
  t.Put("a", "2");
  pb::CompactionRequest compact;
  compact.set_revision(3);
  ASSERT_OK(t.Do(RequestKind::kCompaction, compact).status);
  const auto with = [](const pb::RequestOp& last) {
    pb::TxnRequest nested;
    *nested.add_success() = last;
    pb::TxnRequest txn;
    *txn.add_success() = PutOp("b", "1");
    *txn.add_success() = DeleteOp("a");
    *txn.add_success() = TxnOp(nested);
    return txn;
  };
  EXPECT_EQ(Refusal(with(PutOp("c", "1", 99))), lease::LeaseNotFoundError());
  EXPECT_EQ(Refusal(with(RangeOp("a", "", 2))), mvcc::CompactedError());
  // The revision that the txn itself makes is one of the future.
  EXPECT_EQ(Refusal(with(RangeOp("a", "", 4))), mvcc::FutureRevisionError());
  pb::RequestOp ignoring;
  ignoring.mutable_request_put()->set_key("c");
  ignoring.mutable_request_put()->set_ignore_value(true);
  EXPECT_EQ(Refusal(with(ignoring)), KeyNotFoundError());
  // A negative revision is the current one, in a txn as outside.
  EXPECT_OK(t.Do(RequestKind::kTxn, with(RangeOp("a", "", -2))).status);
  EXPECT_EQ(t.revision(), 4);
}

TEST_F(TxnTest, ReadsOfTheirOwnAreAtOneRevision) {
  t.Put("a", "1");
  t.Put("b", "1");
  pb::TxnRequest txn;
  *txn.add_compare() = Mod("a", pb::Compare::EQUAL, 2);
  *txn.add_success() = RangeOp("a", kToEnd);
  *txn.add_success() = RangeOp("a", kToEnd, 2);
  *txn.add_failure() = RangeOp("b");
  EXPECT_TRUE(IsReadOnly(txn));
  ASSERT_OK_AND_ASSIGN(const Outcome outcome, ReadTxn(t.member->store(), txn));
  EXPECT_EQ(outcome.revision, 3);
  pb::TxnResponse response;
  ASSERT_TRUE(response.ParseFromString(outcome.body));
  EXPECT_TRUE(response.succeeded());
  EXPECT_EQ(response.responses(0).response_range().kvs_size(), 2);
  EXPECT_EQ(response.responses(0).response_range().header().revision(), 3);
  EXPECT_EQ(response.responses(1).response_range().kvs_size(), 1);
  txn.mutable_success(1)->mutable_request_range()->set_revision(4);
  EXPECT_EQ(ReadTxn(t.member->store(), txn).status(), mvcc::FutureRevisionError());
}

TEST_F(TxnTest, WhatCountsAsARead) {
  pb::TxnRequest txn;
  EXPECT_TRUE(IsReadOnly(txn));
  EXPECT_TRUE(IsSerializable(txn));
  *txn.add_success() = RangeOp("a");
  EXPECT_TRUE(IsReadOnly(txn));
  EXPECT_FALSE(IsSerializable(txn));
  txn.mutable_success(0)->mutable_request_range()->set_serializable(true);
  EXPECT_TRUE(IsSerializable(txn));
  *txn.add_failure() = RangeOp("a");
  EXPECT_FALSE(IsSerializable(txn));
  pb::TxnRequest nesting;
  *nesting.add_success() = TxnOp(txn);
  EXPECT_FALSE(IsReadOnly(nesting));
  *txn.add_failure() = DeleteOp("a");
  EXPECT_FALSE(IsReadOnly(txn));
}

TEST_F(TxnTest, MalformedRequestsAreNone) {
  PutView put;
  EXPECT_TRUE(DecodePut("", &put));
  EXPECT_FALSE(DecodePut("\x0a\x05x", &put));
  DeleteRangeView deletion;
  EXPECT_FALSE(DecodeDeleteRange("\x0a\x05x", &deletion));
  RangeView range;
  EXPECT_FALSE(DecodeRange("\x18", &range));
  pb::RangeRequest request;
  request.set_key("k");
  request.set_range_end("z");
  request.set_limit(5);
  request.set_revision(-1);
  request.set_sort_order(pb::RangeRequest::DESCEND);
  request.set_sort_target(pb::RangeRequest::VALUE);
  request.set_serializable(true);
  request.set_keys_only(true);
  request.set_count_only(true);
  request.set_min_mod_revision(1);
  request.set_max_mod_revision(2);
  request.set_min_create_revision(3);
  request.set_max_create_revision(4);
  const std::string bytes = request.SerializeAsString();
  ASSERT_TRUE(DecodeRange(bytes, &range));
  const mvcc::RangeQuery want = ToQuery(request);
  for (const mvcc::RangeQuery& query : {range.query, want}) {
    EXPECT_EQ(query.key, "k");
    EXPECT_EQ(query.range_end, "z");
    EXPECT_EQ(query.limit, 5);
    EXPECT_EQ(query.revision, -1);
    EXPECT_EQ(query.sort_order, mvcc::SortOrder::kDescend);
    EXPECT_EQ(query.sort_target, mvcc::SortTarget::kValue);
    EXPECT_TRUE(query.keys_only && query.count_only);
    EXPECT_EQ(query.min_mod_revision, 1);
    EXPECT_EQ(query.max_mod_revision, 2);
    EXPECT_EQ(query.min_create_revision, 3);
    EXPECT_EQ(query.max_create_revision, 4);
  }
  EXPECT_TRUE(range.serializable);
}

}  // namespace
}  // namespace member
