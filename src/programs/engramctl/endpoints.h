// Which endpoints a command that talks to single members is meant for. Main thread only.
#pragma once

#include <string>
#include <vector>

#include "command.h"
#include "session.h"

namespace engramctl {

// The given endpoints, or with --cluster the client URLs of all members. Returns 0 or an exit
// status, the error printed.
int ListEndpoints(const Invocation& invocation, Session* session,
                  std::vector<std::string>* endpoints);

}  // namespace engramctl
