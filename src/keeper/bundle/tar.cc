#include "bundle/tar.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <memory>

#include "base/status.h"

namespace bundle {

struct TarCallbacks {
  // Never fails towards libarchive, which would then not free what it holds; the writer looks at
  // its own failure after each call.
  static la_ssize_t Write(archive*, void* data, const void* bytes, size_t n) {
    auto* writer = static_cast<TarWriter*>(data);
    if (writer->failure_.ok()) {
      writer->failure_ = writer->sink_(std::string_view(static_cast<const char*>(bytes), n));
    }
    return static_cast<la_ssize_t>(n);
  }
};

namespace {

constexpr size_t kBlock = 512;
constexpr size_t kPathBytesMax = 4096;
constexpr size_t kPartBytesMax = 255;
constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;
constexpr size_t kEntriesMax = 200'000;
constexpr int64_t kSecond = 1'000'000'000;

struct FreeEntry {
  void operator()(archive_entry* entry) const { archive_entry_free(entry); }
};
struct FreeReader {
  void operator()(archive* a) const { archive_read_free(a); }
};

std::string ErrorText(archive* a) {
  const char* text = archive_error_string(a);
  return text == nullptr ? "unknown" : text;
}

unsigned FileType(Entry::Type type) {
  switch (type) {
    case Entry::Type::kFile:
      return AE_IFREG;
    case Entry::Type::kFolder:
      return AE_IFDIR;
    case Entry::Type::kLink:
      break;
  }
  return AE_IFLNK;
}

// Two blocks of zeros end a tar. libarchive takes an archive without them, but then a cut between
// two entries would go unseen.
absl::Status CheckEnd(std::string_view tar) {
  if (tar.size() < 2 * kBlock || tar.size() % kBlock != 0) {
    return absl::DataLossError("the tar is cut: its length is no multiple of a block");
  }
  const std::string_view end = tar.substr(tar.size() - 2 * kBlock);
  if (end.find_first_not_of('\0') != std::string_view::npos) {
    return absl::DataLossError("the tar is cut: its end is missing");
  }
  return absl::OkStatus();
}

absl::StatusOr<Entry> ToEntry(archive_entry* raw) {
  Entry entry;
  const char* path = archive_entry_pathname(raw);
  if (path == nullptr) path = archive_entry_pathname_utf8(raw);
  if (path == nullptr) return absl::InvalidArgumentError("an entry's name cannot be read");
  entry.path = path;
  if (archive_entry_hardlink(raw) != nullptr) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{}: is a hard link", entry.path);
  }
  switch (archive_entry_filetype(raw)) {
    case AE_IFREG:
      entry.type = Entry::Type::kFile;
      break;
    case AE_IFDIR:
      entry.type = Entry::Type::kFolder;
      while (entry.path.size() > 1 && entry.path.back() == '/') entry.path.pop_back();
      break;
    case AE_IFLNK: {
      entry.type = Entry::Type::kLink;
      const char* target = archive_entry_symlink(raw);
      if (target == nullptr) target = archive_entry_symlink_utf8(raw);
      if (target == nullptr || *target == '\0') {
        return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{}: is a link to nothing",
                                entry.path);
      }
      entry.target = target;
      break;
    }
    default:
      return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                              "{}: is neither a file nor a folder nor a symbolic link", entry.path);
  }
  if (const std::string fault = PathFault(entry.path); !fault.empty()) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "`{}`: {}", entry.path, fault);
  }
  entry.mode = archive_entry_perm(raw);
  entry.uid = archive_entry_uid(raw);
  entry.gid = archive_entry_gid(raw);
  entry.mtime_ns = archive_entry_mtime(raw) * kSecond + archive_entry_mtime_nsec(raw);
  entry.size =
      entry.type == Entry::Type::kFile ? static_cast<uint64_t>(archive_entry_size(raw)) : 0;
  return entry;
}

absl::StatusOr<std::string> ReadContent(archive* a, const Entry& entry) {
  if (entry.size > kFileBytesMax) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{}: larger than a bundle's files",
                            entry.path);
  }
  std::string content(entry.size, '\0');
  size_t done = 0;
  while (done < content.size()) {
    const la_ssize_t n = archive_read_data(a, content.data() + done, content.size() - done);
    if (n < 0) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "{}: {}", entry.path, ErrorText(a));
    }
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  if (done != content.size()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "{}: its content is cut", entry.path);
  }
  return content;
}

}  // namespace

std::string PathFault(std::string_view path) {
  if (path.empty()) return "has no name";
  if (path.size() > kPathBytesMax) return "is too long";
  if (path.front() == '/') return "is absolute";
  if (path.find('\0') != std::string_view::npos) return "holds a zero byte";
  for (std::string_view rest = path;;) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == ".") return "holds an empty part";
    if (part == "..") return "leads upwards";
    if (part.size() > kPartBytesMax) return "holds a name that is too long";
    if (slash == std::string_view::npos) return "";
    rest.remove_prefix(slash + 1);
  }
}

TarWriter::TarWriter(Sink sink) : archive_(archive_write_new()), sink_(sink) {
  archive_write_set_format_pax(archive_);
  // Names are bytes to us, as they are to the file system.
  archive_write_set_options(archive_, "hdrcharset=BINARY");
  archive_write_set_bytes_in_last_block(archive_, 1);
  if (archive_write_open(archive_, this, nullptr, &TarCallbacks::Write, nullptr) != ARCHIVE_OK &&
      failure_.ok()) {
    failure_ = Failure("open");
  }
}

// Freeing writes the end where Finish() did not, which would make a broken tar look whole: from
// here on the sink gets nothing.
TarWriter::~TarWriter() {
  if (failure_.ok()) failure_ = absl::AbortedError("not finished");
  archive_write_free(archive_);
}

absl::Status TarWriter::Failure(std::string_view what) const {
  if (!failure_.ok()) return failure_;
  return base::MakeStatus(absl::StatusCode::kInternal, "tar: {}: {}", what, ErrorText(archive_));
}

absl::Status TarWriter::Add(const Entry& entry, std::string_view content) {
  RETURN_IF_ERROR(failure_);
  const std::unique_ptr<archive_entry, FreeEntry> raw(archive_entry_new());
  archive_entry_set_pathname(raw.get(), entry.path.c_str());
  archive_entry_set_filetype(raw.get(), FileType(entry.type));
  archive_entry_set_perm(raw.get(), entry.mode);
  archive_entry_set_uid(raw.get(), entry.uid);
  archive_entry_set_gid(raw.get(), entry.gid);
  archive_entry_set_mtime(raw.get(), entry.mtime_ns / kSecond,
                          static_cast<long>(entry.mtime_ns % kSecond));
  if (entry.type == Entry::Type::kLink) {
    archive_entry_set_symlink(raw.get(), entry.target.c_str());
  }
  const bool file = entry.type == Entry::Type::kFile;
  archive_entry_set_size(raw.get(), file ? static_cast<int64_t>(content.size()) : 0);
  if (archive_write_header(archive_, raw.get()) != ARCHIVE_OK) return Failure(entry.path);
  if (!file || content.empty()) return failure_;
  const la_ssize_t n = archive_write_data(archive_, content.data(), content.size());
  return n == static_cast<la_ssize_t>(content.size()) ? failure_ : Failure(entry.path);
}

absl::Status TarWriter::Finish() {
  RETURN_IF_ERROR(failure_);
  if (archive_write_close(archive_) != ARCHIVE_OK) return Failure("end");
  return failure_;
}

absl::Status ReadTar(std::string_view tar,
                     absl::FunctionRef<absl::Status(const Entry&, std::string_view)> visit) {
  RETURN_IF_ERROR(CheckEnd(tar));
  const std::unique_ptr<archive, FreeReader> a(archive_read_new());
  archive_read_support_format_tar(a.get());
  if (archive_read_open_memory(a.get(), tar.data(), tar.size()) != ARCHIVE_OK) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "this is no tar: {}", ErrorText(a.get()));
  }
  for (size_t count = 0;; ++count) {
    archive_entry* raw = nullptr;
    const int result = archive_read_next_header(a.get(), &raw);
    if (result == ARCHIVE_EOF) return absl::OkStatus();
    // A warning is about a name that this locale cannot show; it is read as bytes.
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) {
      return base::MakeStatus(absl::StatusCode::kDataLoss, "the tar is damaged: {}",
                              ErrorText(a.get()));
    }
    if (count == kEntriesMax) return absl::InvalidArgumentError("the tar holds too many entries");
    ASSIGN_OR_RETURN(const Entry entry, ToEntry(raw));
    ASSIGN_OR_RETURN(const std::string content, ReadContent(a.get(), entry));
    RETURN_IF_ERROR(visit(entry, content));
  }
}

absl::StatusOr<std::vector<Entry>> Inspect(std::string_view tar) {
  std::vector<Entry> entries;
  RETURN_IF_ERROR(ReadTar(tar, [&](const Entry& entry, std::string_view) {
    entries.push_back(entry);
    return absl::OkStatus();
  }));
  return entries;
}

}  // namespace bundle
