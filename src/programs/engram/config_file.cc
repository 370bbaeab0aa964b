#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>

#include "base/go_text.h"
#include "base/status.h"
#include "base/urls.h"
#include "flags.h"

namespace engram {
namespace {

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

absl::Status Invalid(std::string text) { return absl::InvalidArgumentError(text); }

// The child of a map by key, in any case; an undefined node when absent.
YAML::Node Find(const YAML::Node& map, const std::string& key) {
  for (const auto& item : map) {
    if (item.first.IsScalar() && Lower(item.first.Scalar()) == Lower(key)) return item.second;
  }
  return YAML::Node(YAML::NodeType::Undefined);
}

// A plain scalar (unquoted) that YAML reads as a number or a boolean is no string for a strict
// decoder.
bool IsPlainNonString(const YAML::Node& node) {
  if (node.Tag() == "!") return false;  // quoted
  const std::string& text = node.Scalar();
  return base::ParseGoInt(text).has_value() || text == "true" || text == "false";
}

std::string_view GoType(FlagType type) {
  switch (type) {
    case FlagType::kBool:
      return "bool";
    case FlagType::kInt:
      return "int64";
    case FlagType::kUint:
      return "uint";
    case FlagType::kUint32:
      return "uint32";
    case FlagType::kDuration:
      return "time.Duration";
    default:
      return "string";
  }
}

absl::Status TypeError(const Flag& flag, std::string_view found) {
  return Invalid(
      fmt::format("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go "
                  "struct field "
                  "configYAML.Config.{} of type {}",
                  found, flag.name, GoType(flag.type)));
}

absl::Status SetFrom(const Flag& flag, const YAML::Node& node, Config* config) {
  std::string text;
  if (node.IsSequence()) {
    // Lists stand as sequences; a flag takes them joined.
    for (const auto& item : node) {
      if (!item.IsScalar()) return TypeError(flag, "object");
      text += (text.empty() ? "" : ",") + item.Scalar();
    }
  } else if (node.IsScalar()) {
    text = node.Scalar();
    switch (flag.type) {
      case FlagType::kDuration:
        if (node.Tag() == "!" || !base::ParseGoInt(text)) return TypeError(flag, "string");
        text += "ns";
        break;
      case FlagType::kString:
      case FlagType::kEnum:
        if (IsPlainNonString(node))
          return TypeError(flag, text == "true" || text == "false" ? "bool" : "number");
        break;
      case FlagType::kBool:
        if (node.Tag() == "!") return TypeError(flag, "string");
        break;
      default:
        break;
    }
  } else {
    return TypeError(flag, "object");
  }
  if (const absl::Status set = flag.set(*config, text); !set.ok()) {
    if (flag.type == FlagType::kUrlList) {
      // etcd's texts name advertise-client-urls wrongly; tools match the words before the colon.
      const std::string_view name =
          flag.name == "advertise-client-urls" ? "advertise-peer-urls" : flag.name;
      return Invalid(fmt::format("unexpected error setting up {}: {}", name, base::Message(set)));
    }
    if (flag.type == FlagType::kEnum && flag.name == "initial-cluster-state") {
      return Invalid(fmt::format("unexpected clusterState {}", base::GoQuote(text)));
    }
    return flag.type == FlagType::kString ? set : TypeError(flag, "string");
  }
  config->given[std::string(flag.name)] = true;
  return absl::OkStatus();
}

// The node a dotted key names; undefined when any part is missing. Where a part is no map, `*bad`
// names it. (Recursive, because assigning to a YAML::Node changes the document it refers to.)
YAML::Node Resolve(const YAML::Node& node, std::string_view key, std::string* bad) {
  const size_t dot = key.find('.');
  const std::string part(key.substr(0, dot));
  const YAML::Node child = Find(node, part);
  if (!child.IsDefined() || child.IsNull() || dot == std::string_view::npos) return child;
  if (!child.IsMap()) {
    *bad = part;
    return YAML::Node(YAML::NodeType::Undefined);
  }
  return Resolve(child, key.substr(dot + 1), bad);
}

}  // namespace

absl::Status LoadConfigFile(std::string_view text, Config* config) {
  YAML::Node root;
  try {
    root = YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    return Invalid(fmt::format("error converting YAML to JSON: yaml: line {}: {}",
                               error.mark.line + 1, error.msg));
  }
  *config = Config();
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) {
    return Invalid(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go value "
        "of type embed.configYAML");
  }
  try {
    for (const Flag& flag : Flags()) {
      if (flag.key == "-") continue;
      std::string bad;
      const YAML::Node node = Resolve(root, flag.key.empty() ? flag.name : flag.key, &bad);
      if (!bad.empty()) return Invalid("invalid " + bad);
      if (!node.IsDefined() || node.IsNull()) continue;
      RETURN_IF_ERROR(SetFrom(flag, node, config));
    }
    std::string bad;
    for (const bool peer : {false, true}) {
      const YAML::Node cn = Resolve(
          root,
          peer ? "peer-transport-security.allowed-cn" : "client-transport-security.allowed-cn",
          &bad);
      if (!cn.IsDefined() || !cn.IsSequence()) continue;
      auto& names = (peer ? config->peer_tls : config->client_tls).allowed_cn;
      names.clear();
      for (const auto& name : cn) names.push_back(name.as<std::string>(""));
    }
  } catch (const YAML::Exception& error) {
    return Invalid(fmt::format("error converting YAML to JSON: yaml: line {}: {}",
                               error.mark.line + 1, error.msg));
  }
  if (config->initial_cluster_state.empty()) config->initial_cluster_state = "new";
  if (config->self_signed_cert_validity == 0) config->self_signed_cert_validity = 1;
  // In a file, advertised URLs keep their default beside explicit listen URLs.
  config->given["advertise-client-urls"] = true;
  return absl::OkStatus();
}

}  // namespace engram
