#include "flags.h"

#include "base/testing.h"

namespace engram {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ParseOutcome Parse(const std::vector<std::string>& args, Config* config) {
  return ParseArguments(args, "etcd", config);
}

std::string ErrorOf(const std::vector<std::string>& args) {
  Config config;
  const ParseOutcome outcome = Parse(args, &config);
  EXPECT_EQ(outcome.exit_code, 2) << args[0];
  return outcome.err.substr(0, outcome.err.find('\n'));
}

absl::Status Validity(const std::vector<std::string>& args) {
  Config config;
  EXPECT_EQ(Parse(args, &config).exit_code, -1);
  RETURN_IF_ERROR(Validate(config));
  return DeriveDefaults(&config);
}

TEST(Arguments, TakeOneOrTwoDashesAndTheLastWins) {
  Config config;
  EXPECT_EQ(Parse({"-name", "a", "--name=b", "--pre-vote=false", "--force-new-cluster"}, &config)
                .exit_code,
            -1);
  EXPECT_EQ(config.name, "b");
  EXPECT_FALSE(config.pre_vote);
  EXPECT_TRUE(config.force_new_cluster);
}

TEST(Arguments, BadOnesHaveTheReferencesTexts) {
  EXPECT_EQ(ErrorOf({"--nosuch"}), "flag provided but not defined: -nosuch");
  EXPECT_EQ(ErrorOf({"--heartbeat-interval=1.5"}),
            "invalid value \"1.5\" for flag -heartbeat-interval: parse error");
  EXPECT_EQ(ErrorOf({"--pre-vote=maybe"}),
            "invalid boolean value \"maybe\" for flag -pre-vote: parse error");
  EXPECT_EQ(ErrorOf({"--initial-cluster-state=foo"}),
            "invalid value \"foo\" for flag -initial-cluster-state: invalid value");
  EXPECT_EQ(ErrorOf({"--name"}), "flag needs an argument: -name");
  EXPECT_EQ(ErrorOf({"--v2-deprecation=not-yet"}),
            "invalid value \"not-yet\" for flag -v2-deprecation: invalid value \"not-yet\"");
  EXPECT_THAT(ErrorOf({"--listen-client-urls=foo"}),
              HasSubstr("URL scheme must be http, https, unix, or unixs: foo"));
  EXPECT_THAT(ErrorOf({"--feature-gates=Foo=true"}), HasSubstr("unrecognized feature gate: Foo"));
}

TEST(Arguments, IgnoredFlagsAreAcceptedBare) {
  Config config;
  EXPECT_EQ(Parse({"--snapshot", "--cluster-sync-interval=7"}, &config).exit_code, -1);
}

TEST(Arguments, HelpNamesEveryFlag) {
  Config config;
  const ParseOutcome help = Parse({"--help"}, &config);
  EXPECT_EQ(help.exit_code, 0);
  for (const Flag& flag : Flags()) {
    if (flag.type == FlagType::kIgnored) continue;
    EXPECT_THAT(help.out, HasSubstr("--" + std::string(flag.name) + "\n"));
  }
}

TEST(Environment, ConflictsWithTheFlagAndSkipsEmptyValues) {
  Config config;
  EXPECT_EQ(Parse({"--name=a"}, &config).exit_code, -1);
  EXPECT_FALSE(ApplyEnvironment({"ETCD_NAME=a"}, &config).ok());
  EXPECT_OK(ApplyEnvironment({"ETCD_NAME=", "ETCD_SNAPSHOT_COUNT=5", "OTHER=x", "ETCD_NOSUCH=1"},
                             &config));
  EXPECT_EQ(config.snapshot_count, 5U);
  Config fresh;
  EXPECT_EQ(base::Message(ApplyEnvironment({"ETCD_HEARTBEAT_INTERVAL=foo"}, &fresh)),
            "invalid value \"foo\" for ETCD_HEARTBEAT_INTERVAL: parse error");
}

TEST(ConfigFile, TakesNanosecondsStringsAndSections) {
  Config config;
  ASSERT_OK(LoadConfigFile(R"(
name: n1
grpc-keepalive-interval: 5000000000
wal-dir:
Listen-Client-URLs: http://127.0.0.1:1,https://127.0.0.1:2
client-transport-security:
  cert-file: c.pem
  allowed-cn: [a, b]
log-outputs: [stderr, x.log]
unknown-key: 7
auto-compaction-retention: "1"
)",
                           &config));
  EXPECT_EQ(config.name, "n1");
  EXPECT_EQ(config.grpc_keepalive_interval, std::chrono::seconds(5));
  EXPECT_EQ(config.listen_client_urls.size(), 2U);
  EXPECT_EQ(config.client_tls.cert_file, "c.pem");
  EXPECT_EQ(config.client_tls.allowed_cn.size(), 2U);
  EXPECT_EQ(config.log_outputs.size(), 2U);
  EXPECT_EQ(config.auto_compaction_retention, "1");
}

TEST(ConfigFile, RefusesWrongTypes) {
  Config config;
  EXPECT_THAT(std::string(base::Message(LoadConfigFile("grpc-keepalive-interval: 5s", &config))),
              HasSubstr("cannot unmarshal string into Go struct field "
                        "configYAML.Config.grpc-keepalive-interval of type time.Duration"));
  EXPECT_THAT(std::string(base::Message(LoadConfigFile("auto-compaction-retention: 1", &config))),
              HasSubstr("cannot unmarshal number into Go struct field "
                        "configYAML.Config.auto-compaction-retention of type string"));
  EXPECT_THAT(std::string(base::Message(LoadConfigFile("peer-transport-security: x", &config))),
              StartsWith("invalid peer-transport-security"));
  EXPECT_THAT(std::string(base::Message(LoadConfigFile("listen-client-urls: foo", &config))),
              StartsWith("unexpected error setting up listen-client-urls: "));
  EXPECT_FALSE(LoadConfigFile("a: [", &config).ok());
  EXPECT_FALSE(LoadConfigFile("just text", &config).ok());
}

TEST(Validation, FindsTheFirstProblemInEtcdsOrder) {
  const auto text = [](const std::vector<std::string>& args) {
    return std::string(base::Message(Validity(args)));
  };
  EXPECT_EQ(text({"foo"}), "\"foo\" is not a valid flag");
  EXPECT_EQ(
      text({"--heartbeat-interval=100", "--election-timeout=300"}),
      "--election-timeout[300ms] should be at least as 5 times as --heartbeat-interval[100ms]");
  EXPECT_EQ(text({"--election-timeout=60000"}),
            "--election-timeout[60000ms] is too long, and should be set less than 50000ms");
  EXPECT_EQ(text({"--listen-client-urls=http://127.0.0.1:1"}),
            "--advertise-client-urls is required when --listen-client-urls is set explicitly");
  EXPECT_EQ(text({"--listen-peer-urls=http://foo:1"}),
            "expected IP in URL for binding (http://foo:1)");
  EXPECT_EQ(text({"--tls-min-version=TLS1.1"}),
            "unexpected TLS version \"TLS1.1\" (must be one of: TLS1.2, TLS1.3)");
  EXPECT_EQ(text({"--feature-gates=LeaseCheckpointPersist=true"}),
            "enabling feature gate LeaseCheckpointPersist requires enabling feature gate "
            "LeaseCheckpoint");
  EXPECT_EQ(text({"--auto-compaction-mode=foo"}), "unknown auto-compaction-mode \"foo\"");
  EXPECT_EQ(text({"--log-level=foo"}), "unrecognized level: \"foo\"");
}

TEST(Derivation, NamesTheInitialClusterAndTheDataDirectory) {
  Config config;
  EXPECT_EQ(
      Parse({"--name=m1", "--initial-advertise-peer-urls=http://127.0.0.1:7"}, &config).exit_code,
      -1);
  ASSERT_OK(DeriveDefaults(&config));
  EXPECT_EQ(config.initial_cluster, "m1=http://127.0.0.1:7");
  EXPECT_EQ(config.data_dir, "m1.etcd");
}

TEST(Gates, AllSwitchesAStageButExplicitOnesWin) {
  ASSERT_OK_AND_ASSIGN(const auto gates,
                       ResolveFeatureGates("AllAlpha=true,LeaseCheckpoint=false"));
  EXPECT_TRUE(IsEnabled(gates, "PriorityRequest"));
  EXPECT_FALSE(IsEnabled(gates, "LeaseCheckpoint"));
  EXPECT_TRUE(IsEnabled(gates, "FastLeaseKeepAlive"));
}

}  // namespace
}  // namespace engram
