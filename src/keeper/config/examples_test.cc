// The files of deploy/keeper are read by the code that will read them in earnest.
#include <regex>

#include "base/testing.h"
#include "config/load.h"
#include "yaml/yaml.h"

namespace config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Example(const std::string& name) {
  const auto text =
      base::ReadFile(base::PosixFiles(), std::string(ENGRAM_SOURCE_DIR) + "/deploy/keeper/" + name);
  EXPECT_OK(text);
  return text.ok() ? *text : "";
}

TEST(Examples, TheLabConfigurationLoads) {
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, Parse(Example("dev.yaml"), "dev.yaml"));
  EXPECT_EQ(loaded.config.clusters[0].policy, *NamedPolicy("dev"));
  EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr("not encrypted")));
}

TEST(Examples, TheFleetLoadsOnceItsKeysAreReplaced) {
  std::string text = Example("fleet.yaml");
  EXPECT_THAT(Parse(text, "fleet.yaml"), base::StatusIs(absl::StatusCode::kInvalidArgument,
                                                        HasSubstr("encryption.recipients")));
  text = std::regex_replace(text, std::regex("REPLACE-BY-THE-DAILY-KEY"),
                            "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p");
  text = std::regex_replace(text, std::regex("REPLACE-BY-THE-RECOVERY-KEY"),
                            "age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg");
  ASSERT_OK_AND_ASSIGN(const Loaded loaded, Parse(text, "fleet.yaml"));
  EXPECT_THAT(loaded.warnings, ElementsAre());
  ASSERT_EQ(loaded.config.clusters.size(), 3u);
  EXPECT_EQ(loaded.config.clusters[1].tls, loaded.config.clusters[0].tls);
  EXPECT_EQ(loaded.config.clusters[1].stores.size(), 2u);
  EXPECT_EQ(loaded.config.clusters[2].policy.like, "staging");
  EXPECT_TRUE(loaded.config.clusters[2].policy.archive());
}

TEST(Examples, EveryAlertSaysWhatToDo) {
  ASSERT_OK_AND_ASSIGN(const auto documents, yaml::Parse(Example("alerts.yaml")));
  ASSERT_EQ(documents.size(), 1u);
  std::set<std::string> metrics;
  const yaml::Value* groups = documents[0].Find("groups");
  ASSERT_NE(groups, nullptr);
  for (const yaml::Value& rule : groups->items.at(0).Find("rules")->items) {
    const std::string expression(rule.TextOf("expr"));
    const std::regex name("engram_keeper_[a-z_]+");
    for (std::sregex_iterator it(expression.begin(), expression.end(), name), end; it != end;
         ++it) {
      metrics.insert(it->str());
    }
    ASSERT_NE(rule.Find("annotations"), nullptr) << rule.TextOf("alert");
    EXPECT_GT(rule.Find("annotations")->TextOf("summary").size(), 20u) << rule.TextOf("alert");
    EXPECT_GT(rule.Find("annotations")->TextOf("action").size(), 40u) << rule.TextOf("alert");
  }
  EXPECT_THAT(
      metrics,
      ElementsAre("engram_keeper_certificate_expiry_days", "engram_keeper_clock_ahead_seconds",
                  "engram_keeper_drill_rto_seconds", "engram_keeper_drill_success",
                  "engram_keeper_holes_total", "engram_keeper_last_full_timestamp_seconds",
                  "engram_keeper_newest_proven_timestamp_seconds", "engram_keeper_retention_ok",
                  "engram_keeper_rpo_seconds", "engram_keeper_source_paused_seconds_total",
                  "engram_keeper_spool_bytes", "engram_keeper_store_behind_objects",
                  "engram_keeper_store_up", "engram_keeper_suspect"));
}

TEST(Examples, TheStaticPodIsAPodThatRunsTheDaemon) {
  ASSERT_OK_AND_ASSIGN(const auto documents, yaml::Parse(Example("engram-keeper.yaml")));
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0].TextOf("kind"), "Pod");
  const yaml::Value& container = documents[0].Find("spec")->Find("containers")->items.at(0);
  EXPECT_EQ(container.Find("command")->items.back().text, "run");
  std::set<std::string> volumes;
  for (const yaml::Value& volume : documents[0].Find("spec")->Find("volumes")->items) {
    volumes.emplace(volume.TextOf("name"));
  }
  for (const yaml::Value& mount : container.Find("volumeMounts")->items) {
    EXPECT_TRUE(volumes.contains(std::string(mount.TextOf("name")))) << mount.TextOf("name");
  }
}

}  // namespace
}  // namespace config
