// Matchers for absl::Status in tests, and a scratch directory. For test code only; not thread-safe.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/status.h"

namespace base {

inline const absl::Status& AsStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& AsStatus(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << AsStatus(arg).ToString();
  return AsStatus(arg).ok();
}
MATCHER_P(StatusIs, code, "") {
  *result_listener << AsStatus(arg).ToString();
  return AsStatus(arg).code() == code;
}
MATCHER_P2(StatusIs, code, message_matcher, "") {
  *result_listener << AsStatus(arg).ToString();
  return AsStatus(arg).code() == code &&
         testing::ExplainMatchResult(message_matcher, std::string(Message(AsStatus(arg))),
                                     result_listener);
}
MATCHER_P(IsOkAndHolds, value_matcher, "") {
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  return testing::ExplainMatchResult(value_matcher, *arg, result_listener);
}

// What ASSERT_OK and EXPECT_OK ask: one function for all types, where a matcher costs each type
// seconds of compile time.
inline testing::AssertionResult ShouldBeOk(const char* expression, const absl::Status& status) {
  if (status.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << expression << ": " << status.ToString();
}
template <typename T>
testing::AssertionResult ShouldBeOk(const char* expression, const absl::StatusOr<T>& value) {
  return ShouldBeOk(expression, value.status());
}

#define ASSERT_OK(expr) ASSERT_PRED_FORMAT1(::base::ShouldBeOk, (expr))
#define EXPECT_OK(expr) EXPECT_PRED_FORMAT1(::base::ShouldBeOk, (expr))
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_INNER(ENGRAM_CONCAT(engram_or_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  ASSERT_OK(tmp);                                  \
  lhs = std::move(tmp).value()

// A fresh directory, removed with all it holds at the end.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    const char* root = std::getenv("TMPDIR");
    std::string pattern = std::string(root != nullptr ? root : "/tmp") + "/engram-test-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchDirectory() { RemoveTree(PosixFiles(), path_).IgnoreError(); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

}  // namespace base
