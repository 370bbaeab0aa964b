#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "base/urls.h"
#include "config/sections.h"

namespace config {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kYears = hours(24 * 366 * 10);

// "https://HOST:PORT" of one scheme each.
void ReadUrls(Fields* fields, std::string_view key, std::vector<std::string>* out) {
  std::vector<std::pair<int, std::string>> texts;
  if (fields->Texts(key, &texts) && texts.empty()) fields->Fault(key, "is an empty list");
  std::string scheme;
  for (const auto& [line, text] : texts) {
    const auto fault = [&, at = line](std::string_view what) {
      fields->faults().Add(at, fmt::format("{}: {}", fields->PathOf(key), what));
    };
    // Not repeated: it may hold a password.
    if (text.find('@') != std::string::npos) {
      fault("an endpoint holds a user; `user` is a setting of its own");
      continue;
    }
    const absl::StatusOr<base::Url> url = base::ParseUrl(text);
    if (!url.ok() || url->is_unix() || url->host.empty() || url->port.size() > 5 ||
        std::stoi(url->port) < 1 || std::stoi(url->port) > 65535) {
      fault(fmt::format("`{}` is no http://HOST:PORT or https://HOST:PORT", text));
      continue;
    }
    if (!scheme.empty() && scheme != url->scheme) {
      fault(fmt::format("`{}`: http and https are mixed; a cluster is spoken to in one way", text));
    }
    scheme = url->scheme;
    out->push_back(url->Text());
  }
}

void ReadEndpoints(Fields* fields, Cluster* cluster) {
  if (!fields->Has("endpoints")) {
    fields->Fault("endpoints", "is missing: a list such as [\"https://10.0.0.1:2379\"]");
  }
  ReadUrls(fields, "endpoints", &cluster->endpoints);
  ReadUrls(fields, "metrics_endpoints", &cluster->metrics_endpoints);
  if (fields->Has("metrics_endpoints") &&
      cluster->metrics_endpoints.size() != cluster->endpoints.size()) {
    fields->Fault("metrics_endpoints",
                  fmt::format("has {} entries and endpoints {}: one for each, in their order",
                              cluster->metrics_endpoints.size(), cluster->endpoints.size()));
  }
}

bool Secure(const Cluster& cluster) {
  return !cluster.endpoints.empty() && cluster.endpoints[0].starts_with("https:");
}

void ReadTls(Fields* cluster_fields, Cluster* cluster) {
  Fields fields(&cluster_fields->faults(), cluster_fields->Get("tls"),
                cluster_fields->PathOf("tls"), cluster_fields->LineOf("tls"));
  fields.Path("ca_file", &cluster->tls.ca_file);
  fields.Path("cert_file", &cluster->tls.cert_file);
  fields.Path("key_file", &cluster->tls.key_file);
  if (fields.Has("cert_file") != fields.Has("key_file")) {
    fields.Fault(fields.Has("cert_file") ? "cert_file" : "key_file",
                 "a certificate and its key go together: give both or neither");
  }
  if (cluster_fields->Has("tls") && !cluster->endpoints.empty() && !Secure(*cluster)) {
    cluster_fields->Fault("tls", "the endpoints are http: write https, or leave tls out");
  }
}

void ReadUser(Fields* cluster_fields, Cluster* cluster) {
  const yaml::Value* value = cluster_fields->Get("user");
  if (value == nullptr) return;
  Fields fields(&cluster_fields->faults(), value, cluster_fields->PathOf("user"), value->line);
  User user;
  fields.RequiredText("name", "the user to log in as", &user.name);
  if (!fields.SecretOf("password", &user.password) && !fields.Has("password_file") &&
      !fields.Has("password_env") && !fields.Has("password_command")) {
    fields.Fault("password_file",
                 "is missing: give password_file, password_env or password_command");
  }
  if (fields.Has("password")) {
    fields.Fault("password",
                 "a password does not stand in this file: write it to a file of its own "
                 "and name that as password_file");
  }
  if (!Secure(*cluster) && !cluster->endpoints.empty()) {
    fields.faults().Warn(fields.line(), fmt::format("cluster `{}`: the password of `{}` travels "
                                                    "unencrypted, its endpoints are http",
                                                    cluster->name, user.name));
  }
  cluster->user = std::move(user);
}

void ReadStores(Fields* fields, const Surroundings& surroundings, Cluster* cluster) {
  if (!fields->Has("stores")) {
    cluster->stores.assign(surroundings.stores.begin(), surroundings.stores.end());
    return;
  }
  std::vector<std::pair<int, std::string>> names;
  if (fields->Texts("stores", &names) && names.empty()) {
    fields->Fault("stores", "is an empty list; leave it out to use every store");
  }
  for (const auto& [line, name] : names) {
    if (!surroundings.stores.contains(name)) {
      const std::string near = Nearest(name, surroundings.stores);
      fields->faults().Add(
          line, fmt::format("{}: there is no store `{}`{}", fields->PathOf("stores"), name,
                            near.empty() ? "" : "; did you mean `" + near + "`?"));
    }
    cluster->stores.push_back(name);
  }
}

void ReadBundle(Fields* cluster_fields, Cluster* cluster) {
  const yaml::Value* value = cluster_fields->Get("bundle");
  if (value == nullptr) return;
  Fields fields(&cluster_fields->faults(), value, cluster_fields->PathOf("bundle"), value->line);
  std::vector<std::pair<int, std::string>> paths;
  if (fields.Texts("paths", &paths) && paths.empty()) fields.Fault("paths", "is an empty list");
  if (!fields.Has("paths")) fields.Fault("paths", "is missing: the files and folders to keep");
  for (const auto& [line, path] : paths) {
    const std::string fault = PathFault(path);
    if (!fault.empty()) {
      fields.faults().Add(line, fmt::format("{}: {}", fields.PathOf("paths"), fault));
    }
    cluster->bundle.paths.push_back(path);
  }
  cluster->bundle.every = hours(1);
  fields.Time("every", {.min = minutes(1), .max = kYears}, &cluster->bundle.every);
}

// A program by its name on PATH or by its absolute path.
void ReadProgram(Fields* fields, std::string_view key, std::string* out) {
  std::string program;
  if (!fields->Text(key, &program)) return;
  if (program.find('/') != std::string::npos && !PathFault(program).empty()) {
    fields->Fault(key, PathFault(program));
    return;
  }
  *out = std::move(program);
}

void ReadDrill(Fields* cluster_fields, const Surroundings& surroundings, Cluster* cluster) {
  const yaml::Value* value = cluster_fields->Get("drill");
  if (value == nullptr) return;
  Fields fields(&cluster_fields->faults(), value, cluster_fields->PathOf("drill"), value->line);
  Drill& drill = cluster->drill;
  fields.Time("every", {.min = minutes(10), .max = kYears, .word_for_none = "never"}, &drill.every);
  ReadProgram(&fields, "server", &drill.server);
  ReadProgram(&fields, "kube_apiserver", &drill.kube_apiserver);
  for (const auto& [key, program] :
       {std::pair{"kube_controller_manager", &drill.kube_controller_manager},
        std::pair{"kube_scheduler", &drill.kube_scheduler}, std::pair{"kwok", &drill.kwok}}) {
    ReadProgram(&fields, key, program);
    if (!program->empty() && drill.kube_apiserver.empty()) {
      fields.Fault(key, "needs a kube_apiserver to run on");
    }
  }
  std::vector<std::pair<int, std::string>> keys;
  fields.Texts("known_keys", &keys);
  for (auto& [line, key] : keys) drill.known_keys.push_back(std::move(key));
  if (drill.every > Duration(0) && !surroundings.can_decrypt) {
    fields.Fault("every",
                 "a drill reads backups, which needs encryption.identity_file on this "
                 "host; where it must not be, write every: never");
  }
}

}  // namespace

Cluster ReadCluster(Fields* fields, const Surroundings& surroundings) {
  Cluster cluster;
  if (fields->RequiredText("name", "what commands and folders call it", &cluster.name) &&
      !IsName(cluster.name)) {
    fields->Fault("name", fmt::format("`{}`: letters, digits, - _ and . are allowed, up to 63",
                                      cluster.name));
  }
  ReadEndpoints(fields, &cluster);
  ReadTls(fields, &cluster);
  ReadUser(fields, &cluster);
  cluster.policy = ReadPolicy(fields);
  ReadStores(fields, surroundings, &cluster);
  ReadBundle(fields, &cluster);
  cluster.retention = ReadRetention(fields, cluster.policy);
  ReadDrill(fields, surroundings, &cluster);
  fields->Flag("hashkv_by_rpc", &cluster.hashkv_by_rpc);
  cluster.lease_ttl_default = hours(1);
  fields->Time("lease_ttl_default", {.min = seconds(1), .max = kYears}, &cluster.lease_ttl_default);
  cluster.suspect_share = 0.5;
  fields->Share("suspect_share", &cluster.suspect_share);
  fields->Rate("snapshot_bandwidth", &cluster.snapshot_bandwidth);
  cluster.pause_max = minutes(5);
  fields->Time("pause_max", {.min = seconds(1), .max = hours(24), .word_for_none = "never"},
               &cluster.pause_max);
  return cluster;
}

}  // namespace config
