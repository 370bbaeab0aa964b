// JSON of the gateway: protobuf's mapping, with the grammar and the errors of Go's decoder, which
// etcd reads with. Input is never trusted. Thread-safe but for JsonSplitter, a value of one thread.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace api {

// The first JSON value in `body` as a message of `request`'s type, in wire format; empty when there
// are only blanks. What follows the value is not looked at, unknown fields are passed over.
// InvalidArgument with the text that goes to the client.
absl::StatusOr<std::string> JsonToWire(std::string_view body,
                                       const google::protobuf::Message& request);

// A message of `response`'s type, with field names as in the proto files. Internal when it is none.
absl::StatusOr<std::string> WireToJson(std::string_view bytes,
                                       const google::protobuf::Message& response);

// Cuts concatenated JSON objects apart. Fed in pieces; yields each complete top-level value.
class JsonSplitter {
 public:
  static constexpr size_t kValueBytesMax = 4 << 20;

  // False when the bytes can be no sequence of objects, or one is too long.
  bool Feed(std::string_view bytes, const std::function<void(std::string_view)>& on_value) {
    for (const char c : bytes) {
      if (depth_ == 0) {
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',') continue;
        if (c != '{') return false;
      }
      value_.push_back(c);
      if (value_.size() > kValueBytesMax) return false;
      if (in_string_) {
        if (escaped_) {
          escaped_ = false;
        } else if (c == '\\') {
          escaped_ = true;
        } else if (c == '"') {
          in_string_ = false;
        }
        continue;
      }
      if (c == '"') in_string_ = true;
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') {
        if (--depth_ == 0) {
          on_value(value_);
          value_.clear();
        }
      }
    }
    return true;
  }
  bool empty() const { return value_.empty(); }

 private:
  std::string value_;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace api
