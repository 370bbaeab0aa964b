#include "catalog/schedule.h"

#include <algorithm>

#include "base/check.h"

namespace catalog {

Time NextFull(Time now, std::optional<Time> last_full, Time every) {
  CHECK(every > Time(0));
  if (!last_full || *last_full > now) return now;
  // Compared by difference, which cannot overflow.
  const Time since = now - *last_full;
  return since >= every ? now : now + (every - since);
}

}  // namespace catalog
