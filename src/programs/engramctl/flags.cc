#include "flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "text.h"

namespace engramctl {
namespace {

absl::Status Invalid(std::string text) { return absl::InvalidArgumentError(text); }

// Words between commas; a part in double quotes may hold commas, "" inside it is one quote.
std::vector<std::string> SplitCsv(std::string_view text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  std::string part;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && quoted && i + 1 < text.size() && text[i + 1] == '"') {
      part += '"';
      ++i;
    } else if (c == '"' && (quoted || part.empty())) {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      parts.push_back(std::move(part));
      part.clear();
    } else {
      part += c;
    }
  }
  parts.push_back(std::move(part));
  return parts;
}

std::string_view TypeName(FlagType type) {
  switch (type) {
    case FlagType::kBool:
      return "";
    case FlagType::kString:
      return "string";
    case FlagType::kInt:
      return "int";
    case FlagType::kUint:
      return "uint";
    case FlagType::kDuration:
      return "duration";
    case FlagType::kStringList:
      return "strings";
  }
  return "";
}

}  // namespace

void FlagSet::Add(std::span<const FlagSpec> specs) {
  for (const FlagSpec& spec : specs) {
    Value value;
    value.spec = &spec;
    CHECK(spec.default_value.empty() || Assign(value, spec.default_value).ok());
    value.changed = false;
    CHECK(values_.emplace(spec.name, std::move(value)).second);
  }
}

absl::Status FlagSet::Assign(Value& value, std::string_view text) {
  switch (value.spec->type) {
    case FlagType::kBool: {
      ASSIGN_OR_RETURN(value.boolean, ParseBool(text));
      break;
    }
    case FlagType::kString:
      value.text = text;
      break;
    case FlagType::kInt: {
      ASSIGN_OR_RETURN(value.integer, ParseInt(text, 0));
      break;
    }
    case FlagType::kUint: {
      ASSIGN_OR_RETURN(value.unsigned_integer, ParseUint(text, 0));
      break;
    }
    case FlagType::kDuration: {
      ASSIGN_OR_RETURN(value.duration, ParseDuration(text));
      break;
    }
    case FlagType::kStringList: {
      std::vector<std::string> parts = SplitCsv(text);
      if (!value.changed) value.list.clear();
      value.list.insert(value.list.end(), parts.begin(), parts.end());
      break;
    }
  }
  value.changed = true;
  return absl::OkStatus();
}

absl::Status FlagSet::Set(const FlagSpec& spec, std::string_view text) {
  const absl::Status status = Assign(values_.find(spec.name)->second, text);
  if (status.ok()) return status;
  const std::string shown = spec.shorthand != 0
                                ? fmt::format("-{}, --{}", spec.shorthand, spec.name)
                                : fmt::format("--{}", spec.name);
  return Invalid(fmt::format("invalid argument {} for {} flag: {}", Quote(text), Quote(shown),
                             base::Message(status)));
}

absl::Status FlagSet::SetFromEnvironment(std::string_view name, std::string_view value) {
  const auto found = values_.find(name);
  CHECK(found != values_.end());
  RETURN_IF_ERROR(Assign(found->second, value));
  found->second.changed = false;
  return absl::OkStatus();
}

const FlagSpec* FlagSet::Find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : found->second.spec;
}

const FlagSpec* FlagSet::FindShorthand(char shorthand) const {
  for (const auto& [name, value] : values_) {
    if (value.spec->shorthand == shorthand) return value.spec;
  }
  return nullptr;
}

absl::StatusOr<size_t> FlagSet::ParseLong(std::span<const std::string> arguments, size_t i) {
  const std::string& argument = arguments[i];
  const std::string_view body = std::string_view(argument).substr(2);
  if (body.front() == '-' || body.front() == '=') {
    return Invalid(fmt::format("bad flag syntax: {}", argument));
  }
  const size_t equals = body.find('=');
  const std::string_view name = body.substr(0, equals);
  const FlagSpec* spec = Find(name);
  if (spec == nullptr && name == "help") {
    bool wanted = true;
    if (equals != std::string_view::npos) {
      const absl::StatusOr<bool> parsed = ParseBool(body.substr(equals + 1));
      if (!parsed.ok()) {
        return Invalid(fmt::format("invalid argument {} for \"-h, --help\" flag: {}",
                                   Quote(body.substr(equals + 1)), base::Message(parsed.status())));
      }
      wanted = *parsed;
    }
    help_wanted_ = wanted;
    return i + 1;
  }
  if (spec == nullptr) return Invalid(fmt::format("unknown flag: --{}", name));
  if (equals != std::string_view::npos) {
    RETURN_IF_ERROR(Set(*spec, body.substr(equals + 1)));
    return i + 1;
  }
  if (spec->type == FlagType::kBool) {
    RETURN_IF_ERROR(Set(*spec, "true"));
    return i + 1;
  }
  if (i + 1 >= arguments.size()) {
    return Invalid(fmt::format("flag needs an argument: {}", argument));
  }
  RETURN_IF_ERROR(Set(*spec, arguments[i + 1]));
  return i + 2;
}

absl::StatusOr<size_t> FlagSet::ParseShort(std::span<const std::string> arguments, size_t i) {
  std::string_view letters = std::string_view(arguments[i]).substr(1);
  while (!letters.empty()) {
    const char letter = letters.front();
    const std::string_view rest = letters.substr(1);
    const FlagSpec* spec = FindShorthand(letter);
    if (spec == nullptr && letter == 'h') {
      help_wanted_ = true;
      letters = rest;
      continue;
    }
    if (spec == nullptr) {
      return Invalid(fmt::format("unknown shorthand flag: {} in -{}", QuoteChar(letter), letters));
    }
    if (rest.size() >= 2 && rest.front() == '=') {
      RETURN_IF_ERROR(Set(*spec, rest.substr(1)));
      return i + 1;
    }
    if (spec->type == FlagType::kBool) {
      RETURN_IF_ERROR(Set(*spec, "true"));
      letters = rest;
      continue;
    }
    if (!rest.empty()) {
      RETURN_IF_ERROR(Set(*spec, rest));
      return i + 1;
    }
    if (i + 1 >= arguments.size()) {
      return Invalid(fmt::format("flag needs an argument: {} in -{}", QuoteChar(letter), letters));
    }
    RETURN_IF_ERROR(Set(*spec, arguments[i + 1]));
    return i + 2;
  }
  return i + 1;
}

absl::Status FlagSet::Parse(std::span<const std::string> arguments) {
  for (size_t i = 0; i < arguments.size();) {
    const std::string& argument = arguments[i];
    if (argument.size() < 2 || argument.front() != '-') {
      words_.push_back(argument);
      ++i;
    } else if (argument == "--") {
      dash_ = static_cast<int>(words_.size());
      words_.insert(words_.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    arguments.end());
      return absl::OkStatus();
    } else if (argument[1] == '-') {
      ASSIGN_OR_RETURN(i, ParseLong(arguments, i));
    } else {
      ASSIGN_OR_RETURN(i, ParseShort(arguments, i));
    }
  }
  return absl::OkStatus();
}

const FlagSet::Value& FlagSet::Get(std::string_view name, FlagType type) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end());
  CHECK(found->second.spec->type == type);
  return found->second;
}

bool FlagSet::Changed(std::string_view name) const {
  const auto found = values_.find(name);
  return found != values_.end() && found->second.changed;
}
bool FlagSet::Bool(std::string_view name) const { return Get(name, FlagType::kBool).boolean; }
const std::string& FlagSet::String(std::string_view name) const {
  return Get(name, FlagType::kString).text;
}
int64_t FlagSet::Int(std::string_view name) const { return Get(name, FlagType::kInt).integer; }
uint64_t FlagSet::Uint(std::string_view name) const {
  return Get(name, FlagType::kUint).unsigned_integer;
}
base::Duration FlagSet::Duration(std::string_view name) const {
  return Get(name, FlagType::kDuration).duration;
}
const std::vector<std::string>& FlagSet::List(std::string_view name) const {
  return Get(name, FlagType::kStringList).list;
}

std::vector<const FlagSpec*> FlagSet::specs() const {
  std::vector<const FlagSpec*> all;
  for (const auto& [name, value] : values_) all.push_back(value.spec);
  return all;
}

std::string FlagSet::Printed(std::string_view name) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end());
  const Value& value = found->second;
  switch (value.spec->type) {
    case FlagType::kBool:
      return value.boolean ? "true" : "false";
    case FlagType::kString:
      return value.text;
    case FlagType::kInt:
      return std::to_string(value.integer);
    case FlagType::kUint:
      return std::to_string(value.unsigned_integer);
    case FlagType::kDuration:
      return FormatDuration(value.duration);
    case FlagType::kStringList:
      return "[" + Join(value.list, ",") + "]";
  }
  return {};
}

std::string DescribeFlags(const FlagSet& flags) {
  struct Line {
    std::string left, right;
  };
  std::vector<Line> lines;
  size_t width = 0;
  for (const FlagSpec* spec : flags.specs()) {
    Line line;
    line.left = spec->shorthand != 0 ? fmt::format("  -{}, --{}", spec->shorthand, spec->name)
                                     : fmt::format("      --{}", spec->name);
    if (const std::string_view type = TypeName(spec->type); !type.empty()) {
      line.left += fmt::format(" {}", type);
    }
    line.right = spec->help;
    if (!spec->default_value.empty() && spec->default_value != "false" &&
        spec->default_value != "0") {
      if (spec->type == FlagType::kString) {
        line.right += fmt::format(" (default \"{}\")", spec->default_value);
      } else if (spec->type == FlagType::kStringList) {
        line.right += fmt::format(" (default [{}])", spec->default_value);
      } else {
        line.right += fmt::format(" (default {})", spec->default_value);
      }
    }
    width = std::max(width, line.left.size());
    lines.push_back(std::move(line));
  }
  std::string out;
  for (const Line& line : lines) {
    out += fmt::format("{:<{}}   {}\n", line.left, width, line.right);
  }
  return out;
}

}  // namespace engramctl
