// engram_writer: changes keys of an etcd-compatible server in every way, at a steady pace, until
// its standard input ends or the server is gone. A line for each change that was acknowledged:
// "<revision> <sent> <answered>", seconds since 1970. What is random follows from the seed, but for
// how the threads interleave.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"
#include "client/client.h"
#include "client/methods.h"
#include "proto/rpc.pb.h"

namespace {

constexpr char kUsage[] =
    "usage: engram_writer --endpoint URL [--ca FILE --cert FILE --key FILE] [--rate N] [--threads "
    "N] "
    "[--keys N] [--seed N] [--compact 0|1]\n";
constexpr int kThreadsOfAConnection = 4;
constexpr base::Duration kTimeout = std::chrono::seconds(10);
// A server that answers nothing any more is taken for gone.
constexpr int kFailuresMax = 3;

// Standard input has ended. Its reader may outlive everything else but the process.
std::atomic<bool> g_stopping = false;

struct Arguments {
  client::Options client;
  double rate = 1000;
  int threads = 16;
  uint64_t keys = 200;
  uint64_t seed = 1;
  bool compact = true;
};

double Seconds(base::Duration d) { return std::chrono::duration<double>(d).count(); }

// What the threads share.
class Writer {
 public:
  explicit Writer(Arguments arguments) : arguments_(std::move(arguments)) {}

  absl::Status Run() {
    for (int i = 0; i < arguments_.threads; i += kThreadsOfAConnection) {
      ASSIGN_OR_RETURN(auto client, client::Client::Open(arguments_.client));
      clients_.push_back(std::move(client));
    }
    began_ = clock_.Monotonic();
    std::vector<std::thread> threads;
    for (int i = 0; i < arguments_.threads; ++i) threads.emplace_back([this, i] { Work(i); });
    std::thread reader([] {
      while (std::getchar() != EOF) continue;
      g_stopping = true;
    });
    reader.detach();  // it may wait for ever when the server goes first
    for (std::thread& thread : threads) thread.join();
    return absl::OkStatus();
  }

 private:
  struct Thread {
    client::Client& client;
    base::SeededRandom random;
    std::vector<int64_t> leases;
  };

  void Work(int number) {
    Thread t{*clients_[static_cast<size_t>(number / kThreadsOfAConnection)],
             base::SeededRandom(arguments_.seed * 1000 + static_cast<uint64_t>(number)),
             {}};
    int failures = 0;
    while (!g_stopping && failures < kFailuresMax) {
      WaitForTurn();
      const base::Duration sent = clock_.Wall();
      const absl::StatusOr<int64_t> revision = Change(t);
      if (revision.ok()) {
        Note(*revision, sent);
        failures = 0;
        continue;
      }
      ++failures;
      std::fprintf(stderr, "%s\n", std::string(base::Message(revision.status())).c_str());
    }
  }

  // Changes are due at even intervals; who is late does not wait.
  void WaitForTurn() {
    const auto turn = static_cast<double>(turns_++);
    const base::Duration due = began_ + std::chrono::duration_cast<base::Duration>(
                                            std::chrono::duration<double>(turn / arguments_.rate));
    const base::Duration now = clock_.Monotonic();
    if (due > now) std::this_thread::sleep_for(due - now);
  }

  void Note(int64_t revision, base::Duration sent) {
    const std::string line =
        fmt::format("{} {:.6f} {:.6f}\n", revision, Seconds(sent), Seconds(clock_.Wall()));
    const std::lock_guard lock(mutex_);
    newest_ = std::max(newest_, revision);
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }

  int64_t Newest() {
    const std::lock_guard lock(mutex_);
    return newest_;
  }

  std::string Key(Thread& t) const {
    static constexpr std::string_view kKinds[] = {"pods", "nodes", "leases", "secrets"};
    return fmt::format("/registry/{}/{:04}", kKinds[t.random.Below(4)],
                       t.random.Below(arguments_.keys));
  }
  static std::string Value(Thread& t) {
    static constexpr size_t kLengths[] = {0, 20, 300, 300, 4000};
    return fmt::format("{:09}", t.random.Below(1'000'000'000)) +
           std::string(kLengths[t.random.Below(5)], 'v');
  }
  etcdserverpb::PutRequest Put(Thread& t, const std::string& key) const {
    etcdserverpb::PutRequest put;
    put.set_key(key);
    put.set_value(Value(t));
    return put;
  }

  template <typename Method, typename Request>
  absl::StatusOr<int64_t> Call(Thread& t, const Method& method, const Request& request) {
    ASSIGN_OR_RETURN(const auto answer, t.client.Call(method, request, {.timeout = kTimeout}));
    return answer.header().revision();
  }

  // One change; the revision that the server had after it.
  absl::StatusOr<int64_t> Change(Thread& t) {
    const uint64_t kind = t.random.Below(1000);
    if (kind < 550) return ChangePut(t);
    if (kind < 650) return ChangeDelete(t);
    if (kind < 900) return ChangeTxn(t);
    if (kind < 950) return ChangeGrant(t);
    if (kind < 980 && t.leases.size() > 3) return ChangeRevoke(t);
    if (kind < 982 && arguments_.compact && Newest() > 2000) return ChangeCompact(t);
    return ChangePut(t);
  }

  absl::StatusOr<int64_t> ChangePut(Thread& t) {
    etcdserverpb::PutRequest put = Put(t, Key(t));
    if (!t.leases.empty() && t.random.OneIn(5)) {
      put.set_lease(t.leases[t.random.Below(t.leases.size())]);
    }
    return Call(t, client::kPut, put);
  }

  absl::StatusOr<int64_t> ChangeDelete(Thread& t) {
    etcdserverpb::DeleteRangeRequest request;
    request.set_key(Key(t));
    if (t.random.OneIn(2)) {
      std::string end = request.key();
      end.back() = '9';
      if (end > request.key()) request.set_range_end(end);
    }
    return Call(t, client::kDeleteRange, request);
  }

  absl::StatusOr<int64_t> ChangeTxn(Thread& t) {
    std::set<std::string> keys;
    for (uint64_t n = 2 + t.random.Below(4); n > 0; --n) keys.insert(Key(t));
    etcdserverpb::TxnRequest request;
    for (const std::string& key : keys) {
      *request.add_success()->mutable_request_put() = Put(t, key);
    }
    etcdserverpb::TxnRequest& nested = *request.add_success()->mutable_request_txn();
    nested.add_success()->mutable_request_delete_range()->set_key(
        fmt::format("/other/{}", t.random.Below(9)));
    *nested.add_success()->mutable_request_put() =
        Put(t, fmt::format("/nested/{}", t.random.Below(9)));
    return Call(t, client::kTxn, request);
  }

  absl::StatusOr<int64_t> ChangeGrant(Thread& t) {
    etcdserverpb::LeaseGrantRequest grant;
    grant.set_ttl(300 + static_cast<int64_t>(t.random.Below(8700)));
    ASSIGN_OR_RETURN(const auto answer,
                     t.client.Call(client::kLeaseGrant, grant, {.timeout = kTimeout}));
    t.leases.push_back(answer.id());
    etcdserverpb::PutRequest put = Put(t, fmt::format("/leased/{}", t.random.Below(30)));
    put.set_lease(answer.id());
    return Call(t, client::kPut, put);
  }

  absl::StatusOr<int64_t> ChangeRevoke(Thread& t) {
    etcdserverpb::LeaseRevokeRequest revoke;
    const size_t which = t.random.Below(t.leases.size());
    revoke.set_id(t.leases[which]);
    t.leases.erase(t.leases.begin() + static_cast<ptrdiff_t>(which));
    return Call(t, client::kLeaseRevoke, revoke);
  }

  absl::StatusOr<int64_t> ChangeCompact(Thread& t) {
    etcdserverpb::CompactionRequest compact;
    compact.set_revision(Newest() - 1000 - static_cast<int64_t>(t.random.Below(1000)));
    auto revision = Call(t, client::kCompact, compact);
    // Another thread's was ahead of this one.
    if (!revision.ok() &&
        base::Message(revision.status()).find("compacted") != std::string_view::npos) {
      return ChangePut(t);
    }
    return revision;
  }

  const Arguments arguments_;
  base::Clock& clock_ = base::SystemClock();
  std::vector<std::unique_ptr<client::Client>> clients_;
  base::Duration began_{0};
  std::atomic<uint64_t> turns_ = 0;
  std::mutex mutex_;
  int64_t newest_ = 0;
};

bool Parse(int argc, char** argv, Arguments* out) {
  if (argc % 2 == 0) return false;
  std::map<std::string, std::string> values;
  for (int i = 1; i < argc; i += 2) values[argv[i]] = argv[i + 1];
  const auto take = [&](const char* name, auto&& use) {
    const auto found = values.find(name);
    if (found == values.end()) return;
    use(found->second);
    values.erase(found);
  };
  const auto number = [](const std::string& text) {
    return std::strtoull(text.c_str(), nullptr, 10);
  };
  out->client.endpoints.clear();
  take("--endpoint", [&](const std::string& v) { out->client.endpoints = {v}; });
  take("--ca", [&](const std::string& v) { out->client.tls.ca_file = v; });
  take("--cert", [&](const std::string& v) { out->client.tls.cert_file = v; });
  take("--key", [&](const std::string& v) { out->client.tls.key_file = v; });
  take("--rate", [&](const std::string& v) { out->rate = std::strtod(v.c_str(), nullptr); });
  take("--threads", [&](const std::string& v) { out->threads = static_cast<int>(number(v)); });
  take("--keys", [&](const std::string& v) { out->keys = number(v); });
  take("--seed", [&](const std::string& v) { out->seed = number(v); });
  take("--compact", [&](const std::string& v) { out->compact = v != "0"; });
  return values.empty() && !out->client.endpoints.empty() && out->rate > 0 && out->threads > 0 &&
         out->keys > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const absl::Status ran = Writer(std::move(arguments)).Run();
  if (ran.ok()) return 0;
  std::fprintf(stderr, "engram_writer: %s\n", std::string(base::Message(ran)).c_str());
  return 1;
}
