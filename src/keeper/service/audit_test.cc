#include "service/audit.h"

#include "base/testing.h"
#include "support/memory_files.h"

namespace service {
namespace {

using base::StatusIs;

class AuditTest : public testing::Test {
 protected:
  test_support::MemoryFiles files_;
  Environment env_{files_, base::SystemClock(), base::SystemRandom()};
  config::Config config_{.state_dir = "/state"};
};

TEST_F(AuditTest, IsReadAsItWasWritten) {
  ASSERT_OK(Audit(env_, config_, "restore prod", ""));
  ASSERT_OK(Audit(env_, config_, "restore prod", "exit status 0"));
  ASSERT_OK_AND_ASSIGN(const auto entries, ReadAudit(env_, config_));
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].command, "restore prod");
  EXPECT_EQ(entries[0].outcome, "");
  EXPECT_EQ(entries[1].outcome, "exit status 0");
  EXPECT_NE(entries[1].who, "");
}

TEST_F(AuditTest, WithoutAFileIsEmpty) {
  ASSERT_OK_AND_ASSIGN(const auto entries, ReadAudit(env_, config_));
  EXPECT_TRUE(entries.empty());
}

TEST_F(AuditTest, ALineTakenOutOrChangedIsFound) {
  for (int i = 0; i < 4; ++i) ASSERT_OK(Audit(env_, config_, "backup", std::to_string(i)));
  const std::string whole = *files_.Contents("/state/audit.jsonl");
  const size_t first = whole.find('\n') + 1, second = whole.find('\n', first) + 1;
  files_.Put("/state/audit.jsonl", whole.substr(0, first) + whole.substr(second));
  EXPECT_THAT(ReadAudit(env_, config_), StatusIs(absl::StatusCode::kDataLoss, testing::_));
  std::string changed = whole;
  changed[changed.find("backup")] = 'B';
  files_.Put("/state/audit.jsonl", changed);
  EXPECT_THAT(ReadAudit(env_, config_), StatusIs(absl::StatusCode::kDataLoss, testing::_));
}

TEST_F(AuditTest, ALineCutShortByACrashIsReplaced) {
  ASSERT_OK(Audit(env_, config_, "backup", ""));
  const std::string whole = *files_.Contents("/state/audit.jsonl");
  for (const std::string& torn : {std::string(R"({"at":"20)"), std::string("\0\0\0\n", 4)}) {
    files_.Put("/state/audit.jsonl", whole + torn);
    ASSERT_OK_AND_ASSIGN(const auto before, ReadAudit(env_, config_));
    EXPECT_EQ(before.size(), 1u);
    ASSERT_OK(Audit(env_, config_, "verify", ""));
    ASSERT_OK_AND_ASSIGN(const auto entries, ReadAudit(env_, config_));
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[1].command, "verify");
  }
}

}  // namespace
}  // namespace service
