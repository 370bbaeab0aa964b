// Output in the formats that commands share: JSON of any message, `fields` lines, key-value lines,
// tables. The commands compose these. Everything goes through Emit(), which flushes, so that a
// reader of a pipe sees each response at once. Main thread only, except Emit().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "session.h"

namespace google::protobuf {
class Message;
}
namespace etcdserverpb {
class ResponseHeader;
class RangeResponse;
class PutResponse;
class DeleteRangeResponse;
}  // namespace etcdserverpb
namespace mvccpb {
class KeyValue;
}

namespace engramctl {

namespace pb = ::etcdserverpb;

void Emit(std::string_view text);

// As encoding/json prints the Go struct of the message: declared order, zero fields left out,
// numbers as numbers, bytes as base64, a oneof below its name. `hex_ids`: member and cluster ids
// become quoted hex.
std::string ToJson(const google::protobuf::Message& message, bool hex_ids = false);

// The four header fields without braces: "cluster_id":1,... ; empty when all are zero.
std::string HeaderJson(const pb::ResponseHeader& header);

// `"ClusterID" : 1` and so on.
std::string HeaderFields(const pb::ResponseHeader& header, bool hex);
std::string KeyValueFields(std::string_view prefix, const mvccpb::KeyValue& kv, bool hex);
std::string GetFields(const pb::RangeResponse& response, bool hex);
std::string PutFields(const pb::PutResponse& response, bool hex);
std::string DeleteFields(const pb::DeleteRangeResponse& response, bool hex);
// `"Name" : value`.
std::string Field(std::string_view name, std::string_view value);

enum class KeyValueParts { kBoth, kKeysOnly, kValuesOnly };
// Key line and value line; kKeysOnly leaves an empty value line.
std::string KeyValueLines(const mvccpb::KeyValue& kv, bool hex,
                          KeyValueParts parts = KeyValueParts::kBoth);
std::string GetLines(const pb::RangeResponse& response, bool hex,
                     KeyValueParts parts = KeyValueParts::kBoth);
std::string PutLines(const pb::PutResponse& response, bool hex);
std::string DeleteLines(const pb::DeleteRangeResponse& response, bool hex);

// Prints json, or protobuf; false for other formats, which the caller prints.
bool EmitMessage(const Session& session, const google::protobuf::Message& message);

// A frame of box characters; header centred in upper case, cells right-aligned.
std::string Table(const std::vector<std::string>& header,
                  const std::vector<std::vector<std::string>>& rows);

}  // namespace engramctl
