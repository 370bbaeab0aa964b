#include "base/random.h"

#include <sys/random.h>

#include <bit>

#include "base/check.h"

namespace base {
namespace {

class KernelRandom final : public Random {
 public:
  uint64_t Next() override {
    uint64_t value = 0;
    CHECK(::getrandom(&value, sizeof value, 0) == static_cast<ssize_t>(sizeof value));
    return value;
  }
};

}  // namespace

SeededRandom::SeededRandom(uint64_t seed) {
  for (uint64_t& s : s_) {
    seed += 0x9e3779b97f4a7c15ULL;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    s = z ^ (z >> 31);
  }
}

uint64_t SeededRandom::Next() {
  const uint64_t result = std::rotl(s_[1] * 5, 7) * 9;
  const uint64_t t = s_[1] << 17;
  s_[2] ^= s_[0];
  s_[3] ^= s_[1];
  s_[1] ^= s_[2];
  s_[0] ^= s_[3];
  s_[2] ^= t;
  s_[3] = std::rotl(s_[3], 45);
  return result;
}

Random& SystemRandom() {
  static auto* const random = new KernelRandom;
  return *random;
}

}  // namespace base
