#include "catalog/schedule.h"

#include <algorithm>

#include "base/check.h"

namespace catalog {

Time NextDue(Time now, std::optional<Time> last, Time every) {
  CHECK(every > Time(0));
  if (!last || *last > now) return now;
  // Compared by difference, which cannot overflow.
  const Time since = now - *last;
  return since >= every ? now : now + (every - since);
}

}  // namespace catalog
