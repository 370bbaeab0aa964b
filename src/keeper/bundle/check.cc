#include "bundle/check.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/status.h"
#include "bundle/contents.h"
#include "bundle/take.h"

namespace bundle {
namespace {

bool LooksLikeYaml(std::string_view path) {
  for (const std::string_view ending : {".yaml", ".yml", ".json", ".manifest", ".conf"}) {
    if (path.ends_with(ending)) return true;
  }
  return false;
}

// "/a/b/../c" as "a/c".
std::string Normal(std::string_view absolute) {
  std::vector<std::string_view> parts;
  while (!absolute.empty()) {
    const size_t slash = absolute.find('/');
    const std::string_view part = absolute.substr(0, slash);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
    if (slash == std::string_view::npos) break;
    absolute.remove_prefix(slash + 1);
  }
  std::string path;
  for (const std::string_view part : parts) path += (path.empty() ? "" : "/") + std::string(part);
  return path;
}

}  // namespace

bool Report::Passed() const {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.level == Finding::Level::kFailed;
  });
}

void Add(Report* report, Finding::Level level, std::string subject, std::string text) {
  report->findings.push_back(
      {.level = level, .subject = std::move(subject), .text = std::move(text)});
}

std::optional<std::string> FromBase64(std::string_view text) {
  std::string packed;
  for (const char c : text) {
    if (c != '\n' && c != '\r' && c != ' ' && c != '\t') packed.push_back(c);
  }
  if (packed.size() % 4 != 0) return std::nullopt;
  std::string bytes(packed.size() / 4 * 3, '\0');
  const int n = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                reinterpret_cast<const unsigned char*>(packed.data()),
                                static_cast<int>(packed.size()));
  if (n < 0) return std::nullopt;
  // The decoder counts the padding as zeros.
  size_t padding = 0;
  while (padding < 2 && padding < packed.size() && packed[packed.size() - 1 - padding] == '=') {
    ++padding;
  }
  bytes.resize(static_cast<size_t>(n) - padding);
  return bytes;
}

absl::StatusOr<Contents> Contents::Read(std::string_view tar) {
  Contents contents;
  RETURN_IF_ERROR(ReadTar(tar, [&](const Entry& entry, std::string_view content) {
    contents.files_[entry.path] = {.entry = entry, .content = std::string(content)};
    return absl::OkStatus();
  }));
  contents.ParseDocuments();
  return contents;
}

void Contents::ParseDocuments() {
  for (const auto& [path, file] : files_) {
    if (file.entry.type != Entry::Type::kFile || !LooksLikeYaml(path)) continue;
    absl::StatusOr<std::vector<yaml::Value>> values =
        yaml::Parse(file.content, {.bytes_max = size_t{16} << 20});
    if (!values.ok()) {
      // Not everything that ends in .conf is YAML.
      if (!path.ends_with(".conf")) unparsed_.emplace_back(path, base::Message(values.status()));
      continue;
    }
    for (yaml::Value& value : *values) {
      documents_.push_back({.path = path, .value = std::move(value)});
    }
  }
}

const File* Contents::At(std::string_view absolute) const {
  std::string path = Normal(absolute);
  constexpr int kLinksMax = 8;
  for (int i = 0; i < kLinksMax; ++i) {
    const auto found = files_.find(path);
    if (found == files_.end() || found->second.entry.type == Entry::Type::kFolder) return nullptr;
    if (found->second.entry.type == Entry::Type::kFile) return &found->second;
    const std::string& target = found->second.entry.target;
    path = target.starts_with('/') ? Normal(target)
                                   : Normal(path.substr(0, path.rfind('/') + 1) + target);
  }
  return nullptr;
}

absl::StatusOr<Report> Check(std::string_view tar, const CheckOptions& options) {
  ASSIGN_OR_RETURN(const Contents contents, Contents::Read(tar));
  Report report;
  CheckCertificates(contents, options, &report);
  CheckManifests(contents, options, &report);
  CheckEncryption(contents, options, &report);
  return report;
}

absl::StatusOr<std::vector<std::string>> Undecryptable(
    std::string_view tar, const std::set<std::string>& value_prefixes) {
  ASSIGN_OR_RETURN(const Contents contents, Contents::Read(tar));
  // What is wrong with the configuration itself stands in both.
  Report with, without;
  const CheckOptions no_sockets{
      .socket_exists = [](const std::string&) { return true; },
      .ask_kms = [](const std::string&) { return KmsStatus{.healthz = "ok"}; }};
  CheckOptions values = no_sockets;
  values.value_prefixes = value_prefixes;
  CheckEncryption(contents, no_sockets, &without);
  CheckEncryption(contents, values, &with);
  std::vector<std::string> lacks;
  for (size_t i = without.findings.size(); i < with.findings.size(); ++i) {
    const Finding& finding = with.findings[i];
    if (finding.level != Finding::Level::kOk) {
      lacks.push_back(fmt::format("{} {}", finding.subject, finding.text));
    }
  }
  return lacks;
}

absl::StatusOr<Report> CheckPaths(const std::vector<std::string>& paths,
                                  const CheckOptions& options) {
  std::string tar;
  ASSIGN_OR_RETURN(const Taken taken, Take(paths, [&](std::string_view bytes) {
                     tar += bytes;
                     return absl::OkStatus();
                   }));
  ASSIGN_OR_RETURN(Report report, Check(tar, options));
  for (const Trouble& trouble : taken.refused) {
    Add(&report, Finding::Level::kFailed, trouble.path, trouble.what);
  }
  for (const Trouble& trouble : taken.changed) {
    Add(&report, Finding::Level::kWarning, trouble.path, trouble.what);
  }
  return report;
}

}  // namespace bundle
