#include "base/metrics.h"

#include <prometheus/text_serializer.h>

namespace base {

// "Merge": asking again for a family by name gives the same family, so labelled children may be
// made anywhere.
Metrics::Metrics()
    : registry_(
          std::make_shared<prometheus::Registry>(prometheus::Registry::InsertBehavior::Merge)) {}

prometheus::Counter& Metrics::Counter(const std::string& name, const std::string& help,
                                      const MetricLabels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Gauge& Metrics::Gauge(const std::string& name, const std::string& help,
                                  const MetricLabels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Histogram& Metrics::Histogram(const std::string& name, const std::string& help,
                                          const std::vector<double>& buckets,
                                          const MetricLabels& labels) {
  return prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Register(*registry_)
      .Add(labels, buckets);
}

void Metrics::OnScrape(std::function<void()> collect) {
  const std::lock_guard lock(mutex_);
  collectors_.push_back(std::move(collect));
}

std::string Metrics::Scrape() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& collect : collectors_) collect();
  }
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

std::vector<double> Metrics::Exponential(double start, double factor, int count) {
  std::vector<double> bounds;
  double bound = start;
  for (int i = 0; i < count; ++i, bound *= factor) bounds.push_back(bound);
  return bounds;
}

}  // namespace base
