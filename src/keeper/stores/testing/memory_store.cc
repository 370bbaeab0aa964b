#include "stores/testing/memory_store.h"

#include <utility>

#include "base/status.h"
#include "stores/names.h"

namespace stores {
namespace {

absl::Status NotThere(std::string_view name) {
  return base::MakeStatus(absl::StatusCode::kNotFound, "{}: no such object", name);
}

}  // namespace

absl::Status MemoryStore::Put(std::string_view name, const Content& content,
                              const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  RETURN_IF_ERROR(deadline.Check(clock_));
  std::string bytes;
  vault::StringSink sink(&bytes, static_cast<size_t>(content.bytes()));
  ContentSource source(content);
  RETURN_IF_ERROR(vault::Copy(source, sink).status());
  if (base::Sha256(bytes) != content.sha256()) {
    return absl::DataLossError("what is to be stored does not have the sha256 it should");
  }
  RETURN_IF_ERROR(deadline.Check(clock_));
  std::lock_guard lock(mutex_);
  const auto [object, is_new] = objects_.try_emplace(std::string(name), bytes);
  if (is_new || object->second == bytes) return absl::OkStatus();
  return base::MakeStatus(absl::StatusCode::kAlreadyExists, "{}: exists with other content", name);
}

absl::Status MemoryStore::Replace(std::string_view name, std::string_view bytes,
                                  const Deadline& deadline) {
  RETURN_IF_ERROR(CheckReplace(name, bytes));
  RETURN_IF_ERROR(deadline.Check(clock_));
  std::lock_guard lock(mutex_);
  objects_[std::string(name)] = bytes;
  return absl::OkStatus();
}

absl::Status MemoryStore::Get(std::string_view name, uint64_t offset, uint64_t length,
                              vault::Sink& sink, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  RETURN_IF_ERROR(deadline.Check(clock_));
  std::string bytes;
  {
    std::lock_guard lock(mutex_);
    const auto object = objects_.find(name);
    if (object == objects_.end()) return NotThere(name);
    const uint64_t size = object->second.size();
    if (offset > size || (length != kToTheEnd && length > size - offset)) {
      return base::MakeStatus(absl::StatusCode::kOutOfRange, "{}: has {} bytes", name, size);
    }
    bytes = object->second.substr(static_cast<size_t>(offset), static_cast<size_t>(length));
  }
  constexpr size_t kPieceBytes = 10'000;
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    RETURN_IF_ERROR(deadline.Check(clock_));
    RETURN_IF_ERROR(sink.Write(std::string_view(bytes).substr(at, kPieceBytes)));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MemoryStore::Stat(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  RETURN_IF_ERROR(deadline.Check(clock_));
  std::lock_guard lock(mutex_);
  const auto object = objects_.find(name);
  if (object == objects_.end()) return NotThere(name);
  return object->second.size();
}

absl::StatusOr<std::vector<ObjectInfo>> MemoryStore::List(const ListRequest& request,
                                                          const Deadline& deadline) {
  RETURN_IF_ERROR(CheckListRequest(request));
  RETURN_IF_ERROR(deadline.Check(clock_));
  std::vector<ObjectInfo> found;
  std::lock_guard lock(mutex_);
  auto object = objects_.lower_bound(std::max(request.prefix, request.after));
  for (; object != objects_.end() && found.size() < request.limit; ++object) {
    if (object->first <= request.after) continue;
    if (!object->first.starts_with(request.prefix)) break;
    found.push_back({.name = object->first, .bytes = object->second.size()});
  }
  return found;
}

absl::Status MemoryStore::Delete(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckName(name));
  RETURN_IF_ERROR(deadline.Check(clock_));
  std::lock_guard lock(mutex_);
  if (const auto object = objects_.find(name); object != objects_.end()) objects_.erase(object);
  return absl::OkStatus();
}

absl::StatusOr<Description> MemoryStore::Describe(const Deadline& deadline) {
  RETURN_IF_ERROR(deadline.Check(clock_));
  return Description{
      .where = "memory", .write_once = true, .versioning = false, .object_lock = false};
}

absl::StatusOr<uint64_t> MemoryStore::Sweep(base::Duration, const Deadline& deadline) {
  RETURN_IF_ERROR(deadline.Check(clock_));
  return 0;
}

}  // namespace stores
