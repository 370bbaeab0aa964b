#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bundle/contents.h"

namespace bundle {
namespace {

using Level = Finding::Level;

// Flags of kube-apiserver that name a file without which it does not start or cannot read.
constexpr std::string_view kFileFlags[] = {
    "client-ca-file",
    "encryption-provider-config",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
    "kubelet-certificate-authority",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "proxy-client-cert-file",
    "proxy-client-key-file",
    "requestheader-client-ca-file",
    "service-account-key-file",
    "service-account-signing-key-file",
    "tls-cert-file",
    "tls-private-key-file",
};

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    if (!text.substr(0, at).empty()) parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// The words of a container's command line, `command` then `args`.
std::vector<std::string> CommandLine(const yaml::Value& container) {
  std::vector<std::string> words;
  for (const std::string_view key : {"command", "args"}) {
    const yaml::Value* list = container.Find(key);
    for (size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
      words.push_back(list->items[i].text);
    }
  }
  return words;
}

bool RunsApiServer(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "kube-apiserver" || word.ends_with("/kube-apiserver");
  });
}

// The values of --NAME=VALUE or --NAME VALUE; a flag may be repeated.
std::vector<std::string> FlagValues(const std::vector<std::string>& words, std::string_view name) {
  std::vector<std::string> values;
  const std::string flag = "--" + std::string(name);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(flag + "=")) {
      values.push_back(words[i].substr(flag.size() + 1));
    } else if (words[i] == flag && i + 1 < words.size()) {
      values.push_back(words[i + 1]);
    }
  }
  return values;
}

// The member on the API server's own host, as a static pod usually names it.
bool IsLoopback(std::string_view url) {
  return url.find("://127.") != std::string_view::npos ||
         url.find("://localhost:") != std::string_view::npos ||
         url.find("://[::1]:") != std::string_view::npos;
}

void CheckServers(const std::string& path, const std::vector<std::string>& words,
                  const CheckOptions& options, Report* report) {
  std::vector<std::string> servers;
  for (const std::string& value : FlagValues(words, "etcd-servers")) {
    for (std::string& server : Split(value, ',')) servers.push_back(std::move(server));
  }
  if (servers.empty()) {
    Add(report, Level::kFailed, path, "its kube-apiserver names no --etcd-servers");
    return;
  }
  std::vector<std::string> others;
  for (const std::string& server : servers) {
    const bool ours = std::find(options.endpoints.begin(), options.endpoints.end(), server) !=
                      options.endpoints.end();
    if (!ours && !IsLoopback(server)) others.push_back(server);
  }
  if (others.empty()) {
    Add(report, Level::kOk, path, fmt::format("names {}, which is backed up", Join(servers)));
  } else {
    Add(report, Level::kFailed, path,
        fmt::format("its --etcd-servers name {}, which is not what is backed up ({}): after a "
                    "restore it would speak to another cluster",
                    Join(others), Join(options.endpoints)));
  }
  for (const std::string& value : FlagValues(words, "etcd-servers-overrides")) {
    Add(report, Level::kWarning, path,
        fmt::format(
            "keeps some objects elsewhere (--etcd-servers-overrides={}): that cluster wants "
            "a backup of its own",
            value));
  }
}

void CheckFiles(const std::string& path, const std::vector<std::string>& words,
                const Contents& contents, Report* report) {
  for (const std::string_view flag : kFileFlags) {
    for (const std::string& file : FlagValues(words, flag)) {
      if (contents.At(file) != nullptr) continue;
      Add(report, Level::kFailed, path,
          fmt::format("--{} names {}, which is not in the bundle: list it", flag, file));
    }
  }
}

// "v1.37.2" of "registry.k8s.io/kube-apiserver:v1.37.2@sha256:..."; empty where it has no such tag.
std::string VersionOf(std::string_view image) {
  image = image.substr(0, image.find('@'));
  const size_t colon = image.rfind(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view tag = image.substr(colon + 1);
  const bool version = tag.size() > 1 && tag[0] == 'v' && tag[1] >= '0' && tag[1] <= '9';
  return version ? std::string(tag) : std::string();
}

void CheckPod(const Document& document, const Contents& contents, const CheckOptions& options,
              Report* report) {
  const yaml::Value* spec = document.value.Find("spec");
  const yaml::Value* containers = spec == nullptr ? nullptr : spec->Find("containers");
  if (containers == nullptr || !containers->is_sequence() || containers->items.empty()) {
    Add(report, Level::kFailed, document.path, "is a pod without containers");
    return;
  }
  for (const yaml::Value& container : containers->items) {
    const std::vector<std::string> words = CommandLine(container);
    if (!RunsApiServer(words)) continue;
    if (report->kubernetes_version.empty()) {
      report->kubernetes_version = VersionOf(container.TextOf("image"));
    }
    CheckServers(document.path, words, options, report);
    CheckFiles(document.path, words, contents, report);
  }
}

}  // namespace

void CheckManifests(const Contents& contents, const CheckOptions& options, Report* report) {
  for (const auto& [path, fault] : contents.unparsed()) {
    Add(report, Level::kFailed, path, fmt::format("does not parse as YAML: line {}", fault));
  }
  for (const Document& document : contents.documents()) {
    if (document.value.TextOf("kind") == "Pod") CheckPod(document, contents, options, report);
  }
}

}  // namespace bundle
