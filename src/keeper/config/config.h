// What engram-keeper is told to do: the configuration file as values. Every field holds what is in
// force, defaults filled in. Plain values; any thread may read its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace config {

using base::Duration;

// Where a secret is found. The secret itself is never part of a configuration.
struct Secret {
  enum class Source { kNone, kFile, kEnvironment, kCommand };
  Source source = Source::kNone;
  std::string where;                 // the file, or the name of the variable
  std::vector<std::string> command;  // kCommand: program and arguments; its output is the secret
  bool given() const { return source != Source::kNone; }
  friend bool operator==(const Secret&, const Secret&) = default;
};

struct Store {
  enum class Type { kFile, kS3 };
  std::string name;
  Type type = Type::kFile;
  std::string path;  // kFile
  // kS3
  std::string endpoint;  // "https://s3.example.org" or with a port, without a path
  std::string bucket;
  std::string prefix;  // without slashes at its ends; may be empty
  std::string region;
  Secret credentials;  // a text as stores/s3_credentials.h has it; not given: the usual variables
  // The right to delete, which the daemon's own credentials need not have. Empty: `credentials`.
  std::string prune_credentials_file;
  std::string ca_file;  // empty: the system's
  // Bytes a second in each direction; 0: no limit.
  uint64_t bandwidth = 0;
  friend bool operator==(const Store&, const Store&) = default;
};

struct Encryption {
  // age public keys, "age1...". Empty only where the file says `encryption: none`.
  std::vector<std::string> recipients;
  std::string identity_file;  // only where restores and drills run; may be empty
  bool none() const { return recipients.empty(); }
  friend bool operator==(const Encryption&, const Encryption&) = default;
};

// How a cluster is captured.
struct Policy {
  std::string like;  // the named policy it is or starts from
  Duration full_every{0};
  Duration segment_every{0};       // 0: no archive
  uint64_t segment_bytes_max = 0;  // a segment closes at this size even before its time
  // The spans whose segments become one object, each a multiple of the one before; empty: none do.
  std::vector<Duration> roll_ups;
  // How long what was rolled up also stays for itself, for readers that looked before.
  Duration parts_stay{0};
  // A writer that signed nothing for so long is gone: others roll up its segments.
  Duration adopt_after{0};
  bool archive() const { return segment_every > Duration(0); }
  friend bool operator==(const Policy&, const Policy&) = default;
};
// dev, staging, production, critical; nullopt for another name.
std::optional<Policy> NamedPolicy(const std::string& name);

// What is kept; the rules are those of catalog/retention.h.
struct Retention {
  Duration window{0};
  uint32_t hourly = 0;
  uint32_t daily = 0;
  uint32_t weekly = 0;
  uint32_t monthly = 0;
  uint32_t keep_proven = 0;
  Duration every{0};  // how often the daemon deletes what may go; 0: never, only `prune --yes` does
  friend bool operator==(const Retention&, const Retention&) = default;
};
// What holds for a policy where the file says nothing.
Retention DefaultRetention(const Policy& policy);

struct Tls {
  std::string ca_file;    // empty: the system's
  std::string cert_file;  // with key_file, or neither
  std::string key_file;
  friend bool operator==(const Tls&, const Tls&) = default;
};

struct User {
  std::string name;
  Secret password;
  friend bool operator==(const User&, const User&) = default;
};

struct Bundle {
  std::vector<std::string> paths;  // empty: no bundle is taken
  Duration every{0};
  friend bool operator==(const Bundle&, const Bundle&) = default;
};

struct Drill {
  Duration every{0};              // 0: on demand only
  std::string server = "engram";  // program name or path of an etcd-compatible server
  std::vector<std::string> known_keys;
  // Program names or paths; empty: not part of the drill. The last three need the first.
  std::string kube_apiserver;
  std::string kube_controller_manager;
  std::string kube_scheduler;
  std::string kwok;
  friend bool operator==(const Drill&, const Drill&) = default;
};

struct Cluster {
  std::string name;
  std::vector<std::string> endpoints;  // "https://10.0.0.1:2379", all of one scheme
  Tls tls;
  std::optional<User> user;
  Policy policy;
  std::vector<std::string> stores;  // names
  Bundle bundle;
  Retention retention;
  Drill drill;
  // Whether members are asked for HashKV as a proof; on etcd this holds up writes.
  bool hashkv_by_rpc = false;
  // The TTL of leases whose granted one could not be looked up.
  Duration lease_ttl_default{0};
  // Where members show their metrics, one for each endpoint and in their order: "http://HOST:PORT".
  // Empty: at the endpoints themselves, with the same certificates.
  std::vector<std::string> metrics_endpoints;
  // How long a full waits, all in all, for a member that suffers from it; 0: no member is watched.
  Duration pause_max{0};
  // A full that lost more than this share of keys is suspect.
  double suspect_share = 0;
  // Bytes a second of the Snapshot RPC; 0: as fast as it comes; nothing: it yields to those who
  // write (capture/pace.h).
  std::optional<uint64_t> snapshot_bandwidth;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

struct Config {
  std::string state_dir;
  std::string listen;  // "127.0.0.1:9380"
  std::string log_level = "info";
  uint64_t spool_bytes_max = 0;
  Encryption encryption;
  std::string signing_key_file;
  // Public lines of signing keys ("engram-signing-public-1 ...") that logs are checked against
  // besides the own key.
  std::vector<std::string> trusted_signers;
  std::vector<Store> stores;
  std::vector<Cluster> clusters;
  friend bool operator==(const Config&, const Config&) = default;

  const Store* FindStore(const std::string& name) const;
  const Cluster* FindCluster(const std::string& name) const;
};

}  // namespace config
