#include "cluster/membership.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/split.h"
#include "base/status.h"
#include "base/urls.h"

namespace cluster {
namespace {

using nlohmann::json;

// Go's encoder also escapes <, > and &.
std::string GoJsonString(std::string_view text) {
  std::string out;
  for (const char c : base::JsonString(text)) {
    if (c == '<' || c == '>' || c == '&') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string StringArray(const std::vector<std::string>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ",";
    out += GoJsonString(values[i]);
  }
  return out + "]";
}

std::string EncodeFields(const Member& member) {
  std::string out = fmt::format(R"({{"id":{},"peerURLs":)", member.id);
  out += StringArray(member.peer_urls);
  if (member.is_learner) out += R"(,"isLearner":true)";
  if (!member.name.empty()) out += R"(,"name":)" + GoJsonString(member.name);
  if (!member.client_urls.empty()) out += R"(,"clientURLs":)" + StringArray(member.client_urls);
  if (member.promote_when_ready) out += R"(,"promoteWhenReady":true)";
  return out;
}

absl::Status Damaged(std::string_view text) {
  return base::MakeStatus(absl::StatusCode::kDataLoss, "no member in JSON: {}",
                          text.substr(0, 200));
}

bool ReadStrings(const json& object, const char* key, std::vector<std::string>* out) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return true;
  if (!it->is_array()) return false;
  for (const json& value : *it) {
    if (!value.is_string()) return false;
    out->push_back(value.get<std::string>());
  }
  return true;
}

bool ReadBool(const json& object, const char* key, bool* out) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return true;
  if (!it->is_boolean()) return false;
  *out = it->get<bool>();
  return true;
}

absl::Status Failed(std::string_view text) {
  return absl::FailedPreconditionError(base::ToAbsl(text));
}

}  // namespace

std::string EncodeMember(const Member& member) { return EncodeFields(member) + "}"; }

std::string EncodeChangeContext(const ChangeContext& context) {
  if (context.is_promote && context.member.peer_urls.empty()) {
    return fmt::format(R"({{"id":{},"peerURLs":null,"isPromote":true}})", context.member.id);
  }
  return EncodeFields(context.member) + (context.is_promote ? R"(,"isPromote":true})" : "}");
}

absl::StatusOr<ChangeContext> DecodeChangeContext(std::string_view text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Damaged(text);
  ChangeContext context;
  const auto id = object.find("id");
  if (id == object.end() || !id->is_number_unsigned()) return Damaged(text);
  context.member.id = id->get<uint64_t>();
  const auto name = object.find("name");
  if (name != object.end() && !name->is_null()) {
    if (!name->is_string()) return Damaged(text);
    context.member.name = name->get<std::string>();
  }
  if (!ReadStrings(object, "peerURLs", &context.member.peer_urls) ||
      !ReadStrings(object, "clientURLs", &context.member.client_urls) ||
      !ReadBool(object, "isLearner", &context.member.is_learner) ||
      !ReadBool(object, "promoteWhenReady", &context.member.promote_when_ready) ||
      !ReadBool(object, "isPromote", &context.is_promote)) {
    return Damaged(text);
  }
  return context;
}

absl::StatusOr<Member> DecodeMember(std::string_view text) {
  ASSIGN_OR_RETURN(ChangeContext context, DecodeChangeContext(text));
  return std::move(context.member);
}

absl::StatusOr<std::map<std::string, std::vector<std::string>>> ParseInitialCluster(
    std::string_view text) {
  std::map<std::string, std::vector<std::string>> result;
  for (const std::string_view pair : base::SplitAtCommas(text)) {
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size()) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument, "empty URL given for \"{}\"",
                              pair.substr(0, equals));
    }
    ASSIGN_OR_RETURN(const base::Url url, base::ParseUrl(pair.substr(equals + 1)));
    result[std::string(pair.substr(0, equals))].push_back(url.Text());
  }
  return result;
}

std::vector<uint64_t> Membership::View::Voters() const {
  std::vector<uint64_t> ids;
  for (const auto& [id, member] : members) {
    if (!member.is_learner) ids.push_back(id);
  }
  return ids;
}

std::vector<uint64_t> Membership::View::Learners() const {
  std::vector<uint64_t> ids;
  for (const auto& [id, member] : members) {
    if (member.is_learner) ids.push_back(id);
  }
  return ids;
}

size_t Membership::View::StartedVoters(uint64_t except) const {
  size_t started = 0;
  for (const auto& [id, member] : members) {
    started += id != except && !member.is_learner && !member.name.empty() ? 1 : 0;
  }
  return started;
}

Membership::Membership() : view_(std::make_shared<const View>()) {}

Membership::ViewPtr Membership::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void Membership::Reset(View view) {
  auto next = std::make_shared<const View>(std::move(view));
  const std::lock_guard lock(mutex_);
  view_ = std::move(next);
}

template <typename F>
void Membership::Change(F change) {
  View next = *view();
  change(next);
  Reset(std::move(next));
}

absl::Status Membership::Validate(int type, const ChangeContext& context, uint64_t node_id) const {
  const ViewPtr now = view();
  if (now->removed.contains(node_id)) return absl::NotFoundError("etcdserver: member not found");
  const bool known = now->members.contains(node_id);
  const auto url_taken = [&](uint64_t except) {
    for (const auto& [id, member] : now->members) {
      if (id == except) continue;
      for (const std::string& url : member.peer_urls) {
        for (const std::string& wanted : context.member.peer_urls) {
          if (url == wanted) return true;
        }
      }
    }
    return false;
  };
  switch (type) {
    case 0:  // add a voter, or promote
      if (context.is_promote) {
        if (!known) return absl::NotFoundError("etcdserver: member not found");
        if (!now->Find(node_id)->is_learner)
          return Failed("etcdserver: can only promote a learner member");
        return absl::OkStatus();
      }
      [[fallthrough]];
    case 3:  // add a learner
      if (known) return Failed("etcdserver: member ID already exist");
      if (url_taken(0)) return Failed("etcdserver: Peer URLs already exists");
      if (type == 3 && now->Learners().size() >= max_learners_)
        return Failed("etcdserver: too many learner members in cluster");
      return absl::OkStatus();
    case 1:
      return known ? absl::OkStatus() : absl::NotFoundError("etcdserver: member not found");
    case 2:
      if (!known) return absl::NotFoundError("etcdserver: member not found");
      if (url_taken(node_id)) return Failed("etcdserver: Peer URLs already exists");
      return absl::OkStatus();
    default:
      return base::MakeStatus(absl::StatusCode::kInvalidArgument, "unknown membership change {}",
                              type);
  }
}

void Membership::Add(const Member& member) {
  Change([&](View& view) { view.members[member.id] = member; });
}

void Membership::Remove(uint64_t id) {
  Change([&](View& view) {
    view.members.erase(id);
    view.removed.insert(id);
  });
}

void Membership::UpdatePeerUrls(uint64_t id, std::vector<std::string> peer_urls) {
  Change([&](View& view) {
    const auto it = view.members.find(id);
    if (it != view.members.end()) it->second.peer_urls = std::move(peer_urls);
  });
}

void Membership::Promote(uint64_t id) {
  Change([&](View& view) {
    const auto it = view.members.find(id);
    if (it == view.members.end()) return;
    it->second.is_learner = false;
    it->second.promote_when_ready = false;
  });
}

bool Membership::UpdateAttributes(uint64_t id, std::string name,
                                  std::vector<std::string> client_urls) {
  if (!view()->members.contains(id)) return false;
  Change([&](View& view) {
    Member& member = view.members[id];
    member.name = std::move(name);
    member.client_urls = std::move(client_urls);
  });
  return true;
}

void Membership::SetClusterVersion(std::string version) {
  Change([&](View& view) { view.cluster_version = std::move(version); });
}

absl::StatusOr<Version> ParseVersion(std::string_view text) {
  const std::string_view numbers = text.substr(0, text.find_first_of("-+"));
  Version version;
  int* const parts[] = {&version.major, &version.minor, &version.patch};
  const char* p = numbers.data();
  const char* const end = p + numbers.size();
  for (int i = 0; i < 3; ++i) {
    if (i > 0) {
      if (p == end || *p != '.') break;
      ++p;
    }
    const auto [next, error] = std::from_chars(p, end, *parts[i]);
    if (error != std::errc() || next == p) break;
    p = next;
    if (i == 2 && p == end) return version;
  }
  return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                          "\"{}\" is not a version of the form X.Y.Z", text);
}

absl::Status CheckStorageVersion(const Version& own, std::string_view storage) {
  // Garbage counts as absent, and a file without a version is one of 3.5.
  const auto parsed = ParseVersion(storage);
  const Version file = parsed.ok() ? *parsed : Version{3, 5, 0};
  if (file.major != own.major) {
    return absl::FailedPreconditionError("changing major storage version is not supported");
  }
  constexpr int kOldestMinor = 5;
  if (file.minor > own.minor || file.minor < kOldestMinor) {
    // Named is the first step unknown to us on the way from the file's version to ours.
    const int unknown = file.minor > own.minor ? file.minor : file.minor + 1;
    return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                            "version \"{}.{}.0\" is not supported", file.major, unknown);
  }
  return absl::OkStatus();
}

}  // namespace cluster
