#include "txn_parse.h"

#include <fmt/format.h>

#include "base/status.h"
#include "command.h"
#include "proto/rpc.pb.h"
#include "text.h"

namespace engramctl {
namespace {

BadRequest BadInput(std::string text) { return {kExitInvalidInput, std::move(text)}; }

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

void SkipBlanks(std::string_view& rest) {
  while (!rest.empty() && IsBlank(rest.front())) rest.remove_prefix(1);
}

// Takes a quoted Go string off the front.
bool TakeQuoted(std::string_view& rest, std::string* out) {
  if (rest.empty() || (rest.front() != '"' && rest.front() != '`')) return false;
  size_t end = 1;
  while (end < rest.size() && rest[end] != rest.front()) {
    end += rest.front() == '"' && rest[end] == '\\' ? 2 : 1;
  }
  if (end >= rest.size() || !Unquote(rest.substr(0, end + 1), out)) return false;
  rest.remove_prefix(end + 1);
  return true;
}

struct CompareParts {
  std::string key, op, value;
};

// `("key") op "value"` as fmt.Sscanf("(%q) %s %q") reads it.
bool TakeCompareParts(std::string_view rest, CompareParts* parts) {
  rest.remove_prefix(1);  // the parenthesis
  if (!TakeQuoted(rest, &parts->key)) return false;
  if (rest.empty() || rest.front() != ')') return false;
  rest.remove_prefix(1);
  if (rest.empty() || !IsBlank(rest.front())) return false;
  SkipBlanks(rest);
  while (!rest.empty() && !IsBlank(rest.front())) {
    parts->op += rest.front();
    rest.remove_prefix(1);
  }
  if (parts->op.empty() || rest.empty()) return false;
  SkipBlanks(rest);
  return TakeQuoted(rest, &parts->value);
}

bool ParseOperator(std::string_view op, pb::Compare* compare) {
  if (op == "=") {
    compare->set_result(pb::Compare::EQUAL);
  } else if (op == "!=") {
    compare->set_result(pb::Compare::NOT_EQUAL);
  } else if (op == ">") {
    compare->set_result(pb::Compare::GREATER);
  } else if (op == "<") {
    compare->set_result(pb::Compare::LESS);
  } else {
    return false;
  }
  return true;
}

}  // namespace

BadRequest ParseCompare(std::string_view line, pb::Compare* compare) {
  const size_t parenthesis = line.find('(');
  if (parenthesis == std::string_view::npos) {
    return BadInput(fmt::format("malformed comparison: {}", line));
  }
  const std::string_view target = line.substr(0, parenthesis);
  CompareParts parts;
  if (!TakeCompareParts(line.substr(parenthesis), &parts)) {
    return BadInput(fmt::format("malformed comparison: {}; got {}({}) {} {}", line, target,
                                Quote(parts.key), parts.op, Quote(parts.value)));
  }
  compare->set_key(parts.key);
  const bool is_value = target == "val" || target == "value";
  const bool is_lease = target == "lease";
  absl::StatusOr<int64_t> number = 0;
  if (is_value) {
    compare->set_target(pb::Compare::VALUE);
    compare->set_value(parts.value);
  } else {
    number = ParseInt(parts.value, is_lease ? 16 : 10);
  }
  const int64_t n = number.ok() ? *number : 0;
  if (target == "ver" || target == "version") {
    compare->set_target(pb::Compare::VERSION);
    compare->set_version(n);
  } else if (target == "c" || target == "create") {
    compare->set_target(pb::Compare::CREATE);
    compare->set_create_revision(n);
  } else if (target == "m" || target == "mod") {
    compare->set_target(pb::Compare::MOD);
    compare->set_mod_revision(n);
  } else if (is_lease) {
    compare->set_target(pb::Compare::LEASE);
    compare->set_lease(n);
  } else if (!is_value) {
    return BadInput(fmt::format("malformed comparison: {} (unknown target {})", line, target));
  }
  if (!number.ok()) return BadInput(fmt::format("invalid txn compare request: {}", line));
  if (!ParseOperator(parts.op, compare)) {
    return BadInput(fmt::format("malformed comparison: {} (unknown operator {})", line, parts.op));
  }
  return {};
}

BadRequest SplitWords(std::string_view line, std::vector<std::string>* words) {
  std::string_view rest = line;
  for (SkipBlanks(rest); !rest.empty(); SkipBlanks(rest)) {
    std::string word;
    if (rest.front() == '\'') {
      const size_t end = rest.find('\'', 1);
      if (end == std::string_view::npos) {
        rest.remove_prefix(1);  // a lone quote is skipped
        continue;
      }
      word = rest.substr(1, end - 1);
      rest.remove_prefix(end + 1);
    } else if (rest.front() == '"') {
      if (!TakeQuoted(rest, &word)) {
        size_t end = 1;
        while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
        if (end < rest.size()) return BadInput("invalid syntax");  // closed, but with a bad escape
        rest.remove_prefix(1);
        continue;
      }
    } else {
      while (!rest.empty() && !IsBlank(rest.front())) {
        word += rest.front();
        rest.remove_prefix(1);
      }
    }
    words->push_back(std::move(word));
  }
  return {};
}

BadRequest ParseRequestLine(std::string_view line, pb::RequestOp* op) {
  std::vector<std::string> words;
  if (BadRequest bad = SplitWords(line, &words); !bad.ok()) return bad;
  if (words.size() < 2) return BadInput(fmt::format("invalid txn compare request: {}", line));
  const std::string& name = words[0];
  const bool is_put = name == "put";
  const bool is_get = name == "get";
  if (!is_put && !is_get && name != "del") {
    return BadInput(fmt::format("invalid txn request: {}", line));
  }
  FlagSet flags;
  flags.Add(is_put ? PutFlags() : is_get ? GetFlags() : DelFlags());
  const std::span<const std::string> arguments = std::span(words).subspan(1);
  if (!flags.Parse(arguments).ok() || flags.help_wanted()) {
    return BadInput(fmt::format("invalid txn request: {}", line));
  }
  if (is_put) {
    // The input is the transaction: there is nothing to read a value from.
    if (flags.words().size() == 1 && !flags.Bool("ignore-value")) {
      return {kExitBadArguments,
              "put command needs 1 argument and input from stdin or 2 arguments"};
    }
    return ParsePut(flags, flags.words(), op->mutable_request_put());
  }
  if (is_get) return ParseGet(flags, flags.words(), op->mutable_request_range());
  return ParseDel(flags, flags.words(), op->mutable_request_delete_range());
}

}  // namespace engramctl
