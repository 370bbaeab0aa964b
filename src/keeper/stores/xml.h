// The part of XML that S3 servers answer in: elements, text, the five entities and character
// references. Attributes are checked and dropped; comments and the declaration are passed over;
// document types, CDATA and processing instructions are refused. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace stores {

struct XmlElement {
  std::string name;
  std::string text;  // all text directly inside, without white space around it
  std::vector<XmlElement> children;

  // The first child of that name, or null; valid as long as the element is unchanged.
  const XmlElement* Child(std::string_view child) const;
  // Its text, "" when there is none.
  std::string_view TextOf(std::string_view child) const;
};

inline constexpr size_t kXmlDepthMax = 16;
inline constexpr size_t kXmlElementsMax = 50'000;

// The root element. InvalidArgument says at which byte the text is not what it should be.
absl::StatusOr<XmlElement> ParseXml(std::string_view text);
// For text inside an element.
std::string EscapeXml(std::string_view text);

}  // namespace stores
