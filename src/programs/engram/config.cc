#include "config.h"

#include <algorithm>

#include "base/go_text.h"
#include "base/split.h"
#include "base/status.h"

namespace engram {
namespace {

std::vector<base::Url> Url(std::string_view text) { return {*base::ParseUrl(text)}; }

constexpr FeatureGate kGates[] = {{"CompactHashCheck", false, "ALPHA"},
                                  {"InitialCorruptCheck", false, "ALPHA"},
                                  {"LeaseCheckpoint", false, "ALPHA"},
                                  {"LeaseCheckpointPersist", false, "ALPHA"},
                                  {"SetMemberLocalAddr", false, "ALPHA"},
                                  {"StopGRPCServiceOnDefrag", false, "ALPHA"},
                                  {"TxnModeWriteWithSharedBuffer", true, "BETA"},
                                  {"FastLeaseKeepAlive", true, "BETA"},
                                  {"PriorityRequest", false, "ALPHA"},
                                  {"AllAlpha", false, "ALPHA"},
                                  {"AllBeta", false, "BETA"}};

}  // namespace

Config::Config()
    : listen_peer_urls(Url("http://localhost:2380")),
      listen_client_urls(Url("http://localhost:2379")),
      initial_advertise_peer_urls(Url("http://localhost:2380")),
      advertise_client_urls(Url("http://localhost:2379")),
      initial_cluster("default=http://localhost:2380") {}

absl::StatusOr<std::vector<FeatureGate>> ResolveFeatureGates(std::string_view text) {
  const auto invalid = [](std::string message) { return absl::InvalidArgumentError(message); };
  std::vector<FeatureGate> gates(std::begin(kGates), std::end(kGates));
  std::vector<std::string_view> set;
  for (std::string_view item : base::SplitAtCommas(text)) {
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    if (equals == std::string_view::npos)
      return invalid(fmt::format("missing bool value for {}", name));
    const std::string_view value = item.substr(equals + 1);
    const auto enabled = base::ParseGoBool(value);
    if (!enabled) {
      return invalid(
          fmt::format("invalid value of {}={}, err: strconv.ParseBool: parsing {}: invalid syntax",
                      name, value, base::GoQuote(value)));
    }
    const auto gate = std::find_if(gates.begin(), gates.end(),
                                   [&](const FeatureGate& g) { return g.name == name; });
    if (gate == gates.end()) return invalid(fmt::format("unrecognized feature gate: {}", name));
    gate->enabled = *enabled;
    set.push_back(gate->name);
  }
  for (const auto& [all, stage] : {std::pair("AllAlpha", "ALPHA"), std::pair("AllBeta", "BETA")}) {
    if (std::find(set.begin(), set.end(), all) == set.end()) continue;
    const bool enabled = IsEnabled(gates, all);
    for (FeatureGate& gate : gates) {
      if (gate.stage == stage && std::find(set.begin(), set.end(), gate.name) == set.end())
        gate.enabled = enabled;
    }
  }
  return gates;
}

bool IsEnabled(const std::vector<FeatureGate>& gates, std::string_view name) {
  return std::any_of(gates.begin(), gates.end(),
                     [&](const FeatureGate& g) { return g.name == name && g.enabled; });
}

}  // namespace engram
