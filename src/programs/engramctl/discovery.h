// Finds client endpoints by DNS SRV records, as --discovery-srv asks. Any thread; blocks on the
// resolver.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace engramctl {

// Looks up _etcd-client-ssl[-NAME]._tcp.DOMAIN (https:// endpoints) and
// _etcd-client[-NAME]._tcp.DOMAIN (http://). With accept_insecure false the http ones are dropped.
// NotFound when there are no records at all.
absl::StatusOr<std::vector<std::string>> DiscoverEndpoints(std::string_view domain,
                                                           std::string_view name,
                                                           bool accept_insecure);

}  // namespace engramctl
