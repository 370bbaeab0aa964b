// The language of `txn`: comparison lines and request lines. Pure but for `put` without a value,
// which the parser rejects (standard input is the transaction itself). Main thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kv_requests.h"

namespace etcdserverpb {
class Compare;
class RequestOp;
}  // namespace etcdserverpb

namespace engramctl {

// `mod("key") > "0"`; targets ver/version, c/create, m/mod, val/value, lease (a hex id).
BadRequest ParseCompare(std::string_view line, pb::Compare* compare);
// `put [flags] key value`, `get ...`, `del ...`.
BadRequest ParseRequestLine(std::string_view line, pb::RequestOp* op);
// Words of a line; "..." with Go's escapes, '...' as it is.
BadRequest SplitWords(std::string_view line, std::vector<std::string>* words);

}  // namespace engramctl
