// One gRPC message on its way out: protobuf bytes with the five bytes of the gRPC prefix already
// reserved in front, so that nothing is copied or moved later. May end in shared pieces (events
// encoded once for many watchers). A value; it belongs to one thread at a time and may be built on
// any.
//
//   rpc::Message::Of(range_response)                       // any protobuf message
//   rpc::Message m; m.bytes()->append(encoded);            // encoded by hand
//   m.AddShared(event_bytes); m.bytes()->append(more);     // mixed pieces, in order
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/piece.h"
#include "net/recycler.h"

namespace rpc {

class Message {
 public:
  static constexpr size_t kPrefixBytes = 5;

  Message() : head_(net::TakeString()) { head_.append(kPrefixBytes, '\0'); }
  explicit Message(std::string_view payload) : Message() { head_.append(payload); }
  Message(Message&&) = default;
  Message& operator=(Message&&) = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // P is a protobuf message class.
  template <typename P>
  static Message Of(const P& proto) {
    Message m;
    proto.AppendToString(&m.head_);
    return m;
  }

  // The string to append payload bytes to, at the current end of the message. It may hold bytes
  // already, which must stay. Valid until the next AddShared.
  std::string* bytes() { return tail_.empty() ? &head_ : OwnedTail(); }
  // Appends bytes that are shared, not copied.
  void AddShared(std::shared_ptr<const std::string> piece) {
    if (!piece->empty()) tail_.emplace_back(std::move(piece));
  }
  // Appends `view`, which lies in memory that `holder` keeps alive.
  void AddShared(std::shared_ptr<const void> holder, std::string_view view) {
    if (!view.empty()) tail_.emplace_back(std::move(holder), view);
  }
  size_t payload_bytes() const;
  // The payload in one string (copies).
  std::string Payload() const;

  // For transports: the first piece, prefix included, and the rest.
  std::string& head() { return head_; }
  const std::string& head() const { return head_; }
  std::vector<net::Piece>& tail() { return tail_; }

 private:
  std::string* OwnedTail();

  std::string head_;  // at least the prefix
  std::vector<net::Piece> tail_;
};

}  // namespace rpc
