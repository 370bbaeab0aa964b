#include "kv_requests.h"

#include <fmt/format.h>

#include "base/status.h"
#include "command.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr FlagSpec kGetFlags[] = {
    {.name = "consistency",
     .default_value = "l",
     .help = "l: linearizable; s: serializable, from the member's own state"},
    {.name = "order", .help = "ASCEND or DESCEND (default ASCEND)"},
    {.name = "sort-by", .help = "CREATE, KEY, MODIFY, VALUE or VERSION"},
    {.name = "limit", .type = FlagType::kInt, .help = "largest number of results"},
    {.name = "prefix", .type = FlagType::kBool, .help = "all keys with this prefix"},
    {.name = "from-key", .type = FlagType::kBool, .help = "all keys from this one on"},
    {.name = "rev", .type = FlagType::kInt, .help = "state at this revision"},
    {.name = "keys-only", .type = FlagType::kBool, .help = "keys without values"},
    {.name = "count-only", .type = FlagType::kBool, .help = "only the number of keys"},
    {.name = "print-value-only",
     .type = FlagType::kBool,
     .help = "print values alone (simple format)"},
    {.name = "min-create-rev", .type = FlagType::kInt, .help = "keys created at or after it"},
    {.name = "max-create-rev", .type = FlagType::kInt, .help = "keys created at or before it"},
    {.name = "min-mod-rev", .type = FlagType::kInt, .help = "keys modified at or after it"},
    {.name = "max-mod-rev", .type = FlagType::kInt, .help = "keys modified at or before it"},
    {.name = "stream", .type = FlagType::kBool, .help = "fetch in chunks by the RangeStream call"},
};

constexpr FlagSpec kPutFlags[] = {
    {.name = "lease", .default_value = "0", .help = "lease id in hex to bind the key to"},
    {.name = "prev-kv", .type = FlagType::kBool, .help = "show what the key held before"},
    {.name = "ignore-value", .type = FlagType::kBool, .help = "keep the value the key has"},
    {.name = "ignore-lease", .type = FlagType::kBool, .help = "keep the lease the key has"},
};

constexpr FlagSpec kDelFlags[] = {
    {.name = "prefix", .type = FlagType::kBool, .help = "all keys with this prefix"},
    {.name = "from-key", .type = FlagType::kBool, .help = "all keys from this one on"},
    {.name = "prev-kv", .type = FlagType::kBool, .help = "show what was deleted"},
    {.name = "range", .type = FlagType::kBool, .help = "a range is meant: do not wait"},
};

constexpr std::string_view kPrefixAndFromKey =
    "`--prefix` and `--from-key` cannot be set at the same time, choose one";
constexpr std::string_view kTooManyForRange =
    "too many arguments, only accept one argument when `--prefix` or `--from-key` is set";

BadRequest Bad(int code, std::string_view text) { return {code, std::string(text)}; }
BadRequest BadArguments(std::string_view text) { return Bad(kExitBadArguments, text); }

// --prefix and --from-key of get and del.
BadRequest RangeByFlags(const FlagSet& flags, std::span<const std::string> words, KeyRange* range) {
  if (flags.Bool("prefix") && flags.Bool("from-key")) return BadArguments(kPrefixAndFromKey);
  const bool by_flag = flags.Bool("prefix") || flags.Bool("from-key");
  if (words.size() > 1 && by_flag) return BadArguments(kTooManyForRange);
  if (flags.Bool("prefix")) {
    *range = PrefixRange(words[0]);
  } else if (flags.Bool("from-key")) {
    *range = FromKeyRange(words[0]);
  } else {
    *range = {words[0], words.size() > 1 ? words[1] : ""};
  }
  return {};
}

BadRequest ParseSort(const FlagSet& flags, pb::RangeRequest* request) {
  const std::string order = ToUpper(flags.String("order"));
  if (order == "ASCEND") {
    request->set_sort_order(pb::RangeRequest::ASCEND);
  } else if (order == "DESCEND") {
    request->set_sort_order(pb::RangeRequest::DESCEND);
  } else if (!order.empty()) {
    return Bad(kExitBadFeature, fmt::format("bad sort order {}", flags.String("order")));
  }
  const std::string target = ToUpper(flags.String("sort-by"));
  if (target == "CREATE") {
    request->set_sort_target(pb::RangeRequest::CREATE);
  } else if (target == "MODIFY") {
    request->set_sort_target(pb::RangeRequest::MOD);
  } else if (target == "VALUE") {
    request->set_sort_target(pb::RangeRequest::VALUE);
  } else if (target == "VERSION") {
    request->set_sort_target(pb::RangeRequest::VERSION);
  } else if (!target.empty() && target != "KEY") {
    return Bad(kExitBadFeature, fmt::format("bad sort target {}", flags.String("sort-by")));
  }
  // Ascending by key is how answers come anyway; saying so would only cost the server a sort.
  if (request->sort_target() == pb::RangeRequest::KEY &&
      request->sort_order() == pb::RangeRequest::ASCEND) {
    request->set_sort_order(pb::RangeRequest::NONE);
  }
  return {};
}

}  // namespace

std::span<const FlagSpec> GetFlags() { return kGetFlags; }
std::span<const FlagSpec> PutFlags() { return kPutFlags; }
std::span<const FlagSpec> DelFlags() { return kDelFlags; }

std::string PrefixEnd(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<uint8_t>(end.back()) == 0xff) end.pop_back();
  if (end.empty()) return std::string(1, '\0');
  end.back() = static_cast<char>(static_cast<uint8_t>(end.back()) + 1);
  return end;
}

KeyRange PrefixRange(std::string_view prefix) {
  if (prefix.empty()) return {std::string(1, '\0'), std::string(1, '\0')};
  return {std::string(prefix), PrefixEnd(prefix)};
}

KeyRange FromKeyRange(std::string_view key) {
  return {key.empty() ? std::string(1, '\0') : std::string(key), std::string(1, '\0')};
}

BadRequest ParseGet(const FlagSet& flags, std::span<const std::string> words,
                    pb::RangeRequest* request) {
  if (words.empty()) {
    return BadArguments(
        "get command needs one argument as key and an optional argument as range_end");
  }
  if (flags.Bool("prefix") && flags.Bool("from-key")) return BadArguments(kPrefixAndFromKey);
  if (flags.Bool("keys-only") && flags.Bool("count-only")) {
    return BadArguments(
        "`--keys-only` and `--count-only` cannot be set at the same time, choose one");
  }
  const std::string& consistency = flags.String("consistency");
  if (consistency == "s") {
    request->set_serializable(true);
  } else if (consistency != "l") {
    return Bad(kExitBadFeature,
               fmt::format("unknown consistency flag {}", Quote(flags.String("consistency"))));
  }
  KeyRange range;
  if (BadRequest bad = RangeByFlags(flags, words, &range); !bad.ok()) return bad;
  request->set_key(range.key);
  request->set_range_end(range.end);
  request->set_limit(flags.Int("limit"));
  if (flags.Int("rev") > 0) request->set_revision(flags.Int("rev"));
  if (BadRequest bad = ParseSort(flags, request); !bad.ok()) return bad;
  request->set_keys_only(flags.Bool("keys-only"));
  request->set_count_only(flags.Bool("count-only"));
  if (flags.Int("min-create-rev") > 0)
    request->set_min_create_revision(flags.Int("min-create-rev"));
  if (flags.Int("max-create-rev") > 0)
    request->set_max_create_revision(flags.Int("max-create-rev"));
  if (flags.Int("min-mod-rev") > 0) request->set_min_mod_revision(flags.Int("min-mod-rev"));
  if (flags.Int("max-mod-rev") > 0) request->set_max_mod_revision(flags.Int("max-mod-rev"));
  return {};
}

BadRequest ParsePut(const FlagSet& flags, std::span<const std::string> words,
                    pb::PutRequest* request) {
  constexpr std::string_view kUsage =
      "put command needs 1 argument and input from stdin or 2 arguments";
  if (words.empty()) return BadArguments(kUsage);
  const bool ignore_value = flags.Bool("ignore-value");
  if (ignore_value && words.size() > 1) {
    return BadArguments("put command needs only 1 argument when 'ignore-value' is set");
  }
  request->set_key(words[0]);
  const absl::StatusOr<int64_t> lease = ParseInt(flags.String("lease"), 16);
  std::string value;
  if (words.size() > 1) {
    value = words[1];
  } else if (!ignore_value) {
    // An empty input counts as none: an empty value must be given as an argument.
    if (!ReadAllInput(&value).ok() || value.empty()) return BadArguments(kUsage);
  }
  request->set_value(std::move(value));
  if (!lease.ok()) {
    return BadArguments(
        fmt::format("bad lease ID ({}), expecting ID in Hex", base::Message(lease.status())));
  }
  request->set_lease(*lease);
  request->set_prev_kv(flags.Bool("prev-kv"));
  request->set_ignore_value(ignore_value);
  request->set_ignore_lease(flags.Bool("ignore-lease"));
  return {};
}

BadRequest ParseDel(const FlagSet& flags, std::span<const std::string> words,
                    pb::DeleteRangeRequest* request) {
  if (words.empty() || words.size() > 2) {
    return BadArguments(
        "del command needs one argument as key and an optional argument as range_end");
  }
  KeyRange range;
  if (BadRequest bad = RangeByFlags(flags, words, &range); !bad.ok()) return bad;
  request->set_key(range.key);
  request->set_range_end(range.end);
  request->set_prev_kv(flags.Bool("prev-kv"));
  return {};
}

}  // namespace engramctl
