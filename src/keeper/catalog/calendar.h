// Hours, days, weeks and months of UTC, as numbers that order them and as texts. Pure functions,
// thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "catalog/inventory.h"

namespace catalog {

enum class Period { kHour, kDay, kWeek, kMonth };

// A number that is the same for two times exactly when they lie in the same period, and grows with
// them. Weeks are those of ISO 8601: they begin on Monday.
int64_t PeriodOf(Period period, Time time);
// "the hour 2026-08-10T02Z", "the day 2026-08-10", "the week of 2026-08-10", "the month 2026-08".
std::string PeriodText(Period period, Time time);

}  // namespace catalog
