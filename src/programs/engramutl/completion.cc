#include <fmt/format.h>

#include "commands.h"
#include "print.h"
#include "text.h"

namespace engramutl {
namespace {

// One command and the words that may follow it.
struct Node {
  std::string path;  // "snapshot restore"; empty for the root
  std::vector<std::string> words;
};

void Collect(const Command& command, const std::string& path, std::vector<Node>* nodes) {
  Node node{.path = path, .words = {}};
  for (const Command& sub : command.commands) node.words.emplace_back(sub.name);
  for (const FlagSpec& flag : command.flags) node.words.push_back(fmt::format("--{}", flag.name));
  for (const FlagSpec& flag : GlobalFlags()) node.words.push_back(fmt::format("--{}", flag.name));
  node.words.emplace_back("--help");
  nodes->push_back(std::move(node));
  for (const Command& sub : command.commands) {
    const std::string name(sub.name);
    Collect(sub, path.empty() ? name : path + " " + name, nodes);
  }
}

// The path grows with each word that makes a known command; files complete where no command or flag
// fits.
std::string Bash(const std::string& program, const std::vector<Node>& nodes) {
  std::string paths, cases;
  for (const Node& node : nodes) {
    if (!node.path.empty()) paths += fmt::format("{}'{}'", paths.empty() ? "" : "|", node.path);
    cases += fmt::format("    '{}') words='{}' ;;\n", node.path, engramctl::Join(node.words, " "));
  }
  return fmt::format(
      "# bash completion for {0}\n"
      "_{0}_words() {{\n"
      "  local path='' next words='' word\n"
      "  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n"
      "    next=\"${{path:+$path }}$word\"\n"
      "    case \"$next\" in {1}) path=\"$next\" ;; esac\n"
      "  done\n"
      "  case \"$path\" in\n{2}  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
      "}}\n"
      "complete -o default -F _{0}_words {0}\n",
      program, paths, cases);
}

std::string Fish(const std::string& program, const std::vector<Node>& nodes) {
  std::string out = fmt::format("# fish completion for {}\n", program);
  for (const Node& node : nodes) {
    const std::string last = node.path.substr(node.path.rfind(' ') + 1);
    const std::string when = node.path.empty()
                                 ? "__fish_use_subcommand"
                                 : fmt::format("'__fish_seen_subcommand_from {}'", last);
    out += fmt::format("complete -c {} -n {} -a '{}'\n", program, when,
                       engramctl::Join(node.words, " "));
  }
  return out;
}

std::string PowerShell(const std::string& program, const std::vector<Node>& nodes) {
  std::string table;
  for (const Node& node : nodes) {
    table += fmt::format("    '{}' = '{}'\n", node.path, engramctl::Join(node.words, " "));
  }
  return fmt::format(
      "# powershell completion for {0}\n"
      "Register-ArgumentCompleter -Native -CommandName '{0}' -ScriptBlock {{\n"
      "  param($prefix, $line, $position)\n"
      "  $words = @{{\n{1}  }}\n"
      "  $path = ''\n"
      "  foreach ($part in $line.CommandElements | Select-Object -Skip 1) {{\n"
      "    $next = (\"$path $part\").Trim()\n"
      "    if ($words.ContainsKey($next)) {{ $path = $next }}\n"
      "  }}\n"
      "  $words[$path] -split ' ' | Where-Object {{ $_ -like \"$prefix*\" }} |\n"
      "    ForEach-Object {{ [System.Management.Automation.CompletionResult]::new($_) }}\n"
      "}}\n",
      program, table);
}

int RunCompletion(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return FailUsage(invocation,
                     fmt::format("accepts 1 arg(s), received {}", invocation.words.size()));
  }
  std::vector<Node> nodes;
  Collect(*invocation.root, "", &nodes);
  const std::string& shell = invocation.words[0];
  const std::string& program = invocation.program;
  if (shell == "bash") {
    Emit(Bash(program, nodes));
  } else if (shell == "zsh") {
    Emit(fmt::format("#compdef {}\nautoload -U +X bashcompinit && bashcompinit\n", program) +
         Bash(program, nodes));
  } else if (shell == "fish") {
    Emit(Fish(program, nodes));
  } else if (shell == "powershell") {
    Emit(PowerShell(program, nodes));
  } else {
    return FailUsage(invocation, fmt::format("invalid argument {} for {}", engramctl::Quote(shell),
                                             engramctl::Quote(invocation.path)));
  }
  return engramctl::kExitOk;
}

}  // namespace

Command CompletionCommand() {
  return {.name = "completion",
          .usage = "[bash|zsh|fish|powershell]",
          .summary = "Print a script that completes command lines in a shell",
          .run = RunCompletion};
}

}  // namespace engramutl
