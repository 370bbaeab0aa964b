#include "yaml/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/status.h"

namespace yaml {
namespace {

absl::Status At(int line, std::string_view what) {
  return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{}: {}", line, what);
}

// Length of the UTF-8 sequence at the start of `s`; 0 where there is none.
size_t SequenceLength(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  if (byte(0) < 0x80) return 1;
  size_t length = 0;
  if (byte(0) >= 0xc2 && byte(0) <= 0xdf) length = 2;
  if (byte(0) >= 0xe0 && byte(0) <= 0xef) length = 3;
  if (byte(0) >= 0xf0 && byte(0) <= 0xf4) length = 4;
  if (length == 0 || s.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool beyond = (byte(0) == 0xed && byte(1) > 0x9f) || (byte(0) == 0xf4 && byte(1) > 0x8f);
  return overlong || beyond ? 0 : length;
}

// yaml-cpp guesses at other encodings and passes control bytes through; a file with either was not
// written by hand.
absl::Status CheckText(std::string_view text) {
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '\n') ++line;
    if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f) {
      return At(line, fmt::format("this is no text: it holds the byte 0x{:02x}", c));
    }
    const size_t length = SequenceLength(text.substr(i));
    if (length == 0) {
      return At(line, fmt::format("this is no UTF-8 text: it holds the byte 0x{:02x}", c));
    }
    i += length;
  }
  return absl::OkStatus();
}

struct Size {
  size_t values = 1;
  size_t bytes = 0;
};

Size SizeOf(const Value& value) {
  Size size{.bytes = value.text.size()};
  for (const std::string& key : value.keys) size.bytes += key.size();
  for (const Value& item : value.items) {
    const Size inner = SizeOf(item);
    size.values += inner.values;
    size.bytes += inner.bytes;
  }
  return size;
}

// Turns yaml-cpp's events into values. After the first fault further events change nothing.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(const Limits& limits) : limits_(limits) {}

  const absl::Status& fault() const { return fault_; }
  std::vector<Value> Take() { return std::move(documents_); }

  void OnDocumentStart(const YAML::Mark&) override {
    anchors_.clear();
    open_.clear();
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(Value{.line = mark.line + 1}, anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    CheckTag(mark, tag);
    Add(Value{.kind = Value::Kind::kScalar,
              .line = mark.line + 1,
              .text = text,
              .quoted = tag != "?" && !tag.empty()},
        anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    Open(Value{.kind = Value::Kind::kSequence, .line = mark.line + 1}, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    Open(Value{.kind = Value::Kind::kMap, .line = mark.line + 1}, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapEnd() override { Close(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (!fault_.ok()) return;
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end()) return Fail(mark.line + 1, "an alias of what it is part of");
    const Size size = SizeOf(known->second);
    values_ += size.values - 1;
    alias_bytes_ += size.bytes;
    if (values_ > limits_.values_max || alias_bytes_ > limits_.alias_bytes_max) {
      return Fail(mark.line + 1, "its aliases unfold to too much");
    }
    Value copy = known->second;
    copy.line = mark.line + 1;
    Add(std::move(copy), YAML::NullAnchor);
  }

 private:
  struct Level {
    Value value;
    YAML::anchor_t anchor = YAML::NullAnchor;
    bool awaits_value = false;  // a map whose key has come
    std::set<std::string, std::less<>> keys;
  };

  void Fail(int line, std::string_view what) {
    if (fault_.ok()) fault_ = At(line, what);
  }

  void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!" || tag == "tag:yaml.org,2002:str") return;
    Fail(mark.line + 1, fmt::format("the tag `{}` is not understood", tag));
  }

  void Open(Value value, YAML::anchor_t anchor) {
    if (!fault_.ok()) return;
    if (!open_.empty() && open_.back().value.is_map() && !open_.back().awaits_value) {
      return Fail(value.line, "a key must be a text");
    }
    if (static_cast<int>(open_.size()) >= limits_.depth_max) {
      return Fail(value.line, fmt::format("nested deeper than {} levels", limits_.depth_max));
    }
    open_.push_back(Level{.value = std::move(value), .anchor = anchor});
  }

  void Close() {
    if (!fault_.ok()) return;
    Level level = std::move(open_.back());
    open_.pop_back();
    Add(std::move(level.value), level.anchor);
  }

  void Add(Value value, YAML::anchor_t anchor) {
    if (!fault_.ok()) return;
    if (++values_ > limits_.values_max) return Fail(value.line, "it holds too many values");
    if (anchor != YAML::NullAnchor) anchors_[anchor] = value;
    if (open_.empty()) {
      if (!value.is_null()) documents_.push_back(std::move(value));
      return;
    }
    Level& level = open_.back();
    if (level.value.is_map() && !level.awaits_value) return AddKey(&level, value);
    level.value.items.push_back(std::move(value));
    level.awaits_value = false;
  }

  void AddKey(Level* level, const Value& key) {
    if (!key.is_scalar()) return Fail(key.line, "a key must be a text");
    if (!level->keys.insert(key.text).second) {
      return Fail(key.line, fmt::format("the key `{}` stands here twice", key.text));
    }
    level->value.keys.push_back(key.text);
    level->value.key_lines.push_back(key.line);
    level->awaits_value = true;
  }

  const Limits limits_;
  absl::Status fault_;
  std::vector<Level> open_;                  // from the outermost to the innermost
  std::map<YAML::anchor_t, Value> anchors_;  // of this document, complete values only
  std::vector<Value> documents_;
  size_t values_ = 0;
  size_t alias_bytes_ = 0;
};

}  // namespace

const Value* Value::Find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &items[static_cast<size_t>(found - keys.begin())];
}

std::string_view Value::TextOf(std::string_view key) const {
  const Value* value = Find(key);
  return value != nullptr && value->is_scalar() ? std::string_view(value->text)
                                                : std::string_view();
}

const char* KindName(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::kNull:
      return "nothing";
    case Value::Kind::kScalar:
      return "a text";
    case Value::Kind::kSequence:
      return "a list";
    case Value::Kind::kMap:
      return "a map";
  }
  return "nothing";
}

absl::StatusOr<std::vector<Value>> Parse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.bytes_max) {
    return At(1, fmt::format("{} bytes are more than the {} that are read", text.size(),
                             limits.bytes_max));
  }
  RETURN_IF_ERROR(CheckText(text));
  Builder builder(limits);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (builder.fault().ok() && parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    return At(std::max(error.mark.line, 0) + 1, error.msg);
  }
  if (!builder.fault().ok()) return builder.fault();
  return builder.Take();
}

}  // namespace yaml
