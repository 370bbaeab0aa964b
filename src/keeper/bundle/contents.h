// A bundle's files in memory, for the checks. Internal to this folder; immutable once read, one
// thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bundle/check.h"
#include "bundle/tar.h"
#include "yaml/yaml.h"

namespace bundle {

struct File {
  Entry entry;
  std::string content;
};

// One YAML document of a file.
struct Document {
  std::string path;
  yaml::Value value;
};

class Contents {
 public:
  static absl::StatusOr<Contents> Read(std::string_view tar);
  const std::map<std::string, File>& files() const { return files_; }  // by path in the bundle
  const std::vector<Document>& documents() const { return documents_; }
  // Files that look like YAML and are not: path and fault.
  const std::vector<std::pair<std::string, std::string>>& unparsed() const { return unparsed_; }
  // The file at an absolute path of the host, through links as far as their targets are in the
  // bundle; nullptr: it is not there.
  const File* At(std::string_view absolute) const;

 private:
  void ParseDocuments();
  std::map<std::string, File> files_;
  std::vector<Document> documents_;
  std::vector<std::pair<std::string, std::string>> unparsed_;
};

void Add(Report* report, Finding::Level level, std::string subject, std::string text);

// The three subjects; each adds its findings.
void CheckCertificates(const Contents& contents, const CheckOptions& options, Report* report);
void CheckManifests(const Contents& contents, const CheckOptions& options, Report* report);
void CheckEncryption(const Contents& contents, const CheckOptions& options, Report* report);

// The bytes of a standard base64 text, blanks and line breaks apart; nullopt for anything else.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace bundle
