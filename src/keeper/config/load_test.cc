#include "config/load.h"

#include "base/testing.h"

namespace config {
namespace {

using absl::StatusCode;
using base::IsOkAndHolds;
using base::StatusIs;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Optional;

constexpr const char* kDaily = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
constexpr const char* kRecovery = "age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg";

// A whole file; tests replace single lines of it.
std::string Whole() {
  return fmt::format(R"(state_dir: /var/lib/engram-keeper
listen: 127.0.0.1:9380
stores:
  - {{name: disk, type: file, path: /backup/etcd}}
  - {{name: offsite, type: s3, endpoint: "https://s3.example.org", bucket: cp-backups, prefix: prod, region: eu-1,
     credentials_file: /etc/engram-keeper/s3, ca_file: /etc/ssl/own-ca.pem, bandwidth: 20MiB/s}}
encryption:
  recipients: [{}, {}]
  identity_file: /etc/engram-keeper/identity
signing_key_file: /etc/engram-keeper/sign
clusters:
  - name: prod-trade
    endpoints: ["https://10.0.0.1:2379", "https://10.0.0.2:2379"]
    tls: {{ca_file: /p/ca.crt, cert_file: /p/k.crt, key_file: /p/k.key}}
    user: {{name: backup, password_file: /etc/engram-keeper/password}}
    policy: critical
    stores: [disk, offsite]
    bundle: {{paths: [/etc/kubernetes/pki, /etc/kubernetes/enc.yaml], every: 1h}}
    retention: {{window: 7d, hourly: 24, daily: 30, weekly: 8, monthly: 12, keep_proven: 3}}
    drill: {{every: 1d, server: engram, known_keys: ["/registry/namespaces/kube-system"]}}
)",
                     kDaily, kRecovery);
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string FaultOf(std::string_view text) {
  const absl::StatusOr<Loaded> loaded = Parse(text, "k.yaml");
  EXPECT_THAT(loaded, StatusIs(StatusCode::kInvalidArgument));
  return loaded.ok() ? "" : std::string(base::Message(loaded.status()));
}

std::string FaultWith(std::string_view from, std::string_view to) {
  return FaultOf(Replaced(Whole(), from, to));
}

TEST(Config, ReadsTheWholeFile) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, Parse(Whole(), "k.yaml"));
  EXPECT_THAT(loaded.warnings, ElementsAre());
  const Config& config = loaded.config;
  EXPECT_EQ(config.encryption.recipients, (std::vector<std::string>{kDaily, kRecovery}));
  ASSERT_NE(config.FindStore("offsite"), nullptr);
  EXPECT_EQ(config.FindStore("offsite")->bandwidth, uint64_t{20} << 20);
  EXPECT_EQ(config.FindStore("offsite")->credentials.where, "/etc/engram-keeper/s3");
  EXPECT_EQ(config.FindStore("other"), nullptr);
  ASSERT_NE(config.FindCluster("prod-trade"), nullptr);
  const Cluster& cluster = *config.FindCluster("prod-trade");
  EXPECT_EQ(cluster.endpoints.size(), 2u);
  EXPECT_EQ(cluster.policy.full_every, minutes(5));
  EXPECT_EQ(cluster.policy.segment_every, milliseconds(500));
  EXPECT_EQ(cluster.retention.window, hours(168));
  EXPECT_EQ(cluster.retention.every, hours(1));
  EXPECT_EQ(cluster.bundle.paths.size(), 2u);
  EXPECT_EQ(cluster.drill.every, hours(24));
  EXPECT_EQ(cluster.user->password.source, Secret::Source::kFile);
  EXPECT_EQ(cluster.suspect_share, 0.5);
}

TEST(Config, FillsInDefaults) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, Parse(R"(
stores: [{name: disk, type: file, path: /backup}]
encryption: none
signing_key_file: /k/sign
clusters: [{name: a, endpoints: ["http://127.0.0.1:2379"]}]
)",
                                                  "k.yaml"));
  EXPECT_EQ(loaded.config.state_dir, "/var/lib/engram-keeper");
  EXPECT_EQ(loaded.config.listen, "127.0.0.1:9380");
  EXPECT_EQ(loaded.config.spool_bytes_max, uint64_t{10} << 30);
  EXPECT_TRUE(loaded.config.encryption.none());
  const Cluster& cluster = loaded.config.clusters[0];
  EXPECT_EQ(cluster.policy, *NamedPolicy("production"));
  EXPECT_EQ(cluster.retention, DefaultRetention(*NamedPolicy("production")));
  EXPECT_EQ(cluster.retention.every, Duration(0)) << "what nobody spoke of is not deleted";
  EXPECT_THAT(cluster.stores, ElementsAre("disk"));
  EXPECT_TRUE(cluster.bundle.paths.empty());
  EXPECT_EQ(cluster.drill.every, Duration(0));
  EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr("k.yaml:3: backups are not encrypted")));
}

TEST(Config, KnowsTheFourPoliciesAndSingleNumbers) {
  EXPECT_EQ(NamedPolicy("dev")->full_every, hours(1));
  EXPECT_FALSE(NamedPolicy("dev")->archive());
  EXPECT_EQ(NamedPolicy("staging")->full_every, minutes(30));
  EXPECT_EQ(NamedPolicy("production")->segment_every, std::chrono::seconds(10));
  EXPECT_EQ(NamedPolicy("none"), std::nullopt);
  ASSERT_OK_AND_ASSIGN(
      Loaded loaded,
      Parse(Replaced(Whole(), "critical", "{like: dev, segment_every: 2s, segment_bytes: 8MiB}"),
            "k.yaml"));
  EXPECT_EQ(loaded.config.clusters[0].policy.full_every, hours(1));
  EXPECT_EQ(loaded.config.clusters[0].policy.segment_every, std::chrono::seconds(2));
  EXPECT_EQ(loaded.config.clusters[0].policy.segment_bytes_max, uint64_t{8} << 20);
  ASSERT_OK_AND_ASSIGN(
      loaded,
      Parse(Replaced(Whole(), "critical", "{full_every: 5m, segment_every: none}"), "k.yaml"));
  EXPECT_EQ(loaded.config.clusters[0].policy.like, "production");
  EXPECT_FALSE(loaded.config.clusters[0].policy.archive());
}

TEST(Config, RollUpsAreSpansOfWholeSpans) {
  EXPECT_THAT(NamedPolicy("critical")->roll_ups, ElementsAre(minutes(10), hours(6)));
  const auto with = [](const std::string& roll_ups) {
    return Replaced(Whole(), "critical", "{like: critical, roll_ups: " + roll_ups + "}");
  };
  ASSERT_OK_AND_ASSIGN(Loaded loaded, Parse(with("[2s, 6s], parts_stay: 0s"), "k.yaml"));
  EXPECT_THAT(loaded.config.clusters[0].policy.roll_ups,
              ElementsAre(std::chrono::seconds(2), std::chrono::seconds(6)));
  EXPECT_EQ(loaded.config.clusters[0].policy.parts_stay, Duration(0));
  EXPECT_EQ(loaded.config.clusters[0].policy.adopt_after, hours(24));
  ASSERT_OK_AND_ASSIGN(loaded, Parse(with("none, adopt_after: 90m"), "k.yaml"));
  EXPECT_EQ(loaded.config.clusters[0].policy.adopt_after, minutes(90));
  EXPECT_THAT(FaultOf(with("none, adopt_after: 0s")), HasSubstr("adopt_after"));
  ASSERT_OK_AND_ASSIGN(loaded, Parse(with("none"), "k.yaml"));
  EXPECT_TRUE(loaded.config.clusters[0].policy.roll_ups.empty());
  EXPECT_THAT(FaultOf(with("10m")), HasSubstr("roll_ups: expected a list"));
  EXPECT_THAT(FaultOf(with("[10m, 25m]")), HasSubstr("25m is no multiple of 10m"));
  EXPECT_THAT(FaultOf(with("[10m, 5m]")), HasSubstr("5m is no multiple of 10m"));
  EXPECT_THAT(FaultOf(with("[10ms]")), HasSubstr("a span from 1s to 31d"));
  EXPECT_THAT(FaultOf(with("[1s, 2s, 4s, 8s, 16s]")), HasSubstr("5 spans: 4 at most"));
}

TEST(Config, NamesUnknownKeysAndWhatWasMeant) {
  EXPECT_EQ(FaultWith("cert_file:", "cert_fiel:"),
            "k.yaml:14: clusters[0].tls.key_file: a certificate and its key go together: give both "
            "or neither\n"
            "k.yaml:14: unknown key `cert_fiel` in `clusters[0].tls`; did you mean `cert_file`?");
  EXPECT_EQ(FaultWith("listen:", "lisen:"),
            "k.yaml:2: unknown key `lisen`; did you mean `listen`?");
  EXPECT_THAT(FaultWith("listen:", "quorum:"), "k.yaml:2: unknown key `quorum`");
  EXPECT_THAT(FaultWith("policy:", "<<: {a: b}\n    policy:"), HasSubstr("merge keys"));
}

TEST(Config, ListsEveryFaultByLine) {
  std::string text = Replaced(Whole(), "127.0.0.1:9380", "here");
  text = Replaced(text, "disk, type: file", "disk, type: disk");
  text = Replaced(text, "[disk, offsite]", "[disk, ofsite]");
  text = Replaced(text, "daily: 30", "daily: many");
  text = Replaced(text, "every: 1d", "every: 1 day");
  const std::string faults = FaultOf(text);
  EXPECT_THAT(faults, AllOf(HasSubstr("k.yaml:2: listen:"), HasSubstr("k.yaml:4: stores[0].type"),
                            HasSubstr("k.yaml:17: clusters[0].stores: there is no store `ofsite`; "
                                      "did you mean `offsite`?"),
                            HasSubstr("k.yaml:19: clusters[0].retention.daily"),
                            HasSubstr("k.yaml:20: clusters[0].drill.every")));
  EXPECT_EQ(std::count(faults.begin(), faults.end(), '\n'), 4);
  EXPECT_LT(faults.find("k.yaml:2:"), faults.find("k.yaml:17:"));
}

TEST(Config, BoundsWhatItLists) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("nonsense{}: 1\n", i);
  EXPECT_THAT(FaultOf(text), HasSubstr("k.yaml: and 204 more"));
}

TEST(Config, MetricsAreShownAtAnEndpointForEachEndpoint) {
  const std::string two = "metrics_endpoints: [\"http://10.0.0.1:2381\", \"http://10.0.0.2:2381\"]";
  ASSERT_OK_AND_ASSIGN(const Loaded loaded,
                       Parse(Replaced(Whole(), "policy:", two + "\n    policy:"), "k.yaml"));
  EXPECT_THAT(loaded.config.clusters[0].metrics_endpoints,
              ElementsAre("http://10.0.0.1:2381", "http://10.0.0.2:2381"));
  EXPECT_EQ(loaded.config.clusters[0].pause_max, minutes(5));
  EXPECT_THAT(FaultWith("policy:", "metrics_endpoints: [\"http://10.0.0.1:2381\"]\n    policy:"),
              HasSubstr("has 1 entries and endpoints 2"));
  EXPECT_THAT(FaultWith("policy:", "metrics_endpoints: [10.0.0.1]\n    policy:"),
              HasSubstr("is no http://HOST:PORT"));
  EXPECT_THAT(FaultWith("policy:", "pause_max: 1ms\n    policy:"), HasSubstr("pause_max"));
}

TEST(Config, RefusesWrongTypes) {
  EXPECT_THAT(FaultWith("critical", "[critical]"), HasSubstr("policy: expected a map"));
  EXPECT_THAT(FaultWith("[disk, offsite]", "disk"), HasSubstr("stores: expected a list"));
  EXPECT_THAT(FaultWith("127.0.0.1:9380", "{a: b}"), HasSubstr("listen: expected a single value"));
  EXPECT_THAT(FaultWith("policy:", "hashkv_by_rpc: yes\n    policy:"),
              HasSubstr("expected true or false, found `yes`"));
  EXPECT_THAT(FaultWith("hourly: 24", "hourly: -1"), HasSubstr("expected a number"));
  EXPECT_THAT(FaultWith("policy:", "suspect_share: 1.5\n    policy:"), HasSubstr("share above 0"));
  EXPECT_THAT(FaultWith("policy:", "suspect_share: nan\n    policy:"), HasSubstr("share above 0"));
  EXPECT_THAT(FaultWith("20MiB/s", "20MiB"), HasSubstr("expected a rate"));
  EXPECT_THAT(FaultOf("[1, 2]"), "k.yaml:1: this file: expected a map of settings, found a list");
  EXPECT_THAT(FaultOf("just words"), HasSubstr("found a text"));
  EXPECT_THAT(FaultWith("/backup/etcd", "\"/backup\\netcd\""), HasSubstr("line break"));
}

TEST(Config, EncryptionIsChosenOnPurpose) {
  const std::string whole = Whole();
  const size_t from = whole.find("encryption:");
  const size_t to = whole.find("signing_key_file");
  const auto with = [&](std::string_view section) {
    return whole.substr(0, from) + std::string(section) + whole.substr(to);
  };
  EXPECT_OK(Parse(with("encryption: none\n"), "k.yaml"));
  EXPECT_THAT(FaultOf(with("")), HasSubstr("encryption: is missing"));
  EXPECT_THAT(FaultOf(with("encryption: yes\n")), HasSubstr("or the word none"));
  EXPECT_THAT(FaultOf(with("encryption: {recipients: []}\n")), HasSubstr("empty list"));
  EXPECT_THAT(FaultOf(with("encryption: {identity_file: /i}\n")),
              HasSubstr("recipients: is missing"));
  EXPECT_THAT(FaultOf(with(fmt::format("encryption: {{none: true, recipients: [{}]}}\n", kDaily))),
              HasSubstr("encryption.none"));
  EXPECT_THAT(FaultOf(with(fmt::format("encryption: {{recipients: [none, {}]}}\n", kDaily))),
              HasSubstr("`none` stands beside"));
  EXPECT_THAT(FaultOf(with(fmt::format("encryption: {{recipients: [{0}, {0}]}}\n", kDaily))),
              HasSubstr("twice"));
  EXPECT_THAT(FaultOf(with("encryption: none\nencryption: none\n")), HasSubstr("twice"));
}

TEST(Config, WarnsOfASingleRecipient) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded,
                       Parse(Replaced(Whole(), std::string(", ") + kRecovery, ""), "k.yaml"));
  EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr("k.yaml:8: one recipient only")));
}

TEST(Config, SecretsAreNamedNotWritten) {
  EXPECT_THAT(FaultWith("password_file: /etc/engram-keeper/password", "password: hunter2"),
              AllOf(HasSubstr("does not stand in this file"), Not(HasSubstr("hunter2"))));
  EXPECT_THAT(FaultWith("password_file: /etc/engram-keeper/password", "password_env: hunter-2!"),
              AllOf(HasSubstr("no name of an environment variable"), Not(HasSubstr("hunter"))));
  EXPECT_THAT(FaultWith("name: backup, password_file: /etc/engram-keeper/password",
                        "name: backup, password_file: /x, password_env: X"),
              HasSubstr("give one of"));
  EXPECT_THAT(FaultWith(", password_file: /etc/engram-keeper/password", ""),
              HasSubstr("password_file: is missing"));
  EXPECT_THAT(FaultWith("https://10.0.0.1:2379", "https://root:hunter2@10.0.0.1:2379"),
              AllOf(HasSubstr("holds a user"), Not(HasSubstr("hunter2"))));
  EXPECT_THAT(FaultWith("https://s3.example.org", "https://id:hunter2@s3.example.org"),
              AllOf(HasSubstr("holds a user"), Not(HasSubstr("hunter2"))));
  EXPECT_THAT(
      FaultWith("credentials_file: /etc/engram-keeper/s3", "credentials_command: vault read"),
      HasSubstr("absolute path of a program"));
  ASSERT_OK_AND_ASSIGN(const Loaded loaded,
                       Parse(Replaced(Whole(), "credentials_file: /etc/engram-keeper/s3",
                                      "credentials_command: [/bin/vault, read, hunter2]"),
                             "k.yaml"));
  EXPECT_THAT(loaded.config.stores[1].credentials.command,
              ElementsAre("/bin/vault", "read", "hunter2"));
  EXPECT_THAT(Describe(loaded.config), AllOf(HasSubstr("/bin/vault"), Not(HasSubstr("hunter2"))));
}

TEST(Config, RefusesRelativePaths) {
  EXPECT_THAT(FaultWith("/var/lib/engram-keeper", "state"),
              HasSubstr("state_dir: `state` is a rel"));
  EXPECT_THAT(FaultWith("/backup/etcd", "backup"), HasSubstr("stores[0].path"));
  EXPECT_THAT(FaultWith("/backup/etcd", "/backup/../etc"), HasSubstr("goes upwards"));
  EXPECT_THAT(FaultWith("/p/ca.crt", "ca.crt"), HasSubstr("tls.ca_file"));
  EXPECT_THAT(FaultWith("/etc/kubernetes/pki", "pki"), HasSubstr("bundle.paths"));
  EXPECT_THAT(FaultWith("server: engram", "server: ./engram"), HasSubstr("drill.server"));
  EXPECT_THAT(FaultWith("server: engram", "server: engram, kwok: kwok"),
              HasSubstr("drill.kwok: needs a kube_apiserver"));
}

TEST(Config, RefusesEndpointsThatCannotBe) {
  EXPECT_THAT(FaultWith("https://10.0.0.2:2379", "http://10.0.0.2:2379"), HasSubstr("mixed"));
  for (const char* wrong :
       {"10.0.0.2:2379", "https://10.0.0.2", "https://10.0.0.2:2379/v3", "unix:///x",
        "https://:2379", "https://10.0.0.2:0", "https://10.0.0.2:99999", "ftp://10.0.0.2:21",
        "https://10.0.0.1:2379"}) {
    EXPECT_THAT(FaultWith("https://10.0.0.2:2379", wrong), HasSubstr("endpoints")) << wrong;
  }
  EXPECT_THAT(FaultWith("[\"https://10.0.0.1:2379\", \"https://10.0.0.2:2379\"]", "[]"),
              HasSubstr("empty list"));
  std::string plain = Replaced(Whole(), "https://10.0.0.1", "http://10.0.0.1");
  plain = Replaced(plain, "https://10.0.0.2", "http://10.0.0.2");
  EXPECT_THAT(FaultOf(plain), HasSubstr("clusters[0].tls: the endpoints are http"));
}

TEST(Config, RefusesStoresThatCannotBe) {
  EXPECT_THAT(FaultWith("name: offsite", "name: disk"), HasSubstr("taken by the one in line 4"));
  EXPECT_THAT(FaultWith("bucket: cp-backups", "bucket: CP"), HasSubstr("no bucket name"));
  EXPECT_THAT(FaultWith("prefix: prod", "prefix: /prod/"), HasSubstr("single slashes"));
  EXPECT_THAT(FaultWith("prefix: prod", "path: /x"), HasSubstr("type s3 has no such key"));
  EXPECT_THAT(FaultWith("s3.example.org", "s3.example.org/b"), HasSubstr("has a path"));
  EXPECT_THAT(FaultWith("s3.example.org", "s3.example.org:http"), HasSubstr("wrong port"));
  EXPECT_THAT(FaultWith("name: disk", "name: ../x"), HasSubstr("stores[0].name"));
  EXPECT_THAT(FaultWith("/backup/etcd", "/var/lib/engram-keeper/store"),
              HasSubstr("lies in state_dir"));
  EXPECT_THAT(FaultWith("  - {name: offsite",
                        "  - {name: again, type: file, path: /backup/etcd/}\n  - {name: offsite"),
              HasSubstr("store `again` is the same place as store `disk`"));
}

TEST(Config, RefusesPoliciesThatCannotHold) {
  EXPECT_THAT(FaultWith("critical", "{full_every: 30s, segment_every: 1m}"),
              HasSubstr("1m is longer than full_every, 30s"));
  EXPECT_THAT(FaultWith("critical", "{full_every: 0s}"), HasSubstr("out of range"));
  EXPECT_THAT(FaultWith("critical", "{segment_every: 0s}"), HasSubstr("or the word none"));
  EXPECT_THAT(FaultWith("critical", "critcal"), HasSubstr("did you mean `critical`?"));
  EXPECT_THAT(FaultWith("window: 7d, hourly: 24, daily: 30, weekly: 8, monthly: 12",
                        "window: 0s, hourly: 0, daily: 0, weekly: 0, monthly: 0"),
              HasSubstr("keeps nothing"));
  EXPECT_THAT(FaultWith("window: 7d", "window: 1m"), HasSubstr("shorter than the interval"));
  EXPECT_THAT(FaultWith("critical", "staging"), HasSubstr("cannot bridge a window"));
  EXPECT_OK(Parse(Replaced(Whole(), "critical", "{like: staging, full_every: 5m}"), "k.yaml"));
  EXPECT_THAT(FaultWith("  identity_file: /etc/engram-keeper/identity\n", ""),
              HasSubstr("needs encryption.identity_file"));
}

TEST(Config, RefusesTwoClustersOfOneNameAndWarnsOfSharedEndpoints) {
  const std::string again = "  - {name: NAME, endpoints: [\"https://10.0.0.1:2379\"]}\n";
  EXPECT_THAT(FaultOf(Whole() + Replaced(again, "NAME", "prod-trade")),
              HasSubstr("`prod-trade` is taken"));
  ASSERT_OK_AND_ASSIGN(const Loaded loaded,
                       Parse(Whole() + Replaced(again, "NAME", "other"), "k.yaml"));
  EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr("share the endpoint https://10.0.0.1:2379")));
}

TEST(Config, NeedsAKeyToSignOrKeysToTrust) {
  const std::string line = "signing_key_file: /etc/engram-keeper/sign\n";
  EXPECT_THAT(FaultWith(line, ""), HasSubstr("signing_key_file: is missing"));
  const std::string signer = "engram-signing-public-1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
  ASSERT_OK_AND_ASSIGN(
      const Loaded loaded,
      Parse(Replaced(Whole(), line, "trusted_signers: [" + signer + "]\n"), "k.yaml"));
  EXPECT_THAT(loaded.config.trusted_signers, ElementsAre(signer));
  EXPECT_THAT(FaultWith(line, line + "trusted_signers: [nonsense]\n"),
              HasSubstr("expected the public line of a signing key file"));
}

TEST(Config, GivesOneLineForBrokenInput) {
  for (const std::string& text :
       {std::string("\x1f\x8b\x08\x00\x00", 5), std::string(), std::string("---\n"),
        Whole().substr(0, Whole().find("20MiB/s")), std::string((1 << 20) + 1, ' '),
        std::string("a: &a [*a]"), Whole() + "---\na: 1\n"}) {
    const std::string fault = FaultOf(text);
    EXPECT_EQ(std::count(fault.begin(), fault.end(), '\n'), 0) << fault;
    EXPECT_TRUE(fault.starts_with("k.yaml:")) << fault;
  }
}

TEST(Config, ATruncatedFileIsNeverTaken) {
  const std::string whole = Whole();
  // Cut within its last cluster it may still be a whole, smaller file; before that never.
  const size_t needed = whole.find("    tls:");
  for (size_t n = 0; n < needed; ++n) {
    const absl::StatusOr<Loaded> loaded = Parse(whole.substr(0, n), "k.yaml");
    if (n + 2 < needed) {
      EXPECT_FALSE(loaded.ok()) << n;
    }
  }
}

TEST(Config, LoadsFromAFile) {
  const base::ScratchDirectory dir;
  base::Files& files = base::PosixFiles();
  const std::string path = dir / "k.yaml";
  EXPECT_THAT(Load(files, path), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(Load(files, dir.path()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("a folder")));
  ASSERT_OK(base::WriteFileAtomically(files, path, Whole(), 0600));
  EXPECT_OK(Load(files, path));
  ASSERT_OK(base::WriteFileAtomically(files, path, std::string((1 << 20) + 1, '#'), 0600));
  EXPECT_THAT(Load(files, path), StatusIs(StatusCode::kInvalidArgument, HasSubstr("1 MiB")));
}

TEST(Config, SnapshotsYieldOrHaveARate) {
  const auto bandwidth = [](const std::string& text) -> absl::StatusOr<std::optional<uint64_t>> {
    ASSIGN_OR_RETURN(const Loaded loaded, Parse(Whole() + text, "k.yaml"));
    return loaded.config.clusters[0].snapshot_bandwidth;
  };
  EXPECT_THAT(bandwidth(""), IsOkAndHolds(std::nullopt));
  EXPECT_THAT(bandwidth("    snapshot_bandwidth: auto\n"), IsOkAndHolds(std::nullopt));
  EXPECT_THAT(bandwidth("    snapshot_bandwidth: unlimited\n"), IsOkAndHolds(Optional(0u)));
  EXPECT_THAT(bandwidth("    snapshot_bandwidth: 4MiB/s\n"), IsOkAndHolds(Optional(4u << 20)));
  for (const char* wrong : {"0", "0MiB/s", "4MiB", "fast"}) {
    EXPECT_THAT(bandwidth(fmt::format("    snapshot_bandwidth: {}\n", wrong)),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("expected a rate such as 20MiB/s, `auto` or `unlimited`")));
  }
}

TEST(Config, DescribeIsReadBackAsTheSame) {
  const std::string more = R"(    hashkv_by_rpc: true
    lease_ttl_default: 10m
    suspect_share: 0.00001
    snapshot_bandwidth: 50MB/s
  - {name: "plain", endpoints: ["http://[::1]:2379"], policy: dev, stores: [disk]}
log_level: debug
spool_max: 1GiB
trusted_signers: [AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8]
)";
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, Parse(Whole() + more, "k.yaml"));
  const std::string text = Describe(loaded.config);
  ASSERT_OK_AND_ASSIGN(const Loaded again, Parse(text, "described.yaml"));
  EXPECT_EQ(again.config, loaded.config) << text;
  EXPECT_EQ(Describe(again.config), text);
}

}  // namespace
}  // namespace config
