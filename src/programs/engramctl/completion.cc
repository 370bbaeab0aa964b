#include <fmt/format.h>

#include "commands.h"
#include "print.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

// One command and the words that may follow it.
struct Node {
  std::string path;  // "lease grant"; empty for the root
  std::vector<std::string> words;
};

void Collect(const Command& command, const std::string& path, std::vector<Node>* nodes) {
  Node node{.path = path, .words = {}};
  for (const Command& sub : command.commands) node.words.emplace_back(sub.name);
  for (const FlagSpec& flag : command.flags) node.words.push_back(fmt::format("--{}", flag.name));
  for (const FlagSpec& flag : command.persistent_flags) {
    if (!path.empty()) node.words.push_back(fmt::format("--{}", flag.name));
  }
  nodes->push_back(std::move(node));
  for (const Command& sub : command.commands) {
    const std::string name(sub.name);
    Collect(sub, path.empty() ? name : path + " " + name, nodes);
  }
}

std::string GlobalFlagWords() {
  std::vector<std::string> words;
  for (const FlagSpec& flag : GlobalFlags()) words.push_back(fmt::format("--{}", flag.name));
  return Join(words, " ");
}

std::string Bash(const std::string& program, const std::vector<Node>& nodes) {
  std::string out = fmt::format(
      "# bash completion for {0}\n"
      "_{0}_complete() {{\n"
      "  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" path=\"\" words=\"\" word\n"
      "  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n"
      "    case \"$word\" in\n"
      "      -*) ;;\n"
      "      *)\n"
      "        case \"${{path:+$path }}$word\" in\n",
      program);
  for (const Node& node : nodes) {
    if (!node.path.empty()) {
      out += fmt::format("          \"{0}\") path=\"{0}\" ;;\n", node.path);
    }
  }
  out +=
      "        esac\n"
      "        ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$path\" in\n";
  for (const Node& node : nodes) {
    out += fmt::format("    \"{}\") words=\"{}\" ;;\n", node.path, Join(node.words, " "));
  }
  return out + fmt::format(
                   "  esac\n"
                   "  case \"$current\" in\n"
                   "    -*) words=\"$words {1} --help\" ;;\n"
                   "  esac\n"
                   "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
                   "}}\n"
                   "complete -o default -F _{0}_complete {0}\n",
                   program, GlobalFlagWords());
}

std::string Zsh(const std::string& program, const std::vector<Node>& nodes) {
  return fmt::format("#compdef {}\nautoload -U +X bashcompinit && bashcompinit\n", program) +
         Bash(program, nodes);
}

std::string Fish(const std::string& program, const Command& root) {
  std::string out = fmt::format("# fish completion for {}\n", program);
  const auto quoted = [](std::string_view text) {
    std::string safe;
    for (const char c : text) safe += c == '\'' ? std::string("\\'") : std::string(1, c);
    return "'" + safe + "'";
  };
  for (const FlagSpec& flag : GlobalFlags()) {
    out += fmt::format("complete -c {} -l {} -d {}\n", program, flag.name, quoted(flag.help));
  }
  for (const Command& command : root.commands) {
    out += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d {}\n", program,
                       command.name, quoted(command.summary));
    const std::string seen = fmt::format("-n '__fish_seen_subcommand_from {}'", command.name);
    for (const FlagSpec& flag : command.flags) {
      out += fmt::format("complete -c {} {} -l {} -d {}\n", program, seen, flag.name,
                         quoted(flag.help));
    }
    for (const Command& sub : command.commands) {
      out += fmt::format("complete -c {} {} -a {} -d {}\n", program, seen, sub.name,
                         quoted(sub.summary));
    }
  }
  return out;
}

std::string PowerShell(const std::string& program, const std::vector<Node>& nodes) {
  std::string table;
  for (const Node& node : nodes) {
    table += fmt::format("    '{}' = '{}'\n", node.path, Join(node.words, " "));
  }
  return fmt::format(
      "# powershell completion for {0}\n"
      "Register-ArgumentCompleter -Native -CommandName '{0}' -ScriptBlock {{\n"
      "  param($wordToComplete, $commandAst, $cursorPosition)\n"
      "  $words = @{{\n{1}  }}\n"
      "  $path = ''\n"
      "  foreach ($element in $commandAst.CommandElements | Select-Object -Skip 1) {{\n"
      "    $next = (\"$path $element\").Trim()\n"
      "    if ($words.ContainsKey($next)) {{ $path = $next }}\n"
      "  }}\n"
      "  ($words[$path] -split ' ') + ('{2}' -split ' ') |\n"
      "    Where-Object {{ $_ -like \"$wordToComplete*\" }} |\n"
      "    ForEach-Object {{ [System.Management.Automation.CompletionResult]::new($_) }}\n"
      "}}\n",
      program, table, GlobalFlagWords());
}

// A usage error, told as for a bad flag.
int UsageError(const Invocation& invocation, std::string_view text) {
  std::fprintf(stderr, "Error: %s\nUsage:\n  %s [bash|zsh|fish|powershell]\n",
               std::string(text).c_str(), invocation.path.c_str());
  return kExitError;
}

int RunCompletion(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return UsageError(invocation,
                      fmt::format("accepts 1 arg(s), received {}", invocation.words.size()));
  }
  std::vector<Node> nodes;
  Collect(*invocation.root, "", &nodes);
  const std::string& shell = invocation.words[0];
  const std::string& program = invocation.program;
  if (shell == "bash") {
    Emit(Bash(program, nodes));
  } else if (shell == "zsh") {
    Emit(Zsh(program, nodes));
  } else if (shell == "fish") {
    Emit(Fish(program, *invocation.root));
  } else if (shell == "powershell") {
    Emit(PowerShell(program, nodes));
  } else {
    return UsageError(invocation, fmt::format("invalid argument {} for {}", Quote(shell),
                                              Quote(invocation.path)));
  }
  return kExitOk;
}

}  // namespace

Command CompletionCommand() {
  return {.name = "completion",
          .usage = "[bash|zsh|fish|powershell]",
          .summary = "Print a completion script for a shell",
          .group = kUtilityGroup,
          .details =
              "Print a completion script for a shell. For this session of bash:\n\n  source "
              "<(engramctl completion bash)",
          .run = RunCompletion};
}

}  // namespace engramctl
