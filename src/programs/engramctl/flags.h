// Command-line flags with the grammar of Go's pflag, which scripts written for etcdctl rely on:
// --x=v, --x v, -xv, -x=v, -x v, flags anywhere among the words, `--` ends them. Tables say what
// exists; FlagSet holds what was given. Main thread only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace engramctl {

enum class FlagType { kBool, kString, kInt, kUint, kDuration, kStringList };

struct FlagSpec {
  std::string_view name;
  FlagType type = FlagType::kString;
  std::string_view default_value =
      {};  // in the notation of the command line; empty: the type's zero
  std::string_view help = {};
  char shorthand = 0;
};

// One parsed command line. The specs outlive it.
class FlagSet {
 public:
  // Adds a table; a name must not occur twice. --help/-h is always known.
  void Add(std::span<const FlagSpec> specs);

  // Parses `arguments`; words that are no flags go to words(). The error is pflag's text. When
  // --help is met, parsing ends with help_wanted() set.
  absl::Status Parse(std::span<const std::string> arguments);

  // As if given on the command line, but not counted as changed. Values that do not parse are an
  // error.
  absl::Status SetFromEnvironment(std::string_view name, std::string_view value);

  bool help_wanted() const { return help_wanted_; }
  // True when the flag was on the command line.
  bool Changed(std::string_view name) const;

  bool Bool(std::string_view name) const;
  const std::string& String(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  uint64_t Uint(std::string_view name) const;
  base::Duration Duration(std::string_view name) const;
  const std::vector<std::string>& List(std::string_view name) const;

  const std::vector<std::string>& words() const { return words_; }
  // Index in words() of the first word after `--`, or -1.
  int words_before_dash() const { return dash_; }
  // Sorted by name, for help.
  std::vector<const FlagSpec*> specs() const;
  const FlagSpec* Find(std::string_view name) const;
  const FlagSpec* FindShorthand(char shorthand) const;
  // The value as it would be printed: 5s, [a b], true.
  std::string Printed(std::string_view name) const;

 private:
  struct Value {
    const FlagSpec* spec = nullptr;
    bool changed = false;
    bool boolean = false;
    std::string text = {};
    int64_t integer = 0;
    uint64_t unsigned_integer = 0;
    base::Duration duration{};
    std::vector<std::string> list = {};
  };

  const Value& Get(std::string_view name, FlagType type) const;
  absl::Status Assign(Value& value, std::string_view text);
  absl::Status Set(const FlagSpec& spec, std::string_view text);
  absl::StatusOr<size_t> ParseLong(std::span<const std::string> arguments, size_t i);
  absl::StatusOr<size_t> ParseShort(std::span<const std::string> arguments, size_t i);

  std::map<std::string_view, Value> values_;
  std::vector<std::string> words_;
  int dash_ = -1;
  bool help_wanted_ = false;
};

// The "Flags:" lines of a help text, two columns.
std::string DescribeFlags(const FlagSet& flags);

}  // namespace engramctl
