#include <fmt/format.h>

#include "config/sections.h"
#include "config/units.h"

namespace config {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr uint64_t kSegmentBytes = uint64_t{64} << 20;
constexpr uint64_t kSegmentBytesMin = uint64_t{64} << 10;
// Kubernetes' API servers compact every five minutes and leave the last five: so far back reaches a
// full at least, and fulls that far apart bridge each other without an archive.
constexpr Duration kBridgedByFulls = minutes(5);
constexpr size_t kRollUpsMax = 4;
constexpr Duration kYears = hours(24 * 366 * 100);

const std::set<std::string, std::less<>>& PolicyNames() {
  static const std::set<std::string, std::less<>> names = {"dev", "staging", "production",
                                                           "critical"};
  return names;
}

Policy NamedOrFault(Fields* fields, std::string_view key, const std::string& name) {
  if (std::optional<Policy> policy = NamedPolicy(name)) return *policy;
  const std::string near = Nearest(name, PolicyNames());
  fields->Fault(key, fmt::format("there is no policy `{}`{}: dev, staging, production and critical "
                                 "are known",
                                 name, near.empty() ? "" : "; did you mean `" + near + "`?"));
  return *NamedPolicy("production");
}

// A list of spans, or the word none.
void ReadRollUps(Fields* fields, std::vector<Duration>* out) {
  const yaml::Value* value = fields->Get("roll_ups");
  if (value == nullptr) return;
  if (value->is_scalar() && value->text == "none") {
    out->clear();
    return;
  }
  std::vector<std::pair<int, std::string>> texts;
  if (!fields->Texts("roll_ups", &texts)) return;
  std::vector<Duration> spans;
  for (const auto& [line, text] : texts) {
    const std::optional<Duration> span = ParseDuration(text);
    std::string what;
    if (!span || *span < seconds(1) || *span > hours(24 * 31)) {
      what = fmt::format("expected a span from 1s to 31d, found `{}`", text);
    } else if (!spans.empty() && (*span == spans.back() || *span % spans.back() != Duration(0))) {
      what = fmt::format("{} is no multiple of {}: each span is made of whole shorter ones", text,
                         DurationText(spans.back()));
    } else {
      spans.push_back(*span);
      continue;
    }
    fields->faults().Add(line, fmt::format("{}: {}", fields->PathOf("roll_ups"), what));
  }
  if (texts.size() > kRollUpsMax) {
    fields->Fault("roll_ups", fmt::format("has {} spans: {} at most", texts.size(), kRollUpsMax));
  }
  *out = std::move(spans);
}

void CheckPolicy(Fields* fields, const Policy& policy) {
  if (policy.archive() && policy.segment_every > policy.full_every) {
    fields->Fault(
        "segment_every",
        fmt::format("{} is longer than full_every, {}: the archive would always be behind "
                    "the last full",
                    DurationText(policy.segment_every), DurationText(policy.full_every)));
  }
}

}  // namespace

std::optional<Policy> NamedPolicy(const std::string& name) {
  Policy policy{.like = name,
                .segment_bytes_max = kSegmentBytes,
                .roll_ups = {minutes(10), hours(6)},
                .parts_stay = hours(1),
                .adopt_after = hours(24)};
  if (name == "dev") {
    policy.full_every = hours(1);
  } else if (name == "staging") {
    policy.full_every = minutes(30);
  } else if (name == "production") {
    policy.full_every = minutes(15);
    policy.segment_every = seconds(10);
  } else if (name == "critical") {
    policy.full_every = minutes(5);
    policy.segment_every = milliseconds(500);
  } else {
    return std::nullopt;
  }
  return policy;
}

Retention DefaultRetention(const Policy& policy) {
  if (policy.archive()) {
    return {.window = hours(24 * 7),
            .hourly = 24,
            .daily = 30,
            .weekly = 8,
            .monthly = 12,
            .keep_proven = 3};
  }
  // Without an archive no window can be promised.
  if (policy.like == "dev") return {.hourly = 24, .daily = 7, .keep_proven = 1};
  return {.hourly = 48, .daily = 14, .weekly = 4, .keep_proven = 2};
}

Policy ReadPolicy(Fields* cluster) {
  const yaml::Value* value = cluster->Get("policy");
  std::string name = "production";
  if (value == nullptr || value->is_scalar()) {
    cluster->Text("policy", &name);
    return NamedOrFault(cluster, "policy", name);
  }
  Fields fields(&cluster->faults(), value, cluster->PathOf("policy"), cluster->LineOf("policy"));
  fields.Text("like", &name);
  Policy policy = NamedOrFault(&fields, "like", name);
  fields.Time("full_every", {.min = seconds(10), .max = hours(24 * 31)}, &policy.full_every);
  fields.Time("segment_every", {.min = milliseconds(100), .max = hours(1), .word_for_none = "none"},
              &policy.segment_every);
  fields.Size("segment_bytes", kSegmentBytesMin, &policy.segment_bytes_max);
  ReadRollUps(&fields, &policy.roll_ups);
  fields.Time("parts_stay", {.min = Duration(0), .max = hours(24 * 31)}, &policy.parts_stay);
  fields.Time("adopt_after", {.min = seconds(1), .max = hours(24 * 366)}, &policy.adopt_after);
  CheckPolicy(&fields, policy);
  return policy;
}

Retention ReadRetention(Fields* cluster, const Policy& policy) {
  Retention retention = DefaultRetention(policy);
  Fields fields(&cluster->faults(), cluster->Get("retention"), cluster->PathOf("retention"),
                cluster->LineOf("retention"));
  constexpr uint32_t kMany = 100'000;
  fields.Time("window", {.min = Duration(0), .max = kYears, .word_for_none = "none"},
              &retention.window);
  fields.Number("hourly", kMany, &retention.hourly);
  fields.Number("daily", kMany, &retention.daily);
  fields.Number("weekly", kMany, &retention.weekly);
  fields.Number("monthly", kMany, &retention.monthly);
  fields.Number("keep_proven", kMany, &retention.keep_proven);
  // Nothing is deleted that nobody spoke of.
  if (cluster->Has("retention")) retention.every = hours(1);
  fields.Time("every", {.min = minutes(1), .max = kYears, .word_for_none = "never"},
              &retention.every);
  const bool window = retention.window > Duration(0);
  if (!window && retention.hourly + retention.daily + retention.weekly + retention.monthly == 0) {
    fields.faults().Add(
        fields.line(),
        cluster->PathOf("retention") +
            ": keeps nothing: give a window or one of hourly, daily, weekly, monthly");
  }
  if (window && retention.window < policy.full_every) {
    fields.Fault("window",
                 fmt::format("{} is shorter than the interval of fulls, {}: at times no "
                             "full would lie in it",
                             DurationText(retention.window), DurationText(policy.full_every)));
  }
  if (window && !policy.archive() && policy.full_every > kBridgedByFulls) {
    fields.Fault(
        "window",
        fmt::format("fulls every {} cannot bridge a window of {}: points between them "
                    "would be missing. Set the policy's segment_every, or full_every to {} "
                    "at most, or window: none",
                    DurationText(policy.full_every), DurationText(retention.window),
                    DurationText(kBridgedByFulls)));
  }
  return retention;
}

}  // namespace config
