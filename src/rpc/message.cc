#include "rpc/message.h"

namespace rpc {

std::string* Message::OwnedTail() {
  if (tail_.back().shared()) tail_.emplace_back(std::string());
  return tail_.back().owned();
}

size_t Message::payload_bytes() const {
  size_t n = head_.size() - kPrefixBytes;
  for (const net::Piece& piece : tail_) n += piece.size();
  return n;
}

std::string Message::Payload() const {
  std::string all = head_.substr(kPrefixBytes);
  for (const net::Piece& piece : tail_) all.append(piece.view());
  return all;
}

}  // namespace rpc
