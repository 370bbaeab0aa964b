// Randomness as a seam: production uses SystemRandom(), tests SeededRandom. SystemRandom() is
// thread-safe, SeededRandom belongs to one thread.
#pragma once

#include <cstdint>

namespace base {

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t Next() = 0;
  // Uniform in [0, bound); bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // True once in `n` on average; n > 0.
  bool OneIn(uint64_t n) { return Below(n) == 0; }
};

// xoshiro256**, seeded by splitmix64: the same seed gives the same sequence on every machine.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed);
  uint64_t Next() override;

 private:
  uint64_t s_[4];
};

// From the kernel's generator.
Random& SystemRandom();

}  // namespace base
