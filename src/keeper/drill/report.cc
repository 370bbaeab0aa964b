#include "drill/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/time_text.h"

namespace drill {
namespace {

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

double Seconds(base::Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

bool Report::Passed() const {
  return !phases.empty() &&
         std::all_of(phases.begin(), phases.end(), [](const Phase& phase) { return phase.passed; });
}

base::Duration Report::Rto() const {
  base::Duration total{0};
  for (const Phase& phase : phases) total += phase.took;
  return total;
}

std::string ReportJson(const Report& report) {
  nlohmann::json phases = nlohmann::json::array();
  for (const Phase& phase : report.phases) {
    phases.push_back({{"name", phase.name},
                      {"seconds", Seconds(phase.took)},
                      {"passed", phase.passed},
                      {"text", phase.text}});
  }
  const nlohmann::json out = {{"cluster", report.cluster},
                              {"timeline", report.timeline.Name()},
                              {"revision", report.revision},
                              {"began", base::Rfc3339(report.began)},
                              {"passed", report.Passed()},
                              {"rto_seconds", Seconds(report.Rto())},
                              {"rpo_seconds", Seconds(report.rpo)},
                              {"findings", report.findings},
                              {"phases", phases}};
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string ReportHtml(const Report& report) {
  std::string rows;
  for (const Phase& phase : report.phases) {
    rows +=
        fmt::format("<tr class=\"{}\"><td>{}</td><td>{:.1f} s</td><td>{}</td><td>{}</td></tr>\n",
                    phase.passed ? "passed" : "failed", Escaped(phase.name), Seconds(phase.took),
                    phase.passed ? "passed" : "FAILED", Escaped(phase.text));
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Drill of "
      "{0}</title>\n"
      "<style>body{{font-family:sans-serif;max-width:60em;margin:2em auto}}"
      "table{{border-collapse:collapse;width:100%}}td,th{{border-bottom:1px solid #ccc;"
      "padding:.4em;text-align:left;vertical-align:top}}.failed{{background:#fdd}}</style></head>\n"
      "<body><h1>Drill of {0}: {1}</h1>\n<p>{2}, revision {3}, timeline {4}. Recovery took {5:.1f} "
      "s; {6:.1f} s of changes would have been lost.</p>\n<table><tr><th>Phase</th><th>Time</th>"
      "<th>Result</th><th>Seen</th></tr>\n{7}</table></body></html>\n",
      Escaped(report.cluster), report.Passed() ? "passed" : "FAILED",
      base::Rfc3339(report.began, 0), report.revision, report.timeline.Name(),
      Seconds(report.Rto()), Seconds(report.rpo), rows);
}

}  // namespace drill
