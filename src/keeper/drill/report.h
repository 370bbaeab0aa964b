// What a drill found, phase by phase. Plain values and pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "catalog/inventory.h"

namespace drill {

struct Phase {
  std::string name;
  base::Duration took{0};
  bool passed = true;
  std::string text;  // what was seen, or what is wrong
};

struct Report {
  std::string cluster;
  catalog::Timeline timeline;
  int64_t revision = 0;
  catalog::Time began{0};
  base::Duration rpo{0};  // age of the newest moment that could be restored
  std::vector<Phase> phases;
  // Names of what is wrong: "certificates", "decryption configuration", "endpoints", "revision",
  // "undecodable objects", ...
  std::vector<std::string> findings;

  bool Passed() const;
  base::Duration Rto() const;  // all phases together
};

// The signed part and the signature are made by the caller; this is what is signed.
std::string ReportJson(const Report& report);
// One page that needs nothing else.
std::string ReportHtml(const Report& report);

}  // namespace drill
