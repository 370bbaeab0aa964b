#include "vault/secret.h"

#include <sys/stat.h>

#include <cstdlib>
#include <utility>

#include "base/testing.h"

namespace vault {
namespace {

using base::StatusIs;
using testing::HasSubstr;
using testing::Not;

class SecretTest : public testing::Test {
 protected:
  absl::StatusOr<std::string> Read(const SecretOrigin& origin) {
    ASSIGN_OR_RETURN(const Secret secret, ReadSecret(base::PosixFiles(), origin));
    return std::string(secret.view());
  }
  absl::StatusOr<std::string> ReadFileOf(std::string_view contents, mode_t mode) {
    const std::string path = scratch_ / "secret";
    RETURN_IF_ERROR(base::WriteFileAtomically(base::PosixFiles(), path, contents, 0600));
    ::chmod(path.c_str(), mode);
    return Read({.file = path});
  }
  base::ScratchDirectory scratch_;
};

using base::IsOkAndHolds;

TEST_F(SecretTest, OneNewlineAtTheEndIsNotPartOfIt) {
  EXPECT_THAT(ReadFileOf("hunter2", 0600), IsOkAndHolds("hunter2"));
  EXPECT_THAT(ReadFileOf("hunter2\n", 0400), IsOkAndHolds("hunter2"));
  EXPECT_THAT(ReadFileOf("hunter2\r\n", 0600), IsOkAndHolds("hunter2"));
  EXPECT_THAT(ReadFileOf("hunter2\n\n", 0600), IsOkAndHolds("hunter2\n"));
  EXPECT_THAT(ReadFileOf("hunter2\r", 0600), IsOkAndHolds("hunter2\r"));
}

TEST_F(SecretTest, AFileOthersCanGetAtIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0610, 0601, 0777}) {
    EXPECT_THAT(ReadFileOf("hunter2", mode),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         testing::AllOf(HasSubstr("chmod 0600"), Not(HasSubstr("hunter2")))))
        << mode;
  }
}

TEST_F(SecretTest, NothingAndTooMuchAreRefused) {
  EXPECT_THAT(ReadFileOf("", 0600), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ReadFileOf("\n", 0600), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ReadFileOf(std::string(kSecretBytesMax + 1, 'x'), 0600),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Read({.file = scratch_ / "none"}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Read({}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Read({.file = "a", .environment = "b"}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SecretTest, ComesFromTheEnvironment) {
  ::setenv("ENGRAM_TEST_SECRET", "hunter2", 1);
  EXPECT_THAT(Read({.environment = "ENGRAM_TEST_SECRET"}), IsOkAndHolds("hunter2"));
  ::unsetenv("ENGRAM_TEST_SECRET");
  EXPECT_THAT(Read({.environment = "ENGRAM_TEST_SECRET"}), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(SecretTest, ComesFromACommand) {
  EXPECT_THAT(Read({.command = "printf 'hun'; sleep 0.1; echo ter2"}), IsOkAndHolds("hunter2"));
  EXPECT_THAT(Read({.command = "cat"}), StatusIs(absl::StatusCode::kInvalidArgument))
      << "its input is empty";
  EXPECT_THAT(Read({.command = "echo hunter2; exit 3"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::AllOf(HasSubstr("exit code 3"), Not(HasSubstr("hunter2")))));
  EXPECT_THAT(Read({.command = "kill -9 $$"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("signal 9")));
  EXPECT_THAT(Read({.command = "yes"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too much")));
}

TEST_F(SecretTest, ACommandThatHangsIsEndedWithAllItStarted) {
  const std::string pid_file = scratch_ / "pid";
  absl::StatusOr<std::string> pid = absl::NotFoundError("");
  // Longer each time, until the shell came as far as its second command.
  for (base::Duration timeout = std::chrono::milliseconds(300); !pid.ok(); timeout *= 2) {
    ASSERT_LT(timeout, std::chrono::seconds(60));
    EXPECT_THAT(Read({.command = fmt::format(
                          "sleep 600 & echo $! > {0}.new && mv {0}.new {0}; wait", pid_file),
                      .command_timeout = timeout}),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
    pid = base::ReadFile(base::PosixFiles(), pid_file);
  }
  const base::Duration until = base::SystemClock().Monotonic() + std::chrono::seconds(20);
  bool gone = false;
  while (!gone && base::SystemClock().Monotonic() < until) {
    // A killed child whose new parent has not looked yet is still there, as a zombie.
    const auto stat =
        base::ReadFile(base::PosixFiles(), fmt::format("/proc/{}/comm", std::stoi(*pid)));
    const std::string state =
        fmt::format("grep -q '^State:.Z' /proc/{}/status 2>/dev/null", std::stoi(*pid));
    gone = !stat.ok() || std::system(state.c_str()) == 0;
  }
  EXPECT_TRUE(gone);
}

TEST(Secret, MovesLeaveNothingBehind) {
  std::string text = "short";
  Secret first(std::move(text));
  Secret second(std::move(first));
  EXPECT_EQ(second.view(), "short");
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): what a move leaves is the point
  second = Secret(std::string("another"));
  EXPECT_EQ(second.view(), "another");
}

}  // namespace
}  // namespace vault
