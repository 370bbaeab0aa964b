#include <utility>

#include "net/http2.h"

namespace net {
namespace {

// One request of unusual size must not keep its memory in the stock of reused heads.
constexpr size_t kKeptBytesMax = 16 << 10;
constexpr size_t kKeptFieldsMax = 256;
constexpr size_t kHeadsMax = 1024;

struct Heads {
  ~Heads() { closed = true; }
  std::vector<RequestHead> list;
  bool closed = false;
};

Heads& MyHeads() {
  thread_local Heads heads;
  return heads;
}

}  // namespace

void RequestHead::Clear() {
  if (bytes_.capacity() > kKeptBytesMax) bytes_ = std::string();
  if (fields_.capacity() > kKeptFieldsMax) fields_ = std::vector<Field>();
  bytes_.clear();
  fields_.clear();
  method_ = path_ = authority_ = scheme_ = content_type_ = Range{};
}

void RequestHead::Add(std::string_view name, std::string_view value) {
  const auto begin = static_cast<uint32_t>(bytes_.size());
  bytes_.append(name).append(value);
  const Range name_range{begin, static_cast<uint32_t>(name.size())};
  const Range value_range{begin + name_range.length, static_cast<uint32_t>(value.size())};
  if (name.size() == 12 && name == "content-type" && content_type_.length == 0) {
    content_type_ = value_range;
  }
  fields_.push_back({name_range, value_range});
}

bool RequestHead::AddPseudo(std::string_view name, std::string_view value) {
  if (!fields_.empty()) return false;
  Range* range = nullptr;
  if (name == ":path") {
    range = &path_;
  } else if (name == ":method") {
    range = &method_;
  } else if (name == ":scheme") {
    range = &scheme_;
  } else if (name == ":authority") {
    range = &authority_;
  } else {
    return false;
  }
  if (range->length != 0) return false;
  *range = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(value.size())};
  bytes_.append(value);
  return true;
}

std::string_view RequestHead::Find(std::string_view name) const {
  for (const Field& field : fields_) {
    if (field.name.length == name.size() && View(field.name) == name) return View(field.value);
  }
  return {};
}

bool RequestHead::Has(std::string_view name) const {
  for (const Field& field : fields_) {
    if (field.name.length == name.size() && View(field.name) == name) return true;
  }
  return false;
}

void RequestHead::swap(RequestHead& other) noexcept {
  bytes_.swap(other.bytes_);
  fields_.swap(other.fields_);
  std::swap(method_, other.method_);
  std::swap(path_, other.path_);
  std::swap(authority_, other.authority_);
  std::swap(scheme_, other.scheme_);
  std::swap(content_type_, other.content_type_);
}

RequestHead RequestHead::FromStock() {
  Heads& heads = MyHeads();
  if (heads.closed || heads.list.empty()) return {};
  RequestHead head = std::move(heads.list.back());
  heads.list.pop_back();
  return head;
}

void RequestHead::ToStock(RequestHead&& used) {
  Heads& heads = MyHeads();
  if (heads.closed || heads.list.size() >= kHeadsMax) return;
  used.Clear();
  heads.list.push_back(std::move(used));
}

}  // namespace net
