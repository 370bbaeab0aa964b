#include "stores/names.h"

#include <string>

#include "base/status.h"

namespace stores {
namespace {

bool MayBeInName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '=' || c == '-';
}

absl::Status Bad(std::string_view name, std::string_view what) {
  // Whatever the bytes are, the message is one line of text.
  std::string shown;
  for (const char c : name.substr(0, kNameBytesMax)) shown += MayBeInName(c) || c == '/' ? c : '?';
  return base::MakeStatus(absl::StatusCode::kInvalidArgument, "object name \"{}\": {}", shown,
                          what);
}

// `open`: the last part may still grow.
absl::Status Check(std::string_view name, bool open) {
  if (name.size() > kNameBytesMax) return Bad(name, "longer than 700 bytes");
  std::string_view rest = name;
  while (true) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    const bool last = slash == std::string_view::npos;
    if (part.empty() && !(last && open)) return Bad(name, "has an empty part");
    if (part.starts_with('.')) return Bad(name, "a part begins with '.'");
    if (part.size() > kPartBytesMax) return Bad(name, "a part is longer than 200 bytes");
    for (const char c : part) {
      if (!MayBeInName(c)) return Bad(name, "only letters, digits, '.', '_', '=', '-' and '/'");
    }
    if (last) return absl::OkStatus();
    rest.remove_prefix(slash + 1);
  }
}

}  // namespace

absl::Status CheckName(std::string_view name) { return Check(name, false); }
absl::Status CheckPrefix(std::string_view prefix) { return Check(prefix, true); }

}  // namespace stores
