// Watches that survive the loss of a connection or a member: any number of them on one stream, each
// resumed from the revision after the last one it has seen, so nothing is lost or repeated. Thread
// rule: one thread calls Next(); Add(), RequestProgress() and Stop() may come from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"

namespace etcdserverpb {
class WatchResponse;
}

namespace client {

struct WatchSpec {
  std::string key;
  std::string range_end = {};  // empty: one key; "\0": all from key on
  int64_t start_revision = 0;  // 0: from now on
  bool prev_kv = false;
  bool progress_notify = false;  // periodic answers without events
};

class Watcher {
 public:
  static constexpr int kAllWatches = -1;

  // `client` outlives the watcher. require_leader: the stream ends, and resumes elsewhere, when the
  // member sees no leader. `interrupted`, if any, is called by Next() with what ended a stream that
  // it then opens anew: a broken connection, a keepalive without answer.
  static std::unique_ptr<Watcher> Create(
      Client& client, bool require_leader,
      absl::AnyInvocable<void(const absl::Status&)> interrupted = {});
  virtual ~Watcher() = default;

  // Starts a watch; returns its number, counted from 0. The connection is made by Next().
  virtual int Add(WatchSpec spec) = 0;
  // Asks the server to tell the revision all watches have reached; the answer comes from Next() for
  // kAllWatches.
  virtual absl::Status RequestProgress() = 0;

  // Waits for the next answer: events, progress, or the end of one watch (canceled set; with the
  // server's reason, or compact_revision). Created answers are not passed on. `*watch` is the
  // number of the watch, or kAllWatches. Errors: what ended the stream for good (PermissionDenied,
  // Unauthenticated, ...); Cancelled after Stop().
  virtual absl::Status Next(etcdserverpb::WatchResponse* response, int* watch) = 0;
  // As Next(), but returns DeadlineExceeded when nothing came within `timeout`.
  virtual absl::Status NextWithin(etcdserverpb::WatchResponse* response, int* watch,
                                  base::Duration timeout) = 0;
  // Ends everything; a blocked Next() returns.
  virtual void Stop() = 0;
};

}  // namespace client
