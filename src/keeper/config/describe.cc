#include <fmt/format.h>

#include "base/log.h"
#include "config/load.h"
#include "config/units.h"

namespace config {
namespace {

// A JSON string is a YAML string.
std::string Quote(std::string_view text) { return base::JsonString(text); }

std::string List(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ", ") + Quote(text);
  return "[" + out + "]";
}

std::string OrWord(Duration d, const char* word) {
  return d == Duration(0) ? word : DurationText(d);
}

std::string SpansText(const std::vector<Duration>& spans) {
  std::string out;
  for (const Duration span : spans) out += (out.empty() ? "" : ", ") + DurationText(span);
  return spans.empty() ? "none" : "[" + out + "]";
}

// Lines of one indentation.
class Lines {
 public:
  Lines(std::string* out, std::string indent) : out_(out), indent_(std::move(indent)) {}
  // The first line of a list's entry carries its dash.
  void StartEntry() { dash_ = true; }
  void Raw(std::string_view key, std::string_view value) {
    std::string lead = indent_;
    if (dash_) lead.replace(lead.size() - 2, 2, "- ");
    dash_ = false;
    *out_ += fmt::format("{}{}:{}{}\n", lead, key, value.empty() ? "" : " ", value);
  }
  void Text(std::string_view key, std::string_view value) {
    if (!value.empty()) Raw(key, Quote(value));
  }
  void SecretOf(const std::string& name, const Secret& secret) {
    switch (secret.source) {
      case Secret::Source::kNone:
        break;
      case Secret::Source::kFile:
        Text(name + "_file", secret.where);
        break;
      case Secret::Source::kEnvironment:
        Text(name + "_env", secret.where);
        break;
      case Secret::Source::kCommand: {
        std::vector<std::string> shown(secret.command.size(), "(hidden)");
        if (!shown.empty()) shown[0] = secret.command[0];
        Raw(name + "_command", List(shown));
        break;
      }
    }
  }

 private:
  std::string* const out_;
  const std::string indent_;
  bool dash_ = false;
};

void DescribeStore(const Store& store, Lines* lines) {
  lines->StartEntry();
  lines->Text("name", store.name);
  lines->Raw("type", store.type == Store::Type::kFile ? "file" : "s3");
  lines->Text("path", store.path);
  lines->Text("endpoint", store.endpoint);
  lines->Text("bucket", store.bucket);
  lines->Text("prefix", store.prefix);
  lines->Text("region", store.region);
  lines->SecretOf("credentials", store.credentials);
  lines->Text("prune_credentials_file", store.prune_credentials_file);
  lines->Text("ca_file", store.ca_file);
  if (store.bandwidth > 0) lines->Raw("bandwidth", RateText(store.bandwidth));
}

void DescribeAccess(const Cluster& cluster, std::string* out, Lines* lines) {
  lines->Raw("endpoints", List(cluster.endpoints));
  if (cluster.tls != Tls()) {
    lines->Raw("tls", "");
    Lines inner(out, "      ");
    inner.Text("ca_file", cluster.tls.ca_file);
    inner.Text("cert_file", cluster.tls.cert_file);
    inner.Text("key_file", cluster.tls.key_file);
  }
  if (cluster.user) {
    lines->Raw("user", "");
    Lines inner(out, "      ");
    inner.Text("name", cluster.user->name);
    inner.SecretOf("password", cluster.user->password);
  }
}

void DescribeDrill(const Drill& drill, std::string* out, Lines* lines) {
  lines->Raw("drill", "");
  Lines inner(out, "      ");
  inner.Raw("every", OrWord(drill.every, "never"));
  inner.Text("server", drill.server);
  if (!drill.known_keys.empty()) inner.Raw("known_keys", List(drill.known_keys));
  inner.Text("kube_apiserver", drill.kube_apiserver);
  inner.Text("kube_controller_manager", drill.kube_controller_manager);
  inner.Text("kube_scheduler", drill.kube_scheduler);
  inner.Text("kwok", drill.kwok);
}

void DescribeCluster(const Cluster& cluster, std::string* out) {
  Lines lines(out, "    ");
  lines.StartEntry();
  lines.Text("name", cluster.name);
  DescribeAccess(cluster, out, &lines);
  lines.Raw("policy",
            fmt::format("{{like: {}, full_every: {}, segment_every: {}, segment_bytes: {}, "
                        "roll_ups: {}, parts_stay: {}, adopt_after: {}}}",
                        cluster.policy.like, DurationText(cluster.policy.full_every),
                        OrWord(cluster.policy.segment_every, "none"),
                        SizeText(cluster.policy.segment_bytes_max),
                        SpansText(cluster.policy.roll_ups), DurationText(cluster.policy.parts_stay),
                        DurationText(cluster.policy.adopt_after)));
  lines.Raw("stores", List(cluster.stores));
  if (!cluster.bundle.paths.empty()) {
    lines.Raw("bundle", fmt::format("{{paths: {}, every: {}}}", List(cluster.bundle.paths),
                                    DurationText(cluster.bundle.every)));
  }
  const Retention& keep = cluster.retention;
  lines.Raw("retention",
            fmt::format("{{window: {}, hourly: {}, daily: {}, weekly: {}, monthly: {}, "
                        "keep_proven: {}, every: {}}}",
                        OrWord(keep.window, "none"), keep.hourly, keep.daily, keep.weekly,
                        keep.monthly, keep.keep_proven, OrWord(keep.every, "never")));
  DescribeDrill(cluster.drill, out, &lines);
  lines.Raw("hashkv_by_rpc", cluster.hashkv_by_rpc ? "true" : "false");
  lines.Raw("lease_ttl_default", DurationText(cluster.lease_ttl_default));
  lines.Raw("suspect_share", fmt::format("{}", cluster.suspect_share));
  if (!cluster.metrics_endpoints.empty()) {
    lines.Raw("metrics_endpoints", List(cluster.metrics_endpoints));
  }
  lines.Raw("pause_max", OrWord(cluster.pause_max, "never"));
  const std::optional<uint64_t>& rate = cluster.snapshot_bandwidth;
  lines.Raw("snapshot_bandwidth", !rate ? "auto" : *rate == 0 ? "unlimited" : RateText(*rate));
}

}  // namespace

std::string Describe(const Config& config) {
  std::string out;
  Lines lines(&out, "");
  lines.Text("state_dir", config.state_dir);
  lines.Text("listen", config.listen);
  lines.Raw("log_level", config.log_level);
  lines.Raw("spool_max", SizeText(config.spool_bytes_max));
  if (config.encryption.none()) {
    lines.Raw("encryption", "none");
  } else {
    lines.Raw("encryption", "");
    Lines inner(&out, "  ");
    inner.Raw("recipients", List(config.encryption.recipients));
    inner.Text("identity_file", config.encryption.identity_file);
  }
  lines.Text("signing_key_file", config.signing_key_file);
  if (!config.trusted_signers.empty()) lines.Raw("trusted_signers", List(config.trusted_signers));
  lines.Raw("stores", "");
  for (const Store& store : config.stores) {
    Lines entry(&out, "    ");
    DescribeStore(store, &entry);
  }
  lines.Raw("clusters", "");
  for (const Cluster& cluster : config.clusters) DescribeCluster(cluster, &out);
  return out;
}

}  // namespace config
