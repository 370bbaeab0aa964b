#include "base/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <mutex>
#include <unordered_map>

#include "base/files.h"
#include "base/status.h"

namespace base {
namespace {

// One message text may fill a log; etcd's sampling keeps the first 100 in a second and then each
// 100th.
constexpr uint64_t kSampleFirst = 100;
constexpr uint64_t kSampleEach = 100;

std::string_view LevelName(LogLevel level) {
  static constexpr std::string_view kNames[] = {"debug", "info", "warn", "error", "panic", "fatal"};
  return kNames[static_cast<size_t>(level)];
}

std::string Timestamp(bool seconds_only) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  if (seconds_only) return fmt::format("{}Z", date);
  return fmt::format("{}.{:06}Z", date, now.tv_nsec / 1000);
}

// Where lines go. Writes are whole lines, so that lines of several processes on one file do not
// mix.
class Output {
 public:
  virtual ~Output() = default;
  virtual void Write(std::string_view line, LogLevel level) = 0;
};

void WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // There is nowhere left to complain to.
    data.remove_prefix(static_cast<size_t>(n));
  }
}

class FdOutput final : public Output {
 public:
  explicit FdOutput(int fd) : fd_(fd) {}
  void Write(std::string_view line, LogLevel) override { WriteAll(fd_, line); }

 private:
  const int fd_;
};

class FileOutput final : public Output {
 public:
  FileOutput(std::string path, const LogConfig& config)
      : path_(std::move(path)),
        rotate_bytes_(config.rotate_bytes),
        backups_max_(config.rotate_backups_max),
        age_days_max_(config.rotate_age_days_max) {}
  ~FileOutput() override {
    if (fd_ >= 0) ::close(fd_);
  }
  FileOutput(const FileOutput&) = delete;
  FileOutput& operator=(const FileOutput&) = delete;

  absl::Status Open() {
    const mode_t mode = rotate_bytes_ > 0 ? 0600 : 0666;
    fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, mode);
    if (fd_ < 0) {
      return MakeStatus(absl::StatusCode::kInvalidArgument, "open {}: {}", path_,
                        std::strerror(errno));
    }
    struct stat st {};
    size_ = ::fstat(fd_, &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
    return absl::OkStatus();
  }

  void Write(std::string_view line, LogLevel) override {
    if (rotate_bytes_ > 0 && size_ > 0 && size_ + line.size() > rotate_bytes_) Rotate();
    WriteAll(fd_, line);
    size_ += line.size();
  }

 private:
  void Rotate() {
    const std::string dir = DirName(path_);
    const std::string base_name = BaseName(path_);
    const size_t dot = base_name.rfind('.');
    const std::string stem = dot == std::string::npos ? base_name : base_name.substr(0, dot);
    const std::string extension = dot == std::string::npos ? "" : base_name.substr(dot);
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    tm utc{};
    ::gmtime_r(&now.tv_sec, &utc);
    char date[32];
    std::strftime(date, sizeof date, "%Y-%m-%dT%H-%M-%S", &utc);
    const std::string backup =
        JoinPath(dir, fmt::format("{}-{}.{:03}{}", stem, date, now.tv_nsec / 1000000, extension));
    if (::rename(path_.c_str(), backup.c_str()) != 0)
      return;  // Better a large file than lost lines.
    const int old_fd = fd_;
    if (Open().ok()) {
      ::close(old_fd);
    } else {
      fd_ = old_fd;
    }
    RemoveOld(dir, stem + "-", extension);
  }

  void RemoveOld(const std::string& dir, const std::string& prefix, const std::string& extension) {
    const auto names = PosixFiles().List(dir);
    if (!names.ok()) return;
    std::vector<std::string> backups;  // Sorted by time, as their names are.
    for (const std::string& name : *names) {
      if (name.starts_with(prefix) && name.ends_with(extension))
        backups.push_back(JoinPath(dir, name));
    }
    const time_t oldest = std::time(nullptr) - static_cast<time_t>(age_days_max_ * 86400);
    for (size_t i = 0; i < backups.size(); ++i) {
      struct stat st {};
      const bool too_many = backups_max_ > 0 && backups.size() - i > backups_max_;
      const bool too_old =
          age_days_max_ > 0 && ::stat(backups[i].c_str(), &st) == 0 && st.st_mtime < oldest;
      if (too_many || too_old) ::unlink(backups[i].c_str());
    }
  }

  const std::string path_;
  const uint64_t rotate_bytes_;
  const uint64_t backups_max_;
  const uint64_t age_days_max_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

class JournalOutput final : public Output {
 public:
  ~JournalOutput() override {
    if (fd_ >= 0) ::close(fd_);
  }
  absl::Status Open() {
    fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, "/run/systemd/journal/socket", sizeof address.sun_path - 1);
    if (fd_ < 0 ||
        ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return MakeStatus(
          absl::StatusCode::kUnavailable,
          "can't find journal (dial unixgram /run/systemd/journal/socket: connect: {})",
          std::strerror(errno));
    }
    return absl::OkStatus();
  }
  void Write(std::string_view line, LogLevel level) override {
    static constexpr int kPriority[] = {7, 6, 4, 3, 2, 2};
    if (!line.empty() && line.back() == '\n') line.remove_suffix(1);
    const std::string record = fmt::format("PRIORITY={}\nSYSLOG_IDENTIFIER=engram\nMESSAGE={}\n",
                                           kPriority[static_cast<size_t>(level)], line);
    (void)::send(fd_, record.data(), record.size(), MSG_NOSIGNAL);
  }

 private:
  int fd_ = -1;
};

// The process's logger. Never destroyed, so that threads may log while the process ends.
struct State {
  std::atomic<LogLevel> level = LogLevel::kInfo;
  std::mutex mutex;  // guards the rest
  bool console = false;
  bool seconds_only = false;
  std::vector<std::unique_ptr<Output>> outputs;
  std::unordered_map<std::string, uint64_t> seen;  // messages of the second `seen_second`
  time_t seen_second = 0;
};

State& GetState() {
  static State* const state = [] {
    auto* s = new State;
    s->outputs.push_back(std::make_unique<FdOutput>(STDERR_FILENO));
    return s;
  }();
  return *state;
}

bool Sampled(State* state, std::string_view message) {
  const time_t second = std::time(nullptr);
  if (second != state->seen_second) {
    state->seen.clear();
    state->seen_second = second;
  }
  const uint64_t count = ++state->seen[std::string(message)];
  return count <= kSampleFirst || (count - kSampleFirst) % kSampleEach == 0;
}

// The console form has a blank after each colon and comma between members.
std::string ConsoleJson(std::string_view json) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    out.push_back(c);
    if (c == '"' && (i == 0 || json[i - 1] != '\\')) in_string = !in_string;
    if (!in_string && c == ',') out.push_back(' ');
  }
  return out;
}

template <typename Fields>
std::string Render(const State& state, LogLevel level, std::string_view logger,
                   std::string_view caller, std::string_view message, const Fields& fields) {
  const std::string ts = Timestamp(state.seconds_only);
  std::string line;
  if (state.console) {
    line = fmt::format("{}\t{}\t", ts, LevelName(level));
    if (!logger.empty()) line.append(logger).append("\t");
    line.append(caller).append("\t").append(message);
    if (fields.size() > 0) {
      line.append("\t{");
      std::string_view separator;
      for (const LogField& field : fields) {
        line.append(separator)
            .append(JsonString(field.key))
            .append(": ")
            .append(ConsoleJson(field.json));
        separator = ", ";
      }
      line.push_back('}');
    }
  } else {
    line = fmt::format(R"({{"level":"{}","ts":"{}")", LevelName(level), ts);
    if (!logger.empty()) line.append(R"(,"logger":)").append(JsonString(logger));
    line.append(R"(,"caller":)")
        .append(JsonString(caller))
        .append(R"(,"msg":)")
        .append(JsonString(message));
    for (const LogField& field : fields) {
      line.append(",").append(JsonString(field.key)).append(":").append(field.json);
    }
    line.push_back('}');
  }
  line.push_back('\n');
  return line;
}

template <typename Fields>
void LogTo(LogLevel level, std::string_view logger, std::string_view caller,
           std::string_view message, const Fields& fields) {
  if (!LogEnabled(level)) return;
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  if (!Sampled(&state, message)) return;
  const std::string line = Render(state, level, logger, caller, message, fields);
  for (const auto& output : state.outputs) output->Write(line, level);
}

// Length of the valid UTF-8 sequence at p, 0 if there is none.
size_t Utf8Length(std::string_view s) {
  const auto at = [&s](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = at(0);
  size_t n = 0;
  if (c >= 0xc2 && c <= 0xdf) {
    n = 2;
  } else if (c >= 0xe0 && c <= 0xef) {
    n = 3;
  } else if (c >= 0xf0 && c <= 0xf4) {
    n = 4;
  }
  if (n == 0 || s.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  if ((c == 0xe0 && at(1) < 0xa0) || (c == 0xed && at(1) > 0x9f)) return 0;
  if ((c == 0xf0 && at(1) < 0x90) || (c == 0xf4 && at(1) > 0x8f)) return 0;
  return n;
}

}  // namespace

bool ParseLogLevel(std::string_view text, LogLevel* level) {
  for (uint8_t i = 0; i <= static_cast<uint8_t>(LogLevel::kFatal); ++i) {
    if (LevelName(static_cast<LogLevel>(i)) == text) {
      *level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      const size_t n = Utf8Length(text.substr(i));
      if (n == 0) {
        out.append("\\ufffd");
        ++i;
      } else {
        out.append(text.substr(i, n));
        i += n;
      }
      continue;
    }
    switch (c) {
      case '"':
        out.append("\\\"");
        break;
      case '\\':
        out.append("\\\\");
        break;
      case '\n':
        out.append("\\n");
        break;
      case '\r':
        out.append("\\r");
        break;
      case '\t':
        out.append("\\t");
        break;
      default:
        if (c < 0x20 || c == 0x7f) {
          out.append(fmt::format("\\u{:04x}", c));
        } else {
          out.push_back(static_cast<char>(c));
        }
    }
    ++i;
  }
  out.push_back('"');
  return out;
}

std::string DurationText(Duration d) {
  const int64_t ns = d.count();
  if (ns == 0) return "0s";
  const std::string sign = ns < 0 ? "-" : "";
  const uint64_t u = ns < 0 ? 0 - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  // Whole and fraction of `u` in a unit of `unit` nanoseconds, without trailing zeros.
  const auto in_unit = [](uint64_t value, uint64_t unit) {
    std::string text = std::to_string(value / unit);
    if (value % unit != 0) {
      std::string fraction = std::to_string(unit + value % unit).substr(1);
      while (fraction.back() == '0') fraction.pop_back();
      text += "." + fraction;
    }
    return text;
  };
  if (u < 1000) return fmt::format("{}{}ns", sign, u);
  if (u < 1000000) return fmt::format("{}{}µs", sign, in_unit(u, 1000));
  if (u < 1000000000) return fmt::format("{}{}ms", sign, in_unit(u, 1000000));
  const uint64_t minutes = u / 60000000000ULL;
  std::string text = sign;
  if (minutes >= 60) text += fmt::format("{}h", minutes / 60);
  if (minutes > 0) text += fmt::format("{}m", minutes % 60);
  return text + in_unit(u % 60000000000ULL, 1000000000) + "s";
}

LogField::LogField(std::string_view k, const std::vector<std::string>& v) : key(k), json("[") {
  for (size_t i = 0; i < v.size(); ++i) {
    if (i > 0) json.push_back(',');
    json.append(JsonString(v[i]));
  }
  json.push_back(']');
}

LogField::LogField(std::string_view k, const absl::Status& v)
    : key(k), json(JsonString(Message(v))) {}

LogField LogField::Json(std::string_view k, std::string json) {
  LogField field;
  field.key = k;
  field.json = std::move(json);
  return field;
}

absl::Status ConfigureLog(const LogConfig& config) {
  std::vector<std::unique_ptr<Output>> outputs;
  for (const std::string& name : config.outputs) {
    if (name == "stderr" || name == "default") {
      outputs.push_back(std::make_unique<FdOutput>(STDERR_FILENO));
    } else if (name == "stdout") {
      outputs.push_back(std::make_unique<FdOutput>(STDOUT_FILENO));
    } else if (name == "systemd/journal") {
      auto journal = std::make_unique<JournalOutput>();
      RETURN_IF_ERROR(journal->Open());
      outputs.push_back(std::move(journal));
    } else {
      auto file = std::make_unique<FileOutput>(name, config);
      RETURN_IF_ERROR(file->Open());
      outputs.push_back(std::move(file));
    }
  }
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  state.level = config.level;
  state.console = config.console;
  state.seconds_only = config.seconds_only;
  state.outputs = std::move(outputs);
  return absl::OkStatus();
}

bool LogEnabled(LogLevel level) {
  return level >= GetState().level.load(std::memory_order_relaxed);
}

void SetLogLevel(LogLevel level) { GetState().level = level; }

void Log(LogLevel level, std::string_view logger, std::string_view caller, std::string_view message,
         std::initializer_list<LogField> fields) {
  LogTo(level, logger, caller, message, fields);
}

void Log(LogLevel level, std::string_view logger, std::string_view caller, std::string_view message,
         const std::vector<LogField>& fields) {
  LogTo(level, logger, caller, message, fields);
}

std::string CallerText(std::string_view path, int line) { return fmt::format("{}:{}", path, line); }

}  // namespace base
