// Arbitrary text as the body of a gateway request, whole and cut into the objects of a stream. What
// is accepted must come back as JSON that means the same. The first byte selects the request type.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "api/json.h"
#include "base/check.h"
#include "proto/rpc.pb.h"

namespace {

namespace pb = etcdserverpb;

const google::protobuf::Message& Prototype(uint8_t selector) {
  static const std::array<const google::protobuf::Message*, 8> prototypes = {
      &pb::RangeRequest::default_instance(),      &pb::PutRequest::default_instance(),
      &pb::TxnRequest::default_instance(),        &pb::WatchRequest::default_instance(),
      &pb::LeaseGrantRequest::default_instance(), &pb::CompactionRequest::default_instance(),
      &pb::MemberAddRequest::default_instance(),  &pb::AlarmRequest::default_instance()};
  return *prototypes[selector % prototypes.size()];
}

void RoundTrip(std::string_view body, const google::protobuf::Message& prototype) {
  const auto wire = api::JsonToWire(body, prototype);
  if (!wire.ok()) {
    CHECK(wire.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  const auto json = api::WireToJson(*wire, prototype);
  CHECK(json.ok());
  const auto again = api::JsonToWire(*json, prototype);
  CHECK(again.ok() && *again == *wire);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const google::protobuf::Message& prototype = Prototype(data[0]);
  const size_t cut = data[1];
  const std::string_view body(reinterpret_cast<const char*>(data) + 2, size - 2);
  RoundTrip(body, prototype);
  // However a stream is cut on its way, the same objects come out.
  std::string whole;
  std::string pieces;
  api::JsonSplitter at_once;
  const bool fine = at_once.Feed(body, [&](std::string_view json) {
    (whole += json) += '\n';
    RoundTrip(json, prototype);
  });
  api::JsonSplitter in_two;
  const auto collect = [&](std::string_view json) { (pieces += json) += '\n'; };
  const bool fine_in_two = in_two.Feed(body.substr(0, cut), collect) &&
                           (cut >= body.size() || in_two.Feed(body.substr(cut), collect));
  CHECK(fine == fine_in_two && whole == pieces);
  return 0;
}
