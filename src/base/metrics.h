// The process's metrics, on prometheus-cpp. Counters, gauges and histograms are thread-safe; make
// them once at start and keep the reference: a look-up by labels is not for hot paths. Names are
// etcd's where etcd has the metric.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace base {

using MetricLabels = std::map<std::string, std::string>;

class Metrics {
 public:
  Metrics();

  prometheus::Counter& Counter(const std::string& name, const std::string& help,
                               const MetricLabels& labels = {});
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help,
                           const MetricLabels& labels = {});
  prometheus::Histogram& Histogram(const std::string& name, const std::string& help,
                                   const std::vector<double>& buckets,
                                   const MetricLabels& labels = {});

  // `collect` runs at each scrape, on the scraping thread, to refresh gauges.
  void OnScrape(std::function<void()> collect);
  // Text exposition format 0.0.4.
  std::string Scrape();

  // start, start*factor, ... (count bounds; +Inf is implied).
  static std::vector<double> Exponential(double start, double factor, int count);

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  std::mutex mutex_;
  std::vector<std::function<void()>> collectors_;  // guarded by mutex_
};

}  // namespace base
