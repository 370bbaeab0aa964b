// The guards' state as Prometheus metrics, engram_keeper_*. ExportMetrics: once at start; the
// guards outlive the metrics' last scrape. Scrapes may come from any thread.
#pragma once

#include <memory>
#include <vector>

#include "base/metrics.h"
#include "service/guard.h"

namespace service {

void ExportMetrics(const std::vector<std::unique_ptr<Guard>>& guards, base::Metrics& metrics);

}  // namespace service
