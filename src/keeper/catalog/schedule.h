// When the next full is due. Pure functions, thread-safe.
#pragma once

#include <optional>

#include "catalog/inventory.h"

namespace catalog {

// `last_full` is the wall time at which the last full was asked for, on this timeline. A full is
// due at once (`now`) where there is none or the interval has passed, however often it was missed.
// A clock that stepped back puts the last full into the future: then one is due at once as well,
// for waiting until the clock catches up may take for ever, and one full too many costs little.
// There is no jitter: keepers of one cluster need not avoid each other, since each asks another
// member, and a plain rhythm is what people check by eye. Requires every > 0.
Time NextFull(Time now, std::optional<Time> last_full, Time every);

}  // namespace catalog
