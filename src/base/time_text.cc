#include "base/time_text.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>

namespace base {
namespace {

struct Civil {
  int year = 0;
  unsigned month = 0, day = 0;
  int64_t hour = 0, minute = 0, second = 0, nanos = 0;
};

Civil CivilOf(Duration t) {
  const auto days = std::chrono::floor<std::chrono::days>(t);
  const std::chrono::year_month_day date{std::chrono::sys_days(days)};
  const Duration rest = t - days;
  const int64_t seconds = std::chrono::floor<std::chrono::seconds>(rest).count();
  return {.year = static_cast<int>(date.year()),
          .month = static_cast<unsigned>(date.month()),
          .day = static_cast<unsigned>(date.day()),
          .hour = seconds / 3600,
          .minute = seconds / 60 % 60,
          .second = seconds % 60,
          .nanos = (rest - std::chrono::seconds(seconds)).count()};
}

// Reads digits and single characters from the front of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : left_(text) {}
  // Exactly `digits` digits.
  bool Number(int digits, int64_t* out) {
    *out = 0;
    for (int i = 0; i < digits; ++i) {
      if (left_.empty() || left_[0] < '0' || left_[0] > '9') return false;
      *out = *out * 10 + (left_[0] - '0');
      left_.remove_prefix(1);
    }
    return true;
  }
  bool OneOf(std::string_view characters, char* out) {
    if (left_.empty() || characters.find(left_[0]) == std::string_view::npos) return false;
    *out = left_[0];
    left_.remove_prefix(1);
    return true;
  }
  bool Is(char c) {
    char ignored;
    return OneOf({&c, 1}, &ignored);
  }
  bool empty() const { return left_.empty(); }
  bool AtDigit() const { return !left_.empty() && left_[0] >= '0' && left_[0] <= '9'; }

 private:
  std::string_view left_;
};

// Fraction digits beyond nanoseconds are read and dropped.
bool ReadFraction(Scanner& in, int64_t* nanos) {
  *nanos = 0;
  if (!in.Is('.')) return true;
  if (!in.AtDigit()) return false;
  for (int64_t unit = 100'000'000; in.AtDigit(); unit /= 10) {
    int64_t digit = 0;
    in.Number(1, &digit);
    *nanos += digit * unit;
  }
  return true;
}

bool ReadOffset(Scanner& in, int64_t* minutes) {
  *minutes = 0;
  char sign = 0;
  if (in.OneOf("Zz", &sign)) return true;
  int64_t hour = 0, minute = 0;
  if (!in.OneOf("+-", &sign) || !in.Number(2, &hour) || !in.Is(':') || !in.Number(2, &minute)) {
    return false;
  }
  if (hour > 23 || minute > 59) return false;
  *minutes = (hour * 60 + minute) * (sign == '-' ? -1 : 1);
  return true;
}

}  // namespace

std::string Rfc3339(Duration t, int fraction_digits) {
  const Civil c = CivilOf(t);
  std::string text = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", c.year, c.month, c.day,
                                 c.hour, c.minute, c.second);
  if (fraction_digits > 0) {
    text += '.';
    text += fmt::format("{:09}", c.nanos).substr(0, static_cast<size_t>(fraction_digits));
  }
  return text + 'Z';
}

std::optional<Duration> ParseRfc3339(std::string_view text) {
  Scanner in(text);
  int64_t year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, nanos = 0, offset = 0;
  char separator = 0;
  const bool fits = in.Number(4, &year) && in.Is('-') && in.Number(2, &month) && in.Is('-') &&
                    in.Number(2, &day) && in.OneOf("Tt ", &separator) && in.Number(2, &hour) &&
                    in.Is(':') && in.Number(2, &minute) && in.Is(':') && in.Number(2, &second) &&
                    ReadFraction(in, &nanos) && ReadOffset(in, &offset) && in.empty();
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(year)),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!fits || !date.ok() || year < 1970 || year > 2261) return std::nullopt;
  // A leap second counts as the one after.
  if (hour > 23 || minute > 59 || second > 60) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hour) +
         std::chrono::minutes(minute - offset) + std::chrono::seconds(second) + Duration(nanos);
}

std::string CompactUtc(Duration t) {
  const Civil c = CivilOf(t);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", c.year, c.month, c.day, c.hour, c.minute,
                     c.second);
}

}  // namespace base
