// Lists in texts. Pure functions, thread-safe.
#pragma once

#include <string_view>
#include <vector>

namespace base {

// The parts between commas, which live as long as `text`; nothing behind a comma at the end is no
// part, and an empty text has none.
std::vector<std::string_view> SplitAtCommas(std::string_view text);

}  // namespace base
