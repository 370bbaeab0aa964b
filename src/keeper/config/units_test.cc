#include "config/units.h"

#include "base/random.h"
#include "base/testing.h"

namespace config {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(Units, ReadsDurations) {
  EXPECT_EQ(ParseDuration("500ms"), milliseconds(500));
  EXPECT_EQ(ParseDuration("5m"), minutes(5));
  EXPECT_EQ(ParseDuration("7d"), hours(168));
  EXPECT_EQ(ParseDuration("2w"), hours(336));
  EXPECT_EQ(ParseDuration("1h30m"), minutes(90));
  EXPECT_EQ(ParseDuration("1.5h"), minutes(90));
  EXPECT_EQ(ParseDuration("0.5s"), milliseconds(500));
  EXPECT_EQ(ParseDuration("0"), seconds(0));
  EXPECT_EQ(ParseDuration("0s"), seconds(0));
}

TEST(Units, RefusesWhatIsNoDuration) {
  for (const char* text :
       {"", "5", "m", "-5m", "+5m", "5 m", "5M", "5x", "1m1h", "1m1m", "1.h", ".5h", "1.1234567s",
        "101w999999d", "99999999999999999999s", "5m ", "1e3s"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

TEST(Units, ReadsSizesAndRates) {
  EXPECT_EQ(ParseSize("64MiB"), uint64_t{64} << 20);
  EXPECT_EQ(ParseSize("1.5GiB"), uint64_t{3} << 29);
  EXPECT_EQ(ParseSize("10MB"), 10'000'000u);
  EXPECT_EQ(ParseSize("1000"), 1000u);
  EXPECT_EQ(ParseSize("0B"), 0u);
  EXPECT_EQ(ParseRate("20MiB/s"), uint64_t{20} << 20);
  for (const char* text : {"", "MiB", "64 MiB", "64mib", "-1", "1.5", "16777216TiB", "1MiB/s"}) {
    EXPECT_EQ(ParseSize(text), std::nullopt) << text;
  }
  for (const char* text : {"20MiB", "20MiB/h", "/s", "20MiB/s/s"}) {
    EXPECT_EQ(ParseRate(text), std::nullopt) << text;
  }
}

TEST(Units, WrittenTextsAreReadBack) {
  EXPECT_EQ(DurationText(hours(168)), "7d");
  EXPECT_EQ(DurationText(milliseconds(90'500)), "1m30s500ms");
  EXPECT_EQ(DurationText(seconds(0)), "0s");
  EXPECT_EQ(SizeText(uint64_t{64} << 20), "64MiB");
  EXPECT_EQ(SizeText(1000), "1000B");
  EXPECT_EQ(RateText(uint64_t{20} << 20), "20MiB/s");
  base::SeededRandom random(7);
  for (int i = 0; i < 2000; ++i) {
    const base::Duration d(static_cast<int64_t>(random.Next() >> (1 + random.Below(62))));
    if (d <= hours(24 * 36'500)) {
      EXPECT_EQ(ParseDuration(DurationText(d)), d) << DurationText(d);
    }
    const uint64_t size = random.Next() >> (1 + random.Below(62));
    EXPECT_EQ(ParseSize(SizeText(size)), size) << SizeText(size);
  }
}

}  // namespace
}  // namespace config
