#include "catalog/inventory.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace catalog {
namespace {

constexpr size_t kDigits = 16;

}  // namespace

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kFull:
      return "full";
    case Kind::kSegment:
      return "segment";
    case Kind::kBundle:
      return "bundle";
    case Kind::kDrill:
      return "drill";
    case Kind::kRollUp:
      return "roll-up";
  }
  return "unknown";
}

const char* ProofMethodName(Proof::Method method) {
  switch (method) {
    case Proof::Method::kRows:
      return "rows";
    case Proof::Method::kHashOfFile:
      return "hash of file";
    case Proof::Method::kHashByRpc:
      return "hash by rpc";
    case Proof::Method::kRestored:
      return "restored";
  }
  return "unknown";
}

std::string Timeline::Name() const {
  return fmt::format("{:016x}-{:016x}", cluster_id, static_cast<uint64_t>(first_revision));
}

std::optional<Timeline> Timeline::Parse(const std::string& name) {
  if (name.size() != 2 * kDigits + 1 || name[kDigits] != '-') return std::nullopt;
  const std::string_view text(name);
  uint64_t id = 0, revision = 0;
  if (!base::ParseHex16(text.substr(0, kDigits), &id) ||
      !base::ParseHex16(text.substr(kDigits + 1), &revision) || revision > uint64_t{INT64_MAX}) {
    return std::nullopt;
  }
  return Timeline{.cluster_id = id, .first_revision = static_cast<int64_t>(revision)};
}

}  // namespace catalog
