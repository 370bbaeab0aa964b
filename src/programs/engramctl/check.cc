#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "client/endpoint.h"
#include "commands.h"
#include "kv_requests.h"
#include "print.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr size_t kValueBytes = 1024;
constexpr std::chrono::seconds kPerfDuration(60);
constexpr size_t kConnectionsMax = 20;

struct Load {
  std::string_view names;  // blank-separated
  size_t clients;
  int64_t writes_per_second;  // check perf
  int64_t keys;               // check datascale
};
constexpr Load kLoads[] = {
    {" s small ", 50, 150, 10'000},
    {" m medium ", 200, 1'000, 100'000},
    {" l large ", 500, 8'000, 1'000'000},
    {" xl xLarge ", 1'000, 15'000, 3'000'000},
};

constexpr FlagSpec kPerfFlags[] = {
    {.name = "load", .default_value = "s", .help = "s(small), m(medium), l(large) or xl(xLarge)"},
    {.name = "prefix", .default_value = "/etcdctl-check-perf/", .help = "where to write"},
    {.name = "auto-compact", .type = FlagType::kBool, .help = "compact when done"},
    {.name = "auto-defrag", .type = FlagType::kBool, .help = "defragment when done"},
};
constexpr FlagSpec kDataScaleFlags[] = {
    {.name = "load", .default_value = "s", .help = "s(small), m(medium), l(large) or xl(xLarge)"},
    {.name = "prefix", .default_value = "/etcdctl-check-datascale/", .help = "where to write"},
    {.name = "auto-compact", .type = FlagType::kBool, .help = "compact when done"},
    {.name = "auto-defrag", .type = FlagType::kBool, .help = "defragment when done"},
};

const Load* FindLoad(std::string_view name) {
  for (const Load& load : kLoads) {
    if (load.names.find(fmt::format(" {} ", name)) != std::string_view::npos) return &load;
  }
  return nullptr;
}

// What the writers measured. Thread-safe.
class Statistics {
 public:
  void Add(double seconds, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    if (!status.ok()) {
      ++errors_[client::ErrorText(status)];
      return;
    }
    ++count_;
    sum_ += seconds;
    squares_ += seconds * seconds;
    slowest_ = std::max(slowest_, seconds);
  }

  double count() const { return static_cast<double>(count_); }
  double slowest() const { return slowest_; }
  double deviation() const {
    if (count_ == 0) return 0;
    const double mean = sum_ / count();
    return std::sqrt(std::max(0.0, squares_ / count() - mean * mean));
  }
  const std::map<std::string, int64_t>& errors() const { return errors_; }

 private:
  std::mutex mutex_;
  int64_t count_ = 0;
  double sum_ = 0, squares_ = 0, slowest_ = 0;
  std::map<std::string, int64_t> errors_;
};

// Writes from `load.clients` threads: write number i not before i / rate seconds (rate 0: at once),
// until `stop(i)`.
template <typename Stop>
void Write(const std::vector<std::unique_ptr<client::Client>>& clients, const Load& load,
           const std::string& prefix, int64_t rate, const Stop& stop, Statistics* statistics) {
  std::atomic<int64_t> next{0};
  const base::Duration start = base::SystemClock().Monotonic();
  std::vector<std::thread> writers;
  for (size_t w = 0; w < load.clients; ++w) {
    writers.emplace_back([&, w] {
      client::Client& client = *clients[w % clients.size()];
      pb::PutRequest request;
      request.set_value(std::string(kValueBytes, '\0'));
      for (;;) {
        const int64_t number = next++;
        if (rate > 0) {
          const base::Duration due = std::chrono::nanoseconds(number * 1'000'000'000 / rate);
          const base::Duration early = start + due - base::SystemClock().Monotonic();
          if (early.count() > 0) std::this_thread::sleep_for(early);
        }
        if (stop(number)) return;
        request.set_key(fmt::format("{}{:016x}", prefix, number));
        const base::Duration begin = base::SystemClock().Monotonic();
        const absl::Status status = client.Call(client::kPut, request).status();
        const base::Duration took = base::SystemClock().Monotonic() - begin;
        statistics->Add(std::chrono::duration<double>(took).count(), status);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
}

// A check's preparation: arguments, clients, an empty prefix.
struct Prepared {
  Session session;
  const Load* load = nullptr;
  std::string prefix;
  std::vector<std::unique_ptr<client::Client>> clients;
};

int Prepare(const Invocation& invocation, Prepared* prepared) {
  const FlagSet& flags = *invocation.flags;
  prepared->load = FindLoad(flags.String("load"));
  if (prepared->load == nullptr) {
    return Fail(kExitBadFeature, fmt::format("unknown load option {}", flags.String("load")));
  }
  prepared->prefix = flags.String("prefix");
  Session& session = prepared->session;
  if (const int code = LoadSession(invocation, kAllFormats, &session); code != 0) return code;
  for (size_t i = 0; i < std::min(prepared->load->clients, kConnectionsMax); ++i) {
    if (const int code = Connect(&session); code != 0) return code;
    prepared->clients.push_back(std::move(session.client));
  }
  pb::RangeRequest request;
  const KeyRange range = PrefixRange(prepared->prefix);
  request.set_key(range.key);
  request.set_range_end(range.end);
  request.set_limit(1);
  const auto response = prepared->clients[0]->Call(client::kRange, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (response->kvs_size() > 0) {
    return Fail(kExitInvalidInput,
                fmt::format("prefix {} has keys. Delete with '{} del --prefix {}' first",
                            Quote(prepared->prefix), invocation.program, prepared->prefix));
  }
  return 0;
}

// Removes what the check wrote. Returns 0 or an exit status.
int CleanUp(const Invocation& invocation, const Prepared& prepared) {
  client::Client& client = *prepared.clients[0];
  pb::DeleteRangeRequest request;
  const KeyRange range = PrefixRange(prepared.prefix);
  request.set_key(range.key);
  request.set_range_end(range.end);
  const auto deleted = client.Call(client::kDeleteRange, request);
  if (!deleted.ok()) return FailCall(deleted.status());
  if (invocation.flags->Bool("auto-compact")) {
    pb::CompactionRequest compaction;
    compaction.set_revision(deleted->header().revision());
    compaction.set_physical(true);
    Emit(fmt::format("Compacting with revision {}\n", compaction.revision()));
    const absl::Status status = client.Call(client::kCompact, compaction).status();
    if (!status.ok()) return FailCall(status);
    Emit(fmt::format("Compacted with revision {}\n", compaction.revision()));
  }
  if (invocation.flags->Bool("auto-defrag")) {
    for (const std::string& endpoint : prepared.session.options.endpoints) {
      Emit(fmt::format("Defragmenting {}\n", Quote(endpoint)));
      client::Options options = prepared.session.options;
      options.endpoints = {endpoint};
      auto member = client::Client::Open(std::move(options));
      absl::Status status = member.status();
      if (status.ok()) {
        status = (*member)->Call(client::kDefragment, pb::DefragmentRequest()).status();
      }
      if (!status.ok()) return FailCall(status);
      Emit(fmt::format("Defragmented {}\n", Quote(endpoint)));
    }
  }
  return 0;
}

// Prints a verdict line; returns `good`.
bool Verdict(bool good, const std::string& text) {
  Emit(fmt::format("{}{}\n", good ? "PASS: " : "", text));
  return good;
}

bool ReportErrors(const Statistics& statistics) {
  if (statistics.errors().empty()) return true;
  Emit("FAIL: too many errors\n");
  for (const auto& [text, count] : statistics.errors()) {
    Emit(fmt::format("FAIL: ERROR({}) -> {}\n", text, count));
  }
  return false;
}

int RunPerf(const Invocation& invocation) {
  Prepared prepared;
  if (const int code = Prepare(invocation, &prepared); code != 0) return code;
  const Load& load = *prepared.load;
  Statistics statistics;
  const base::Duration start = base::SystemClock().Monotonic();
  Write(
      prepared.clients, load, prepared.prefix, load.writes_per_second,
      [&](int64_t) { return base::SystemClock().Monotonic() - start >= kPerfDuration; },
      &statistics);
  const double seconds =
      std::chrono::duration<double>(base::SystemClock().Monotonic() - start).count();
  if (const int code = CleanUp(invocation, prepared); code != 0) return code;
  bool good = ReportErrors(statistics);
  const double rate = statistics.count() / seconds;
  const auto shown_rate = static_cast<int64_t>(rate) + 1;
  if (rate <= 0.9 * static_cast<double>(load.writes_per_second)) {
    Emit(fmt::format("FAIL: Throughput too low: {} writes/s\n", shown_rate));
    good = false;
  } else {
    Emit(fmt::format("PASS: Throughput is {} writes/s\n", shown_rate));
  }
  const double slowest = statistics.slowest();
  good &= Verdict(slowest <= 0.5, slowest > 0.5
                                      ? fmt::format("Slowest request took too long: {:f}s", slowest)
                                      : fmt::format("Slowest request took {:f}s", slowest));
  const double deviation = statistics.deviation();
  good &=
      Verdict(deviation <= 0.1, deviation > 0.1 ? fmt::format("Stddev too high: {:f}s", deviation)
                                                : fmt::format("Stddev is {:f}s", deviation));
  Emit(good ? "PASS\n" : "FAIL\n");
  return good ? kExitOk : kExitError;
}

size_t AppendBody(char* data, size_t size, size_t count, void* body) {
  static_cast<std::string*>(body)->append(data, size * count);
  return size * count;
}

// The resident memory of the member at the first endpoint, from its metrics.
absl::StatusOr<double> ResidentBytes(const client::Options& options) {
  const client::Endpoint endpoint = client::ParseEndpoint(options.endpoints.front());
  const bool secure = endpoint.security == client::EndpointSecurity::kAlways ||
                      (endpoint.security == client::EndpointSecurity::kAsConfigured &&
                       (!options.tls.cert_file.empty() || !options.tls.ca_file.empty() ||
                        !options.insecure_transport));
  const std::string url =
      fmt::format("{}://{}/metrics", secure ? "https" : "http", endpoint.authority);
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  std::string body;
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &AppendBody);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, 10L);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  if (!options.tls.ca_file.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_CAINFO, options.tls.ca_file.c_str());
  }
  if (!options.tls.cert_file.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_SSLCERT, options.tls.cert_file.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_SSLKEY, options.tls.key_file.c_str());
  }
  if (options.tls.skip_verify) {
    curl_easy_setopt(curl.get(), CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl.get(), CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (const CURLcode code = curl_easy_perform(curl.get()); code != CURLE_OK) {
    return base::MakeStatus(absl::StatusCode::kUnavailable, "get {}: {}", url,
                            curl_easy_strerror(code));
  }
  for (const std::string& line : Split(body, '\n')) {
    constexpr std::string_view kName = "process_resident_memory_bytes ";
    if (line.substr(0, kName.size()) != kName) continue;
    char* end = nullptr;
    const std::string text = line.substr(kName.size());
    const double bytes = std::strtod(text.c_str(), &end);
    if (end != text.c_str()) return bytes;
  }
  return base::MakeStatus(absl::StatusCode::kNotFound, "{} names no process_resident_memory_bytes",
                          url);
}

int RunDataScale(const Invocation& invocation) {
  Prepared prepared;
  if (const int code = Prepare(invocation, &prepared); code != 0) return code;
  const Load& load = *prepared.load;
  const client::Options& options = prepared.session.options;
  const absl::StatusOr<double> before = ResidentBytes(options);
  if (!before.ok()) return Fail(kExitError, base::Message(before.status()));
  Emit(
      fmt::format("Start data scale check for work load [{} key-value pairs, {} bytes per "
                  "key-value, {} concurrent clients].\n",
                  load.keys, kValueBytes, load.clients));
  Statistics statistics;
  Write(
      prepared.clients, load, prepared.prefix, 0,
      [&](int64_t number) { return number >= load.keys; }, &statistics);
  const absl::StatusOr<double> after = ResidentBytes(options);
  if (!after.ok()) return Fail(kExitError, base::Message(after.status()));
  if (const int code = CleanUp(invocation, prepared); code != 0) return code;
  if (!ReportErrors(statistics)) return kExitError;
  Emit(fmt::format("PASS: Approximate system memory used : {:.2f} MB.\n",
                   std::max(0.0, *after - *before) / (1024 * 1024)));
  return kExitOk;
}

}  // namespace

Command CheckCommand() {
  return {.name = "check",
          .usage = "",
          .summary = "Measure what a cluster can take",
          .group = kUtilityGroup,
          .commands = {
              {.name = "datascale",
               .usage = "[options]",
               .summary = "Measure the memory that a number of keys takes",
               .flags = kDataScaleFlags,
               .run = RunDataScale},
              {.name = "perf",
               .usage = "[options]",
               .summary = "Write for a minute and judge throughput and latency",
               .flags = kPerfFlags,
               .run = RunPerf},
          }};
}

}  // namespace engramctl
