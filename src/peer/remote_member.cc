#include "peer/remote_member.h"

#include <utility>

#include "base/bytes.h"
#include "base/log.h"

namespace peer {
namespace {
size_t SlotOf(StreamKind kind) { return static_cast<size_t>(kind); }
}  // namespace

RemoteMember::RemoteMember(const Link& link, raft::NodeId id, const std::vector<std::string>& urls,
                           bool pipeline_only)
    : link_(link),
      id_(id),
      urls_(urls),
      activity_(std::make_shared<Activity>(id)),
      pipeline_(link, id, urls_, *activity_),
      snapshots_(link, id, urls_, *activity_) {
  if (pipeline_only) return;
  for (const StreamKind kind : {StreamKind::kMessage, StreamKind::kMsgApp}) {
    incoming_[SlotOf(kind)] = std::make_unique<IncomingStream>(link, id, kind, urls_, *activity_);
  }
}

RemoteMember::~RemoteMember() { Interrupt(); }

void RemoteMember::Interrupt() {
  for (const auto& stream : incoming_) {
    if (stream != nullptr) stream->Interrupt();
  }
  pipeline_.Interrupt();
  snapshots_.Interrupt();
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (auto& stream : outgoing_) {
    if (stream != nullptr) stream->Close();
    stream.reset();
  }
}

std::shared_ptr<OutgoingStream> RemoteMember::StreamFor(raft::MessageType type) const {
  const std::lock_guard lock(mutex_);
  const auto& appends = outgoing_[SlotOf(StreamKind::kMsgApp)];
  if (type == raft::MessageType::kApp && appends != nullptr && !appends->closed()) return appends;
  const auto& others = outgoing_[SlotOf(StreamKind::kMessage)];
  return others != nullptr && !others->closed() ? others : nullptr;
}

void RemoteMember::Send(raft::Message message) {
  if (message.type == raft::MessageType::kSnap) {
    if (!snapshots_.Send(std::move(message))) link_.host->OnSnapshotSent(id_, /*ok=*/false);
    return;
  }
  const auto stream = StreamFor(message.type);
  const bool taken =
      stream != nullptr ? stream->Push(std::move(message)) : pipeline_.Push(std::move(message));
  if (!taken) link_.host->OnUnreachable(id_);
}

void RemoteMember::Attach(std::shared_ptr<net::HttpExchange> exchange, StreamKind kind) {
  const auto stream = std::make_shared<OutgoingStream>(std::move(exchange), kind, activity_);
  {
    const std::lock_guard lock(mutex_);
    auto& place = outgoing_[SlotOf(kind)];
    if (place != nullptr) place->Close();
    place = interrupted_ ? nullptr : stream;
  }
  activity_->OnSuccess();
  LOG_INFO("established TCP streaming connection with remote peer",
           {"stream-writer-type", StreamName(kind)},
           {"local-member-id", base::IdToHex(link_.identity.member_id)},
           {"remote-peer-id", base::IdToHex(id_)});
  stream->Start([&link = link_, id = id_, kind, activity = activity_](bool lost) {
    LOG_WARN("lost TCP streaming connection with remote peer",
             {"stream-writer-type", StreamName(kind)},
             {"local-member-id", base::IdToHex(link.identity.member_id)},
             {"remote-peer-id", base::IdToHex(id)});
    activity->OnFailure("writing a stream", "the stream ended");
    if (lost) link.host->OnUnreachable(id);
  });
}

}  // namespace peer
