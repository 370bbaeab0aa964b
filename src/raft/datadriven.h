// Reader of the scenario files under tests/data/raft: commands with the output expected of them.
// For tests only; not thread-safe.
//
//   # a comment
//   command arg key=value key=(a,b)
//   input lines
//   ----
//   expected output, up to the first blank line
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace raft::datadriven {

struct Argument {
  std::string key;                  // of key=value; otherwise the whole argument
  std::vector<std::string> values;  // none for a plain argument; several for a parenthesised list
};

struct Case {
  int line = 0;
  std::string text;  // the whole command line, for messages
  std::string command;
  std::vector<Argument> arguments;
  std::string input;
  std::string expected;  // ends with a newline unless empty

  const Argument* Find(std::string_view key) const {
    for (const Argument& argument : arguments) {
      if (argument.key == key) return &argument;
    }
    return nullptr;
  }
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  std::string Value(std::string_view key, std::string_view fallback) const {
    const Argument* argument = Find(key);
    return argument == nullptr || argument->values.empty() ? std::string(fallback)
                                                           : argument->values.front();
  }
  bool Flag(std::string_view key) const { return Value(key, "false") == "true"; }
  uint64_t Number(std::string_view key, uint64_t fallback) const {
    const Argument* argument = Find(key);
    return argument == nullptr ? fallback
                               : std::strtoull(argument->values.front().c_str(), nullptr, 10);
  }
  std::vector<uint64_t> Numbers(std::string_view key) const {
    std::vector<uint64_t> numbers;
    if (const Argument* argument = Find(key)) {
      for (const std::string& value : argument->values) {
        numbers.push_back(std::strtoull(value.c_str(), nullptr, 10));
      }
    }
    return numbers;
  }
  // The plain arguments as numbers.
  std::vector<uint64_t> Ids() const {
    std::vector<uint64_t> ids;
    for (const Argument& argument : arguments) {
      if (argument.values.empty()) ids.push_back(std::strtoull(argument.key.c_str(), nullptr, 10));
    }
    return ids;
  }
};

inline std::vector<std::string> SplitList(std::string_view list) {
  std::vector<std::string> values;
  std::string value;
  for (const char c : list) {
    if (c == ',') {
      values.push_back(value);
      value.clear();
    } else if (c != ' ') {
      value.push_back(c);
    }
  }
  if (!value.empty() || !values.empty()) values.push_back(value);
  return values;
}

inline void ParseCommand(std::string_view line, Case* out) {
  std::vector<std::string> words;
  std::string word;
  int depth = 0;
  for (const char c : line) {
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ' ' && depth == 0) {
      if (!word.empty()) words.push_back(word);
      word.clear();
    } else {
      word.push_back(c);
    }
  }
  if (!word.empty()) words.push_back(word);
  out->text = line;
  out->command = words.at(0);
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    Argument argument;
    if (equals == std::string::npos) {
      argument.key = words[i];
    } else {
      argument.key = words[i].substr(0, equals);
      std::string_view value = std::string_view(words[i]).substr(equals + 1);
      if (value.starts_with('(')) {
        argument.values = SplitList(value.substr(1, value.size() - 2));
      } else {
        argument.values = {std::string(value)};
      }
    }
    out->arguments.push_back(argument);
  }
}

inline std::vector<Case> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::vector<Case> cases;
  std::string line;
  int number = 0;
  const auto next = [&] { return static_cast<bool>(std::getline(file, line)) && ++number > 0; };
  while (next()) {
    if (line.empty() || line.starts_with('#') || line.find_first_not_of(' ') == std::string::npos) {
      continue;
    }
    Case one;
    one.line = number;
    ParseCommand(line, &one);
    while (next() && line != "----") one.input += line + "\n";
    while (next() && !line.empty()) one.expected += line + "\n";
    cases.push_back(one);
  }
  return cases;
}

// Drops the lines of another implementation's log, which is no part of the behaviour; nothing left
// reads "ok".
inline std::string Normalize(std::string_view text) {
  std::string out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const size_t start = line.find_first_not_of(' ');
    const std::string_view rest =
        start == std::string::npos ? "" : std::string_view(line).substr(start);
    bool log = false;
    for (const std::string_view level : {"DEBUG ", "INFO ", "WARN ", "ERROR "}) {
      log = log || rest.starts_with(level);
    }
    if (!log) out += line + "\n";
  }
  return out.empty() ? "ok\n" : out;
}

}  // namespace raft::datadriven
