// How numbers, times and tables are printed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "base/time_text.h"
#include "commands.h"

namespace keeper {
namespace {

// Columns a terminal gives a text: continuation bytes of UTF-8 take none.
size_t WidthOf(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

void PrintYaml(const nlohmann::json& value, int indent, std::string* out) {
  const std::string pad(static_cast<size_t>(indent), ' ');
  const auto is_block = [](const nlohmann::json& v) {
    return (v.is_object() || v.is_array()) && !v.empty();
  };
  const auto scalar = [](const nlohmann::json& v) {
    return v.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      // JSON strings are YAML's double-quoted ones.
      *out += fmt::format("{}{}:", pad, scalar(key));
      if (is_block(member)) {
        *out += "\n";
        PrintYaml(member, indent + 2, out);
      } else {
        *out += fmt::format(" {}\n", scalar(member));
      }
    }
    return;
  }
  for (const nlohmann::json& element : value) {
    if (is_block(element)) {
      std::string block;
      PrintYaml(element, indent + 2, &block);
      block[static_cast<size_t>(indent)] = '-';
      *out += block;
    } else {
      *out += fmt::format("{}- {}\n", pad, scalar(element));
    }
  }
}

}  // namespace

int Print(const Session& session, const nlohmann::json& json,
          const std::function<std::string()>& table) {
  switch (session.output) {
    case Output::kTable:
      Emit(table());
      break;
    case Output::kJson:
      Emit(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      break;
    case Output::kYaml: {
      std::string out;
      PrintYaml(json, 0, &out);
      Emit(out.empty() ? "[]\n" : out);
      break;
    }
  }
  return kOk;
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], WidthOf(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - WidthOf(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string SizeText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return value < 10 ? fmt::format("{:.1f} {}", value, kUnits[unit])
                    : fmt::format("{:.0f} {}", value, kUnits[unit]);
}

std::string SpanText(base::Duration span) {
  const double seconds = std::chrono::duration<double>(span).count();
  if (seconds < 10) return fmt::format("{:.1f} s", std::max(0.0, seconds));
  const int64_t s = std::llround(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) {
    return s % 60 == 0 ? fmt::format("{} m", s / 60) : fmt::format("{} m {} s", s / 60, s % 60);
  }
  if (s < 48 * 3600) {
    return s / 60 % 60 == 0 ? fmt::format("{} h", s / 3600)
                            : fmt::format("{} h {} m", s / 3600, s / 60 % 60);
  }
  return fmt::format("{} d", s / 86400);
}

std::string MomentText(base::Duration wall) {
  if (wall == base::Duration(0)) return "-";
  std::string text = base::Rfc3339(wall, 0);
  text[10] = ' ';
  return text;
}

std::string CountText(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

absl::StatusOr<base::Duration> ParseMoment(std::string_view text, base::Duration now) {
  if (text == "now") return now;
  if (const auto moment = base::ParseRfc3339(text); moment.has_value()) return *moment;
  constexpr std::string_view kAgo = " ago";
  if (text.ends_with(kAgo)) {
    const std::string_view span = text.substr(0, text.size() - kAgo.size());
    size_t digits = 0;
    while (digits < span.size() && span[digits] >= '0' && span[digits] <= '9') ++digits;
    const std::string_view unit = span.substr(digits);
    const std::pair<std::string_view, base::Duration> units[] = {{"s", std::chrono::seconds(1)},
                                                                 {"m", std::chrono::minutes(1)},
                                                                 {"h", std::chrono::hours(1)},
                                                                 {"d", std::chrono::hours(24)}};
    for (const auto& [name, length] : units) {
      if (unit != name || digits == 0 || digits > 9) continue;
      return now - std::stol(std::string(span.substr(0, digits))) * length;
    }
  }
  return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                          "{}: no moment; take 2026-08-10T02:14:06Z (RFC 3339), \"10m ago\" or now",
                          text);
}

}  // namespace keeper
