// Text forms of raft's values, as the scenario files spell them. For tests only; pure functions.
// Pure functions and values; thread-safe.
#pragma once

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "raft/codec.h"
#include "raft/raw_node.h"

namespace raft::describe {

inline std::string Indent(std::string_view text, std::string_view by = "  ") {
  std::string out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) out += fmt::format("{}{}\n", by, line);
  return out;
}

inline std::string Quote(std::string_view bytes) {
  std::string out = "\"";
  for (const char c : bytes) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

inline std::string Ids(const std::vector<NodeId>& ids) {
  return fmt::format("[{}]", fmt::join(ids, " "));
}

inline std::string Changes(const std::vector<ConfChangeSingle>& changes) {
  std::vector<std::string> tokens;
  for (const ConfChangeSingle& change : changes) {
    tokens.push_back(fmt::format("{}{}", "vrul"[static_cast<int>(change.type)], change.node_id));
  }
  return fmt::format("{}", fmt::join(tokens, " "));
}

// "v1 l2 r3 u4"
inline std::vector<ConfChangeSingle> ParseChanges(const std::string& text) {
  std::vector<ConfChangeSingle> changes;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto type = static_cast<ConfChangeType>(std::string_view("vrul").find(word[0]));
    changes.push_back({.type = type, .node_id = std::strtoull(word.c_str() + 1, nullptr, 10)});
  }
  return changes;
}

inline std::string Describe(const Entry& entry) {
  static constexpr std::string_view kTypes[] = {"EntryNormal", "EntryConfChange",
                                                "EntryConfChangeV2"};
  std::string text;
  if (entry.type == EntryType::kNormal) {
    text = " " + Quote(entry.data.view());
  } else if (const auto change = DecodeConfChangeEntry(entry);
             change.ok() && !change->changes.empty()) {
    text = " " + Changes(change->changes);
  }
  return fmt::format("{}/{} {}{}", entry.term, entry.index, kTypes[static_cast<int>(entry.type)],
                     text);
}

inline std::string Describe(const ConfState& state) {
  return fmt::format("Voters:{} VotersOutgoing:{} Learners:{} LearnersNext:{} AutoLeave:{}",
                     Ids(state.voters), Ids(state.voters_outgoing), Ids(state.learners),
                     Ids(state.learners_next), state.auto_leave);
}

inline std::string Describe(const Snapshot& snapshot) {
  const SnapshotMetadata& metadata = snapshot.metadata;
  return fmt::format("Index:{} Term:{} ConfState:{}", metadata.index, metadata.term,
                     Describe(metadata.conf_state));
}

inline std::string Target(NodeId id) {
  if (id == kAppendThread) return "AppendThread";
  if (id == kApplyThread) return "ApplyThread";
  return fmt::format("{:x}", id);
}

// Without a newline at the end.
inline std::string Describe(const Message& m) {
  std::string out = fmt::format("{}->{} {} Term:{} Log:{}/{}", Target(m.from), Target(m.to),
                                MessageTypeName(m.type), m.term, m.log_term, m.index);
  if (m.reject) out += fmt::format(" Rejected (Hint: {})", m.reject_hint);
  if (m.commit != 0) out += fmt::format(" Commit:{}", m.commit);
  if (m.vote != 0) out += fmt::format(" Vote:{}", m.vote);
  if (m.entries.size() == 1) out += fmt::format(" Entries:[{}]", Describe(m.entries[0]));
  if (m.entries.size() > 1) {
    out += " Entries:[";
    for (const Entry& entry : m.entries) out += "\n  " + Describe(entry);
    out += "\n]";
  }
  if (m.snapshot) out += "\n  Snapshot: " + Describe(*m.snapshot);
  if (!m.responses.empty()) {
    out += " Responses:[\n";
    for (const Message& response : m.responses) out += Indent(Describe(response));
    out += "]";
  }
  return out;
}

inline std::string Describe(const Ready& ready) {
  std::string out;
  if (ready.soft_state) {
    out +=
        fmt::format("Lead:{} State:{}\n", ready.soft_state->lead, RoleName(ready.soft_state->role));
  }
  if (!ready.hard_state.empty()) {
    out += fmt::format("HardState Term:{}", ready.hard_state.term);
    if (ready.hard_state.vote != 0) out += fmt::format(" Vote:{}", ready.hard_state.vote);
    out += fmt::format(" Commit:{}\n", ready.hard_state.commit);
  }
  for (const ReadState& read : ready.read_states) {
    out += fmt::format("ReadState Index:{} Context:{}\n", read.index,
                       base::ToHex(read.context.view()));
  }
  const auto list = [&](std::string_view name, const auto& items) {
    if (items.empty()) return;
    out += fmt::format("{}:\n", name);
    for (const auto& item : items) out += Describe(item) + "\n";
  };
  list("Entries", ready.entries);
  if (ready.snapshot) out += "Snapshot " + Describe(*ready.snapshot) + "\n";
  list("CommittedEntries", ready.committed_entries);
  std::vector<Message> messages = ready.messages;
  messages.insert(messages.end(), ready.messages_after_write.begin(),
                  ready.messages_after_write.end());
  list("Messages", messages);
  if (out.empty()) return "<empty Ready>\n";
  return fmt::format("Ready MustSync={}:\n{}", ready.must_sync, out);
}

// A line of the progress table, without the id.
inline std::string Describe(const MemberProgress& progress) {
  static constexpr std::string_view kStates[] = {"StateProbe", "StateReplicate", "StateSnapshot"};
  std::string out = fmt::format("{} match={} next={}", kStates[static_cast<int>(progress.state)],
                                progress.match, progress.next);
  if (progress.learner) out += " learner";
  if (progress.paused) out += " paused";
  if (progress.pending_snapshot != 0)
    out += fmt::format(" pendingSnap={}", progress.pending_snapshot);
  if (!progress.recent_active) out += " inactive";
  if (progress.inflight_messages > 0) {
    out += fmt::format(" inflight={}{}", progress.inflight_messages,
                       progress.inflight_full ? "[full]" : "");
  }
  return out;
}

}  // namespace raft::describe
