#include "api/api.h"

#include <algorithm>
#include <utility>

#include "api/cluster.h"
#include "api/kv.h"
#include "api/lease.h"
#include "api/maintenance.h"
#include "base/log.h"
#include "member/errors.h"

namespace api {
namespace {

constexpr size_t kHelperQueueMax = 1024;
// The gRPC limit lies this much above the limit of a request.
constexpr uint64_t kGrpcOverheadBytes = 512 * 1024;

bool IsUtf8(std::string_view text) {
  // JsonString replaces what is not UTF-8.
  return base::JsonString(text).find("\\ufffd") == std::string::npos;
}

// Ranges that are not serializable are refused by their handler.
bool ServedByLearners(std::string_view path) {
  return path == "/etcdserverpb.KV/Range" || path == "/etcdserverpb.Maintenance/Status" ||
         path == "/etcdserverpb.Maintenance/Snapshot" || path.starts_with("/grpc.health.v1.");
}

}  // namespace

Api::Api(member::Member& member, net::LoopPool& loops, ServerMetrics& server_metrics,
         base::Metrics& metrics, ApiOptions options, HttpOptions http_options)
    : options_(std::move(options)), server_metrics_(server_metrics), member_(member) {
  helpers_ = std::make_unique<HelperPool>(options_.helpers, kHelperQueueMax);
  answers_ = std::make_unique<Answers>(loops);
  context_ = std::make_unique<Context>(
      Context{.member = member,
              .loops = loops,
              .helpers = *helpers_,
              .answers = *answers_,
              .answer_bytes = std::make_shared<ByteBudget>(options_.answer_bytes_max),
              .options = options_,
              .clock = *member.options().clock,
              .random = *member.options().random});
  rpc::ServerOptions grpc_options;
  // A length on the wire has 32 bits.
  grpc_options.receive_bytes_max = static_cast<uint32_t>(
      std::min<uint64_t>(options_.max_request_bytes, UINT32_MAX - kGrpcOverheadBytes) +
      kGrpcOverheadBytes);
  // A request as large as the flag allows must fit, and a second one beside it.
  grpc_options.partial_bytes_max =
      std::max(grpc_options.partial_bytes_max, 2 * uint64_t{grpc_options.receive_bytes_max});
  grpc_options.on_start = [this](rpc::Call& call) { return OnStart(call); };
  grpc_options.on_end = [this](const rpc::CallSummary& summary) {
    server_metrics_.OnCallEnd(summary);
    if (summary.method.kind != rpc::MethodKind::kUnary) return;
    const bool slow = summary.took > options_.warning_unary_duration;
    if (slow || base::LogEnabled(base::LogLevel::kDebug)) {
      ENGRAM_LOG(slow ? base::LogLevel::kWarn : base::LogLevel::kDebug, "", "request stats",
                 {"response type", summary.method.path},
                 {"time spent", base::DurationText(summary.took)},
                 {"request size", summary.payload_bytes_received},
                 {"response size", summary.payload_bytes_sent});
    }
  };
  grpc_ = std::make_unique<rpc::Server>(std::move(grpc_options));
  RegisterKv(*grpc_, *context_);
  watch_ = std::make_unique<WatchService>(*grpc_, *context_);
  RegisterLease(*grpc_, *context_);
  RegisterCluster(*grpc_, *context_);
  RegisterMaintenance(*grpc_, *context_);
  RegisterHealth(*grpc_, *context_);
  server_metrics_.AttachMethods(grpc_->methods());
  server_metrics_.Attach(member, *watch_);
  net::HttpHandler* const raft = http_options.raft;
  client_http_ = std::make_unique<ClientHttp>(
      *context_, *grpc_, std::move(http_options),
      HealthCounters{
          .health = [this](bool success) { server_metrics_.OnHealth(success); },
          .check = [this](std::string_view type, std::string_view name,
                          bool success) { server_metrics_.OnCheck(type, name, success); }},
      [&metrics] { return metrics.Scrape(); });
  metrics_http_ = std::make_unique<MetricsHttp>(*client_http_);
  peer_http_ = std::make_unique<PeerHttp>(*context_, raft);
}

Api::~Api() { helpers_->Stop(); }

absl::Status Api::OnStart(rpc::Call& call) {
  server_metrics_.OnCallStart(call);
  if (!IsUtf8(call.Metadata("client-api-version"))) return member::InvalidClientApiVersionError();
  if (call.Metadata("hasleader") == "true" && member_.leader() == raft::kNoNode)
    return member::NoLeaderError();
  if (member_.is_learner() && !ServedByLearners(call.method().path))
    return member::NotSupportedForLearnerError();
  return absl::OkStatus();
}

}  // namespace api
