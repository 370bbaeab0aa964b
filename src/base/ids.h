// Identifiers as etcd computes them. Functions are pure; IdGenerator is thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace base {

std::array<uint8_t, 20> Sha1(std::string_view data);

// First 8 bytes, big-endian, of SHA-1(peer URLs sorted and joined without separator, then
// `suffix`). The suffix is the cluster token at bootstrap and restore, the decimal Unix seconds for
// a member added at run time.
uint64_t MemberId(std::vector<std::string> peer_urls, std::string_view suffix);
// First 8 bytes of SHA-1(ids ascending, 8 bytes big-endian each).
uint64_t ClusterId(std::vector<uint64_t> member_ids);

// Request ids that differ between members and between restarts: 16 bits of member id, 40 bits of
// start time in ms, a counter running over into them.
class IdGenerator {
 public:
  IdGenerator(uint64_t member_id, Duration wall_now);
  uint64_t Next() {
    return prefix_ | (next_.fetch_add(1, std::memory_order_relaxed) & kSuffixMask);
  }

 private:
  static constexpr uint64_t kSuffixMask = (1ULL << 48) - 1;
  const uint64_t prefix_;
  std::atomic<uint64_t> next_;
};

}  // namespace base
