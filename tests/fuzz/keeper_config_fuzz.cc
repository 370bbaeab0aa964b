// Arbitrary text as the keeper's configuration. What is refused is refused with lines that name the
// file; what is accepted is described, read back as the same, and holds no fault.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/status.h"
#include "config/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto loaded = config::Parse(text, "k.yaml");
  if (!loaded.ok()) {
    CHECK(loaded.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(base::Message(loaded.status()).starts_with("k.yaml:"));
    return 0;
  }
  const std::string described = config::Describe(loaded->config);
  const auto again = config::Parse(described, "described.yaml");
  CHECK(again.ok());
  CHECK(config::Describe(again->config) == described);
  return 0;
}
