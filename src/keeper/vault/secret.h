// Secrets: memory that is wiped when it is left, and where a secret may come from: a file, the
// environment or a command, never the command line of ours, which everybody on the machine can
// read. Nothing here is logged, and no error holds a piece of a secret. Values belong to one
// thread; the functions are safe on any (ReadSecret blocks).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"

namespace vault {

// Overwrites in a way the compiler keeps.
void Wipe(void* data, size_t n);

// Key material of a fixed size. Copies are allowed, each wipes itself.
template <size_t N>
class SecretBytes {
 public:
  SecretBytes() = default;
  SecretBytes(const SecretBytes&) = default;
  SecretBytes& operator=(const SecretBytes&) = default;
  ~SecretBytes() { Wipe(bytes_.data(), N); }
  uint8_t* data() { return bytes_.data(); }
  const uint8_t* data() const { return bytes_.data(); }
  static constexpr size_t size() { return N; }
  std::span<const uint8_t, N> span() const { return bytes_; }
  std::span<uint8_t, N> span() { return bytes_; }

 private:
  std::array<uint8_t, N> bytes_{};
};

// A text that is wiped at its end and when something else is assigned.
class Secret {
 public:
  Secret() = default;
  // Takes the bytes over; the caller's string is wiped.
  explicit Secret(std::string&& text);
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  ~Secret();
  // Valid while the secret is.
  std::string_view view() const { return text_; }
  bool empty() const { return text_.empty(); }

 private:
  std::string text_;
};

inline constexpr size_t kSecretBytesMax = size_t{64} << 10;

// Exactly one of the three is set.
struct SecretOrigin {
  std::string file;         // refused when group or others may do anything with it
  std::string environment;  // the name of a variable
  std::string command;      // run by /bin/sh; its standard output is the secret
  base::Duration command_timeout = std::chrono::seconds(30);
};

// One newline at the end ("\n" or "\r\n") does not belong to the secret; an empty secret is
// refused, as is one beyond kSecretBytesMax. FailedPrecondition when the file's mode is too open,
// NotFound, InvalidArgument (no or several origins, empty), DeadlineExceeded (the command was
// killed).
absl::StatusOr<Secret> ReadSecret(base::Files& files, const SecretOrigin& origin);

}  // namespace vault
