#include "stores/store.h"

#include "base/status.h"
#include "stores/names.h"

namespace stores {

absl::Status ForEachObject(Store& store, std::string_view prefix, const Deadline& deadline,
                           absl::FunctionRef<absl::Status(const ObjectInfo&)> visit) {
  ListRequest request{.prefix = std::string(prefix)};
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<ObjectInfo> page, store.List(request, deadline));
    for (const ObjectInfo& object : page) RETURN_IF_ERROR(visit(object));
    if (page.size() < request.limit) return absl::OkStatus();
    request.after = page.back().name;
  }
}

absl::StatusOr<std::string> GetBytes(Store& store, std::string_view name, size_t bytes_max,
                                     const Deadline& deadline) {
  std::string bytes;
  vault::StringSink sink(&bytes, bytes_max);
  RETURN_IF_ERROR(store.Get(name, 0, kToTheEnd, sink, deadline));
  return bytes;
}

absl::Status CheckListRequest(const ListRequest& request) {
  RETURN_IF_ERROR(CheckPrefix(request.prefix));
  RETURN_IF_ERROR(CheckPrefix(request.after));
  if (request.limit < 1 || request.limit > kListLimitMax) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "a list of {} objects: 1 to {} are",
                            request.limit, kListLimitMax);
  }
  return absl::OkStatus();
}

absl::Status CheckReplace(std::string_view name, std::string_view bytes) {
  RETURN_IF_ERROR(CheckName(name));
  if (bytes.size() > kReplaceBytesMax) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "object {}: {} bytes are too many to replace, {} at most", name,
                            bytes.size(), kReplaceBytesMax);
  }
  return absl::OkStatus();
}

}  // namespace stores
