// zstd frames as streams. What is written here opens with `zstd -d`; what is read may come from any
// zstd. One thread each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vault/stream.h"

namespace vault {

inline constexpr int kLevelMin = 1;
inline constexpr int kLevelMax = 19;
// The largest window of those levels, and so the most memory that a frame may ask for: 8 MiB.
inline constexpr int kWindowLogMax = 23;

// One frame with a checksum of its content.
class ZstdSink final : public Sink {
 public:
  // Requires kLevelMin <= level <= kLevelMax; `next` outlives the sink.
  ZstdSink(int level, Sink& next);
  ~ZstdSink() override;
  absl::Status Write(std::string_view data) override;
  absl::Status Finish() override;

 private:
  struct Context;
  absl::Status Compress(std::string_view data, bool last);

  const std::unique_ptr<Context> context_;
  Sink& next_;
  std::string out_;
  absl::Status failure_;
};

// Exactly one frame: DataLoss when it is damaged, cut off, followed by anything, wants a larger
// window than kWindowLogMax or unpacks to more than `plain_bytes_max`, whose first bytes beyond are
// never handed out.
class ZstdSource final : public Source {
 public:
  ZstdSource(uint64_t plain_bytes_max, Source& from);
  ~ZstdSource() override;
  absl::StatusOr<size_t> Read(char* out, size_t n) override;

 private:
  struct Context;
  absl::StatusOr<size_t> Decompress(char* out, size_t n);
  absl::Status Fill();

  const std::unique_ptr<Context> context_;
  Source& from_;
  const uint64_t plain_bytes_max_;
  std::string in_;
  size_t in_at_ = 0;
  uint64_t packed_bytes_ = 0;  // read off `from_`
  uint64_t plain_bytes_ = 0;
  bool frame_ended_ = false;
  bool ended_ = false;
  absl::Status failure_;
};

}  // namespace vault
