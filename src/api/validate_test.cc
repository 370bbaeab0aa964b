// What is refused before anything happens: limits, the order of errors, and every way in which a
// put and another change of the same key can meet in one txn (R02, R45).
#include "api/validate.h"

#include "base/testing.h"
#include "member/errors.h"
#include "proto/rpc.pb.h"

namespace api {
namespace {

namespace pb = etcdserverpb;

const std::string kToEnd(1, '\0');

pb::RequestOp Put(const std::string& key) {
  pb::RequestOp op;
  op.mutable_request_put()->set_key(key);
  return op;
}
pb::RequestOp Delete(const std::string& key, const std::string& end = "") {
  pb::RequestOp op;
  op.mutable_request_delete_range()->set_key(key);
  op.mutable_request_delete_range()->set_range_end(end);
  return op;
}
pb::RequestOp Range(const std::string& key) {
  pb::RequestOp op;
  op.mutable_request_range()->set_key(key);
  return op;
}
using Ops = std::vector<pb::RequestOp>;
pb::TxnRequest Txn(const Ops& success, const Ops& failure = {}) {
  pb::TxnRequest txn;
  for (const auto& op : success) *txn.add_success() = op;
  for (const auto& op : failure) *txn.add_failure() = op;
  return txn;
}
pb::RequestOp Nested(const Ops& success, const Ops& failure = {}) {
  pb::RequestOp op;
  *op.mutable_request_txn() = Txn(success, failure);
  return op;
}

constexpr int64_t kMaxOps = 128;
const absl::Status kDuplicate = member::DuplicateKeyError();

// In the success branch and in the failure branch alike.
absl::Status Validate(const Ops& ops) {
  absl::Status status = ValidateTxn(Txn(ops), kMaxOps);
  EXPECT_EQ(ValidateTxn(Txn({}, ops), kMaxOps), status);
  // And one level deeper.
  EXPECT_EQ(ValidateTxn(Txn({Nested(ops)}), kMaxOps), status);
  EXPECT_EQ(ValidateTxn(Txn({Nested({}, ops)}), kMaxOps), status);
  return status;
}

TEST(ValidateOps, EmptyKeys) {
  EXPECT_EQ(ValidatePut({.key = ""}), member::EmptyKeyError());
  EXPECT_OK(ValidatePut({.key = "k"}));
  EXPECT_EQ(ValidateDeleteRange({.key = ""}), member::EmptyKeyError());
  EXPECT_OK(ValidateDeleteRange({.key = "k"}));
  EXPECT_EQ(ValidateRange({.query = {.key = ""}}), member::EmptyKeyError());
  EXPECT_OK(ValidateRange({.query = {.key = "k"}}));
}

TEST(ValidateOps, PutRulesComeInEtcdsOrder) {
  EXPECT_EQ(ValidatePut({.key = "", .value = "v", .ignore_value = true}), member::EmptyKeyError());
  EXPECT_EQ(ValidatePut(
                {.key = "k", .value = "v", .lease = 1, .ignore_value = true, .ignore_lease = true}),
            member::ValueProvidedError());
  EXPECT_EQ(ValidatePut({.key = "k", .lease = 1, .ignore_value = true, .ignore_lease = true}),
            member::LeaseProvidedError());
  EXPECT_OK(ValidatePut({.key = "k", .lease = 1, .ignore_value = true}));
  EXPECT_OK(ValidatePut({.key = "k", .value = "v", .ignore_lease = true}));
}

TEST(ValidateOps, SortOptionsMustExist) {
  for (const int64_t order : {-1, 3}) {
    EXPECT_EQ(ValidateRange({.query = {.key = "k"}, .raw_sort_order = order}),
              member::InvalidSortOptionError());
  }
  for (const int64_t target : {-1, 5}) {
    EXPECT_EQ(ValidateRange({.query = {.key = "k"}, .raw_sort_target = target}),
              member::InvalidSortOptionError());
  }
  EXPECT_OK(ValidateRange({.query = {.key = "k"}, .raw_sort_order = 2, .raw_sort_target = 4}));
}

TEST(ValidateTxnOps, TheLargestListCounts) {
  for (int lists = 0; lists < 3; ++lists) {
    pb::TxnRequest txn;
    for (int i = 0; i < 4; ++i) {
      if (lists == 0) txn.add_compare()->set_key("k");
      if (lists == 1) *txn.add_success() = Range("k");
      if (lists == 2) *txn.add_failure() = Range("k");
    }
    EXPECT_OK(ValidateTxn(txn, 4));
    EXPECT_EQ(ValidateTxn(txn, 3), member::TooManyOpsError());
  }
}

TEST(ValidateTxnOps, NestedOnesGetWhatIsLeft) {
  const pb::TxnRequest txn = Txn({Range("k"), Nested({Range("k"), Nested({Range("k")})})});
  EXPECT_OK(ValidateTxn(txn, 5));  // 2 + 2 + 1
  EXPECT_EQ(ValidateTxn(txn, 4), member::TooManyOpsError());
  // Siblings do not add up.
  const Ops wide(3, Nested({Range("k"), Range("k")}));
  EXPECT_OK(ValidateTxn(Txn(wide), 5));
}

TEST(ValidateTxnOps, ErrorsComeInEtcdsOrder) {
  // Too many operations before anything within them.
  EXPECT_EQ(ValidateTxn(Txn({Put(""), Put("k"), Put("k")}), 2), member::TooManyOpsError());
  // Compares, then the success branch, then the failure branch, then what meets.
  pb::TxnRequest txn = Txn({Put("k"), Put("k"), pb::RequestOp()}, {Put("")});
  txn.add_compare();
  EXPECT_EQ(ValidateTxn(txn, kMaxOps), member::EmptyKeyError());
  txn.clear_compare();
  EXPECT_EQ(ValidateTxn(txn, kMaxOps), member::KeyNotFoundError());  // an operation that is none
  txn.mutable_success()->RemoveLast();
  EXPECT_EQ(ValidateTxn(txn, kMaxOps), member::EmptyKeyError());
  txn.clear_failure();
  EXPECT_EQ(ValidateTxn(txn, kMaxOps), kDuplicate);
  // Deep inside, too.
  EXPECT_EQ(ValidateTxn(Txn({Nested({Nested({}, {Delete("")})})}), kMaxOps),
            member::EmptyKeyError());
  pb::RequestOp range = Range("k");
  range.mutable_request_range()->set_sort_order(static_cast<pb::RangeRequest::SortOrder>(9));
  EXPECT_EQ(ValidateTxn(Txn({range}), kMaxOps), member::InvalidSortOptionError());
}

TEST(Overlap, TwoPutsOfOneKey) {
  EXPECT_EQ(Validate({Put("k"), Put("k")}), kDuplicate);
  EXPECT_EQ(Validate({Put("k"), Range("k"), Put("k")}), kDuplicate);
  EXPECT_OK(Validate({Put("k"), Put("l")}));
  EXPECT_OK(ValidateTxn(Txn({Put("k")}, {Put("k")}), kMaxOps));  // only one branch runs
}

TEST(Overlap, APutUnderADeleteInAnyOrderAndForm) {
  for (const pb::RequestOp& deletion :
       {Delete("k"), Delete("a", "z"), Delete("k", "l"), Delete("a", kToEnd), Delete("k", kToEnd),
        Delete(kToEnd, kToEnd)}) {
    EXPECT_EQ(Validate({deletion, Put("k")}), kDuplicate) << deletion.ShortDebugString();
    EXPECT_EQ(Validate({Put("k"), deletion}), kDuplicate) << deletion.ShortDebugString();
  }
  for (const pb::RequestOp& deletion :
       {Delete("a"), Delete("a", "k"), Delete("l", "z"), Delete("l", kToEnd), Delete("z", "a")}) {
    EXPECT_OK(Validate({deletion, Put("k")})) << deletion.ShortDebugString();
    EXPECT_OK(Validate({Put("k"), deletion})) << deletion.ShortDebugString();
  }
}

TEST(Overlap, DeletesAndReadsMayMeetAnything) {
  EXPECT_OK(Validate({Delete("k"), Delete("a", "z"), Delete("a", kToEnd), Range("k")}));
  EXPECT_OK(Validate({Put("k"), Range("k")}));
  EXPECT_OK(Validate({Nested({Delete("k")}), Delete("k"), Nested({Delete("k")})}));
}

TEST(Overlap, ParentAndNestedInAnyOrder) {
  for (const pb::RequestOp& nested :
       {Nested({Put("k")}), Nested({}, {Put("k")}), Nested({Nested({Put("k")})}),
        Nested({Nested({}, {Put("k")})})}) {
    for (const pb::RequestOp& other :
         {Put("k"), Delete("k"), Delete("a", "z"), Delete("a", kToEnd)}) {
      EXPECT_EQ(Validate({nested, other}), kDuplicate) << other.ShortDebugString();
      EXPECT_EQ(Validate({other, nested}), kDuplicate) << other.ShortDebugString();
    }
  }
  for (const pb::RequestOp& nested :
       {Nested({Delete("k")}), Nested({}, {Delete("a", "z")}), Nested({Delete("a", kToEnd)}),
        Nested({Nested({Delete("k")})})}) {
    EXPECT_EQ(Validate({nested, Put("k")}), kDuplicate);
    EXPECT_EQ(Validate({Put("k"), nested}), kDuplicate);
  }
}

TEST(Overlap, SiblingsInAnyOrder) {
  const Ops putting{Nested({Put("k")}), Nested({}, {Put("k")})};
  const Ops meeting{Nested({Put("k")}), Nested({}, {Put("k")}), Nested({Delete("k")}),
                    Nested({}, {Delete("a", "z")}), Nested({Delete("a", kToEnd)})};
  for (const pb::RequestOp& one : putting) {
    for (const pb::RequestOp& other : meeting) {
      EXPECT_EQ(Validate({one, other}), kDuplicate) << other.ShortDebugString();
      EXPECT_EQ(Validate({other, one}), kDuplicate) << other.ShortDebugString();
      EXPECT_EQ(Validate({one, Range("k"), Nested({Put("x")}), other}), kDuplicate);
    }
    EXPECT_OK(Validate({one, Nested({Put("l"), Delete("m")})}));
  }
}

TEST(Overlap, BranchesOfOneNestedTxnDoNotMeet) {
  EXPECT_OK(Validate({Nested({Put("k")}, {Put("k")})}));
  EXPECT_OK(Validate({Nested({Put("k")}, {Delete("k")})}));
  EXPECT_OK(Validate({Nested({Delete("a", kToEnd)}, {Put("k")})}));
  // With the parent, each of them does.
  EXPECT_EQ(Validate({Nested({Put("k")}, {Put("k")}), Put("k")}), kDuplicate);
}

}  // namespace
}  // namespace api
