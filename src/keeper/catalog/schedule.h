// When what is done at intervals is due. Pure functions, thread-safe.
#pragma once

#include <optional>

#include "catalog/inventory.h"

namespace catalog {

// `last` is the wall time of the last time: of a full, when it was asked for, on this timeline. The
// next is due at once (`now`) where there was none or the interval has passed, however often it was
// missed. A clock that stepped back puts the last time into the future: then the next is due at
// once as well, for waiting until the clock catches up may take for ever, and one too many costs
// little.
// There is no jitter: keepers of one cluster need not avoid each other, since each asks another
// member, and a plain rhythm is what people check by eye. Requires every > 0.
Time NextDue(Time now, std::optional<Time> last, Time every);

}  // namespace catalog
