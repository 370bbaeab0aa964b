#include "config/fields.h"

#include <algorithm>
#include <charconv>

#include "base/status.h"
#include "config/units.h"

namespace config {
namespace {

constexpr size_t kFaultsShown = 100;
constexpr size_t kTextBytesMax = 4096;

// Edits (insert, delete, replace, swap neighbours) that turn `a` into `b`.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

bool IsVariableName(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

absl::Status Faults::AsStatus() const {
  if (faults_.empty()) return absl::OkStatus();
  std::string text;
  std::vector<std::string> lines = Texts(faults_);
  const size_t more = lines.size() > kFaultsShown ? lines.size() - kFaultsShown : 0;
  lines.resize(lines.size() - more);
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  if (more > 0) text += fmt::format("\n{}: and {} more", file_, more);
  return absl::InvalidArgumentError(text);
}

std::vector<std::string> Faults::Warnings() const { return Texts(warnings_); }

std::vector<std::string> Faults::Texts(Lines lines) const {
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> texts;
  for (const auto& [line, text] : lines)
    texts.push_back(fmt::format("{}:{}: {}", file_, line, text));
  return texts;
}

std::string PathFault(std::string_view path) {
  if (!path.starts_with('/')) {
    return fmt::format(
        "`{}` is a relative path; a daemon's working directory is nobody's choice, "
        "so write it from /",
        path);
  }
  for (std::string_view rest = path; !rest.empty();) {
    const size_t slash = rest.find('/');
    if (rest.substr(0, slash) == "..") return fmt::format("`{}` goes upwards by ..", path);
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  return "";
}

std::string Nearest(std::string_view word, const std::set<std::string, std::less<>>& candidates) {
  std::string best;
  size_t best_distance = 1 + std::max<size_t>(1, word.size() / 3);
  if (word.size() > 64) return best;
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

Fields::Fields(Faults* faults, const yaml::Value* value, std::string path, int line_if_absent)
    : faults_(faults),
      map_(value != nullptr && value->is_map() ? value : nullptr),
      path_(std::move(path)),
      line_(value != nullptr ? value->line : line_if_absent) {
  if (value != nullptr && map_ == nullptr) {
    faults_->Add(value->line,
                 fmt::format("{}: expected a map of settings, found {}",
                             path_.empty() ? "this file" : path_, yaml::KindName(value->kind)));
  }
}

Fields::~Fields() {
  if (map_ == nullptr) return;
  const std::string where = path_.empty() ? "" : fmt::format(" in `{}`", path_);
  for (size_t i = 0; i < map_->keys.size(); ++i) {
    const std::string& key = map_->keys[i];
    if (asked_.contains(key)) continue;
    std::string text = fmt::format("unknown key `{}`{}", key.substr(0, 80), where);
    if (key == "<<") {
      text += "; merge keys are not read, name the settings";
    } else if (const std::string near = Nearest(key, asked_); !near.empty()) {
      text += fmt::format("; did you mean `{}`?", near);
    }
    faults_->Add(map_->key_lines[i], text);
  }
}

const yaml::Value* Fields::Get(std::string_view key) {
  asked_.emplace(key);
  const yaml::Value* value = map_ == nullptr ? nullptr : map_->Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

int Fields::LineOf(std::string_view key) const {
  if (map_ == nullptr) return line_;
  const auto found = std::find(map_->keys.begin(), map_->keys.end(), key);
  return found == map_->keys.end()
             ? line_
             : map_->key_lines[static_cast<size_t>(found - map_->keys.begin())];
}

std::string Fields::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void Fields::Fault(std::string_view key, std::string_view what) {
  faults_->Add(LineOf(key), fmt::format("{}: {}", PathOf(key), what));
}

bool Fields::Scalar(std::string_view key, std::string* out) {
  const yaml::Value* value = Get(key);
  if (value == nullptr) return false;
  if (!value->is_scalar()) {
    Fault(key, fmt::format("expected a single value, found {}", yaml::KindName(value->kind)));
    return false;
  }
  if (value->text.size() > kTextBytesMax) {
    Fault(key, fmt::format("longer than {} bytes", kTextBytesMax));
    return false;
  }
  for (const char c : value->text) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) continue;
    Fault(key, "holds a line break or another control character");
    return false;
  }
  *out = value->text;
  return true;
}

bool Fields::Text(std::string_view key, std::string* out) {
  std::string text;
  if (!Scalar(key, &text)) return false;
  if (text.empty()) {
    Fault(key, "is empty; leave it out where there is none");
    return false;
  }
  *out = std::move(text);
  return true;
}

bool Fields::RequiredText(std::string_view key, std::string_view hint, std::string* out) {
  if (!Has(key)) {
    Fault(key, fmt::format("is missing: {}", hint));
    return false;
  }
  return Text(key, out);
}

bool Fields::Path(std::string_view key, std::string* out) {
  std::string path;
  if (!Text(key, &path)) return false;
  if (const std::string fault = PathFault(path); !fault.empty()) {
    Fault(key, fault);
    return false;
  }
  *out = std::move(path);
  return true;
}

bool Fields::Flag(std::string_view key, bool* out) {
  std::string text;
  if (!Scalar(key, &text)) return false;
  if (text != "true" && text != "false") {
    Fault(key, fmt::format("expected true or false, found `{}`", text));
    return false;
  }
  *out = text == "true";
  return true;
}

bool Fields::Number(std::string_view key, uint32_t max, uint32_t* out) {
  std::string text;
  if (!Scalar(key, &text)) return false;
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number > max) {
    Fault(key, fmt::format("expected a number from 0 to {}, found `{}`", max, text));
    return false;
  }
  *out = number;
  return true;
}

bool Fields::Time(std::string_view key, const DurationRange& range, Duration* out) {
  std::string text;
  if (!Scalar(key, &text)) return false;
  if (!range.word_for_none.empty() && text == range.word_for_none) {
    *out = Duration(0);
    return true;
  }
  const std::optional<Duration> duration = ParseDuration(text);
  if (!duration) {
    Fault(key, fmt::format("expected a duration such as 500ms, 5m or 7d, found `{}`", text));
    return false;
  }
  if (*duration < range.min || *duration > range.max) {
    const std::string or_word =
        range.word_for_none.empty() ? "" : fmt::format(", or the word {}", range.word_for_none);
    Fault(key, fmt::format("{} is out of range: from {} to {}{}", text, DurationText(range.min),
                           DurationText(range.max), or_word));
    return false;
  }
  *out = *duration;
  return true;
}

bool Fields::Size(std::string_view key, uint64_t min, uint64_t* out) {
  std::string text;
  if (!Scalar(key, &text)) return false;
  const std::optional<uint64_t> size = ParseSize(text);
  if (!size || *size < min) {
    Fault(key, fmt::format("expected a size such as 64MiB, at least {}, found `{}`", SizeText(min),
                           text));
    return false;
  }
  *out = *size;
  return true;
}

bool Fields::Rate(std::string_view key, uint64_t* out) {
  std::string text;
  if (!Scalar(key, &text)) return false;
  const std::optional<uint64_t> rate = ParseRate(text);
  if (!rate || *rate == 0) {
    Fault(key, fmt::format("expected a rate such as 20MiB/s, found `{}`", text));
    return false;
  }
  *out = *rate;
  return true;
}

bool Fields::Rate(std::string_view key, std::optional<uint64_t>* out) {
  std::string text;
  if (!Scalar(key, &text)) return false;
  const std::optional<uint64_t> rate = text == "unlimited" ? 0 : ParseRate(text);
  if (text != "auto" && text != "unlimited" && rate.value_or(0) == 0) {
    Fault(key,
          fmt::format("expected a rate such as 20MiB/s, `auto` or `unlimited`, found `{}`", text));
    return false;
  }
  *out = rate;
  return true;
}

bool Fields::Share(std::string_view key, double* out) {
  std::string text;
  if (!Scalar(key, &text)) return false;
  double share = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), share, std::chars_format::general);
  if (error != std::errc() || end != text.data() + text.size() || !(share > 0 && share <= 1)) {
    Fault(key, fmt::format("expected a share above 0 and up to 1, such as 0.5, found `{}`", text));
    return false;
  }
  *out = share;
  return true;
}

bool Fields::Texts(std::string_view key, std::vector<std::pair<int, std::string>>* out) {
  const yaml::Value* value = Get(key);
  if (value == nullptr) return false;
  if (!value->is_sequence()) {
    Fault(key, fmt::format("expected a list, found {}", yaml::KindName(value->kind)));
    return false;
  }
  bool right = true;
  std::set<std::string> seen;
  for (size_t i = 0; i < value->items.size(); ++i) {
    const yaml::Value& item = value->items[i];
    const std::string where = fmt::format("{}[{}]", PathOf(key), i);
    const bool control = std::any_of(item.text.begin(), item.text.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    std::string what;
    if (!item.is_scalar()) {
      what = fmt::format("expected a text, found {}", yaml::KindName(item.kind));
    } else if (item.text.empty() || item.text.size() > kTextBytesMax || control) {
      what = "is empty, too long or holds control characters";
    } else if (!seen.insert(item.text).second) {
      what = fmt::format("`{}` stands here twice", item.text);
    }
    if (!what.empty()) {
      faults_->Add(item.line, fmt::format("{}: {}", where, what));
      right = false;
      continue;
    }
    out->emplace_back(item.line, item.text);
  }
  return right;
}

bool Fields::Command(std::string_view key, const yaml::Value& value, Secret* out) {
  std::vector<std::string> words;
  if (value.is_scalar()) {
    std::string text;
    if (!Text(key, &text)) return false;
    words.push_back(text);
  } else if (value.is_sequence()) {
    for (const yaml::Value& item : value.items) {
      if (!item.is_scalar() || item.text.find('\0') != std::string::npos) {
        Fault(key, "expected the program and its arguments, each a text");
        return false;
      }
      words.push_back(item.text);
    }
  }
  if (words.empty() || !PathFault(words[0]).empty()) {
    Fault(key,
          "expected the absolute path of a program, or a list of it and its arguments; no "
          "shell reads it");
    return false;
  }
  out->command = std::move(words);
  return true;
}

bool Fields::SecretOf(std::string_view name, Secret* out) {
  const std::string file = fmt::format("{}_file", name);
  const std::string variable = fmt::format("{}_env", name);
  const std::string command = fmt::format("{}_command", name);
  const int given = (Has(file) ? 1 : 0) + (Has(variable) ? 1 : 0) + (Has(command) ? 1 : 0);
  if (given == 0) return false;
  if (given > 1) {
    Fault(Has(file) ? file : variable,
          fmt::format("give one of {}, {} and {}", file, variable, command));
    return false;
  }
  Secret secret;
  if (Has(file)) {
    secret.source = Secret::Source::kFile;
    if (!Path(file, &secret.where)) return false;
  } else if (Has(variable)) {
    secret.source = Secret::Source::kEnvironment;
    if (!Text(variable, &secret.where)) return false;
    if (!IsVariableName(secret.where)) {
      // Not repeated: somebody may have put the secret itself here.
      Fault(variable, "is no name of an environment variable");
      return false;
    }
  } else {
    secret.source = Secret::Source::kCommand;
    if (!Command(command, *Get(command), &secret)) return false;
  }
  *out = std::move(secret);
  return true;
}

}  // namespace config
