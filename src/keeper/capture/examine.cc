#include "capture/examine.h"

#include <future>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "bolt/db.h"
#include "bolt/tx.h"
#include "mvcc/key_value.h"
#include "snapshot/records.h"

namespace capture {
namespace {

// Prefixes that are counted apart; a cluster whose keys have no order to them is not described by
// ten thousand lines.
constexpr size_t kPrefixesMax = 1000;
constexpr std::string_view kOtherPrefixes = "(other)";
constexpr std::string_view kEncryptionMark = "k8s:enc:";
constexpr size_t kEncryptionBytesMax = 256;

void CountPrefix(std::string_view key, Examination* out) {
  const std::string prefix(TopPrefix(key));
  const auto at = out->prefix_counts.find(prefix);
  if (at != out->prefix_counts.end()) {
    ++at->second;
  } else if (out->prefix_counts.size() < kPrefixesMax) {
    out->prefix_counts[prefix] = 1;
  } else {
    ++out->prefix_counts[std::string(kOtherPrefixes)];
  }
}

// Walks the rows in order and gives each revision of the window its digest.
class WindowRows {
 public:
  explicit WindowRows(Examination* out) : out_(*out), current_(out->bounds.compact_revision) {}

  absl::Status Add(const snapshot::KeyRecord& record) {
    const mvcc::Revision at = record.revision.revision;
    if (at.main <= out_.bounds.compact_revision) return absl::OkStatus();
    if (at.main != current_) {
      Close();
      // Revision 1 is the empty store: the first change of all has 2.
      const int64_t next = std::max(current_ + 1, int64_t{2});
      if (at.main != next) {
        return base::MakeStatus(absl::StatusCode::kDataLoss,
                                "revision {} is missing though nothing above {} is compacted", next,
                                out_.bounds.compact_revision);
      }
      current_ = at.main;
    }
    digester_.Add(record.revision.tombstone, record.value);
    open_ = true;
    return absl::OkStatus();
  }
  void Close() {
    if (open_) out_.rows.Append(current_, digester_.Take());
    open_ = false;
  }

 private:
  Examination& out_;
  int64_t current_;
  bool open_ = false;
  RowDigester digester_;
};

// What the rows say: digests of the window's, counts and prefixes of the live ones.
absl::Status ReadRows(const bolt::ReadTx& tx, Examination* out) {
  std::unordered_map<std::string_view, std::string_view> live;  // values, until the view ends
  WindowRows window(out);
  RETURN_IF_ERROR(
      snapshot::ForEachRecord(tx, [&](const snapshot::KeyRecord& record) -> absl::Status {
        if (record.revision.tombstone || record.value.empty()) {
          live.erase(record.user_key);
        } else {
          live[record.user_key] = record.value;
        }
        return window.Add(record);
      }));
  window.Close();
  out->key_count = live.size();
  for (const auto& [key, stored] : live) {
    CountPrefix(key, out);
    ASSIGN_OR_RETURN(const mvcc::KeyValue kv, mvcc::DecodeKeyValue(stored));
    const std::string_view encryption = EncryptionOf(kv.value);
    if (!encryption.empty()) out->encryptions.emplace(encryption);
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view TopPrefix(std::string_view key) {
  size_t slash = key.find('/');
  if (slash == 0) {
    slash = key.find('/', 1);
    if (slash != std::string_view::npos) {
      const size_t next = key.find('/', slash + 1);
      if (next != std::string_view::npos) slash = next;
    }
  }
  return slash == std::string_view::npos ? std::string_view() : key.substr(0, slash + 1);
}

std::string_view EncryptionOf(std::string_view value) {
  if (!value.starts_with(kEncryptionMark)) return {};
  // k8s:enc:<provider>:<version>:<key name>:
  size_t end = kEncryptionMark.size();
  for (int part = 0; part < 3; ++part) {
    end = value.find(':', end);
    if (end == std::string_view::npos || end > kEncryptionBytesMax) return {};
    ++end;
  }
  return value.substr(0, end);
}

absl::StatusOr<Examination> Examine(base::Files& files, base::Clock& clock, const std::string& path,
                                    const ExamineOptions& options) {
  ASSIGN_OR_RETURN(
      const snapshot::OpenedDb opened,
      snapshot::OpenChecked(files, clock, path, {.verify_trailer = !options.digest_was_checked}));
  if (!opened.has_trailer) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "{}: the SHA-256 at the end of the snapshot is missing", path);
  }
  Examination out;
  ASSIGN_OR_RETURN(out.bounds, snapshot::BoundsOf(*opened.tx));
  ASSIGN_OR_RETURN(out.storage_version, snapshot::StorageVersion(*opened.tx));
  // Both walk all rows; beside each other they take half the time.
  auto hashing = std::async(
      std::launch::async, [view = opened.db->BeginRead()] { return snapshot::HashKvOf(*view, 0); });
  const absl::Status read = ReadRows(*opened.tx, &out);
  auto hash = hashing.get();
  RETURN_IF_ERROR(read);
  ASSIGN_OR_RETURN(out.hash, std::move(hash));
  return out;
}

}  // namespace capture
