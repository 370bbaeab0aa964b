#include "wal/v2_store.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/status.h"

namespace wal {
namespace {

// Keeps the order in which fields are added, so that a dump looks like etcd's.
using Json = nlohmann::ordered_json;

constexpr int kStoreVersion = 2;
constexpr std::string_view kNoExpiry = "0001-01-01T00:00:00Z";

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Builds the tree of nodes. A directory has an object of children, a value has null.
class TreeBuilder {
 public:
  Json Directory(const std::string& path, Json children) const {
    return Node(path, "", std::move(children), 0);
  }
  Json Value(const std::string& path, const std::string& value) {
    ++last_index_;
    return Node(path, value, nullptr, last_index_);
  }
  // The number of values so far, which is what the store's index counts.
  uint64_t last_index() const { return last_index_; }

 private:
  static Json Node(const std::string& path, const std::string& value, Json children,
                   uint64_t index) {
    Json node = Json::object();
    node["Path"] = path;
    node["CreatedIndex"] = index;
    node["ModifiedIndex"] = index;
    node["ExpireTime"] = kNoExpiry;
    node["Value"] = value;
    node["Children"] = std::move(children);
    return node;
  }

  uint64_t last_index_ = 0;
};

std::string RaftAttributes(const V2Member& member) {
  Json json = Json::object();
  json["peerURLs"] = member.peer_urls;
  if (member.is_learner) json["isLearner"] = true;
  return Dump(json);
}

std::string Attributes(const V2Member& member) {
  Json json = Json::object();
  if (!member.name.empty()) json["name"] = member.name;
  if (!member.client_urls.empty()) json["clientURLs"] = member.client_urls;
  return Dump(json);
}

Json MemberNode(const V2Member& member, const std::string& path, TreeBuilder* tree) {
  Json children = Json::object();
  if (!member.name.empty() || !member.client_urls.empty()) {
    children["attributes"] = tree->Value(path + "/attributes", Attributes(member));
  }
  children["raftAttributes"] = tree->Value(path + "/raftAttributes", RaftAttributes(member));
  return tree->Directory(path, std::move(children));
}

absl::Status Malformed(std::string_view what) {
  return base::MakeStatus(absl::StatusCode::kInvalidArgument, "snap: membership dump: {}", what);
}

// The children of a node; empty for a node that is absent or a value.
const Json* Children(const Json* node) {
  if (node == nullptr || !node->is_object()) return nullptr;
  const auto children = node->find("Children");
  return children != node->end() && children->is_object() ? &*children : nullptr;
}

const Json* Child(const Json* node, const char* name) {
  const Json* children = Children(node);
  if (children == nullptr) return nullptr;
  const auto child = children->find(name);
  return child != children->end() ? &*child : nullptr;
}

// A node's value; empty when it has none.
std::optional<std::string> Value(const Json* node) {
  if (node == nullptr || !node->is_object()) return std::nullopt;
  const auto value = node->find("Value");
  if (value == node->end() || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

// The JSON object that a node's value spells.
std::optional<Json> ObjectValue(const Json* node) {
  const auto text = Value(node);
  if (!text.has_value()) return std::nullopt;
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return json;
}

// Reads an array of strings; false when it is something else. Absent or null is an empty one.
bool ReadStrings(const Json& object, const char* name, std::vector<std::string>* out) {
  const auto array = object.find(name);
  if (array == object.end() || array->is_null()) return true;
  if (!array->is_array()) return false;
  for (const Json& item : *array) {
    if (!item.is_string()) return false;
    out->push_back(item.get<std::string>());
  }
  return true;
}

absl::StatusOr<V2Member> ReadMember(const std::string& id, const Json& node) {
  V2Member member;
  if (!base::ParseHexId(id, &member.id)) return Malformed("member id '" + id + "'");
  const auto raft = ObjectValue(Child(&node, "raftAttributes"));
  if (!raft.has_value() || !ReadStrings(*raft, "peerURLs", &member.peer_urls)) {
    return Malformed("raftAttributes of member " + id);
  }
  if (const auto learner = raft->find("isLearner"); learner != raft->end()) {
    if (!learner->is_boolean()) return Malformed("isLearner of member " + id);
    member.is_learner = learner->get<bool>();
  }
  const Json* attributes_node = Child(&node, "attributes");
  if (attributes_node == nullptr) return member;
  const auto attributes = ObjectValue(attributes_node);
  if (!attributes.has_value() || !ReadStrings(*attributes, "clientURLs", &member.client_urls)) {
    return Malformed("attributes of member " + id);
  }
  if (const auto name = attributes->find("name"); name != attributes->end()) {
    if (!name->is_string()) return Malformed("name of member " + id);
    member.name = name->get<std::string>();
  }
  return member;
}

}  // namespace

std::string EncodeV2Store(const V2Membership& membership) {
  TreeBuilder tree;
  // By id, so that equal memberships give equal bytes.
  std::map<std::string, const V2Member*> by_id;
  for (const V2Member& member : membership.members) by_id[base::IdToHex(member.id)] = &member;
  Json members = Json::object();
  for (const auto& [id, member] : by_id)
    members[id] = MemberNode(*member, "/0/members/" + id, &tree);
  std::vector<std::string> removed_ids;
  for (const uint64_t id : membership.removed_members) removed_ids.push_back(base::IdToHex(id));
  std::sort(removed_ids.begin(), removed_ids.end());
  Json removed = Json::object();
  for (const std::string& id : removed_ids)
    removed[id] = tree.Value("/0/removed_members/" + id, "");

  Json cluster = Json::object();
  cluster["members"] = tree.Directory("/0/members", std::move(members));
  if (!removed.empty()) {
    cluster["removed_members"] = tree.Directory("/0/removed_members", std::move(removed));
  }
  if (!membership.cluster_version.empty()) {
    cluster["version"] = tree.Value("/0/version", membership.cluster_version);
  }
  Json top = Json::object();
  top["0"] = tree.Directory("/0", std::move(cluster));
  top["1"] = tree.Directory("/1", Json::object());
  Json store = Json::object();
  store["Root"] = tree.Directory("/", std::move(top));
  // The event history and the statistics of that store are left out; readers keep empty ones.
  store["CurrentIndex"] = tree.last_index();
  store["CurrentVersion"] = kStoreVersion;
  return Dump(store);
}

absl::StatusOr<V2Membership> DecodeV2Store(std::string_view json) {
  const Json store = Json::parse(json, nullptr, false);
  if (!store.is_object()) return Malformed("not a JSON object");
  V2Membership membership;
  const auto root = store.find("Root");
  if (root == store.end()) return membership;
  const Json* cluster = Child(&*root, "0");
  if (const Json* members = Children(Child(cluster, "members")); members != nullptr) {
    for (const auto& [id, node] : members->items()) {
      ASSIGN_OR_RETURN(V2Member member, ReadMember(id, node));
      membership.members.push_back(std::move(member));
    }
  }
  if (const Json* removed = Children(Child(cluster, "removed_members")); removed != nullptr) {
    for (const auto& [id, node] : removed->items()) {
      uint64_t parsed = 0;
      if (!base::ParseHexId(id, &parsed)) return Malformed("removed member id '" + id + "'");
      membership.removed_members.push_back(parsed);
    }
  }
  if (const Json* version = Child(cluster, "version"); version != nullptr) {
    auto text = Value(version);
    if (!text.has_value()) return Malformed("cluster version");
    membership.cluster_version = std::move(*text);
  }
  std::sort(membership.members.begin(), membership.members.end(),
            [](const V2Member& a, const V2Member& b) { return a.id < b.id; });
  std::sort(membership.removed_members.begin(), membership.removed_members.end());
  return membership;
}

}  // namespace wal
