#include "catalog/calendar.h"

#include <fmt/format.h>

#include <chrono>

namespace catalog {
namespace {

using Days = std::chrono::sys_days;

Days DayOf(Time time) { return Days(std::chrono::floor<std::chrono::days>(time)); }

Days MondayOf(Time time) {
  const Days day = DayOf(time);
  return day - (std::chrono::weekday(day) - std::chrono::Monday);
}

std::string Date(Days day) {
  const std::chrono::year_month_day date(day);
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

}  // namespace

int64_t PeriodOf(Period period, Time time) {
  switch (period) {
    case Period::kHour:
      return std::chrono::floor<std::chrono::hours>(time).count();
    case Period::kDay:
      return DayOf(time).time_since_epoch().count();
    case Period::kWeek:
      return MondayOf(time).time_since_epoch().count() / 7;
    case Period::kMonth:
      break;
  }
  const std::chrono::year_month_day date(DayOf(time));
  return static_cast<int64_t>(static_cast<int>(date.year())) * 12 +
         static_cast<unsigned>(date.month());
}

std::string PeriodText(Period period, Time time) {
  const std::string date = Date(DayOf(time));
  switch (period) {
    case Period::kHour: {
      const Time of_day = time - DayOf(time).time_since_epoch();
      return fmt::format("the hour {}T{:02}Z", date,
                         std::chrono::floor<std::chrono::hours>(of_day).count());
    }
    case Period::kDay:
      return fmt::format("the day {}", date);
    case Period::kWeek:
      return fmt::format("the week of {}", Date(MondayOf(time)));
    case Period::kMonth:
      break;
  }
  return fmt::format("the month {}", date.substr(0, date.size() - 3));
}

}  // namespace catalog
