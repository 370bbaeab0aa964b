// How an endpoint as a user types it becomes an address to dial. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace client {

enum class EndpointSecurity { kAlways, kNever, kAsConfigured };

struct Endpoint {
  std::string typed = {};   // as given, blanks trimmed
  std::string target = {};  // for grpc: "dns:///host:port" or "unix:path"
  std::string authority =
      {};                 // value of the :authority header; empty: grpc's default for the target
  std::string host = {};  // name a server certificate must carry: host without port
  EndpointSecurity security = EndpointSecurity::kAsConfigured;
};

// https:// and unixs:// are always encrypted, http://, unix:// and unix: never, anything else as
// configured. A text with an unknown scheme is kept as it is: dialling it fails, as with etcd's
// client.
Endpoint ParseEndpoint(std::string_view text);

}  // namespace client
