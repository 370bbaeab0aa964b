// Status helpers the packaged Abseil lacks. Everything here is thread-safe.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace base {

// The packaged absl::string_view is a type of its own; our interfaces speak std::string_view.
inline std::string_view Message(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

// A status of `code` whose message is formatted as by fmt::format.
template <typename... Args>
absl::Status MakeStatus(absl::StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return absl::Status(code, fmt::format(format, std::forward<Args>(args)...));
}

// The same code with `context: ` before the message. Add context once, where the operation is
// known.
inline absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("{}: {}", context, Message(status)));
}

}  // namespace base

#define ENGRAM_CONCAT_INNER(a, b) a##b
#define ENGRAM_CONCAT(a, b) ENGRAM_CONCAT_INNER(a, b)

// Returns the status of `expr` from the enclosing function unless it is OK.
#define RETURN_IF_ERROR(expr)                                                              \
  do {                                                                                     \
    if (absl::Status engram_status_ = (expr); !engram_status_.ok()) return engram_status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): assigns the value, or returns the status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER(ENGRAM_CONCAT(engram_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                           \
  if (!tmp.ok()) return tmp.status();          \
  lhs = std::move(tmp).value()
