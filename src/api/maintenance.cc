#include "api/maintenance.h"

#include <openssl/evp.h>

#include <array>
#include <utility>

#include "api/write.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wire.h"
#include "member/errors.h"
#include "proto/rpc.pb.h"

namespace api {
namespace {

namespace pb = etcdserverpb;
namespace wire = base::wire;

void Alarm(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::AlarmRequest alarm;
  if (!Parse(request, &alarm)) return call->Finish(UnmarshalError());
  // etcd's process ends on such a request.
  if (alarm.action() < pb::AlarmRequest::GET || alarm.action() > pb::AlarmRequest::DEACTIVATE) {
    return call->Finish(absl::StatusCode::kInvalidArgument, "etcdserver: unknown alarm action");
  }
  ProposeFor(context, std::move(call), member::RequestKind::kAlarm, request);
}

void Status(const Context& context, rpc::CallPtr call, std::string_view) {
  member::Member& member = context.member;
  const mvcc::BackendSizes sizes = member.backend().sizes();
  pb::StatusResponse response;
  response.set_version(context.options.version);
  response.set_dbsize(static_cast<int64_t>(sizes.file_bytes));
  response.set_dbsizeinuse(static_cast<int64_t>(sizes.in_use_bytes));
  response.set_leader(member.leader());
  response.set_raftindex(member.committed_index());
  response.set_raftterm(member.term());
  response.set_raftappliedindex(member.applied_index());
  response.set_islearner(member.is_learner());
  response.set_storageversion(member.storage_version());
  response.set_dbsizequota(member.quota_bytes());
  response.mutable_downgradeinfo();
  for (std::string& error : StatusErrors(context)) response.add_errors(std::move(error));
  rpc::Message message = context.WithHeader(member.store().current_revision());
  response.AppendToString(message.bytes());
  call->Respond(std::move(message));
}

void Defragment(const Context& context, rpc::CallPtr call, std::string_view) {
  OnHelper(
      context, std::move(call),
      [&context] {
        const base::Duration begun = context.clock.Monotonic();
        const mvcc::BackendSizes before = context.member.backend().sizes();
        LOG_INFO("starting defragment");
        absl::Status status = context.member.backend().Defragment();
        if (status.ok()) {
          const mvcc::BackendSizes after = context.member.backend().sizes();
          LOG_INFO("finished defragment", {"size-before-bytes", before.file_bytes},
                   {"size-after-bytes", after.file_bytes},
                   {"took", base::DurationText(context.clock.Monotonic() - begun)});
        } else {
          LOG_WARN("failed to defragment", {"error", status});
        }
        return status;
      },
      [](const rpc::CallPtr& done, const absl::Status& status) {
        if (!status.ok()) return done->Finish(status);
        done->Respond(rpc::Message());
      });
}

void Hash(const Context& context, rpc::CallPtr call, std::string_view) {
  OnHelper(
      context, std::move(call), [&context] { return context.member.backend().Hash(); },
      [&context](const rpc::CallPtr& done, const absl::StatusOr<uint32_t>& hash) {
        if (!hash.ok()) return done->Finish(hash.status());
        rpc::Message message = context.WithHeader(context.member.store().current_revision());
        wire::AppendNonZero(message.bytes(), 2, *hash);
        done->Respond(std::move(message));
      });
}

void HashKv(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::HashKVRequest ask;
  if (!Parse(request, &ask)) return call->Finish(UnmarshalError());
  OnHelper(
      context, std::move(call),
      [&context, revision = ask.revision()] {
        return context.member.store().HashByRevision(revision);
      },
      [&context](const rpc::CallPtr& done, const absl::StatusOr<mvcc::HashKv>& hash) {
        if (!hash.ok()) return done->Finish(hash.status());
        rpc::Message message = context.WithHeader(hash->current_revision);
        wire::AppendNonZero(message.bytes(), 2, hash->hash);
        wire::AppendNonZero(message.bytes(), 3, static_cast<uint64_t>(hash->compact_revision));
        wire::AppendNonZero(message.bytes(), 4, static_cast<uint64_t>(hash->hash_revision));
        done->Respond(std::move(message));
      });
}

void MoveLeader(const Context& context, rpc::CallPtr call, std::string_view request) {
  pb::MoveLeaderRequest move;
  if (!Parse(request, &move)) return call->Finish(UnmarshalError());
  net::Loop& loop = call->loop();
  context.member.MoveLeader(move.targetid(), [&context, &loop, call = std::move(call)](
                                                 const absl::Status& status) mutable {
    context.answers.Deliver(loop, [&context, call = std::move(call), status] {
      if (!status.ok()) return call->Finish(status);
      call->Respond(context.WithHeader(0));
    });
  });
}

// Streams an image of the db file: the loop paces, a helper reads and hashes a few blobs at a time.
class SnapshotStream : public std::enable_shared_from_this<SnapshotStream> {
 public:
  SnapshotStream(const Context& context, rpc::CallPtr call)
      : context_(context), call_(std::move(call)) {}
  ~SnapshotStream() { EVP_MD_CTX_free(sha_); }
  SnapshotStream(const SnapshotStream&) = delete;
  SnapshotStream& operator=(const SnapshotStream&) = delete;

  void Start() {
    OnHelper(
        context_, call_, [this] { return Open(); },
        [self = shared_from_this()](const rpc::CallPtr& call, const absl::Status& status) {
          if (!status.ok()) return call->Finish(status);
          LOG_INFO("sending database snapshot to client",
                   {"total-bytes", self->image_->size_bytes()},
                   {"storage-version", self->image_->storage_version()});
          self->Next();
        });
  }

 private:
  using Messages = std::vector<rpc::Message>;
  static constexpr size_t kBlobBytes = 32 << 10;
  static constexpr uint64_t kTurnBytes = 1 << 20;
  static constexpr size_t kQueuedBytes = 1 << 20;

  void Next() {
    if (call_->done()) return;
    if (call_->queued_bytes() > kQueuedBytes) {
      return call_->NotifyWhenWritable(kQueuedBytes, [self = shared_from_this()] { self->Next(); });
    }
    OnHelper(
        context_, call_, [this] { return Read(); },
        [self = shared_from_this()](const rpc::CallPtr&, absl::StatusOr<Messages> messages) {
          self->Send(std::move(messages));
        });
  }

  absl::Status Open() {
    ASSIGN_OR_RETURN(image_, context_.member.backend().Image());
    sha_ = EVP_MD_CTX_new();
    if (sha_ == nullptr || EVP_DigestInit_ex(sha_, EVP_sha256(), nullptr) != 1) {
      return absl::InternalError("cannot start a sha256");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Messages> Read() {
    Messages messages;
    const uint64_t size = image_->size_bytes();
    const auto n = static_cast<size_t>(std::min(kTurnBytes, size - offset_));
    if (n > 0) {
      // One buffer, whose parts the messages share.
      const std::shared_ptr<char[]> buffer = std::make_shared_for_overwrite<char[]>(n);
      RETURN_IF_ERROR(image_->Read(offset_, buffer.get(), n));
      EVP_DigestUpdate(sha_, buffer.get(), n);
      for (size_t at = 0; at < n; at += kBlobBytes) {
        const std::string_view blob(buffer.get() + at, std::min(kBlobBytes, n - at));
        offset_ += blob.size();
        rpc::Message message;
        wire::AppendNonZero(message.bytes(), 2, size - offset_);
        wire::AppendTag(message.bytes(), 3, wire::Type::kBytes);
        wire::AppendVarint(message.bytes(), blob.size());
        message.AddShared(buffer, blob);
        wire::AppendNonEmpty(message.bytes(), 4, image_->storage_version());
        messages.push_back(std::move(message));
      }
    }
    if (offset_ == size) {
      std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
      unsigned length = 0;
      EVP_DigestFinal_ex(sha_, digest.data(), &length);
      rpc::Message message;
      wire::AppendBytes(message.bytes(), 3, {reinterpret_cast<const char*>(digest.data()), length});
      wire::AppendNonEmpty(message.bytes(), 4, image_->storage_version());
      messages.push_back(std::move(message));
    }
    return messages;
  }

  void Send(absl::StatusOr<Messages> messages) {
    if (!messages.ok()) return call_->Finish(messages.status());
    for (rpc::Message& message : *messages) call_->Send(std::move(message));
    if (offset_ < image_->size_bytes()) return Next();
    LOG_INFO("successfully sent database snapshot to client",
             {"total-bytes", image_->size_bytes()});
    call_->Finish(absl::StatusCode::kOk, "");
  }

  const Context& context_;
  const rpc::CallPtr call_;
  std::unique_ptr<mvcc::BackendImage> image_;
  EVP_MD_CTX* sha_ = nullptr;
  uint64_t offset_ = 0;  // of the helper while it reads, of the loop in between
};

// {1: SERVING}
std::string Serving() {
  std::string out;
  wire::AppendUint(&out, 1, 1);
  return out;
}

// The service name asked for; nullopt when malformed.
std::optional<std::string> HealthServiceName(std::string_view request) {
  std::string name;
  wire::Reader r(request);
  while (r.Next()) {
    if (r.field() == 1) name = r.bytes();
  }
  if (!r.ok()) return std::nullopt;
  return name;
}

}  // namespace

std::vector<std::string> StatusErrors(const Context& context) {
  std::vector<std::string> errors;
  if (context.member.leader() == raft::kNoNode) errors.emplace_back("etcdserver: no leader");
  for (const member::Alarm& alarm : context.member.alarms().List(0)) {
    errors.push_back(fmt::format(
        "{}alarm:{}", alarm.member_id == 0 ? "" : fmt::format("memberID:{} ", alarm.member_id),
        alarm.type == 1 ? "NOSPACE" : "CORRUPT"));
  }
  return errors;
}

void RegisterMaintenance(rpc::Server& server, const Context& context) {
  RegisterUnary(server, context, "/etcdserverpb.Maintenance/Alarm", Alarm);
  RegisterUnary(server, context, "/etcdserverpb.Maintenance/Status", Status);
  RegisterUnary(server, context, "/etcdserverpb.Maintenance/Defragment", Defragment);
  RegisterUnary(server, context, "/etcdserverpb.Maintenance/Hash", Hash);
  RegisterUnary(server, context, "/etcdserverpb.Maintenance/HashKV", HashKv);
  RegisterUnary(server, context, "/etcdserverpb.Maintenance/MoveLeader", MoveLeader);
  server.RegisterServerStream("/etcdserverpb.Maintenance/Snapshot",
                              [&context](rpc::CallPtr call, std::string_view) {
                                std::make_shared<SnapshotStream>(context, std::move(call))->Start();
                              });
}

void RegisterHealth(rpc::Server& server, const Context&) {
  server.RegisterUnary("/grpc.health.v1.Health/Check",
                       [](rpc::CallPtr call, std::string_view request) {
                         const auto name = HealthServiceName(request);
                         if (!name) return call->Finish(UnmarshalError());
                         if (!name->empty())
                           return call->Finish(absl::StatusCode::kNotFound, "unknown service");
                         call->Respond(rpc::Message(Serving()));
                       });
  server.RegisterUnary("/grpc.health.v1.Health/List", [](rpc::CallPtr call, std::string_view) {
    // map<string, HealthCheckResponse>{"": SERVING}
    std::string entry;
    wire::AppendBytes(&entry, 1, "");
    wire::AppendBytes(&entry, 2, Serving());
    rpc::Message message;
    wire::AppendBytes(message.bytes(), 1, entry);
    call->Respond(std::move(message));
  });
  server.RegisterServerStream("/grpc.health.v1.Health/Watch", [](rpc::CallPtr call,
                                                                 std::string_view request) {
    const auto name = HealthServiceName(request);
    if (!name) return call->Finish(UnmarshalError());
    rpc::Message message;
    constexpr uint64_t kServing = 1;
    constexpr uint64_t kServiceUnknown = 3;
    wire::AppendUint(message.bytes(), 1, name->empty() ? kServing : kServiceUnknown);
    call->Send(std::move(message));  // stays open: the state never changes while the server runs
  });
}

}  // namespace api
