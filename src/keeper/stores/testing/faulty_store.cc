#include "stores/testing/faulty_store.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace stores {
namespace {

constexpr size_t kLatestMax = 8;
constexpr size_t kObjectBytesMax = size_t{256} << 20;

// Passes on the first bytes, then breaks.
class CutSink final : public vault::Sink {
 public:
  CutSink(vault::Sink& next, uint64_t bytes) : next_(next), left_(bytes) {}
  absl::Status Write(std::string_view data) override {
    const std::string_view passed =
        data.substr(0, static_cast<size_t>(std::min<uint64_t>(left_, data.size())));
    left_ -= passed.size();
    if (!passed.empty()) RETURN_IF_ERROR(next_.Write(passed));
    if (passed.size() < data.size()) return absl::UnavailableError("the connection broke");
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  vault::Sink& next_;
  uint64_t left_;
};

}  // namespace

void FaultyStore::SetFull(bool full) {
  std::lock_guard lock(mutex_);
  full_ = full;
}
void FaultyStore::SetReadOnly(bool read_only) {
  std::lock_guard lock(mutex_);
  read_only_ = read_only;
}
void FaultyStore::SetDown(bool down) {
  std::lock_guard lock(mutex_);
  down_ = down;
}
void FaultyStore::SetRates(const FaultRates& rates) {
  std::lock_guard lock(mutex_);
  rates_ = rates;
}
uint64_t FaultyStore::faults() const {
  std::lock_guard lock(mutex_);
  return faults_;
}

bool FaultyStore::Happens(uint64_t FaultRates::*rate) {
  std::lock_guard lock(mutex_);
  const uint64_t n = rates_.*rate;
  const bool happens = n > 0 && random_.OneIn(n);
  if (happens) ++faults_;
  return happens;
}

uint64_t FaultyStore::Below(uint64_t bound) {
  std::lock_guard lock(mutex_);
  return random_.Below(bound);
}

absl::Status FaultyStore::Before(const Deadline& deadline) {
  const bool slow = Happens(&FaultRates::slow);
  base::Duration slow_for{};
  {
    std::lock_guard lock(mutex_);
    if (down_) return absl::UnavailableError("the store is down");
    slow_for = rates_.slow_for;
  }
  if (slow) sleeper_.Sleep(slow_for, deadline);
  if (Happens(&FaultRates::unavailable)) return absl::UnavailableError("try again");
  return absl::OkStatus();
}

absl::Status FaultyStore::BeforeWrite(const Deadline& deadline) {
  RETURN_IF_ERROR(Before(deadline));
  std::lock_guard lock(mutex_);
  if (full_) return absl::ResourceExhaustedError("the store is full; free space there");
  if (read_only_) return absl::PermissionDeniedError("the store is read-only; make it writable");
  return absl::OkStatus();
}

absl::Status FaultyStore::Answer(absl::Status status) {
  if (status.ok() && Happens(&FaultRates::lost_answer)) {
    return absl::UnavailableError("the answer was lost");
  }
  return status;
}

void FaultyStore::Remember(Write write) {
  std::lock_guard lock(mutex_);
  latest_.push_back(std::move(write));
  if (latest_.size() > kLatestMax) latest_.pop_front();
}

absl::Status FaultyStore::Put(std::string_view name, const Content& content,
                              const Deadline& deadline) {
  RETURN_IF_ERROR(BeforeWrite(deadline));
  if (Happens(&FaultRates::lie)) return absl::OkStatus();
  const absl::Status status = inner().Put(name, content, deadline);
  if (status.ok()) {
    Remember({.name = std::string(name)});
    if (Happens(&FaultRates::lose))
      RETURN_IF_ERROR(LoseObject(name, deadline));
    else if (content.bytes() > 0 && Happens(&FaultRates::damage)) {
      RETURN_IF_ERROR(DamageObject(name, static_cast<size_t>(Below(content.bytes())), deadline));
    } else if (content.bytes() > 0 && Happens(&FaultRates::truncate)) {
      RETURN_IF_ERROR(TruncateObject(name, static_cast<size_t>(Below(content.bytes())), deadline));
    }
  }
  return Answer(status);
}

absl::Status FaultyStore::Replace(std::string_view name, std::string_view bytes,
                                  const Deadline& deadline) {
  RETURN_IF_ERROR(BeforeWrite(deadline));
  if (Happens(&FaultRates::lie)) return absl::OkStatus();
  const absl::Status status = inner().Replace(name, bytes, deadline);
  if (status.ok()) Remember({.name = std::string(name)});
  return Answer(status);
}

absl::Status FaultyStore::Get(std::string_view name, uint64_t offset, uint64_t length,
                              vault::Sink& sink, const Deadline& deadline) {
  RETURN_IF_ERROR(Before(deadline));
  if (!Happens(&FaultRates::cut)) return inner().Get(name, offset, length, sink, deadline);
  ASSIGN_OR_RETURN(const uint64_t size, inner().Stat(name, deadline));
  CutSink cut(sink, Below(size + 1));
  return inner().Get(name, offset, length, cut, deadline);
}

absl::StatusOr<uint64_t> FaultyStore::Stat(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(Before(deadline));
  return inner().Stat(name, deadline);
}

absl::StatusOr<std::vector<ObjectInfo>> FaultyStore::List(const ListRequest& request,
                                                          const Deadline& deadline) {
  RETURN_IF_ERROR(Before(deadline));
  if (!Happens(&FaultRates::late_list)) return inner().List(request, deadline);
  // Some more, so that what is left out does not make the page look like the last.
  ListRequest wider = request;
  wider.limit = std::min(request.limit + kLatestMax, kListLimitMax);
  ASSIGN_OR_RETURN(std::vector<ObjectInfo> page, inner().List(wider, deadline));
  std::map<std::string, uint64_t> known;
  for (const ObjectInfo& object : page) known[object.name] = object.bytes;
  // Undone from the latest on, so that of several writes of one name the oldest counts.
  std::lock_guard lock(mutex_);
  for (auto write = latest_.rbegin(); write != latest_.rend(); ++write) {
    if (!write->deleted) {
      known.erase(write->name);
    } else if (write->name.starts_with(request.prefix) && write->name > request.after) {
      known[write->name] = write->bytes;
    }
  }
  page.clear();
  for (const auto& [name, bytes] : known) {
    if (page.size() < request.limit) page.push_back({.name = name, .bytes = bytes});
  }
  return page;
}

absl::Status FaultyStore::Delete(std::string_view name, const Deadline& deadline) {
  RETURN_IF_ERROR(BeforeWrite(deadline));
  if (Happens(&FaultRates::lie)) return absl::OkStatus();
  const absl::StatusOr<uint64_t> bytes = inner().Stat(name, deadline);
  const absl::Status status = inner().Delete(name, deadline);
  if (status.ok() && bytes.ok()) {
    Remember({.name = std::string(name), .deleted = true, .bytes = *bytes});
  }
  return Answer(status);
}

absl::StatusOr<Description> FaultyStore::Describe(const Deadline& deadline) {
  RETURN_IF_ERROR(Before(deadline));
  return inner().Describe(deadline);
}

absl::StatusOr<uint64_t> FaultyStore::Sweep(base::Duration older_than, const Deadline& deadline) {
  RETURN_IF_ERROR(BeforeWrite(deadline));
  return inner().Sweep(older_than, deadline);
}

absl::Status FaultyStore::Rewrite(std::string_view name, std::string_view bytes,
                                  const Deadline& deadline) {
  RETURN_IF_ERROR(inner().Delete(name, deadline));
  return inner().Put(name, BytesContent(bytes), deadline);
}

absl::Status FaultyStore::DamageObject(std::string_view name, size_t at, const Deadline& deadline) {
  ASSIGN_OR_RETURN(std::string bytes, GetBytes(inner(), name, kObjectBytesMax, deadline));
  CHECK_OP(at, <, bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  return Rewrite(name, bytes, deadline);
}

absl::Status FaultyStore::TruncateObject(std::string_view name, size_t bytes_kept,
                                         const Deadline& deadline) {
  ASSIGN_OR_RETURN(std::string bytes, GetBytes(inner(), name, kObjectBytesMax, deadline));
  CHECK_OP(bytes_kept, <=, bytes.size());
  bytes.resize(bytes_kept);
  return Rewrite(name, bytes, deadline);
}

absl::Status FaultyStore::LoseObject(std::string_view name, const Deadline& deadline) {
  return inner().Delete(name, deadline);
}

}  // namespace stores
