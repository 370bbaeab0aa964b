#include "vault/zstd.h"

#include <zstd.h>

#include <cstdlib>

#include "base/testing.h"
#include "vault/test_age.h"

namespace vault {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using testing::HasSubstr;

std::string Pack(std::string_view plain, size_t piece = 10'000, int level = 3) {
  std::string packed;
  StringSink sink(&packed, kTestBytesMax);
  ZstdSink zstd(level, sink);
  for (size_t at = 0; at < plain.size(); at += piece) {
    EXPECT_OK(zstd.Write(plain.substr(at, piece)));
  }
  EXPECT_OK(zstd.Finish());
  return packed;
}

absl::StatusOr<std::string> Unpack(std::string_view packed, uint64_t max = kTestBytesMax,
                                   size_t piece = 10'000) {
  StringSource from(packed);
  ZstdSource zstd(max, from);
  return ReadAll(zstd, piece);
}

// Half of it compresses, half does not.
std::string Mixed(size_t n) { return TestBytes(n / 2) + std::string(n - n / 2, 'z'); }

TEST(Zstd, RoundTripsAnySizeInAnyPieces) {
  for (const size_t n : {0, 1, 65535, 65536, 300'000}) {
    const std::string plain = Mixed(n);
    for (const size_t piece : {size_t{777}, size_t{1} << 20}) {
      EXPECT_THAT(Unpack(Pack(plain, piece), n, piece), IsOkAndHolds(plain)) << n << " " << piece;
    }
  }
  const std::string small = Mixed(500);
  EXPECT_THAT(Unpack(Pack(small, 1), 500, 1), IsOkAndHolds(small));
}

TEST(Zstd, EveryLevelStaysWithinTheWindow) {
  const std::string plain(20 << 20, 'w');
  for (int level = kLevelMin; level <= kLevelMax; level += 6) {
    const std::string packed = Pack(plain, 1 << 20, level);
    EXPECT_LT(packed.size(), plain.size() / 100);
    EXPECT_THAT(Unpack(packed), IsOkAndHolds(plain)) << level;
  }
}

TEST(Zstd, CutOffAnywhereIsDamage) {
  const std::string packed = Pack(Mixed(300));
  for (size_t n = 0; n < packed.size(); ++n) {
    EXPECT_THAT(Unpack(packed.substr(0, n)), StatusIs(absl::StatusCode::kDataLoss)) << n;
  }
}

// A byte of the frame's description may say the same in another way; the content never differs.
TEST(Zstd, EveryFlippedBitIsFoundOrHarmless) {
  const std::string plain = Mixed(300);
  const std::string packed = Pack(plain);
  int found = 0;
  for (size_t i = 0; i < packed.size() * 8; ++i) {
    std::string damaged = packed;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ 1 << i % 8);
    const absl::StatusOr<std::string> got = Unpack(damaged);
    if (got.ok()) {
      EXPECT_EQ(*got, plain) << i;
    } else {
      EXPECT_THAT(got, StatusIs(absl::StatusCode::kDataLoss)) << i;
      ++found;
    }
  }
  // What may differ: the byte of the window and a reserved bit.
  EXPECT_GE(found, static_cast<int>(packed.size() * 8) - 9);
}

TEST(Zstd, BytesBehindTheFrameAreDamage) {
  const std::string packed = Pack("x");
  EXPECT_THAT(Unpack(packed + "y"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bytes follow the frame")));
  EXPECT_THAT(Unpack(packed + packed), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Unpack("plain text"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no frame begins")));
}

TEST(Zstd, ABombStopsAtItsBound) {
  const std::string packed = Pack(std::string(50 << 20, '\0'), 1 << 20);
  ASSERT_LT(packed.size(), 10'000U);
  EXPECT_THAT(Unpack(packed, 1 << 20),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("more than the 1048576 bytes")));
  StringSource from(packed);
  ZstdSource zstd(1 << 20, from);
  std::string buffer(10'000, 'x');
  uint64_t handed_out = 0;
  absl::StatusOr<size_t> got = 1;
  while ((got = zstd.Read(buffer.data(), buffer.size())).ok()) handed_out += *got;
  EXPECT_LE(handed_out, 1U << 20);
}

TEST(Zstd, AWindowBeyondTheBoundIsRefused) {
  std::string packed(1 << 20, '\0');
  ZSTD_CCtx* const context = ::ZSTD_createCCtx();
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, kWindowLogMax + 1);
  ZSTD_inBuffer in{.src = "x", .size = 1, .pos = 0};
  ZSTD_outBuffer out{.dst = packed.data(), .size = packed.size(), .pos = 0};
  // Two calls, so that the frame does not know its size and keeps the window.
  ASSERT_EQ(::ZSTD_isError(::ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue)), 0U);
  ASSERT_EQ(::ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0U);
  ::ZSTD_freeCCtx(context);
  packed.resize(out.pos);
  EXPECT_THAT(Unpack(packed), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("8 MiB")));
}

TEST(Zstd, AgreesWithTheStockProgram) {
  if (std::system("zstd --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no zstd program";
  base::ScratchDirectory scratch;
  base::Files& files = base::PosixFiles();
  const std::string plain = Mixed(500'000);
  ASSERT_OK(base::WriteFileAtomically(files, scratch / "ours.zst", Pack(plain), 0600));
  ASSERT_OK(base::WriteFileAtomically(files, scratch / "theirs", plain, 0600));
  ASSERT_EQ(
      std::system(
          fmt::format("cd {} && zstd -q -d ours.zst && zstd -q theirs", scratch.path()).c_str()),
      0);
  EXPECT_THAT(base::ReadFile(files, scratch / "ours"), IsOkAndHolds(plain));
  ASSERT_OK_AND_ASSIGN(const std::string theirs, base::ReadFile(files, scratch / "theirs.zst"));
  EXPECT_THAT(Unpack(theirs), IsOkAndHolds(plain));
}

}  // namespace
}  // namespace vault
