#include "config/load.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/status.h"
#include "base/urls.h"
#include "config/keys.h"
#include "config/sections.h"

namespace config {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 20;
constexpr uint64_t kSpoolBytes = uint64_t{10} << 30;
constexpr uint64_t kSpoolBytesMin = uint64_t{256} << 20;
constexpr const char* kNone = "none";

void ReadRecipients(Fields* fields, Encryption* encryption) {
  std::vector<std::pair<int, std::string>> texts;
  if (fields->Texts("recipients", &texts) && texts.empty()) {
    fields->Fault("recipients", "is an empty list: name at least one, or write `encryption: none`");
  }
  for (const auto& [line, text] : texts) {
    const std::string fault =
        text == kNone ? "`none` stands beside recipients: backups are encrypted or they are not"
                      : RecipientFault(text);
    if (!fault.empty()) {
      fields->faults().Add(line, fmt::format("{}: {}", fields->PathOf("recipients"), fault));
    }
    encryption->recipients.push_back(text);
  }
  if (texts.size() == 1) {
    fields->faults().Warn(fields->LineOf("recipients"),
                          "one recipient only: with its identity every backup is lost; add an "
                          "offline recovery key");
  }
}

void ReadEncryption(Fields* root, Encryption* encryption) {
  const yaml::Value* value = root->Get("encryption");
  if (value == nullptr) {
    root->Fault(
        "encryption",
        "is missing: give recipients (`engram-keeper keys generate` makes a pair), or write "
        "`encryption: none` to store backups readable for whoever has the store");
    return;
  }
  if (value->is_scalar()) {
    if (value->text != kNone) {
      root->Fault("encryption", "expected recipients or the word none");
    } else {
      root->faults().Warn(root->LineOf("encryption"),
                          "backups are not encrypted: every Secret can be read in the stores");
    }
    return;
  }
  Fields fields(&root->faults(), value, "encryption", value->line);
  if (value->is_map() && !fields.Has("recipients")) {
    fields.Fault("recipients", "is missing: name at least one, or write `encryption: none`");
  }
  ReadRecipients(&fields, encryption);
  if (fields.Has(kNone)) {
    fields.Fault(kNone, "backups are encrypted or they are not: write `encryption: none` alone");
  }
  fields.Path("identity_file", &encryption->identity_file);
}

void ReadSigners(Fields* root, Config* config) {
  root->Path("signing_key_file", &config->signing_key_file);
  std::vector<std::pair<int, std::string>> texts;
  root->Texts("trusted_signers", &texts);
  for (const auto& [line, text] : texts) {
    std::optional<std::string> signer = SignerText(text);
    if (!signer) {
      root->faults().Add(line,
                         "trusted_signers: expected the public line of a signing key file, "
                         "`engram-signing-public-1 ` and base64");
      continue;
    }
    config->trusted_signers.push_back(*std::move(signer));
  }
  if (!root->Has("signing_key_file") && !root->Has("trusted_signers")) {
    root->Fault("signing_key_file",
                "is missing: the key that signs the log (`engram-keeper keys generate --signing "
                "FILE`); a host that only reads gives trusted_signers instead");
  }
}

void ReadListen(Fields* root, Config* config) {
  config->listen = "127.0.0.1:9380";
  if (!root->Text("listen", &config->listen)) return;
  const absl::StatusOr<base::Url> url = base::ParseUrl("http://" + config->listen);
  if (!url.ok() || !base::IsBindable(*url) || url->port.size() > 5 ||
      std::stoi(url->port) > 65535) {
    root->Fault("listen",
                fmt::format("`{}` is no IP:PORT or localhost:PORT to listen on", config->listen));
    return;
  }
  if (url->host != "localhost" && url->host != "::1" && !url->host.starts_with("127.")) {
    root->faults().Warn(root->LineOf("listen"),
                        fmt::format("{} can be reached from other hosts: metrics tell names of "
                                    "clusters and stores",
                                    config->listen));
  }
}

// The entries of a list of maps; `read` gets each with its path.
template <typename Read>
void ReadList(Fields* root, std::string_view key, const Read& read) {
  const yaml::Value* value = root->Get(key);
  if (value == nullptr || !value->is_sequence() || value->items.empty()) {
    root->Fault(key, value == nullptr ? "is missing: a list of at least one"
                                      : "expected a list of at least one");
    return;
  }
  for (size_t i = 0; i < value->items.size(); ++i) {
    const yaml::Value& item = value->items[i];
    Fields fields(&root->faults(), &item, fmt::format("{}[{}]", key, i), item.line);
    read(&fields);
  }
}

// Notes a name; a second use is a fault that says where the first is.
void NoteName(Fields* fields, const std::string& name, std::map<std::string, int>* lines) {
  if (name.empty()) return;
  const auto [first, fresh] = lines->emplace(name, fields->LineOf("name"));
  if (!fresh) {
    fields->Fault("name", fmt::format("`{}` is taken by the one in line {}", name, first->second));
  }
}

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Two names for one place are one copy, however the status screen counts them.
std::string PlaceOf(const Store& store) {
  if (store.type == Store::Type::kFile) {
    return store.path.empty() ? "" : WithoutSlashes(store.path);
  }
  return fmt::format("{} {} {}", store.endpoint, store.bucket, store.prefix);
}

bool IsBelow(const std::string& path, const std::string& folder) {
  const std::string base = WithoutSlashes(folder);
  return !path.empty() && (WithoutSlashes(path) == base || path.starts_with(base + "/"));
}

void ReadStores(Fields* root, Config* config) {
  std::map<std::string, int> lines;
  std::map<std::string, std::string> places;
  ReadList(root, "stores", [&](Fields* fields) {
    Store store = ReadStore(fields);
    NoteName(fields, store.name, &lines);
    const std::string place = PlaceOf(store);
    const auto [first, fresh] = places.emplace(place, store.name);
    if (!place.empty() && !fresh) {
      fields->faults().Add(fields->line(), fmt::format("store `{}` is the same place as store `{}`",
                                                       store.name, first->second));
    }
    if (IsBelow(store.path, config->state_dir)) {
      fields->Fault("path", fmt::format("lies in state_dir, {}, which may be lost at any time",
                                        config->state_dir));
    }
    config->stores.push_back(std::move(store));
  });
}

void ReadClusters(Fields* root, Config* config) {
  Surroundings surroundings{.can_decrypt = config->encryption.none() ||
                                           !config->encryption.identity_file.empty()};
  for (const Store& store : config->stores) {
    if (!store.name.empty()) surroundings.stores.insert(store.name);
  }
  std::map<std::string, int> lines;
  std::map<std::string, std::string> endpoints;
  ReadList(root, "clusters", [&](Fields* fields) {
    Cluster cluster = ReadCluster(fields, surroundings);
    NoteName(fields, cluster.name, &lines);
    for (const std::string& endpoint : cluster.endpoints) {
      const auto [first, fresh] = endpoints.emplace(endpoint, cluster.name);
      if (fresh) continue;
      fields->faults().Warn(fields->LineOf("endpoints"),
                            fmt::format("clusters `{}` and `{}` share the endpoint {}",
                                        first->second, cluster.name, endpoint));
    }
    config->clusters.push_back(std::move(cluster));
  });
}

void ReadRoot(Fields* root, Config* config) {
  config->state_dir = "/var/lib/engram-keeper";
  root->Path("state_dir", &config->state_dir);
  ReadListen(root, config);
  if (root->Text("log_level", &config->log_level) && config->log_level != "debug" &&
      config->log_level != "info" && config->log_level != "warn" && config->log_level != "error") {
    root->Fault("log_level",
                fmt::format("`{}` is none of debug, info, warn, error", config->log_level));
  }
  config->spool_bytes_max = kSpoolBytes;
  root->Size("spool_max", kSpoolBytesMin, &config->spool_bytes_max);
  ReadEncryption(root, &config->encryption);
  ReadSigners(root, config);
  ReadStores(root, config);
  ReadClusters(root, config);
}

}  // namespace

absl::StatusOr<Loaded> Parse(std::string_view text, std::string_view file) {
  absl::StatusOr<std::vector<yaml::Value>> documents =
      yaml::Parse(text, {.bytes_max = kFileBytesMax});
  if (!documents.ok()) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{}:{}", file,
                            base::Message(documents.status()));
  }
  if (documents->size() != 1) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{}:1: {}", file,
                            documents->empty() ? "nothing stands in this file"
                                               : "several documents stand in this file");
  }
  Faults faults(file);
  Loaded loaded;
  {
    Fields root(&faults, &documents->front(), "", 1);
    if (documents->front().is_map()) ReadRoot(&root, &loaded.config);
  }
  RETURN_IF_ERROR(faults.AsStatus());
  loaded.warnings = faults.Warnings();
  return loaded;
}

absl::StatusOr<Loaded> Load(base::Files& files, const std::string& path) {
  ASSIGN_OR_RETURN(const base::FileInfo info, files.Stat(path));
  if (info.is_directory || info.size_bytes > kFileBytesMax) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{}:1: {}", path,
                            info.is_directory ? "is a folder" : "is larger than 1 MiB");
  }
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(files, path));
  return Parse(text, path);
}

const Store* Config::FindStore(const std::string& name) const {
  const auto found = std::find_if(stores.begin(), stores.end(),
                                  [&](const Store& store) { return store.name == name; });
  return found == stores.end() ? nullptr : &*found;
}

const Cluster* Config::FindCluster(const std::string& name) const {
  const auto found = std::find_if(clusters.begin(), clusters.end(),
                                  [&](const Cluster& cluster) { return cluster.name == name; });
  return found == clusters.end() ? nullptr : &*found;
}

}  // namespace config
