// Structured logging in etcd's shape: one JSON object a line (level, ts, logger, caller, msg,
// fields) or the tabbed console form. Thread-safe. Pure layers return facts; their owner logs.
// Secrets (tokens, keys, passwords, values) are never logged.
//
//   LOG_INFO("opened backend db", {"path", path}, {"took", base::DurationText(took)});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"

namespace base {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError, kPanic, kFatal };

// False for a word that is none of debug, info, warn, error, panic, fatal.
bool ParseLogLevel(std::string_view text, LogLevel* level);

// A JSON string literal with quotes. Control characters, quotes, backslashes and invalid UTF-8 are
// escaped.
std::string JsonString(std::string_view text);
// As Go prints a time.Duration: "4.42ms", "1m30s", "0s".
std::string DurationText(Duration d);

// A key and its value, rendered as JSON.
struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), json(JsonString(v)) {}
  LogField(std::string_view k, const char* v) : LogField(k, std::string_view(v)) {}
  LogField(std::string_view k, const std::string& v) : LogField(k, std::string_view(v)) {}
  LogField(std::string_view k, bool v) : key(k), json(v ? "true" : "false") {}
  LogField(std::string_view k, int v) : key(k), json(std::to_string(v)) {}
  LogField(std::string_view k, long v) : key(k), json(std::to_string(v)) {}
  LogField(std::string_view k, long long v) : key(k), json(std::to_string(v)) {}
  LogField(std::string_view k, unsigned v) : key(k), json(std::to_string(v)) {}
  LogField(std::string_view k, unsigned long v) : key(k), json(std::to_string(v)) {}
  LogField(std::string_view k, unsigned long long v) : key(k), json(std::to_string(v)) {}
  LogField(std::string_view k, const std::vector<std::string>& v);
  LogField(std::string_view k, const absl::Status& v);
  // A value that is JSON already.
  static LogField Json(std::string_view k, std::string json);

  std::string_view key;
  std::string json;

 private:
  LogField() = default;
};

struct LogConfig {
  LogLevel level = LogLevel::kInfo;
  bool console = false;
  // "stderr", "stdout", "systemd/journal", or file paths; every one gets every line.
  std::vector<std::string> outputs = {"stderr"};
  // Second resolution of the console form, as etcdutl prints.
  bool seconds_only = false;
  // Rotation of a single file output; 0 = off. Old files are renamed name-<utc>.ext.
  uint64_t rotate_bytes = 0;
  uint64_t rotate_backups_max = 0;  // 0 = keep all
  uint64_t rotate_age_days_max = 0;
};

// Sets where the process logs. Errors: an output that cannot be opened. Call before threads start;
// before the first call lines go to stderr as JSON at level info.
absl::Status ConfigureLog(const LogConfig& config);
bool LogEnabled(LogLevel level);
void SetLogLevel(LogLevel level);

// `caller` is "dir/file.cc:line". `logger` names a sub-logger ("raft"), empty for none.
void Log(LogLevel level, std::string_view logger, std::string_view caller, std::string_view message,
         std::initializer_list<LogField> fields);
void Log(LogLevel level, std::string_view logger, std::string_view caller, std::string_view message,
         const std::vector<LogField>& fields);

// The last two parts of a source path, for `caller`.
constexpr std::string_view ShortPath(std::string_view path) {
  size_t slashes = 0;
  for (size_t i = path.size(); i > 0; --i) {
    if (path[i - 1] == '/' && ++slashes == 2) return path.substr(i);
  }
  return path;
}
std::string CallerText(std::string_view path, int line);

}  // namespace base

#define ENGRAM_LOG(level, logger, message, ...)                                             \
  do {                                                                                      \
    if (::base::LogEnabled(level))                                                          \
      ::base::Log(level, logger, ::base::CallerText(::base::ShortPath(__FILE__), __LINE__), \
                  message, std::initializer_list<::base::LogField>{__VA_ARGS__});           \
  } while (false)
#define LOG_DEBUG(message, ...) ENGRAM_LOG(::base::LogLevel::kDebug, "", message, __VA_ARGS__)
#define LOG_INFO(message, ...) ENGRAM_LOG(::base::LogLevel::kInfo, "", message, __VA_ARGS__)
#define LOG_WARN(message, ...) ENGRAM_LOG(::base::LogLevel::kWarn, "", message, __VA_ARGS__)
#define LOG_ERROR(message, ...) ENGRAM_LOG(::base::LogLevel::kError, "", message, __VA_ARGS__)
