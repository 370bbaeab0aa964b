#include "api/json.h"

#include <google/protobuf/util/json_util.h>

#include <memory>
#include <vector>

#include "base/go_text.h"
#include "base/status.h"

namespace api {
namespace {

namespace protobuf = google::protobuf;

// Finds the end of the first value of a body by the strict grammar of RFC 8259. The library's own
// parser takes more than that (single quotes, names without quotes, commas at the end) and refuses
// what follows the value, which etcd never looks at.
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : text_(text) {}

  // The first value, for the library; empty if there are only blanks.
  absl::StatusOr<std::string> First() {
    SkipBlanks();
    size_t copied = at_;
    if (at_ < text_.size()) RETURN_IF_ERROR(Value(0));
    std::string value;
    for (const size_t name : empty_names_) {
      value += text_.substr(copied, name - copied);
      value += kUnknownName;
      copied = name;
    }
    value += text_.substr(copied, at_ - copied);
    return value;
  }

 private:
  static constexpr int kDepthMax = 100;      // the library's own limit
  static constexpr char kUnknownName = '-';  // no field's name

  absl::Status Unexpected(std::string_view where) const {
    if (at_ >= text_.size()) return absl::InvalidArgumentError("unexpected EOF");
    const std::string quoted = base::GoQuote(text_.substr(at_, 1));
    const std::string inner = text_[at_] == '"'    ? "\""
                              : text_[at_] == '\'' ? "\\'"
                                                   : quoted.substr(1, quoted.size() - 2);
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "invalid character '{}' {}", inner,
                            where);
  }
  bool Has(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool HasDigit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }
  void SkipBlanks() {
    while (Has(' ') || Has('\t') || Has('\n') || Has('\r')) ++at_;
  }

  absl::Status Value(int depth) {
    if (depth > kDepthMax) return absl::InvalidArgumentError("exceeded max depth");
    if (Has('{')) return Object(depth);
    if (Has('[')) return Array(depth);
    if (Has('"')) return String();
    if (Has('-') || HasDigit()) return Number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!Has(word[0])) continue;
      for (const char c : word) {
        if (!Has(c)) return Unexpected("in literal " + std::string(word));
        ++at_;
      }
      return absl::OkStatus();
    }
    return Unexpected("looking for beginning of value");
  }

  absl::Status Object(int depth) {
    ++at_;
    SkipBlanks();
    if (Has('}')) return ++at_, absl::OkStatus();
    while (true) {
      SkipBlanks();
      if (!Has('"')) return Unexpected("looking for beginning of object key string");
      const size_t name = at_ + 1;
      RETURN_IF_ERROR(String());
      if (at_ == name + 1) empty_names_.push_back(name);
      SkipBlanks();
      if (!Has(':')) return Unexpected("after object key");
      ++at_;
      SkipBlanks();
      RETURN_IF_ERROR(Value(depth + 1));
      SkipBlanks();
      if (Has('}')) return ++at_, absl::OkStatus();
      if (!Has(',')) return Unexpected("after object key:value pair");
      ++at_;
    }
  }

  absl::Status Array(int depth) {
    ++at_;
    SkipBlanks();
    if (Has(']')) return ++at_, absl::OkStatus();
    while (true) {
      SkipBlanks();
      // The library would drop such an element without a word.
      if (Has('n')) return absl::InvalidArgumentError("unexpected token null");
      RETURN_IF_ERROR(Value(depth + 1));
      SkipBlanks();
      if (Has(']')) return ++at_, absl::OkStatus();
      if (!Has(',')) return Unexpected("after array element");
      ++at_;
    }
  }

  // What an escape means, and whether the bytes are UTF-8, is for the library to judge.
  absl::Status String() {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') return ++at_, absl::OkStatus();
      if (c == '\\') ++at_;
      if (static_cast<unsigned char>(c) < 0x20) return Unexpected("in string literal");
    }
    return Unexpected("");
  }

  absl::Status Digits() {
    if (!HasDigit()) return Unexpected("in numeric literal");
    while (HasDigit()) ++at_;
    return absl::OkStatus();
  }

  absl::Status Number() {
    if (Has('-')) ++at_;
    if (Has('0')) {
      ++at_;
    } else {
      RETURN_IF_ERROR(Digits());
    }
    if (Has('.')) {
      ++at_;
      RETURN_IF_ERROR(Digits());
    }
    if (Has('e') || Has('E')) {
      ++at_;
      if (Has('+') || Has('-')) ++at_;
      RETURN_IF_ERROR(Digits());
    }
    return absl::OkStatus();
  }

  const std::string_view text_;
  size_t at_ = 0;
  // Where the library would take a value for one more element of the list around it, because its
  // name is empty; to etcd that is an unknown field like any other.
  std::vector<size_t> empty_names_;
};

}  // namespace

absl::StatusOr<std::string> JsonToWire(std::string_view body, const protobuf::Message& request) {
  ASSIGN_OR_RETURN(const std::string json, JsonScanner(body).First());
  if (json.empty()) return std::string();
  const std::unique_ptr<protobuf::Message> message(request.New());
  protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = protobuf::util::JsonStringToMessage(json, message.get(), options);
  if (!parsed.ok()) {
    const auto text = parsed.message();
    return absl::InvalidArgumentError(std::string(text.data(), text.size()));
  }
  return message->SerializeAsString();
}

absl::StatusOr<std::string> WireToJson(std::string_view bytes, const protobuf::Message& response) {
  const std::unique_ptr<protobuf::Message> message(response.New());
  if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InternalError("grpc: the answer cannot be read");
  }
  protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto printed = protobuf::util::MessageToJsonString(*message, &json, options);
  if (!printed.ok()) return absl::InternalError(std::string(printed.message()));
  return json;
}

}  // namespace api
