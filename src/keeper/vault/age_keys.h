// The keys of age: a recipient (age1…, public) seals, an identity (AGE-SECRET-KEY-1…, secret)
// opens. X25519 only. Values, each for one thread at a time; the functions are safe on any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/random.h"
#include "vault/crypto.h"
#include "vault/secret.h"

namespace vault {

class Recipient {
 public:
  explicit Recipient(const Point& point) : point_(point) {}
  // InvalidArgument names the text and what is wrong with it.
  static absl::StatusOr<Recipient> Parse(std::string_view text);
  std::string ToString() const;
  const Point& point() const { return point_; }
  bool operator==(const Recipient&) const = default;

 private:
  Point point_;
};

class Identity {
 public:
  static Identity Generate(base::Random& random);
  // InvalidArgument never quotes the text.
  static absl::StatusOr<Identity> Parse(std::string_view text);
  Secret ToSecret() const;
  const Recipient& recipient() const { return recipient_; }
  const Key& key() const { return key_; }

 private:
  explicit Identity(const Key& key) : key_(key), recipient_(PublicPoint(key)) {}
  Key key_;
  Recipient recipient_;
};

// An identity file: one identity a line; empty lines and lines that begin with # say nothing.
// InvalidArgument names the line; also when there is no identity at all.
absl::StatusOr<std::vector<Identity>> ParseIdentities(std::string_view text);

}  // namespace vault
