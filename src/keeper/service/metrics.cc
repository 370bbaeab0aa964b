#include "service/metrics.h"

#include <algorithm>

namespace service {
namespace {

double Seconds(base::Duration d) { return std::chrono::duration<double>(d).count(); }

void ExportGuard(Guard& guard, base::Metrics& metrics) {
  const GuardState state = guard.state();
  const base::MetricLabels labels = {{"cluster", state.cluster}};
  const auto set = [&](const char* name, const char* help, double value) {
    metrics.Gauge(name, help, labels).Set(value);
  };
  // What would be lost now: since the archive's last moment, or since the last full.
  set("engram_keeper_rpo_seconds", "Age of the newest moment that can be restored.",
      state.uncovered_for.has_value() ? Seconds(*state.uncovered_for) : -1);
  set("engram_keeper_clock_ahead_seconds",
      "By how much this machine's clock was set ahead and nothing confirmed it; negative: back.",
      Seconds(state.clock.ahead));
  set("engram_keeper_clock_steps_total", "How often the clock was set, as this process saw it.",
      static_cast<double>(state.clock_steps));
  set("engram_keeper_guarded", "1 while the cluster is guarded without an error.",
      state.error.empty() ? 1 : 0);
  set("engram_keeper_last_full_timestamp_seconds", "When the last full was taken.",
      Seconds(state.last_full_at));
  set("engram_keeper_last_full_revision", "Revision of the last full.",
      static_cast<double>(state.last_full_revision));
  set("engram_keeper_newest_proven_timestamp_seconds", "Time of the newest proven full.",
      Seconds(state.newest_proven_at));
  set("engram_keeper_archived_revision", "The newest revision in a closed segment.",
      static_cast<double>(state.archived_revision));
  set("engram_keeper_archived_events_total", "Events archived by this process.",
      static_cast<double>(state.events));
  set("engram_keeper_holes_total", "Holes found by this process.",
      static_cast<double>(state.holes));
  set("engram_keeper_suspect", "1 when the last full is suspect.", state.suspect.empty() ? 0 : 1);
  set("engram_keeper_spool_bytes", "Bytes that wait for a store.",
      static_cast<double>(state.spool_bytes));
  set("engram_keeper_source_paused", "1 while a full waits for its member, which suffers.",
      state.paused ? 1 : 0);
  set("engram_keeper_source_pauses_total", "How often fulls paused, by this process.",
      static_cast<double>(state.pauses));
  set("engram_keeper_source_paused_seconds_total", "How long they did, all together.",
      Seconds(state.paused_for));
  set("engram_keeper_retention_ok",
      "0 when the last run of retention could not delete all that may go.",
      state.retention.stopped.empty() ? 1 : 0);
  set("engram_keeper_retention_last_timestamp_seconds", "When retention last ran; 0: never.",
      Seconds(state.retention.at));
  set("engram_keeper_pruned_objects_total", "Objects that retention deleted, by this process.",
      static_cast<double>(state.pruned_objects));
  set("engram_keeper_pruned_bytes_total", "Bytes that retention deleted, by this process.",
      static_cast<double>(state.pruned_bytes));
  if (state.certificate_expiry_days.has_value()) {
    set("engram_keeper_certificate_expiry_days", "Days until the first certificate expires.",
        static_cast<double>(*state.certificate_expiry_days));
  }
  for (const depot::StoreState& store : state.stores) {
    const base::MetricLabels of_store = {{"cluster", state.cluster}, {"store", store.name}};
    metrics.Gauge("engram_keeper_store_up", "1 when the last attempt succeeded.", of_store)
        .Set(store.up ? 1 : 0);
    metrics
        .Gauge("engram_keeper_store_behind_objects", "Objects the store does not have yet.",
               of_store)
        .Set(static_cast<double>(store.objects_waiting));
    metrics
        .Gauge("engram_keeper_store_behind_seconds", "How long the oldest of them waits.", of_store)
        .Set(Seconds(store.behind));
  }
}

}  // namespace

void ExportMetrics(const std::vector<std::unique_ptr<Guard>>& guards, base::Metrics& metrics) {
  metrics.OnScrape([&guards, &metrics] {
    for (const auto& guard : guards) ExportGuard(*guard, metrics);
  });
}

}  // namespace service
