#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "bundle/contents.h"
#include "client/client.h"

namespace bundle {
namespace {

using Level = Finding::Level;

constexpr base::Duration kKmsTimeout = std::chrono::seconds(3);  // the API server's default

// What can decrypt: "aescbc", "v1", "key1" as in the values' prefix.
struct KeyName {
  std::string provider;
  std::string version;
  std::string name;
  friend auto operator<=>(const KeyName&, const KeyName&) = default;
};

// "k8s:enc:aescbc:v1:key1:"; nullopt where it has another form.
std::optional<KeyName> ParsePrefix(std::string_view prefix) {
  constexpr std::string_view kLead = "k8s:enc:";
  if (!prefix.starts_with(kLead)) return std::nullopt;
  prefix.remove_prefix(kLead.size());
  std::string parts[3];
  for (std::string& part : parts) {
    const size_t colon = prefix.find(':');
    if (colon == 0 || colon == std::string_view::npos) return std::nullopt;
    part = prefix.substr(0, colon);
    prefix.remove_prefix(colon + 1);
  }
  return KeyName{.provider = parts[0], .version = parts[1], .name = parts[2]};
}

std::string Text(const KeyName& key) {
  return fmt::format("{} `{}`", key.provider == "kms" ? "KMS provider" : key.provider + " key",
                     key.name);
}

bool RightLength(std::string_view provider, size_t bytes) {
  if (provider == "secretbox") return bytes == 32;
  return bytes == 16 || bytes == 24 || bytes == 32;
}

// Everything one encryption configuration can decrypt with.
class Reader {
 public:
  Reader(const Document& document, const CheckOptions& options, Report* report)
      : document_(document), options_(options), report_(report) {}

  std::set<KeyName> Read() {
    const yaml::Value* resources = document_.value.Find("resources");
    if (resources == nullptr || !resources->is_sequence()) {
      Fail("names no resources");
      return {};
    }
    for (const yaml::Value& resource : resources->items) {
      const yaml::Value* providers = resource.Find("providers");
      if (providers == nullptr || !providers->is_sequence() || providers->items.empty()) {
        Fail("has resources without providers");
        continue;
      }
      for (const yaml::Value& provider : providers->items) ReadProvider(provider);
    }
    return std::move(keys_);
  }

 private:
  void Fail(std::string text) { Add(report_, Level::kFailed, document_.path, std::move(text)); }

  void ReadProvider(const yaml::Value& provider) {
    if (!provider.is_map() || provider.keys.size() != 1) {
      Fail(fmt::format("line {}: a provider is a map of one name", provider.line));
      return;
    }
    const std::string& kind = provider.keys[0];
    const yaml::Value& settings = provider.items[0];
    if (kind == "identity") return;
    if (kind == "kms") return ReadKms(settings);
    if (kind != "aescbc" && kind != "aesgcm" && kind != "secretbox") {
      Fail(fmt::format("line {}: the provider `{}` is not known", provider.line, kind));
      return;
    }
    const yaml::Value* keys = settings.Find("keys");
    if (keys == nullptr || !keys->is_sequence() || keys->items.empty()) {
      Fail(fmt::format("line {}: {} has no keys", provider.line, kind));
      return;
    }
    for (const yaml::Value& key : keys->items) ReadKey(kind, key);
  }

  void ReadKey(const std::string& kind, const yaml::Value& key) {
    const std::string name(key.TextOf("name"));
    const std::optional<std::string> secret = FromBase64(key.TextOf("secret"));
    if (name.empty()) {
      Fail(fmt::format("line {}: a key of {} has no name", key.line, kind));
    } else if (!secret || !RightLength(kind, secret->size())) {
      Fail(fmt::format("line {}: the secret of {} key `{}` is no base64 of a key's length",
                       key.line, kind, name));
    } else {
      keys_.insert({.provider = kind, .version = "v1", .name = name});
    }
  }

  void ReadKms(const yaml::Value& settings) {
    KmsPlugin plugin{.config = document_.path,
                     .version = std::string(settings.TextOf("apiVersion")),
                     .name = std::string(settings.TextOf("name")),
                     .endpoint = std::string(settings.TextOf("endpoint"))};
    if (plugin.version.empty()) plugin.version = "v1";
    if (plugin.name.empty() || plugin.endpoint.empty()) {
      Fail(fmt::format("line {}: a KMS provider has a name and an endpoint", settings.line));
      return;
    }
    keys_.insert({.provider = "kms", .version = plugin.version, .name = plugin.name});
    const bool known =
        std::any_of(report_->kms.begin(), report_->kms.end(), [&](const KmsPlugin& other) {
          return other.name == plugin.name && other.endpoint == plugin.endpoint;
        });
    if (known) return;
    CheckEndpoint(&plugin);
    report_->kms.push_back(std::move(plugin));
  }

  void CheckEndpoint(KmsPlugin* tried) {
    const KmsPlugin& plugin = *tried;
    constexpr std::string_view kUnix = "unix://";
    std::string_view path = plugin.endpoint;
    if (!path.starts_with(kUnix)) {
      Fail(fmt::format("KMS provider `{}`: the endpoint {} is no unix socket", plugin.name,
                       plugin.endpoint));
      return;
    }
    path.remove_prefix(kUnix.size());
    const std::string note = "what it decrypts with lies in the KMS, not in this bundle";
    if (path.starts_with('@')) {
      Add(report_, Level::kWarning, document_.path,
          fmt::format("KMS provider `{}` at {}: {}", plugin.name, plugin.endpoint, note));
    } else if (Exists(std::string(path))) {
      if (plugin.version == "v2") return Try(note, tried);
      Add(report_, Level::kOk, document_.path,
          fmt::format("KMS provider `{}`: its socket {} is there; {}", plugin.name, path, note));
    } else {
      Fail(
          fmt::format("KMS provider `{}`: there is no socket {} on this host: start its plugin, or "
                      "nothing it encrypted can be read",
                      plugin.name, path));
    }
  }

  void Try(const std::string& note, KmsPlugin* plugin) {
    const auto status = options_.ask_kms ? options_.ask_kms(plugin->endpoint)
                                         : AskKmsPlugin(plugin->endpoint, kKmsTimeout);
    if (!status.ok()) {
      Fail(
          fmt::format("KMS provider `{}`: the plugin at {} does not answer ({}): start it, or "
                      "nothing it encrypted can be read",
                      plugin->name, plugin->endpoint, client::ErrorText(status.status())));
      return;
    }
    plugin->key_id = status->key_id;
    if (status->healthz != "ok") {
      Fail(fmt::format("KMS provider `{}`: the plugin at {} says that it is not well: {}",
                       plugin->name, plugin->endpoint, status->healthz));
      return;
    }
    Add(report_, Level::kOk, document_.path,
        fmt::format("KMS provider `{}` answers at {} and encrypts with key {}; {}", plugin->name,
                    plugin->endpoint, plugin->key_id, note));
  }

  bool Exists(const std::string& path) const {
    if (options_.socket_exists) return options_.socket_exists(path);
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
  }

  const Document& document_;
  const CheckOptions& options_;
  Report* const report_;
  std::set<KeyName> keys_;
};

}  // namespace

void CheckEncryption(const Contents& contents, const CheckOptions& options, Report* report) {
  std::set<KeyName> keys;
  std::string configs;
  for (const Document& document : contents.documents()) {
    const std::string_view kind = document.value.TextOf("kind");
    if (kind != "EncryptionConfiguration" && kind != "EncryptionConfig") continue;
    keys.merge(Reader(document, options, report).Read());
    configs += (configs.empty() ? "" : ", ") + document.path;
  }
  for (const std::string& prefix : options.value_prefixes) {
    const std::optional<KeyName> needed = ParsePrefix(prefix);
    const std::string subject = configs.empty() ? "encryption configuration" : configs;
    if (!needed) {
      Add(report, Level::kWarning, subject,
          fmt::format("values in etcd begin with `{}`, which is of no known form", prefix));
    } else if (keys.contains(*needed)) {
      Add(report, Level::kOk, subject,
          fmt::format("names {}, which values in etcd need", Text(*needed)));
    } else if (configs.empty()) {
      Add(report, Level::kFailed, subject,
          fmt::format(
              "is not in the bundle, and values in etcd are encrypted by {}: after a restore "
              "nobody could read them",
              Text(*needed)));
    } else {
      Add(report, Level::kFailed, subject,
          fmt::format(
              "does not name {} ({}), by which values in etcd are encrypted: after a restore "
              "nobody could read them",
              Text(*needed), needed->version));
    }
  }
}

}  // namespace bundle
