// A log's lines, chunks and heads as they come out of a store that anybody can write to.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "ledger/log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ledger::Place place{.cluster = "prod",
                                   .timeline = {.cluster_id = 0xabc, .first_revision = 1},
                                   .writer = "0123456789abcdef"};
  static const std::vector<vault::VerifyingKey> trusted = [] {
    base::SeededRandom random(1);
    return std::vector<vault::VerifyingKey>{vault::SigningKey::Generate(random).verifying_key()};
  }();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // Nobody here has the key: no chunk and no head is ever believed.
  CHECK(!ledger::DecodeChunk(place, bytes, 1, ledger::kNoPrevious, trusted).ok());
  CHECK(!ledger::DecodeHead(place, bytes, trusted).ok());
  const auto record = ledger::DecodeLine(bytes, place.Folder());
  if (!record.ok()) return 0;
  // What is a record is written and read again as the same one.
  std::string line = ledger::EncodeLine(*record);
  CHECK(line.back() == '\n');
  line.pop_back();
  CHECK(line.find('\n') == std::string::npos);
  const auto again = ledger::DecodeLine(line, place.Folder());
  CHECK(again.ok());
  CHECK(ledger::EncodeLine(*again) == line + "\n");
  ledger::InventoryBuilder builder("prod");
  // A container is taken where its parts are known, each as long as it says; one of re-wrapped
  // segments where these are.
  const auto* stored = std::get_if<ledger::Stored>(&again->fact);
  const auto* rewrapped = std::get_if<ledger::RewrappedRollUp>(&again->fact);
  const catalog::Object* container = stored != nullptr      ? &stored->object
                                     : rewrapped != nullptr ? &rewrapped->container
                                                            : nullptr;
  for (size_t i = 0; container != nullptr && i < container->parts.size(); ++i) {
    const std::string& name =
        rewrapped != nullptr ? rewrapped->parts[i].name : container->parts[i].name;
    catalog::Object object{.kind = catalog::Kind::kSegment, .name = name};
    object.stored_bytes = container->parts[i].bytes;
    builder.Apply({.seq = 1, .fact = ledger::Stored{std::move(object)}}, place.timeline)
        .IgnoreError();
  }
  builder.Apply(*again, place.timeline).IgnoreError();
  if (container != nullptr) {
    const std::string& name = container->name;
    for (const ledger::Fact& fact : std::vector<ledger::Fact>{
             ledger::Reread{name, "disk"}, ledger::Damaged{name, "disk", "bits"},
             ledger::Healed{name, "disk", "s3"}, ledger::Pruned{name, "old"}}) {
      builder.Apply({.seq = 2, .fact = fact}, place.timeline).IgnoreError();
    }
  }
  for (const catalog::Object& object : builder.inventory().objects) {
    const catalog::Extent extent = object.In("disk");
    CHECK(extent.name == object.name || object.container == extent.name);
  }
  return 0;
}
