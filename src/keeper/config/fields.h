// Strict reading of one YAML map: each key is asked for by name, and what nobody asked for is a
// fault. Used by the readers of this folder only. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "config/config.h"
#include "yaml/yaml.h"

namespace config {

// Everything that is wrong with a file, gathered so that a person mends it in one go.
class Faults {
 public:
  explicit Faults(std::string_view file) : file_(file) {}
  void Add(int line, std::string text) { faults_.emplace_back(line, std::move(text)); }
  void Warn(int line, std::string text) { warnings_.emplace_back(line, std::move(text)); }
  bool empty() const { return faults_.empty(); }
  // One "FILE:LINE: text" each, by line; at most 100 of them.
  absl::Status AsStatus() const;
  std::vector<std::string> Warnings() const;

 private:
  using Lines = std::vector<std::pair<int, std::string>>;
  std::vector<std::string> Texts(Lines lines) const;
  const std::string file_;
  Lines faults_;
  Lines warnings_;
};

class Fields {
 public:
  // `path` is how faults call the map ("clusters[0].tls"; empty for the whole file). Where `value`
  // is something else than a map, that is a fault and every key counts as absent. nullptr: absent.
  Fields(Faults* faults, const yaml::Value* value, std::string path, int line_if_absent);
  // Reports the keys that were never asked for.
  ~Fields();
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  // nullptr when absent or null.
  const yaml::Value* Get(std::string_view key);
  bool Has(std::string_view key) { return Get(key) != nullptr; }
  // Where the key stands, or the map when it does not.
  int LineOf(std::string_view key) const;
  std::string PathOf(std::string_view key) const;
  int line() const { return line_; }
  Faults& faults() { return *faults_; }
  void Fault(std::string_view key, std::string_view what);  // "PATH.KEY: what"

  // Each returns whether a right value stood there and was stored; a wrong one is a fault.
  bool Text(std::string_view key, std::string* out);
  // The same, absence being a fault. `hint` is what could be given.
  bool RequiredText(std::string_view key, std::string_view hint, std::string* out);
  bool Path(std::string_view key, std::string* out);  // absolute
  bool Flag(std::string_view key, bool* out);
  bool Number(std::string_view key, uint32_t max, uint32_t* out);
  struct DurationRange {
    Duration min;
    Duration max;
    std::string_view word_for_none = "";  // stands for 0 where given
  };
  bool Time(std::string_view key, const DurationRange& range, Duration* out);
  bool Size(std::string_view key, uint64_t min, uint64_t* out);
  bool Rate(std::string_view key, uint64_t* out);
  // The same, or one of the words `unlimited` (0) and `auto` (nothing).
  bool Rate(std::string_view key, std::optional<uint64_t>* out);
  bool Share(std::string_view key, double* out);  // in (0, 1]
  // A list of texts with their lines; repeated ones are faults.
  bool Texts(std::string_view key, std::vector<std::pair<int, std::string>>* out);
  // `<name>_file`, `<name>_env` or `<name>_command`; more than one is a fault.
  bool SecretOf(std::string_view name, Secret* out);

 private:
  bool Scalar(std::string_view key, std::string* out);
  bool Command(std::string_view key, const yaml::Value& value, Secret* out);

  Faults* const faults_;
  const yaml::Value* const map_;  // nullptr: absent or no map
  const std::string path_;
  const int line_;
  std::set<std::string, std::less<>> asked_;
};

// Why `path` cannot be used by a daemon; empty: it can.
std::string PathFault(std::string_view path);
// The candidate that a mistyped word most likely means; empty when none is near.
std::string Nearest(std::string_view word, const std::set<std::string, std::less<>>& candidates);

}  // namespace config
