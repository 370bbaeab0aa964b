#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace base {

void CheckFailed(const char* file, int line, const char* condition, std::string_view detail) {
  std::fprintf(stderr, "CHECK failed: %s%s%.*s%s at %s:%d\n", condition, detail.empty() ? "" : " (",
               static_cast<int>(detail.size()), detail.data(), detail.empty() ? "" : ")", file,
               line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace base
