#include "command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/status.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr size_t kSuggestionDistanceMax = 2;

// True when a flag takes no separate argument. Unknown ones count as taking one: so a misplaced
// flag swallows the next word, as it does in etcdctl.
bool StandsAlone(const FlagSet& flags, std::string_view argument) {
  if (argument.substr(0, 2) == "--") {
    const std::string_view name = argument.substr(2);
    if (name == "help") return true;
    const FlagSpec* spec = flags.Find(name);
    return spec != nullptr && spec->type == FlagType::kBool;
  }
  if (argument[1] == 'h') return true;
  const FlagSpec* spec = flags.FindShorthand(argument[1]);
  return spec != nullptr && spec->type == FlagType::kBool;
}

bool TakesNext(const FlagSet& flags, std::string_view argument) {
  if (argument.find('=') != std::string_view::npos) return false;
  const bool is_long = argument.size() > 2 && argument.substr(0, 2) == "--";
  const bool is_short = argument.size() == 2 && argument[0] == '-' && argument != "--";
  return (is_long || is_short) && !StandsAlone(flags, argument);
}

// Position of the first word that is no flag and no flag's value, or npos.
size_t FirstWord(const FlagSet& flags, std::span<const std::string> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") return std::string::npos;
    if (TakesNext(flags, argument)) {
      ++i;
    } else if (!argument.empty() && argument.front() != '-') {
      return i;
    }
  }
  return std::string::npos;
}

const Command* FindSubcommand(const Command& parent, std::string_view word) {
  std::vector<const Command*> prefixed;
  for (const Command& command : parent.commands) {
    if (command.name == word) return &command;
    if (command.name.substr(0, word.size()) == word) prefixed.push_back(&command);
  }
  return prefixed.size() == 1 ? prefixed.front() : nullptr;
}

std::string Suggestions(const Command& root, std::string_view word) {
  std::string out;
  const std::string lower = ToLower(word);
  for (const Command& command : root.commands) {
    if (EditDistance(lower, command.name) <= kSuggestionDistanceMax ||
        command.name.substr(0, lower.size()) == lower) {
      out += fmt::format("\t{}\n", command.name);
    }
  }
  return out.empty() ? "" : "\n\nDid you mean this?\n" + out;
}

void DescribeCommands(const Command& command, std::string* out) {
  size_t width = 0;
  for (const Command& sub : command.commands) width = std::max(width, sub.name.size());
  width = std::max<size_t>(width, 11);
  std::vector<const Command*> sorted;
  std::vector<std::string_view> groups;
  for (const Command& sub : command.commands) {
    sorted.push_back(&sub);
    if (std::find(groups.begin(), groups.end(), sub.group) == groups.end()) {
      groups.push_back(sub.group);
    }
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Command* a, const Command* b) { return a->name < b->name; });
  for (const std::string_view group : groups) {
    *out += fmt::format("\n{}\n", group.empty() ? "Available Commands:" : group);
    for (const Command* sub : sorted) {
      if (sub->group == group) {
        *out += fmt::format("  {:<{}} {}\n", sub->name, width, sub->summary);
      }
    }
  }
}

constexpr FlagSpec kHelpFlag[] = {
    {.name = "help", .type = FlagType::kBool, .help = "print this text", .shorthand = 'h'}};

// The text that also follows a usage error.
std::string UsageText(const Command& root, const Command& command, std::string_view path) {
  std::string out = "Usage:\n";
  if (!command.commands.empty()) {
    out += fmt::format("  {} [command]\n", path);
    DescribeCommands(command, &out);
  } else {
    out += fmt::format("  {}{}{} [flags]\n", path, command.usage.empty() ? "" : " ", command.usage);
  }
  if (&command != &root) {
    FlagSet flags;
    flags.Add(command.flags);
    flags.Add(command.persistent_flags);
    flags.Add(kHelpFlag);
    out += "\nFlags:\n" + DescribeFlags(flags);
  }
  return out;
}

int UsageError(const Command& root, const Command& command, std::string_view path,
               std::string_view text) {
  std::fprintf(stderr, "Error: %.*s\n%s\n", static_cast<int>(text.size()), text.data(),
               UsageText(root, command, path).c_str());
  return kExitError;
}

int PrintHelp(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return kExitOk;
}

// `etcdctl help WORDS`.
int HelpCommand(const Command& root, std::string_view program, std::span<const std::string> words) {
  const Command* command = &root;
  std::string path(program);
  for (const std::string& word : words) {
    const Command* next = command->commands.empty() ? nullptr : FindSubcommand(*command, word);
    if (next == nullptr) {
      if (command != &root) break;  // further words are ignored below a real command
      std::string topic;
      for (const std::string& part : words) topic += (topic.empty() ? "`" : " `") + part + "`";
      std::fprintf(stderr, "Unknown help topic [%s]\n%s", topic.c_str(),
                   UsageText(root, root, program).c_str());
      return kExitOk;
    }
    command = next;
    path += fmt::format(" {}", command->name);
  }
  return PrintHelp(HelpText(root, *command, path));
}

}  // namespace

int Fail(int code, std::string_view text) {
  std::fflush(stdout);
  std::fprintf(stderr, "Error: %.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(stderr);
  return code;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row[b.size()];
}

std::string HelpText(const Command& root, const Command& command, std::string_view path) {
  const std::string_view program = path.substr(0, path.find(' '));
  std::string out =
      fmt::format("{}\n\n", command.details.empty() ? command.summary : command.details);
  out += UsageText(root, command, path);
  if (!command.commands.empty()) {
    out += fmt::format("\nUse \"{} [command] --help\" for more about a command.\n", path);
  }
  out += fmt::format("Use \"{} options\" for the flags that every command has.\n", program);
  return out;
}

int RunCommandLine(const Command& root, std::string_view program,
                   std::span<const std::string> arguments) {
  Invocation invocation{.program = std::string(program),
                        .root = &root,
                        .command = &root,
                        .path = std::string(program),
                        .flags = nullptr,
                        .words = {},
                        .arguments = {arguments.begin(), arguments.end()}};
  std::vector<std::string> rest(arguments.begin(), arguments.end());
  FlagSet flags;
  flags.Add(root.persistent_flags);
  const Command* command = &root;
  while (!command->commands.empty()) {
    // At each level only the flags of that level and above are known.
    FlagSet known;
    known.Add(root.persistent_flags);
    if (command != &root) known.Add(command->persistent_flags);
    const size_t position = FirstWord(known, rest);
    if (position == std::string::npos) break;
    const Command* next = FindSubcommand(*command, rest[position]);
    if (next == nullptr && command == &root) {
      const std::string text = fmt::format("unknown command {} for {}{}", Quote(rest[position]),
                                           Quote(program), Suggestions(root, rest[position]));
      std::fprintf(stderr, "Error: %s\nRun '%s --help' for usage.\n", text.c_str(),
                   std::string(program).c_str());
      return kExitError;
    }
    if (next == nullptr) break;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(position));
    if (command != &root) flags.Add(command->persistent_flags);
    command = next;
    invocation.path += fmt::format(" {}", command->name);
    if (command->name == "help" && command->run == nullptr && command->commands.empty()) {
      return HelpCommand(root, program, rest);
    }
  }
  flags.Add(command->flags);
  if (command != &root) flags.Add(command->persistent_flags);
  if (const absl::Status status = flags.Parse(rest); !status.ok()) {
    return UsageError(root, *command, invocation.path, base::Message(status));
  }
  if (flags.help_wanted() || command->run == nullptr) {
    return PrintHelp(HelpText(root, *command, invocation.path));
  }
  invocation.command = command;
  invocation.flags = &flags;
  invocation.words = flags.words();
  return command->run(invocation);
}

}  // namespace engramctl
