#include "print.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>

#include <algorithm>
#include <cstdio>

#include "proto/kv.pb.h"
#include "proto/rpc.pb.h"
#include "text.h"

namespace engramctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class JsonPrinter {
 public:
  explicit JsonPrinter(bool hex_ids) : hex_ids_(hex_ids) {}

  void Print(const Message& message) {
    const Reflection& reflection = *message.GetReflection();
    const auto& descriptor = *message.GetDescriptor();
    out_ += '{';
    bool first = true;
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const FieldDescriptor& field = *descriptor.field(i);
      if (field.is_repeated() ? reflection.FieldSize(message, &field) == 0
                              : !reflection.HasField(message, &field)) {
        continue;
      }
      if (!first) out_ += ',';
      first = false;
      const auto* oneof = field.real_containing_oneof();
      if (oneof != nullptr) out_ += fmt::format("\"{}\":{{", GoName(oneof->name()));
      out_ += fmt::format("\"{}\":", field.name());
      if (field.is_repeated()) {
        PrintList(message, reflection, field);
      } else {
        PrintValue(message, reflection, field, -1);
      }
      if (oneof != nullptr) out_ += '}';
    }
    out_ += '}';
  }

  std::string out_;

 private:
  static std::string GoName(std::string name) {
    name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
    return name;
  }

  void PrintList(const Message& message, const Reflection& reflection,
                 const FieldDescriptor& field) {
    out_ += '[';
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      if (i > 0) out_ += ',';
      PrintValue(message, reflection, field, i);
    }
    out_ += ']';
  }

  void PrintValue(const Message& message, const Reflection& reflection,
                  const FieldDescriptor& field, int index) {
    const bool repeated = index >= 0;
    const auto get = [&](auto single, auto repeated_getter) {
      return repeated ? (reflection.*repeated_getter)(message, &field, index)
                      : (reflection.*single)(message, &field);
    };
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
        out_ += fmt::format("{}", get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
        break;
      case FieldDescriptor::CPPTYPE_UINT64: {
        const uint64_t value = get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
        const bool id =
            field.name() == "ID" || field.name() == "member_id" || field.name() == "cluster_id";
        out_ += hex_ids_ && id ? fmt::format("\"{:x}\"", value) : fmt::format("{}", value);
        break;
      }
      case FieldDescriptor::CPPTYPE_UINT32:
        out_ += fmt::format("{}", get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        out_ += get(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true" : "false";
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        out_ +=
            fmt::format("{}", get(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue));
        break;
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string value = get(&Reflection::GetString, &Reflection::GetRepeatedString);
        out_ += field.type() == FieldDescriptor::TYPE_BYTES ? '"' + Base64(value) + '"'
                                                            : JsonString(value);
        break;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Print(repeated ? reflection.GetRepeatedMessage(message, &field, index)
                       : reflection.GetMessage(message, &field));
        break;
      default:
        // The client API has no 32-bit signed or floating fields.
        out_ += "null";
    }
  }

  const bool hex_ids_;
};

void AppendCentred(std::string* out, std::string_view text, size_t width) {
  const size_t blanks = width - CharacterCount(text);
  *out += std::string(blanks / 2, ' ');
  *out += text;
  *out += std::string(blanks - blanks / 2, ' ');
}

}  // namespace

void Emit(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string ToJson(const Message& message, bool hex_ids) {
  JsonPrinter printer(hex_ids);
  printer.Print(message);
  return std::move(printer.out_);
}

std::string HeaderJson(const pb::ResponseHeader& header) {
  const std::string json = ToJson(header);
  return json.substr(1, json.size() - 2);
}

std::string Field(std::string_view name, std::string_view value) {
  return fmt::format("\"{}\" : {}\n", name, value);
}

std::string HeaderFields(const pb::ResponseHeader& header, bool hex) {
  const auto id = [hex](uint64_t value) {
    return hex ? fmt::format("{:x}", value) : fmt::format("{}", value);
  };
  std::string out = Field("ClusterID", id(header.cluster_id()));
  out += Field("MemberID", id(header.member_id()));
  if (header.revision() > 0) out += Field("Revision", std::to_string(header.revision()));
  return out + Field("RaftTerm", std::to_string(header.raft_term()));
}

std::string KeyValueFields(std::string_view prefix, const mvccpb::KeyValue& kv, bool hex) {
  const auto field = [prefix](std::string_view name, std::string_view value) {
    return fmt::format("\"{}{}\" : {}\n", prefix, name, value);
  };
  std::string out = field("Key", Quote(kv.key()));
  out += field("CreateRevision", std::to_string(kv.create_revision()));
  out += field("ModRevision", std::to_string(kv.mod_revision()));
  out += field("Version", std::to_string(kv.version()));
  out += field("Value", Quote(kv.value()));
  return out + field("Lease", hex ? fmt::format("{:016x}", static_cast<uint64_t>(kv.lease()))
                                  : std::to_string(kv.lease()));
}

std::string GetFields(const pb::RangeResponse& response, bool hex) {
  std::string out = HeaderFields(response.header(), hex);
  for (const mvccpb::KeyValue& kv : response.kvs()) out += KeyValueFields("", kv, hex);
  out += Field("More", response.more() ? "true" : "false");
  return out + Field("Count", std::to_string(response.count()));
}

std::string PutFields(const pb::PutResponse& response, bool hex) {
  std::string out = HeaderFields(response.header(), hex);
  if (response.has_prev_kv()) out += KeyValueFields("Prev", response.prev_kv(), hex);
  return out;
}

std::string DeleteFields(const pb::DeleteRangeResponse& response, bool hex) {
  std::string out = HeaderFields(response.header(), hex);
  out += Field("Deleted", std::to_string(response.deleted()));
  for (const mvccpb::KeyValue& kv : response.prev_kvs()) out += KeyValueFields("Prev", kv, hex);
  return out;
}

std::string KeyValueLines(const mvccpb::KeyValue& kv, bool hex, KeyValueParts parts) {
  const auto shown = [hex](const std::string& bytes) { return hex ? HexEscape(bytes) : bytes; };
  std::string out;
  if (parts != KeyValueParts::kValuesOnly) out += shown(kv.key()) + '\n';
  return out + shown(kv.value()) + '\n';
}

std::string GetLines(const pb::RangeResponse& response, bool hex, KeyValueParts parts) {
  std::string out;
  for (const mvccpb::KeyValue& kv : response.kvs()) out += KeyValueLines(kv, hex, parts);
  return out;
}

std::string PutLines(const pb::PutResponse& response, bool hex) {
  std::string out = "OK\n";
  if (response.has_prev_kv()) out += KeyValueLines(response.prev_kv(), hex);
  return out;
}

std::string DeleteLines(const pb::DeleteRangeResponse& response, bool hex) {
  std::string out = fmt::format("{}\n", response.deleted());
  for (const mvccpb::KeyValue& kv : response.prev_kvs()) out += KeyValueLines(kv, hex);
  return out;
}

bool EmitMessage(const Session& session, const Message& message) {
  if (session.format == Format::kJson) {
    Emit(ToJson(message) + '\n');
    return true;
  }
  if (session.format == Format::kProtobuf) {
    Emit(message.SerializeAsString());
    return true;
  }
  return false;
}

std::string Table(const std::vector<std::string>& header,
                  const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::string& cell : header) widths.push_back(CharacterCount(cell));
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], CharacterCount(row[i]));
    }
  }
  const auto rule = [&widths](std::string_view left, std::string_view middle,
                              std::string_view right) {
    std::string out(left);
    for (size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) out += middle;
      for (size_t j = 0; j < widths[i] + 2; ++j) out += "\u2500";
    }
    return out + std::string(right) + "\n";
  };
  std::string out = rule("\u250c", "\u252c", "\u2510");
  for (size_t i = 0; i < header.size(); ++i) {
    out += "\u2502 ";
    AppendCentred(&out, ToUpper(header[i]), widths[i]);
    out += ' ';
  }
  out += "\u2502\n";
  if (!rows.empty()) out += rule("\u251c", "\u253c", "\u2524");
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += "\u2502 " + std::string(widths[i] - CharacterCount(row[i]), ' ') + row[i] + ' ';
    }
    out += "\u2502\n";
  }
  return out + rule("\u2514", "\u2534", "\u2518");
}

}  // namespace engramctl
