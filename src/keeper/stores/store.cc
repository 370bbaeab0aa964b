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

namespace {

// Hashes and drops; stops as soon as there is too much.
class Check final : public vault::Sink {
 public:
  explicit Check(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  absl::Status Write(std::string_view data) override {
    bytes_ += data.size();
    hash_.Update(data);
    return bytes_ <= bytes_max_ ? absl::OkStatus()
                                : absl::DataLossError("it is longer than it should be");
  }
  absl::Status Finish() override { return absl::OkStatus(); }
  absl::Status Found(std::string_view name, uint64_t bytes, const base::Digest& sha256) {
    if (bytes_ != bytes) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "{}: it has {} bytes where {} were stored", name, bytes_, bytes);
    }
    if (const base::Digest found = hash_.Finish(); found != sha256) {
      return base::MakeStatus(absl::StatusCode::kDataLoss,
                              "{}: its sha256 is {} where {} was stored", name,
                              base::DigestToHex(found), base::DigestToHex(sha256));
    }
    return absl::OkStatus();
  }

 private:
  const uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  base::Sha256Stream hash_;
};

}  // namespace

absl::Status VerifyRange(Store& store, std::string_view name, uint64_t offset, uint64_t bytes,
                         const base::Digest& sha256, const Deadline& deadline) {
  Check check(bytes);
  absl::Status got = store.Get(name, offset, bytes, check, deadline);
  if (absl::IsOutOfRange(got)) got = absl::DataLossError(got.message());
  RETURN_IF_ERROR(base::Annotate(got, name));
  return check.Found(name, bytes, sha256);
}

absl::Status VerifyObject(Store& store, std::string_view name, uint64_t bytes,
                          const base::Digest& sha256, const Deadline& deadline) {
  Check check(bytes);
  RETURN_IF_ERROR(base::Annotate(store.Get(name, 0, kToTheEnd, check, deadline), name));
  return check.Found(name, bytes, sha256);
}

absl::Status ProbeDelete(Store& store, std::string_view prefix, const Deadline& deadline) {
  return store.Delete(fmt::format("{}may-it-be-deleted", prefix), deadline);
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
