#include "member/request.h"

#include "base/wire.h"

namespace member {
namespace {

constexpr uint32_t kLegacyIdField = 1;
constexpr uint32_t kHeaderField = 100;

void AppendHeader(std::string* out, uint64_t id, std::string_view username,
                  uint64_t auth_revision) {
  std::string header;
  base::wire::AppendNonZero(&header, 1, id);
  base::wire::AppendNonEmpty(&header, 2, username);
  base::wire::AppendNonZero(&header, 3, auth_revision);
  base::wire::AppendBytes(out, kHeaderField, header);
}

}  // namespace

std::string EncodeRequest(RequestKind kind, std::string_view message, uint64_t id,
                          std::string_view username, uint64_t auth_revision) {
  std::string out;
  out.reserve(message.size() + username.size() + 48);
  // In the order of field numbers, as etcd writes it.
  if (static_cast<uint32_t>(kind) < kHeaderField) {
    base::wire::AppendBytes(&out, static_cast<uint32_t>(kind), message);
    AppendHeader(&out, id, username, auth_revision);
  } else {
    AppendHeader(&out, id, username, auth_revision);
    base::wire::AppendBytes(&out, static_cast<uint32_t>(kind), message);
  }
  return out;
}

bool DecodeRequest(std::string_view bytes, RequestView* out) {
  using base::wire::Type;
  uint64_t legacy_id = 0;
  base::wire::Reader r(bytes);
  while (r.Next()) {
    if (r.field() == kLegacyIdField) {
      if (!r.Expect(Type::kVarint)) break;
      legacy_id = r.varint();
    } else if (r.field() == kHeaderField) {
      if (!r.Expect(Type::kBytes)) break;
      base::wire::Reader h(r.bytes());
      while (h.Next()) {
        if (h.field() == 1 && h.Expect(Type::kVarint)) out->id = h.varint();
        if (h.field() == 2 && h.Expect(Type::kBytes)) out->username = h.bytes();
        if (h.field() == 3 && h.Expect(Type::kVarint)) out->auth_revision = h.varint();
      }
      if (!h.ok()) return false;
    } else if (r.type() == Type::kBytes) {
      out->field = r.field();
      out->kind = static_cast<RequestKind>(r.field());
      out->message = r.bytes();
    }
  }
  if (legacy_id != 0) out->id = legacy_id;
  return r.ok();
}

}  // namespace member
