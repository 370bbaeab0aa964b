// The transport between members over HTTP/1.1, wire-compatible with etcd's rafthttp: streams that
// the receiver asks for, POST /raft where there is none, POST /raft/snapshot for whole databases.
// How it works: docs/internals/peer.md. Thread-safe.
//
// It is both ends: a Transport for its own member, and the HttpHandler for what others send to
// paths under /raft on the peer port.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "net/http.h"
#include "peer/link.h"
#include "peer/remote_member.h"
#include "peer/transport.h"

namespace peer {

class HttpTransport final : public Transport, public net::HttpHandler {
 public:
  explicit HttpTransport(HttpTransportOptions options);
  // Exchanges handed to OnRequest must be over by then, i.e. their loops stopped or their server
  // shut down.
  ~HttpTransport() override;

  // --- Transport ---
  void Open(const Identity& identity, Host& host) override;
  void Close() override;
  void Send(std::vector<raft::Message> messages) override;
  void AddPeer(raft::NodeId id, const std::vector<std::string>& urls) override;
  void RemovePeer(raft::NodeId id) override;
  std::optional<base::Duration> ActiveSince(raft::NodeId id) const override;
  std::vector<PeerFacts> Peers() const override;
  absl::StatusOr<Answer> Ask(const std::string& url, const Question& question,
                             base::Duration timeout) override;

  // --- HttpHandler ---
  // /raft, /raft/stream/..., /raft/snapshot; 404 for everything else. Before Open() all is
  // answered 503.
  void OnRequest(std::shared_ptr<net::HttpExchange> exchange) override;

 private:
  enum class Phase : uint8_t { kNew, kRunning, kStopped };
  void OnStream(const std::shared_ptr<net::HttpExchange>& exchange);
  void OnMessage(const std::shared_ptr<net::HttpExchange>& exchange);
  void OnSnapshot(const std::shared_ptr<net::HttpExchange>& exchange);
  // Answers for a sender that cannot be talked to; false then. Notes senders not known yet.
  bool Admit(net::HttpExchange& exchange);
  std::shared_ptr<RemoteMember> Find(raft::NodeId id) const;
  void AddLocked(raft::NodeId id, const std::vector<std::string>& urls, bool pipeline_only);
  bool running() const;

  Link link_;  // identity and host are set by Open()
  net::Interrupt interrupt_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kNew;                                    // guarded by mutex_
  std::map<raft::NodeId, std::shared_ptr<RemoteMember>> peers_;  // guarded by mutex_
  // Removed ones, whose threads are ending; waited for by Close().
  std::vector<std::shared_ptr<RemoteMember>> removed_;      // guarded by mutex_
  std::list<std::shared_ptr<SnapshotReceiver>> receivers_;  // guarded by mutex_
};

}  // namespace peer
