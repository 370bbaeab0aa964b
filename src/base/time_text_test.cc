#include "base/time_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace base {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr Duration kMoment = seconds(1'786'328'046) + Duration(123'456'789);

TEST(TimeText, IsWrittenInUtc) {
  EXPECT_EQ(Rfc3339(kMoment), "2026-08-10T02:14:06.123456789Z");
  EXPECT_EQ(Rfc3339(kMoment, 0), "2026-08-10T02:14:06Z");
  EXPECT_EQ(Rfc3339(kMoment, 3), "2026-08-10T02:14:06.123Z");
  EXPECT_EQ(CompactUtc(kMoment), "20260810T021406Z");
  EXPECT_EQ(Rfc3339(Duration(0), 0), "1970-01-01T00:00:00Z");
}

TEST(TimeText, IsReadInItsForms) {
  EXPECT_EQ(ParseRfc3339("2026-08-10T02:14:06.123456789Z"), kMoment);
  EXPECT_EQ(ParseRfc3339("2026-08-10 04:14:06.123456789999+02:00"), kMoment);
  EXPECT_EQ(ParseRfc3339("2026-08-09t20:44:06.123456789-05:30"), kMoment);
  EXPECT_EQ(ParseRfc3339("2026-08-10T02:14:06z"), seconds(1'786'328'046));
  EXPECT_EQ(ParseRfc3339("2024-02-29T00:00:00Z"), seconds(1'709'164'800));
}

TEST(TimeText, AnythingElseIsRefused) {
  for (const char* text :
       {"", "now", "2026-08-10", "2026-08-10T02:14Z", "2026-08-10T02:14:06", "2026-13-10T02:14:06Z",
        "2026-02-30T02:14:06Z", "2026-08-10T24:14:06Z", "2026-08-10T02:60:06Z",
        "2026-08-10T02:14:06.Z", "2026-08-10T02:14:06Zx", "2026-08-10T02:14:06+2:00",
        "1969-12-31T23:59:59Z", "2262-01-01T00:00:00Z", "2026-08-10T02:14:06+24:00"}) {
    EXPECT_EQ(ParseRfc3339(text), std::nullopt) << text;
  }
}

TEST(TimeText, IsReadAsItWasWritten) {
  for (Duration t(0); t < hours(24 * 365 * 200); t += hours(997) + Duration(7)) {
    EXPECT_EQ(ParseRfc3339(Rfc3339(t)), t);
  }
}

}  // namespace
}  // namespace base
