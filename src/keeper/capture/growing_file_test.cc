#include "capture/growing_file.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/testing.h"

namespace capture {
namespace {

using testing::HasSubstr;

class GrowingFileTest : public testing::Test {
 protected:
  GrowingFileTest() {
    auto writer = files_.Open(path_, {.write = true, .create = true});
    EXPECT_OK(writer);
    writer_ = *std::move(writer);
    auto reader = files_.Open(path_, {});
    EXPECT_OK(reader);
    growing_.emplace(*std::move(reader));
  }
  absl::StatusOr<std::string> ReadAll() {
    std::string all;
    vault::StringSink sink(&all, 1 << 20);
    RETURN_IF_ERROR(vault::Copy(*growing_, sink).status());
    return all;
  }

  const base::ScratchDirectory directory_;
  const std::string path_ = directory_ / "file";
  base::Files& files_ = base::PosixFiles();
  std::unique_ptr<base::File> writer_;
  std::optional<GrowingFile> growing_;
};

TEST_F(GrowingFileTest, GivesWhatIsWrittenMeanwhile) {
  std::string expected;
  absl::StatusOr<std::string> read;
  std::thread reader([&] { read = ReadAll(); });
  for (int i = 0; i < 1000; ++i) {
    const std::string piece(static_cast<size_t>(i % 97), static_cast<char>('a' + i % 26));
    expected += piece;
    ASSERT_OK(writer_->Append(piece));
    growing_->Grow(expected.size());
  }
  growing_->End(absl::OkStatus());
  reader.join();
  ASSERT_OK(read);
  EXPECT_EQ(*read, expected);
}

TEST_F(GrowingFileTest, NothingBeyondWhatWasTold) {
  ASSERT_OK(writer_->Append("0123456789"));
  growing_->Grow(4);
  growing_->End(absl::OkStatus());
  const auto read = ReadAll();
  ASSERT_OK(read);
  EXPECT_EQ(*read, "0123");
}

TEST_F(GrowingFileTest, TheWritersErrorIsTheReaders) {
  absl::StatusOr<std::string> read;
  std::thread reader([&] { read = ReadAll(); });
  ASSERT_OK(writer_->Append("0123"));
  growing_->Grow(4);
  growing_->End(absl::CancelledError("gone"));
  reader.join();
  EXPECT_THAT(read.status(), base::StatusIs(absl::StatusCode::kCancelled, HasSubstr("gone")));
}

TEST_F(GrowingFileTest, AFileThatWasCutIsDamage) {
  ASSERT_OK(writer_->Append("0123"));
  growing_->Grow(8);
  growing_->End(absl::OkStatus());
  EXPECT_THAT(ReadAll().status(),
              base::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ends at byte 4")));
}

}  // namespace
}  // namespace capture
