#include "stores/xml.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/status.h"

namespace stores {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':';
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<XmlElement> Run() {
    Take("\xef\xbb\xbf");  // a byte order mark
    if (Take("<?xml")) RETURN_IF_ERROR(SkipPast("?>"));
    RETURN_IF_ERROR(SkipBlanks());
    XmlElement root;
    RETURN_IF_ERROR(ParseElement(1, &root));
    RETURN_IF_ERROR(SkipBlanks());
    if (at_ != text_.size()) return Malformed("something follows the root element");
    return root;
  }

 private:
  absl::Status Malformed(std::string_view what) const {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "XML, byte {}: {}", at_, what);
  }
  std::string_view Rest() const { return text_.substr(at_); }
  bool Take(std::string_view token) {
    if (!Rest().starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  absl::Status SkipPast(std::string_view token) {
    const size_t found = text_.find(token, at_);
    if (found == std::string_view::npos) return Malformed("cut off");
    at_ = found + token.size();
    return absl::OkStatus();
  }
  void SkipSpace() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
  }
  absl::Status SkipBlanks() {
    while (true) {
      SkipSpace();
      if (!Take("<!--")) return absl::OkStatus();
      RETURN_IF_ERROR(SkipPast("-->"));
    }
  }

  absl::Status ParseName(std::string_view* name) {
    const size_t start = at_;
    while (at_ < text_.size() && IsNameCharacter(text_[at_])) ++at_;
    *name = text_.substr(start, at_ - start);
    return name->empty() ? Malformed("a name is missing") : absl::OkStatus();
  }

  absl::Status ParseElement(size_t depth, XmlElement* element) {
    if (depth > kXmlDepthMax) return Malformed("nested too deeply");
    if (++elements_ > kXmlElementsMax) return Malformed("too many elements");
    if (!Take("<")) return Malformed("an element is missing");
    std::string_view name;
    RETURN_IF_ERROR(ParseName(&name));
    element->name = name;
    bool empty = false;
    RETURN_IF_ERROR(SkipAttributes(&empty));
    return empty ? absl::OkStatus() : ParseInside(depth, element);
  }

  // Up to and with '>' or "/>".
  absl::Status SkipAttributes(bool* empty) {
    while (true) {
      const size_t before = at_;
      SkipSpace();
      if (Take(">")) return absl::OkStatus();
      if (Take("/>")) {
        *empty = true;
        return absl::OkStatus();
      }
      if (at_ == before) return Malformed("malformed tag");
      std::string_view name;
      RETURN_IF_ERROR(ParseName(&name));
      SkipSpace();
      if (!Take("=")) return Malformed("an attribute without a value");
      SkipSpace();
      const std::string_view quote = Rest().substr(0, 1);
      if (quote != "\"" && quote != "'") return Malformed("an attribute without quotes");
      ++at_;
      RETURN_IF_ERROR(SkipPast(quote));
    }
  }

  absl::Status ParseInside(size_t depth, XmlElement* element) {
    while (at_ < text_.size()) {
      if (Take("</")) {
        std::string_view name;
        RETURN_IF_ERROR(ParseName(&name));
        SkipSpace();
        if (name != element->name || !Take(">")) return Malformed("the wrong element is closed");
        Trim(&element->text);
        return absl::OkStatus();
      }
      if (Take("<!--")) {
        RETURN_IF_ERROR(SkipPast("-->"));
      } else if (text_[at_] == '<') {
        RETURN_IF_ERROR(ParseElement(depth + 1, &element->children.emplace_back()));
      } else if (text_[at_] == '&') {
        RETURN_IF_ERROR(ParseReference(&element->text));
      } else {
        const size_t end = std::min(text_.find_first_of("<&", at_), text_.size());
        element->text.append(text_.substr(at_, end - at_));
        at_ = end;
      }
    }
    return Malformed("cut off");
  }

  absl::Status ParseReference(std::string* out) {
    static constexpr struct {
      std::string_view name;
      char character;
    } kEntities[] = {
        {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (const auto& entity : kEntities) {
      if (Take(entity.name)) {
        out->push_back(entity.character);
        return absl::OkStatus();
      }
    }
    if (!Take("&#")) return Malformed("an unknown entity");
    const int base = Take("x") ? 16 : 10;
    uint32_t code = 0;
    const std::string_view digits = Rest();
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    at_ += static_cast<size_t>(end - digits.data());
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    if (error != std::errc() || code == 0 || code > 0x10ffff || surrogate || !Take(";")) {
      return Malformed("a malformed character reference");
    }
    AppendUtf8(code, out);
    return absl::OkStatus();
  }

  static void Trim(std::string* text) {
    while (!text->empty() && IsSpace(text->back())) text->pop_back();
    text->erase(0, std::min(text->find_first_not_of(" \n\r\t"), text->size()));
  }

  const std::string_view text_;
  size_t at_ = 0;
  size_t elements_ = 0;
};

}  // namespace

const XmlElement* XmlElement::Child(std::string_view child) const {
  for (const XmlElement& element : children) {
    if (element.name == child) return &element;
  }
  return nullptr;
}

std::string_view XmlElement::TextOf(std::string_view child) const {
  const XmlElement* const element = Child(child);
  return element == nullptr ? std::string_view() : std::string_view(element->text);
}

absl::StatusOr<XmlElement> ParseXml(std::string_view text) { return Parser(text).Run(); }

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace stores
