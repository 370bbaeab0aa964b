// A run of output bytes: either its own, or a view into something shared that it keeps alive.
// Encoded events and values are shared by many connections this way, without a copy. A value;
// belongs to one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace net {

class Piece {
 public:
  Piece() = default;
  explicit Piece(std::string owned) : owned_(std::move(owned)) {}
  // `view` lies in memory that `holder` keeps alive and nobody changes.
  Piece(std::shared_ptr<const void> holder, std::string_view view)
      : holder_(std::move(holder)), shared_(view) {}
  explicit Piece(std::shared_ptr<const std::string> shared) : shared_(*shared) {
    holder_ = std::move(shared);
  }

  std::string_view view() const { return holder_ != nullptr ? shared_ : std::string_view(owned_); }
  size_t size() const { return view().size(); }
  bool shared() const { return holder_ != nullptr; }
  const std::shared_ptr<const void>& holder() const { return holder_; }
  // The piece's own bytes, to append to; only when !shared().
  std::string* owned() { return &owned_; }

 private:
  std::string owned_;
  std::shared_ptr<const void> holder_;
  std::string_view shared_;
};

}  // namespace net
