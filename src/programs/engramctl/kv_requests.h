// From words and flags to key-value requests, shared by the commands and the lines of a txn. Main
// thread only.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flags.h"

namespace etcdserverpb {
class RangeRequest;
class PutRequest;
class DeleteRangeRequest;
}  // namespace etcdserverpb

namespace engramctl {

namespace pb = ::etcdserverpb;

// What is wrong with the words or flags, and the exit status that goes with it.
struct BadRequest {
  int code = 0;  // 0: nothing is
  std::string text;
  bool ok() const { return code == 0; }
};

std::span<const FlagSpec> GetFlags();
std::span<const FlagSpec> PutFlags();
std::span<const FlagSpec> DelFlags();

BadRequest ParseGet(const FlagSet& flags, std::span<const std::string> words,
                    pb::RangeRequest* request);
// A value that is missing among the words is read from standard input.
BadRequest ParsePut(const FlagSet& flags, std::span<const std::string> words,
                    pb::PutRequest* request);
BadRequest ParseDel(const FlagSet& flags, std::span<const std::string> words,
                    pb::DeleteRangeRequest* request);

// The end of the range of all keys that start with `prefix`; "\0" (no end) when there is none, or
// for an empty prefix.
std::string PrefixEnd(std::string_view prefix);
// Key and end of a range by prefix or from a key on; the empty key means the smallest one.
struct KeyRange {
  std::string key, end;
};
KeyRange PrefixRange(std::string_view prefix);
KeyRange FromKeyRange(std::string_view key);

}  // namespace engramctl
