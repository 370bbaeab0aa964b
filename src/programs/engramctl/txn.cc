#include <fmt/format.h>

#include "commands.h"
#include "print.h"
#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"
#include "txn_parse.h"

namespace engramctl {
namespace {

constexpr FlagSpec kTxnFlags[] = {{.name = "interactive",
                                   .type = FlagType::kBool,
                                   .help = "prompt for each part",
                                   .shorthand = 'i'}};

// Reads lines up to an empty one and hands each to `parse`; prompts before, when asked to.
template <typename Parse>
int ReadPart(bool interactive, std::string_view prompt, const Parse& parse) {
  if (interactive) Emit(fmt::format("{}\n", prompt));
  for (std::string line;;) {
    if (!ReadLine(&line)) return Fail(kExitInvalidInput, "EOF");
    const std::string_view text = TrimSpace(line);
    if (text.empty()) return kExitOk;
    if (const BadRequest bad = parse(text); !bad.ok()) return Fail(bad.code, bad.text);
  }
}

int ReadTxn(bool interactive, pb::TxnRequest* request) {
  int code = ReadPart(interactive, "compares:", [&](std::string_view line) {
    return ParseCompare(line, request->add_compare());
  });
  if (code == 0) {
    code = ReadPart(interactive, "success requests (get, put, del):", [&](std::string_view line) {
      return ParseRequestLine(line, request->add_success());
    });
  }
  if (code == 0) {
    code = ReadPart(interactive, "failure requests (get, put, del):", [&](std::string_view line) {
      return ParseRequestLine(line, request->add_failure());
    });
  }
  return code;
}

std::string Lines(const pb::TxnResponse& response, bool hex) {
  std::string out = response.succeeded() ? "SUCCESS\n" : "FAILURE\n";
  for (const pb::ResponseOp& op : response.responses()) {
    out += '\n';
    switch (op.response_case()) {
      case pb::ResponseOp::kResponseRange:
        out += GetLines(op.response_range(), hex);
        break;
      case pb::ResponseOp::kResponsePut:
        out += PutLines(op.response_put(), hex);
        break;
      case pb::ResponseOp::kResponseDeleteRange:
        out += DeleteLines(op.response_delete_range(), hex);
        break;
      default:
        out += "unexpected response\n";
    }
  }
  return out;
}

std::string Fields(const pb::TxnResponse& response, bool hex) {
  std::string out = HeaderFields(response.header(), hex);
  out += Field("Succeeded", response.succeeded() ? "true" : "false");
  for (const pb::ResponseOp& op : response.responses()) {
    switch (op.response_case()) {
      case pb::ResponseOp::kResponseRange:
        out += GetFields(op.response_range(), hex);
        break;
      case pb::ResponseOp::kResponsePut:
        out += PutFields(op.response_put(), hex);
        break;
      case pb::ResponseOp::kResponseDeleteRange:
        out += DeleteFields(op.response_delete_range(), hex);
        break;
      default:
        out += "\"Unknown\" : \"unexpected response\"\n";
    }
  }
  return out;
}

int RunTxn(const Invocation& invocation) {
  if (!invocation.words.empty()) {
    return Fail(kExitBadArguments, "txn command does not accept argument");
  }
  Session session;
  if (const int code = LoadSession(invocation, kNoTable, &session); code != 0) return code;
  pb::TxnRequest request;
  if (const int code = ReadTxn(invocation.flags->Bool("interactive"), &request); code != 0) {
    return code;
  }
  if (const int code = Connect(&session); code != 0) return code;
  const absl::StatusOr<pb::TxnResponse> response =
      session.client->Call(client::kTxn, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (EmitMessage(session, *response)) return kExitOk;
  Emit(session.format == Format::kFields ? Fields(*response, session.hex)
                                         : Lines(*response, session.hex));
  return kExitOk;
}

}  // namespace

Command TxnCommand() {
  return {.name = "txn",
          .usage = "[options]",
          .summary = "Run a transaction read from standard input",
          .group = kKeyValueGroup,
          .details =
              "Run a transaction read from standard input: comparison lines, requests for "
              "when all hold,\nrequests for when one does not; each part ends with an empty "
              "line.\n\n  mod(\"key1\") > \"0\"\n  lease(\"key2\") = \"694d77aa9e38260f\"\n\n"
              "  put key1 \"a value\"\n  get key2\n\n  del key1\n\nCompare ver, create, mod, "
              "val or lease by =, !=, < or >.",
          .flags = kTxnFlags,
          .run = RunTxn};
}

}  // namespace engramctl
