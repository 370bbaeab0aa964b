// A place where backups live, as eight verbs. Every store, and every decorator around one, is
// thread-safe and blocks until its deadline at the latest; all pass one suite of tests
// (conformance_for_test.h).
//
// What all verbs share. Names are checked first (names.h): InvalidArgument. A deadline that passed
// is DeadlineExceeded, a cancelled one Cancelled; the call may have had its effect nevertheless.
// Unavailable and Aborted mean that the same call may succeed later, unchanged; Retrying
// (decorators.h) acts on these two alone. Other errors stay until somebody does something, and say
// what: PermissionDenied, ResourceExhausted (full), FailedPrecondition (bucket, folder,
// certificate, clock), DataLoss. Messages are one line and never hold a credential.
//
// What no store promises: that List knows of the latest Put or Delete, and that an OK was true.
// Whoever needs to know reads back.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "stores/content.h"
#include "stores/deadline.h"
#include "vault/stream.h"

namespace stores {

struct ObjectInfo {
  std::string name;
  uint64_t bytes = 0;
  bool operator==(const ObjectInfo&) const = default;
};

inline constexpr uint64_t kToTheEnd = ~uint64_t{0};
inline constexpr size_t kListLimitMax = 10'000;
inline constexpr size_t kReplaceBytesMax = size_t{1} << 20;

struct ListRequest {
  std::string prefix;    // the start of the names, also within a part
  std::string after;     // only names behind this one
  size_t limit = 1'000;  // 1..kListLimitMax
};

struct Description {
  std::string where;                   // for people: a path, or endpoint, bucket and prefix
  std::optional<uint64_t> free_bytes;  // where the store knows
  std::optional<bool> write_once;      // whether the store itself refuses a second Put
  std::optional<bool> versioning;      // whether it keeps what Replace and Delete take away
  std::optional<bool> object_lock;     // whether it can refuse to delete
  // The server's wall clock less ours; nothing where the store has no clock of its own.
  std::optional<base::Duration> clock_skew;
  std::vector<std::string> warnings;  // one line each
};

class Store {
 public:
  virtual ~Store() = default;

  // Stores an object whole or not at all, durable once this returns OK, and never over another:
  // AlreadyExists when the name holds other content. The same content again is OK, so a Put whose
  // answer was lost may be repeated. DataLoss when the content is not what its digest says.
  virtual absl::Status Put(std::string_view name, const Content& content,
                           const Deadline& deadline) = 0;

  // Stores or replaces a small object (the head of a log): readers see the old bytes or the new.
  // Repeating it is safe as long as one caller at a time replaces a name. At most kReplaceBytesMax.
  virtual absl::Status Replace(std::string_view name, std::string_view bytes,
                               const Deadline& deadline) = 0;

  // Writes exactly the bytes [offset, offset + length) to the sink, or all from offset on
  // (kToTheEnd), and does not finish it. NotFound; OutOfRange when the object ends earlier, in
  // which case nothing was written. After another error some bytes may have been. An error of the
  // sink comes back as it is.
  virtual absl::Status Get(std::string_view name, uint64_t offset, uint64_t length,
                           vault::Sink& sink, const Deadline& deadline) = 0;

  // The object's length, or NotFound. Sees what Put and Replace stored before.
  virtual absl::StatusOr<uint64_t> Stat(std::string_view name, const Deadline& deadline) = 0;

  // The first `limit` objects, in the order of their names as bytes. May lag behind: an object just
  // put may be missing, one just deleted may be there.
  virtual absl::StatusOr<std::vector<ObjectInfo>> List(const ListRequest& request,
                                                       const Deadline& deadline) = 0;

  // OK when the object is gone, also when it never was. PermissionDenied where the store, its lock
  // or the credentials keep it.
  virtual absl::Status Delete(std::string_view name, const Deadline& deadline) = 0;

  // What the store is and can do, found out by asking it; fails when it cannot be used at all.
  virtual absl::StatusOr<Description> Describe(const Deadline& deadline) = 0;

  // Removes what interrupted Puts older than `older_than` left behind; returns how many. Objects
  // are never touched. Repeating is safe.
  virtual absl::StatusOr<uint64_t> Sweep(base::Duration older_than, const Deadline& deadline) = 0;
};

// Calls `visit` for every object below the prefix, page by page, until it returns an error.
absl::Status ForEachObject(Store& store, std::string_view prefix, const Deadline& deadline,
                           absl::FunctionRef<absl::Status(const ObjectInfo&)> visit);

// A whole small object: ResourceExhausted when it has more than `bytes_max`.
absl::StatusOr<std::string> GetBytes(Store& store, std::string_view name, size_t bytes_max,
                                     const Deadline& deadline);

// Reads what lies at `offset` back: DataLoss unless those `bytes` have that digest, or the object
// ends before; NotFound when it is gone.
absl::Status VerifyRange(Store& store, std::string_view name, uint64_t offset, uint64_t bytes,
                         const base::Digest& sha256, const Deadline& deadline);
// Reads a whole object back: DataLoss unless it has that length and digest, NotFound when it is
// gone. What a store said when it was put counts for nothing here.
absl::Status VerifyObject(Store& store, std::string_view name, uint64_t bytes,
                          const base::Digest& sha256, const Deadline& deadline);

// Whether the store lets anything be deleted below a prefix that ends with '/': by deleting a name
// that no object ever has. PermissionDenied where it does not.
absl::Status ProbeDelete(Store& store, std::string_view prefix, const Deadline& deadline);

// For implementations: InvalidArgument unless the request is one.
absl::Status CheckListRequest(const ListRequest& request);
absl::Status CheckReplace(std::string_view name, std::string_view bytes);

}  // namespace stores
