#include "commands.h"
#include "kv_requests.h"
#include "print.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"
#include "session.h"

namespace engramctl {
namespace {

// `get --stream`: prints chunks as they come in the simple and keys formats, so that memory stays
// small; other formats need the whole answer.
int RunStream(const Session& session, const pb::RangeRequest& request, KeyValueParts parts) {
  absl::StatusOr<std::unique_ptr<client::Stream>> stream =
      session.client->OpenServerStream(client::kRangeStreamMethod, request, session.call_options());
  if (!stream.ok()) return FailCall(stream.status());
  pb::RangeResponse whole;
  for (pb::RangeStreamResponse chunk;
       (*stream)->Read(&chunk) == client::Stream::ReadResult::kMessage;) {
    if (session.format == Format::kSimple) {
      Emit(GetLines(chunk.range_response(), session.hex, parts));
    } else {
      whole.MergeFrom(chunk.range_response());
    }
  }
  if (const absl::Status status = (*stream)->Finish(); !status.ok()) return FailCall(status);
  if (session.format != Format::kSimple && !EmitMessage(session, whole)) {
    Emit(GetFields(whole, session.hex));
  }
  return kExitOk;
}

void PrintFields(const Session& session, const pb::RangeResponse& response, bool count_only) {
  if (!count_only) return Emit(GetFields(response, session.hex));
  Emit(HeaderFields(response.header(), session.hex) +
       Field("More", response.more() ? "true" : "false") +
       Field("Count", std::to_string(response.count())));
}

int RunGet(const Invocation& invocation) {
  const FlagSet& flags = *invocation.flags;
  pb::RangeRequest request;
  if (const BadRequest bad = ParseGet(flags, invocation.words, &request); !bad.ok()) {
    return Fail(bad.code, bad.text);
  }
  Session session;
  if (const int code = LoadSession(invocation, kAllFormats, &session); code != 0) return code;
  const bool count_only = flags.Bool("count-only");
  const bool values_only = flags.Bool("print-value-only");
  if (count_only && session.format != Format::kFields) {
    return Fail(kExitBadArguments, "--count-only is only for `--write-out=fields`");
  }
  if (values_only && session.format != Format::kSimple) {
    return Fail(kExitBadArguments, "print-value-only is only for `--write-out=simple`");
  }
  if (const int code = RequireFormat(session, kNoTable); code != 0) return code;
  const KeyValueParts parts = values_only               ? KeyValueParts::kValuesOnly
                              : flags.Bool("keys-only") ? KeyValueParts::kKeysOnly
                                                        : KeyValueParts::kBoth;
  if (const int code = Connect(&session); code != 0) return code;
  if (flags.Bool("stream")) return RunStream(session, request, parts);
  const absl::StatusOr<pb::RangeResponse> response =
      session.client->Call(client::kRange, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (EmitMessage(session, *response)) return kExitOk;
  if (session.format == Format::kFields) {
    PrintFields(session, *response, count_only);
  } else {
    Emit(GetLines(*response, session.hex, parts));
  }
  return kExitOk;
}

}  // namespace

Command GetCommand() {
  return {.name = "get",
          .usage = "[options] <key> [range_end]",
          .summary = "Print a key, or a range of keys",
          .group = kKeyValueGroup,
          .flags = GetFlags(),
          .run = RunGet};
}

}  // namespace engramctl
