#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/status.h"
#include "commands.h"
#include "kv_requests.h"
#include "print.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr unsigned kDeleteGraceSeconds = 2;

int RunPut(const Invocation& invocation) {
  pb::PutRequest request;
  if (const BadRequest bad = ParsePut(*invocation.flags, invocation.words, &request); !bad.ok()) {
    return Fail(bad.code, bad.text);
  }
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  const absl::StatusOr<pb::PutResponse> response =
      session.client->Call(client::kPut, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (EmitMessage(session, *response)) return kExitOk;
  Emit(session.format == Format::kFields ? PutFields(*response, session.hex)
                                         : PutLines(*response, session.hex));
  return kExitOk;
}

int RunDel(const Invocation& invocation) {
  const FlagSet& flags = *invocation.flags;
  pb::DeleteRangeRequest request;
  if (const BadRequest bad = ParseDel(flags, invocation.words, &request); !bad.ok()) {
    return Fail(bad.code, bad.text);
  }
  Session session;
  if (const int code = LoadSession(invocation, kNoTable, &session); code != 0) return code;
  // Two words may be two keys in the user's mind: leave a moment to stop it.
  if (invocation.words.size() == 2 && !flags.Bool("range")) {
    std::fprintf(stderr,
                 "Warning: Keys between %s and %s will be deleted. Please interrupt the command "
                 "within next %u seconds to cancel. You can provide `--range` flag to avoid the "
                 "delay.\n",
                 Quote(request.key()).c_str(), Quote(request.range_end()).c_str(),
                 kDeleteGraceSeconds);
    ::sleep(kDeleteGraceSeconds);
  }
  if (const int code = Connect(&session); code != 0) return code;
  const absl::StatusOr<pb::DeleteRangeResponse> response =
      session.client->Call(client::kDeleteRange, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (EmitMessage(session, *response)) return kExitOk;
  Emit(session.format == Format::kFields ? DeleteFields(*response, session.hex)
                                         : DeleteLines(*response, session.hex));
  return kExitOk;
}

constexpr FlagSpec kCompactionFlags[] = {
    {.name = "physical",
     .type = FlagType::kBool,
     .help = "return only when the old revisions are gone from the db file"}};

int RunCompaction(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "compaction command needs 1 argument");
  }
  const absl::StatusOr<int64_t> revision = ParseInt(invocation.words[0], 10);
  if (!revision.ok()) return Fail(kExitError, base::Message(revision.status()));
  Session session;
  if (const int code = OpenSession(invocation, kAllFormats, &session); code != 0) return code;
  pb::CompactionRequest request;
  request.set_revision(*revision);
  request.set_physical(invocation.flags->Bool("physical"));
  const auto response = session.client->Call(client::kCompact, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  Emit(fmt::format("compacted revision {}\n", *revision));
  return kExitOk;
}

}  // namespace

Command PutCommand() {
  return {.name = "put",
          .usage = "[options] <key> [<value>]",
          .summary = "Write a key",
          .group = kKeyValueGroup,
          .details =
              "Write a key. A missing value is read from standard input, as it is, to the "
              "end.\nA key or value that starts with '-' must follow '--':\n\n  put -- <key> "
              "<value>\n  put <key> -- <value>",
          .flags = PutFlags(),
          .run = RunPut};
}

Command DelCommand() {
  return {.name = "del",
          .usage = "[options] <key> [range_end]",
          .summary = "Delete a key, or all keys in [key, range_end)",
          .group = kKeyValueGroup,
          .flags = DelFlags(),
          .run = RunDel};
}

Command CompactionCommand() {
  return {.name = "compaction",
          .usage = "[options] <revision>",
          .summary = "Forget the history below a revision",
          .group = kKeyValueGroup,
          .flags = kCompactionFlags,
          .run = RunCompaction};
}

}  // namespace engramctl
