// CHECK stays on in release builds and guards what would corrupt data or break consensus; DCHECK is
// for costly checks in debug and sanitizer builds. Never for bytes from disk, network or users:
// those yield a status. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace base {

// Prints "CHECK failed: <condition> (<detail>) at file:line" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view detail);

}  // namespace base

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) [[unlikely]]                             \
      ::base::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

// CHECK_OP(a, <=, b) prints both values.
#define CHECK_OP(a, op, b)                                                  \
  do {                                                                      \
    const auto& engram_a_ = (a);                                            \
    const auto& engram_b_ = (b);                                            \
    if (!(engram_a_ op engram_b_)) [[unlikely]]                             \
      ::base::CheckFailed(__FILE__, __LINE__, #a " " #op " " #b,            \
                          ::fmt::format("{} vs {}", engram_a_, engram_b_)); \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition) \
  do {                    \
    if (false) {          \
      (void)(condition);  \
    }                     \
  } while (false)
#else
#define DCHECK(condition) CHECK(condition)
#endif
