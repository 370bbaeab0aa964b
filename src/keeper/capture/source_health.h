// How the member that sends a snapshot fares meanwhile: its own metrics, looked at while the pieces
// come, and the download held up while it suffers. One thread for each SourceWatch; the functions
// are pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace capture {

// What a member's metrics page says, since the member started.
struct Vitals {
  struct Latency {
    double seconds = 0;  // of all together
    double count = 0;
  };
  Latency fsync;   // etcd_disk_wal_fsync_duration_seconds
  Latency commit;  // etcd_disk_backend_commit_duration_seconds
  double leader_changes = 0;
  std::optional<double> space_left;  // bytes from the db file's size to its quota
};
// Nothing when the page has none of the two latencies.
std::optional<Vitals> ParseVitals(std::string_view page);

// Gets the page at `url` ("http://127.0.0.1:2381", "/metrics" is added). Files may be empty.
// Unavailable says why there is none.
struct MetricsAccess {
  std::string url;
  std::string ca_file, cert_file, key_file;
};
absl::StatusOr<Vitals> ReadVitals(const MetricsAccess& access, base::Duration timeout);

struct SourceWatchOptions {
  base::Duration look_every = std::chrono::seconds(1);
  // It suffers when a latency is this many times the one before, and recovered below `recovered`.
  double suffers = 2;
  double recovered = 1.5;
  // Below this a latency is no suffering, whatever it was before.
  base::Duration floor = std::chrono::milliseconds(5);
  // The longest wait for its recovery, all pauses together.
  base::Duration pause_max = std::chrono::minutes(5);
  // With fewer fsyncs than this between two looks there is no saying.
  double count_min = 3;
};

class SourceWatch {
 public:
  using Look = std::function<absl::StatusOr<Vitals>()>;
  // Waits; true when the wait was cut short because everything stops.
  using Wait = std::function<bool(base::Duration)>;
  // Told of what happens, in words; `paused`: from now on.
  using Tell = std::function<void(bool paused, const std::string& why)>;

  // `before`: what the member said some time ago, by which it is measured; without it, or when it
  // restarted since, its whole life is. Looks for the first time.
  SourceWatch(base::Clock& clock, const SourceWatchOptions& options, Look look, Wait wait,
              Tell tell, std::optional<Vitals> before);

  // Called between two pieces: returns at once while the member is well, and after its recovery
  // when it is not. Unavailable when it did not recover in time or fills up; Cancelled when all
  // stops. A member whose metrics cannot be had is not watched: see unwatched().
  absl::Status AtPiece();

  // Why it could not be watched, or OK.
  const absl::Status& unwatched() const { return unwatched_; }
  const std::optional<Vitals>& last() const { return last_; }
  base::Duration paused() const { return paused_; }
  // For the full's record: "paused 12 s: fsync 41 ms, 8 ms before"; empty when it never was.
  std::string Summary() const;

 private:
  // Why it suffers since the last look, by these factors; empty: it does not.
  std::string Suffering(const Vitals& now, double factor);

  base::Clock& clock_;
  const SourceWatchOptions options_;
  const Look look_;
  const Wait wait_;
  const Tell tell_;
  std::optional<double> fsync_before_, commit_before_;  // seconds each
  std::optional<double> space_at_begin_;
  std::optional<Vitals> last_;
  Vitals judged_;  // the look up to which latencies were judged
  base::Duration looked_{0};
  base::Duration paused_{0};
  std::string why_;  // of the first pause
  absl::Status unwatched_;
};

}  // namespace capture
