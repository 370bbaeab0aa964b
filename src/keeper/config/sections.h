// The readers of the file's sections, split by subject; load.cc calls them. Internal to this
// folder; one thread.
#pragma once

#include <set>
#include <string>

#include "config/config.h"
#include "config/fields.h"

namespace config {

// One entry of `stores`.
Store ReadStore(Fields* fields);
// What one entry of `clusters` may refer to.
struct Surroundings {
  std::set<std::string, std::less<>> stores;  // names, also those of stores with faults
  bool can_decrypt = false;                   // an identity is given, or nothing is encrypted
};
Cluster ReadCluster(Fields* fields, const Surroundings& surroundings);
// `policy` (a name or a map) of a cluster; `retention` must fit it.
Policy ReadPolicy(Fields* cluster);
Retention ReadRetention(Fields* cluster, const Policy& policy);

// A name that becomes part of paths and labels: letters, digits, - _ and ., not first; up to 63.
bool IsName(std::string_view name);

}  // namespace config
