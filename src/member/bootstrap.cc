#include "member/bootstrap.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "member/join.h"
#include "raft/codec.h"
#include "wal/scan.h"
#include "wal/snap_file.h"

namespace member {
namespace {

using mvcc::Bucket;

wal::LogOptions LogOptionsOf(const MemberOptions& options) {
  wal::LogOptions log;
  if (options.wal_segment_bytes > 0) log.segment_bytes = options.wal_segment_bytes;
  return log;
}

absl::Status Failed(std::string text) {
  return absl::Status(absl::StatusCode::kFailedPrecondition, text);
}

absl::Status PrepareDirectories(base::Files& files, const DataPaths& paths,
                                const std::string& data_dir, std::vector<std::string>* notes) {
  if (const auto info = files.Stat(data_dir); info.ok() && !info->is_directory) {
    return Failed(fmt::format("failed to list data directory {}: not a directory", data_dir));
  }
  RETURN_IF_ERROR(base::MakeDirectoriesDurably(files, data_dir, 0700));
  ASSIGN_OR_RETURN(const auto names, files.List(data_dir));
  const bool has_member = std::find(names.begin(), names.end(), "member") != names.end();
  const bool has_proxy = std::find(names.begin(), names.end(), "proxy") != names.end();
  if (has_proxy) {
    return Failed(has_member ? "invalid datadir; both member and proxy directories exist"
                             : "v2 http proxy has already been deprecated in 3.6");
  }
  for (const std::string& name : names) {
    if (name != "member" && name != "fixtures") {
      notes->push_back(fmt::format("found invalid file under data directory: {}", name));
    }
  }
  RETURN_IF_ERROR(base::MakeDirectoriesDurably(files, paths.member_dir, 0700));
  RETURN_IF_ERROR(base::MakeDirectoriesDurably(files, paths.snap_dir, 0700));
  // A write probe: a read-only file system should fail here, with the directory's name, and not in
  // the middle of something.
  const std::string probe = base::JoinPath(paths.member_dir, ".touch");
  {
    ASSIGN_OR_RETURN(const auto file,
                     files.Open(probe, {.write = true, .create = true, .truncate = true}));
  }
  return files.Remove(probe);
}

absl::Status CheckSchema(const mvcc::Backend& backend, const cluster::Membership::View& membership,
                         const std::string& own_version) {
  ASSIGN_OR_RETURN(const cluster::Version own, cluster::ParseVersion(own_version));
  const mvcc::ViewPtr view = backend.View();
  ASSIGN_OR_RETURN(const auto storage, view->Get(Bucket::kMeta, "storageVersion"));
  RETURN_IF_ERROR(cluster::CheckStorageVersion(own, storage.value_or("")));
  return CheckClusterVersion(membership, own_version);
}

// Serving data that its owner protects by users and roles to anybody would be a breach: refuse what
// cannot be enforced.
absl::Status CheckAuth(const mvcc::Backend& backend) {
  ASSIGN_OR_RETURN(const auto enabled, backend.View()->Get(Bucket::kAuth, "authEnabled"));
  if (!enabled || enabled->empty() || (*enabled)[0] == '\0') return absl::OkStatus();
  return Failed(
      fmt::format("auth is enabled in {}, and this release cannot enforce it yet: start etcd on it "
                  "and run 'auth disable' first, "
                  "or stay with etcd",
                  backend.path()));
}

// The members of a new cluster, from the options.
absl::Status BootstrapMembers(const MemberOptions& options, Bootstrapped* b) {
  const auto own = options.initial_cluster.find(options.name);
  if (own == options.initial_cluster.end()) {
    return Failed(fmt::format(
        "couldn't find local name \"{}\" in the initial cluster configuration", options.name));
  }
  std::vector<uint64_t> ids;
  for (const auto& [name, urls] : options.initial_cluster) {
    std::vector<std::string> sorted = urls;
    std::sort(sorted.begin(), sorted.end());
    const uint64_t id = base::MemberId(sorted, options.cluster_token);
    if (id == 0)
      return Failed(
          fmt::format("the peer URLs of member {} give the member id 0, which is no id", name));
    if (std::find(ids.begin(), ids.end(), id) != ids.end()) {
      return Failed("initial cluster has two members with the same peer URLs");
    }
    ids.push_back(id);
    b->bootstrap_members.push_back({.id = id, .peer_urls = std::move(sorted), .name = name});
    if (name == options.name) b->member_id = id;
  }
  std::sort(b->bootstrap_members.begin(), b->bootstrap_members.end(),
            [](const auto& x, const auto& y) { return x.id < y.id; });
  b->cluster_id = base::ClusterId(ids);
  b->is_new = true;
  return absl::OkStatus();
}

absl::Status StartNew(const MemberOptions& options, peer::Transport& transport, Bootstrapped* b) {
  if (options.join_existing) {
    ASSIGN_OR_RETURN(JoinedCluster joined, JoinCluster(options, transport));
    b->member_id = joined.member_id;
    b->cluster_id = joined.cluster_id;
    b->remote_members = std::move(joined.others);
  } else {
    RETURN_IF_ERROR(BootstrapMembers(options, b));
    RETURN_IF_ERROR(CheckNotBootstrapped(options, b->member_id, transport));
  }
  ASSIGN_OR_RETURN(b->log, wal::Log::Create(*options.files, b->paths.wal_dir,
                                            {.node_id = b->member_id, .cluster_id = b->cluster_id},
                                            LogOptionsOf(options)));
  return absl::OkStatus();
}

// A db that lies before the snapshot the log begins with cannot be completed from the log; a
// received database may stand beside it.
absl::Status RecoverSnapshotDb(const MemberOptions& options, const wal::SnapshotRecord& start,
                               Bootstrapped* b) {
  if (start.index <= b->backend->consistent_index()) return absl::OkStatus();
  const std::string received = base::JoinPath(b->paths.snap_dir, wal::SnapDbFileName(start.index));
  if (!base::Exists(*options.files, received)) {
    return Failed(fmt::format(
        "failed to recover v3 backend from snapshot: failed to find database snapshot file "
        "(snap: snapshot file doesn't exist); {} holds raft entries up to {}, the log begins "
        "after {}",
        b->paths.db, b->backend->consistent_index(), start.index));
  }
  return b->backend->ReplaceFile(received);
}

// --force-new-cluster: every other member is removed by entries of this member's own. The log is
// kept to its end, as it would be if this member had been elected: how much of it is committed is
// recorded a little late, and what was acknowledged may lie behind that.
absl::Status ForceNewCluster(const MemberOptions& options, Bootstrapped* b) {
  uint64_t index = b->entries.empty() ? b->start_index : b->entries.back().index;
  const uint64_t term = std::max<uint64_t>(b->hard_state.term, 1);

  // The members as of the last entry: those of the db, and what the log adds to them.
  cluster::Membership membership;
  membership.Reset(b->membership);
  for (const raft::Entry& entry : b->entries) {
    if (entry.type != raft::EntryType::kConfChange || entry.index <= b->backend->consistent_index())
      continue;
    ASSIGN_OR_RETURN(const raft::ConfChange change, raft::DecodeConfChange(entry.data.view()));
    if (change.type == raft::ConfChangeType::kRemoveNode) {
      membership.Remove(change.node_id);
    } else if (change.type != raft::ConfChangeType::kUpdateNode) {
      membership.Add({.id = change.node_id});
    }
  }
  std::vector<wal::Entry> added;
  const auto append = [&](const raft::ConfChange& change) {
    raft::Entry entry{.term = term, .index = ++index, .type = raft::EntryType::kConfChange};
    std::string data;
    raft::EncodeConfChange(change, &data);
    added.push_back({.term = term, .index = index, .type = 1, .data = data});
    entry.data = raft::Buffer::Own(std::move(data));
    b->entries.push_back(std::move(entry));
  };
  const auto view = membership.view();
  if (view->Find(b->member_id) == nullptr) {
    const cluster::Member self{.id = b->member_id, .peer_urls = options.peer_urls};
    append({.type = raft::ConfChangeType::kAddNode,
            .node_id = b->member_id,
            .context = cluster::EncodeChangeContext({.member = self})});
  }
  for (const auto& [id, member] : view->members) {
    if (id != b->member_id) append({.type = raft::ConfChangeType::kRemoveNode, .node_id = id});
  }
  b->hard_state.term = term;
  b->hard_state.commit = index;
  // Entries at or below the consistent index are not applied again, so raft must begin with the
  // configuration they lead to: this member alone votes.
  b->conf_state = raft::ConfState{.voters = {b->member_id}};
  std::vector<wal::EntryView> views;
  for (const wal::Entry& entry : added) views.push_back(entry.view());
  RETURN_IF_ERROR(
      b->log->Save(views, wal::HardState{.term = term, .vote = b->hard_state.vote, .commit = index},
                   /*sync=*/true));
  b->notes.push_back(
      fmt::format("forcing a new cluster: {} membership changes appended", added.size()));
  return absl::OkStatus();
}

absl::Status StartExisting(const MemberOptions& options, peer::Transport& transport,
                           Bootstrapped* b) {
  ASSIGN_OR_RETURN(const wal::SnapshotScan scan,
                   wal::ValidSnapshotRecords(*options.files, b->paths.wal_dir));
  const wal::SnapshotRecord start = scan.snapshots.back();
  RETURN_IF_ERROR(RecoverSnapshotDb(options, start, b));
  ASSIGN_OR_RETURN(auto opened,
                   wal::Log::Open(*options.files, b->paths.wal_dir, start, LogOptionsOf(options)));
  b->log = std::move(opened.log);
  wal::Recovered& r = opened.recovered;
  if (r.torn_tail) {
    b->notes.push_back(fmt::format(
        "the log ended in an incomplete record: cut {} bytes off {} at offset {}, kept {}",
        r.torn_tail->cut_bytes, r.torn_tail->path, r.torn_tail->offset, r.torn_tail->broken_path));
  }
  if (r.state.empty() && start.index == 0 && b->backend->consistent_index() == 0) {
    // A first start that ended before the entries that add the members were durable, together with
    // their state: nothing was acknowledged, and without them there would never be a voter.
    b->notes.push_back("the first start did not get far enough; doing it again");
    if (options.join_existing) {
      // Nothing of the cluster's log has come yet. Who the others are is not stored; those that run
      // tell, or make themselves known.
      b->member_id = r.metadata.node_id;
      b->cluster_id = r.metadata.cluster_id;
      auto joined = JoinCluster(options, transport);
      if (joined.ok() && joined->cluster_id == b->cluster_id) {
        b->remote_members = std::move(joined->others);
      } else {
        b->notes.push_back(
            fmt::format("the other members cannot be asked: {}", base::Message(joined.status())));
      }
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(BootstrapMembers(options, b));
    if (b->member_id == r.metadata.node_id && b->cluster_id == r.metadata.cluster_id)
      return absl::OkStatus();
    return Failed(fmt::format(
        "the log in {} was made for member {} of cluster {}, the options "
        "describe member {} of cluster {}",
        b->paths.wal_dir, base::IdToHex(r.metadata.node_id), base::IdToHex(r.metadata.cluster_id),
        base::IdToHex(b->member_id), base::IdToHex(b->cluster_id)));
  }
  b->member_id = r.metadata.node_id;
  b->cluster_id = r.metadata.cluster_id;
  b->hard_state = {.term = r.state.term, .vote = r.state.vote, .commit = r.state.commit};
  b->start_index = start.index;
  b->start_term = start.term;
  b->entries.reserve(r.entries.size());
  for (wal::Entry& entry : r.entries) {
    b->entries.push_back({.term = entry.term,
                          .index = entry.index,
                          .type = static_cast<raft::EntryType>(entry.type),
                          .data = raft::Buffer::Own(std::move(entry.data))});
  }
  const uint64_t last = b->entries.empty() ? start.index : b->entries.back().index;
  const uint64_t consistent = b->backend->consistent_index();
  if (consistent > last) {
    return absl::Status(
        absl::StatusCode::kDataLoss,
        fmt::format("the db file {} holds raft entries up to {}, but the log in {} ends at {}: "
                    "they are not of the same "
                    "time. Restore a snapshot, or put back the log that belongs to this db file",
                    b->paths.db, consistent, b->paths.wal_dir, last));
  }
  // The log begins with its snapshot record, so commit is at least that, whatever state was written
  // last.
  b->hard_state.commit = std::clamp(b->hard_state.commit, start.index, last);
  return absl::OkStatus();
}

}  // namespace

template <typename Source>
absl::StatusOr<cluster::Membership::View> LoadMembership(const Source& source,
                                                         const std::string& path) {
  cluster::Membership::View result;
  absl::Status bad;
  RETURN_IF_ERROR(
      source.ForEach(Bucket::kMembers, [&](std::string_view key, std::string_view value) {
        auto member = cluster::DecodeMember(value);
        uint64_t id = 0;
        if (!member.ok() || !base::ParseHexId(key, &id) || id != member->id) {
          bad = base::MakeStatus(absl::StatusCode::kDataLoss,
                                 "db file {}: bucket members: key {} holds no member of that id",
                                 path, base::ToHex(key));
          return false;
        }
        result.members[id] = *std::move(member);
        return true;
      }));
  RETURN_IF_ERROR(bad);
  RETURN_IF_ERROR(
      source.ForEach(Bucket::kMembersRemoved, [&](std::string_view key, std::string_view) {
        uint64_t id = 0;
        if (!base::ParseHexId(key, &id)) {
          bad = base::MakeStatus(absl::StatusCode::kDataLoss,
                                 "db file {}: bucket members_removed: key {} is no id", path,
                                 base::ToHex(key));
          return false;
        }
        result.removed.insert(id);
        return true;
      }));
  RETURN_IF_ERROR(bad);
  RETURN_IF_ERROR(
      source.ForEach(Bucket::kCluster, [&](std::string_view key, std::string_view value) {
        if (key == "clusterVersion") result.cluster_version = value;
        return true;
      }));
  return result;
}
template absl::StatusOr<cluster::Membership::View> LoadMembership(const mvcc::ReadView&,
                                                                  const std::string&);
template absl::StatusOr<cluster::Membership::View> LoadMembership(const mvcc::BackendImage&,
                                                                  const std::string&);

absl::Status CheckClusterVersion(const cluster::Membership::View& membership,
                                 const std::string& own_version) {
  if (membership.cluster_version.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const cluster::Version own, cluster::ParseVersion(own_version));
  ASSIGN_OR_RETURN(const cluster::Version cluster,
                   cluster::ParseVersion(membership.cluster_version));
  if (std::pair(own.major, own.minor) >= std::pair(cluster.major, cluster.minor))
    return absl::OkStatus();
  return Failed(fmt::format(
      "invalid downgrade; server version is lower than determined cluster version: {} < {}",
      own_version, membership.cluster_version));
}

DataPaths PathsOf(const MemberOptions& options) {
  DataPaths paths;
  paths.member_dir = base::JoinPath(options.data_dir, "member");
  paths.snap_dir = base::JoinPath(paths.member_dir, "snap");
  paths.wal_dir =
      options.wal_dir.empty() ? base::JoinPath(paths.member_dir, "wal") : options.wal_dir;
  paths.db = base::JoinPath(paths.snap_dir, "db");
  return paths;
}

absl::StatusOr<Bootstrapped> Bootstrap(const MemberOptions& options,
                                       mvcc::BackendOptions backend_options,
                                       peer::Transport& transport) {
  Bootstrapped b;
  base::Files& files = *options.files;
  b.paths = PathsOf(options);
  RETURN_IF_ERROR(PrepareDirectories(files, b.paths, options.data_dir, &b.notes));
  ASSIGN_OR_RETURN(const auto removed, wal::RemoveScratchFiles(files, b.paths.snap_dir));
  for (const std::string& name : removed) b.notes.push_back("removed leftover file " + name);
  ASSIGN_OR_RETURN(const bool has_log, wal::HasLog(files, b.paths.wal_dir));
  if (!has_log) {
    // A db that was in use is worth nothing without its log, and a new log would never reach it.
    const auto db = files.Stat(b.paths.db);
    if (db.ok() && db->size_bytes > 0) b.notes.push_back("a db file is there, but no log");
    if (!options.wal_dir.empty()) {
      RETURN_IF_ERROR(base::MakeDirectoriesDurably(files, base::DirName(options.wal_dir), 0700));
    }
    // A start that was killed may have made them and not got to their syncs.
    RETURN_IF_ERROR(files.SyncDirectory(options.data_dir));
    RETURN_IF_ERROR(files.SyncDirectory(b.paths.member_dir));
    // What is above may belong to somebody else, or be another file system: then the data directory
    // is not of our making, and its name is safe.
    files.SyncDirectory(base::DirName(options.data_dir)).IgnoreError();
  }
  backend_options.files = options.files;
  backend_options.clock = options.clock;
  backend_options.random = options.random;
  backend_options.path = b.paths.db;
  ASSIGN_OR_RETURN(b.backend, mvcc::Backend::Open(std::move(backend_options)));
  if (has_log) {
    RETURN_IF_ERROR(StartExisting(options, transport, &b));
  } else if (b.backend->consistent_index() > 0) {
    return Failed(
        fmt::format("the db file {} holds raft entries up to {}, but there is no log in {}: put "
                    "the log back, or restore "
                    "a snapshot",
                    b.paths.db, b.backend->consistent_index(), b.paths.wal_dir));
  } else {
    RETURN_IF_ERROR(StartNew(options, transport, &b));
  }
  ASSIGN_OR_RETURN(b.membership, LoadMembership(*b.backend->View(), b.paths.db));
  RETURN_IF_ERROR(CheckSchema(*b.backend, b.membership, options.version));
  RETURN_IF_ERROR(CheckAuth(*b.backend));
  b.conf_state = {.voters = b.membership.Voters(), .learners = b.membership.Learners()};
  if (has_log && !b.is_new && options.force_new_cluster)
    RETURN_IF_ERROR(ForceNewCluster(options, &b));
  return b;
}

}  // namespace member
