#include "ledger/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/time_text.h"

namespace ledger {
namespace {

using nlohmann::json;

// --- writing ---

json ProofJson(const catalog::Proof& proof) {
  json out = {{"method", catalog::ProofMethodName(proof.method)},
              {"to", proof.to},
              {"at", base::Rfc3339(proof.at)}};
  if (proof.method == catalog::Proof::Method::kRows) {
    out["from"] = proof.from;
    out["rows"] = proof.rows;
  } else {
    out["compact_revision"] = proof.compact_revision;
    out["hash"] = proof.hash;
  }
  if (!proof.against.empty()) out["against"] = proof.against;
  return out;
}

json SeenJson(const catalog::Seen& seen) {
  return {{"from", base::Rfc3339(seen.from)}, {"to", base::Rfc3339(seen.to)}};
}

// Left out when empty or 0, as most fields are for most kinds.
template <typename T>
void Put(json& out, const char* name, const T& value) {
  if (value != T()) out[name] = value;
}

json ObjectJson(const catalog::Object& o) {
  json out = {{"kind", catalog::KindName(o.kind)},    {"name", o.name},
              {"plain_bytes", o.plain_bytes},         {"stored_bytes", o.stored_bytes},
              {"plain_sha256", o.plain_sha256},       {"stored_sha256", o.stored_sha256},
              {"recipients", o.recipients},           {"stores", o.stores},
              {"first_seen", SeenJson(o.first_seen)}, {"last_seen", SeenJson(o.last_seen)}};
  Put(out, "first_revision", o.first_revision);
  Put(out, "last_revision", o.last_revision);
  Put(out, "compact_revision", o.compact_revision);
  Put(out, "previous_sha256", o.previous_sha256);
  Put(out, "events", o.events);
  Put(out, "level", o.level);
  for (const catalog::Part& part : o.parts) {
    out["parts"].push_back({{"name", part.name}, {"offset", part.offset}, {"bytes", part.bytes}});
  }
  Put(out, "member_id", o.member_id == 0 ? std::string() : fmt::format("{:016x}", o.member_id));
  Put(out, "raft_index", o.raft_index);
  Put(out, "server_version", o.server_version);
  Put(out, "storage_version", o.storage_version);
  Put(out, "keeper_version", o.keeper_version);
  Put(out, "kubernetes_version", o.kubernetes_version);
  for (const catalog::KmsKey& key : o.kms) {
    out["kms"].push_back({{"provider", key.provider},
                          {"version", key.version},
                          {"endpoint", key.endpoint},
                          {"key_id", key.key_id}});
  }
  Put(out, "key_count", o.key_count);
  Put(out, "prefix_counts", o.prefix_counts);
  Put(out, "encryptions", o.encryptions);
  Put(out, "strain", o.strain);
  Put(out, "suspect", o.suspect);
  Put(out, "note", o.note);
  if (!o.proofs.empty()) {
    json proofs = json::array();
    for (const catalog::Proof& proof : o.proofs) proofs.push_back(ProofJson(proof));
    out["proofs"] = std::move(proofs);
  }
  return out;
}

struct FactWriter {
  std::pair<const char*, json> operator()(const Opened& f) const {
    json out = {{"cluster", f.cluster},
                {"cluster_id", fmt::format("{:016x}", f.cluster_id)},
                {"keeper_version", f.keeper_version},
                {"public_key", f.public_key},
                {"why", f.why}};
    Put(out, "follows", f.follows);
    return {"opened", std::move(out)};
  }
  std::pair<const char*, json> operator()(const Stored& f) const {
    return {"stored", ObjectJson(f.object)};
  }
  std::pair<const char*, json> operator()(const Copied& f) const {
    return {"copied", {{"name", f.name}, {"store", f.store}}};
  }
  std::pair<const char*, json> operator()(const Reread& f) const {
    return {"reread", {{"name", f.name}, {"store", f.store}}};
  }
  std::pair<const char*, json> operator()(const Damaged& f) const {
    return {"damaged", {{"name", f.name}, {"store", f.store}, {"what", f.what}}};
  }
  std::pair<const char*, json> operator()(const Healed& f) const {
    return {"healed", {{"name", f.name}, {"store", f.store}, {"from", f.from}}};
  }
  std::pair<const char*, json> operator()(const Rewrapped& f) const {
    return {"rewrapped",
            {{"name", f.name},
             {"as", f.as},
             {"recipients", f.recipients},
             {"stored_bytes", f.stored_bytes},
             {"stored_sha256", f.stored_sha256},
             {"stores", f.stores}}};
  }
  std::pair<const char*, json> operator()(const RewrappedRollUp& f) const {
    json parts = json::array();
    for (const RewrappedRollUp::Was& part : f.parts) {
      parts.push_back({{"name", part.name}, {"stored_sha256", part.stored_sha256}});
    }
    return {"rewrapped_roll_up",
            {{"roll_up", ObjectJson(f.container)},
             {"recipients", f.recipients},
             {"parts", std::move(parts)}}};
  }
  std::pair<const char*, json> operator()(const Proven& f) const {
    return {"proven", {{"name", f.name}, {"proof", ProofJson(f.proof)}}};
  }
  std::pair<const char*, json> operator()(const Suspected& f) const {
    return {"suspected", {{"name", f.name}, {"why", f.why}}};
  }
  std::pair<const char*, json> operator()(const Pinned& f) const {
    return {"pinned", {{"name", f.name}, {"pinned", f.pinned}}};
  }
  std::pair<const char*, json> operator()(const Annotated& f) const {
    return {"annotated", {{"name", f.name}, {"note", f.note}}};
  }
  std::pair<const char*, json> operator()(const Pruned& f) const {
    return {"pruned", {{"name", f.name}, {"why", f.why}}};
  }
  std::pair<const char*, json> operator()(const HoleFound& f) const {
    return {"hole",
            {{"first_revision", f.hole.first_revision},
             {"last_revision", f.hole.last_revision},
             {"from", base::Rfc3339(f.hole.from)},
             {"to", base::Rfc3339(f.hole.to)},
             {"why", f.hole.why}}};
  }
};

// --- reading ---

// Reads members of an object that comes from a store: each has its type or the line is refused. The
// first fault is kept, so that a whole fact is read without a check for each field.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {
    if (!object.is_object()) Fault("it is no object");
  }

  std::string Text(const char* name, bool required = true) {
    const json* value = Find(name, required);
    if (value == nullptr) return {};
    if (!value->is_string()) return Fault(fmt::format("`{}` is no text", name)), std::string();
    return value->get<std::string>();
  }
  uint64_t Count(const char* name, bool required = true) {
    const json* value = Find(name, required);
    if (value == nullptr) return 0;
    if (!value->is_number_unsigned()) return Fault(fmt::format("`{}` is no count", name)), 0;
    return value->get<uint64_t>();
  }
  int64_t Revision(const char* name, bool required = true) {
    const uint64_t value = Count(name, required);
    if (value > uint64_t{INT64_MAX}) return Fault(fmt::format("`{}` is no revision", name)), 0;
    return static_cast<int64_t>(value);
  }
  uint64_t Id(const char* name, bool required = true) {
    const std::string text = Text(name, required);
    if (text.empty() && !required) return 0;
    uint64_t id = 0;
    if (!base::ParseHex16(text, &id)) Fault(fmt::format("`{}` is no id", name));
    return id;
  }
  bool Flag(const char* name) {
    const json* value = Find(name, true);
    if (value == nullptr) return false;
    if (!value->is_boolean())
      return Fault(fmt::format("`{}` is neither true nor false", name)), false;
    return value->get<bool>();
  }
  Time Moment(const char* name) {
    const std::string text = Text(name);
    const auto moment = base::ParseRfc3339(text);
    if (!moment.has_value()) Fault(fmt::format("`{}` is no time", name));
    return moment.value_or(Time(0));
  }
  // 64 hex digits.
  std::string Sha256(const char* name, bool required = true) {
    std::string text = Text(name, required);
    if (text.empty() && !required) return text;
    base::Digest digest;
    if (!base::ParseDigest(text, &digest)) Fault(fmt::format("`{}` is no SHA-256", name));
    return text;
  }
  std::vector<std::string> Texts(const char* name, bool required = true) {
    std::vector<std::string> out;
    const json* value = Find(name, required);
    if (value == nullptr) return out;
    if (!value->is_array()) return Fault(fmt::format("`{}` is no list", name)), out;
    for (const json& one : *value) {
      if (!one.is_string()) return Fault(fmt::format("`{}` holds what is no text", name)), out;
      out.push_back(one.get<std::string>());
    }
    return out;
  }
  std::map<std::string, uint64_t> Counts(const char* name) {
    std::map<std::string, uint64_t> out;
    const json* value = Find(name, false);
    if (value == nullptr) return out;
    if (!value->is_object()) return Fault(fmt::format("`{}` is no object", name)), out;
    for (const auto& [key, count] : value->items()) {
      if (!count.is_number_unsigned()) return Fault(fmt::format("`{}` holds no count", name)), out;
      out[key] = count.get<uint64_t>();
    }
    return out;
  }
  // Reads a nested object by `read(Fields&)`.
  template <typename F>
  void Object(const char* name, F read) {
    const json* value = Find(name, true);
    if (value != nullptr) Nested(name, *value, read);
  }
  template <typename F>
  void Objects(const char* name, F read) {
    const json* value = Find(name, false);
    if (value == nullptr) return;
    if (!value->is_array()) return Fault(fmt::format("`{}` is no list", name));
    for (const json& one : *value) Nested(name, one, read);
  }

  void Fault(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }
  const std::string& fault() const { return fault_; }

 private:
  const json* Find(const char* name, bool required) {
    if (!object_.is_object()) return nullptr;
    const auto at = object_.find(name);
    if (at != object_.end()) return &*at;
    if (required) Fault(fmt::format("`{}` is missing", name));
    return nullptr;
  }
  template <typename F>
  void Nested(const char* name, const json& value, F read) {
    Fields fields(value);
    read(fields);
    if (!fields.fault().empty()) Fault(fmt::format("in `{}`: {}", name, fields.fault()));
  }

  const json& object_;
  std::string fault_;
};

catalog::Seen ReadSeen(Fields& in) { return {.from = in.Moment("from"), .to = in.Moment("to")}; }

catalog::Proof ReadProof(Fields& in) {
  using Method = catalog::Proof::Method;
  catalog::Proof proof;
  const std::string method = in.Text("method");
  bool known = false;
  for (const Method m :
       {Method::kRows, Method::kHashOfFile, Method::kHashByRpc, Method::kRestored}) {
    if (method != catalog::ProofMethodName(m)) continue;
    proof.method = m;
    known = true;
  }
  if (!known) in.Fault("`method` is not known");
  proof.to = in.Revision("to");
  proof.from = in.Revision("from", false);
  proof.rows = in.Count("rows", false);
  proof.compact_revision = in.Revision("compact_revision", false);
  const uint64_t hash = in.Count("hash", false);
  if (hash > UINT32_MAX) in.Fault("`hash` is too large");
  proof.hash = static_cast<uint32_t>(hash);
  proof.against = in.Text("against", false);
  proof.at = in.Moment("at");
  return proof;
}

// What a container holds, each part behind the one before.
void ReadParts(Fields& in, catalog::Object* o) {
  uint64_t end = 0;
  in.Objects("parts", [&](Fields& f) {
    catalog::Part part{
        .name = f.Text("name"), .offset = f.Count("offset"), .bytes = f.Count("bytes")};
    if (part.offset != end || part.bytes > o->stored_bytes - end) {
      f.Fault("it does not lie behind the one before");
      return;
    }
    end += part.bytes;
    o->parts.push_back(std::move(part));
  });
  const uint64_t level = in.Count("level", false);
  const uint64_t highest = kLevelMax;
  o->level = static_cast<uint32_t>(std::min(level, highest));
  const bool rolls = o->kind == catalog::Kind::kRollUp;
  if (rolls ? level < 1 || level > highest : level != 0) in.Fault("`level` does not fit its kind");
  if (rolls ? end != o->stored_bytes || end == 0 : !o->parts.empty()) {
    in.Fault("`parts` do not fit what it is");
  }
}

catalog::Object ReadObject(Fields& in) {
  using catalog::Kind;
  catalog::Object o;
  const std::string kind = in.Text("kind");
  bool known = false;
  for (const Kind k : {Kind::kFull, Kind::kSegment, Kind::kBundle, Kind::kDrill, Kind::kRollUp}) {
    if (kind != catalog::KindName(k)) continue;
    o.kind = k;
    known = true;
  }
  if (!known) in.Fault("`kind` is not known");
  o.name = in.Text("name");
  o.plain_bytes = in.Count("plain_bytes");
  o.stored_bytes = in.Count("stored_bytes");
  o.plain_sha256 = in.Sha256("plain_sha256");
  o.stored_sha256 = in.Sha256("stored_sha256");
  o.recipients = in.Texts("recipients");
  for (std::string& store : in.Texts("stores")) o.stores.insert(std::move(store));
  in.Object("first_seen", [&](Fields& f) { o.first_seen = ReadSeen(f); });
  in.Object("last_seen", [&](Fields& f) { o.last_seen = ReadSeen(f); });
  o.first_revision = in.Revision("first_revision", false);
  o.last_revision = in.Revision("last_revision", false);
  o.compact_revision = in.Revision("compact_revision", false);
  o.previous_sha256 = in.Sha256("previous_sha256", false);
  o.events = in.Count("events", false);
  o.member_id = in.Id("member_id", false);
  o.raft_index = in.Count("raft_index", false);
  o.server_version = in.Text("server_version", false);
  o.storage_version = in.Text("storage_version", false);
  o.keeper_version = in.Text("keeper_version", false);
  o.kubernetes_version = in.Text("kubernetes_version", false);
  in.Objects("kms", [&](Fields& f) {
    o.kms.push_back({.provider = f.Text("provider"),
                     .version = f.Text("version"),
                     .endpoint = f.Text("endpoint"),
                     .key_id = f.Text("key_id")});
  });
  o.key_count = in.Count("key_count", false);
  o.prefix_counts = in.Counts("prefix_counts");
  for (std::string& text : in.Texts("encryptions", false)) o.encryptions.insert(std::move(text));
  o.strain = in.Text("strain", false);
  o.suspect = in.Text("suspect", false);
  o.note = in.Text("note", false);
  in.Objects("proofs", [&](Fields& f) { o.proofs.push_back(ReadProof(f)); });
  ReadParts(in, &o);
  if (o.kind == Kind::kSegment && (o.first_revision < 1 || o.last_revision < o.first_revision)) {
    in.Fault("the revisions of a segment are in no order");
  }
  if (o.kind == Kind::kFull && o.last_revision < std::max(int64_t{1}, o.compact_revision)) {
    in.Fault("the revisions of a full are in no order");
  }
  return o;
}

// What was re-wrapped stands where the old one stood.
void CheckBeside(Fields& in, const std::string& name, const std::string& as) {
  const auto folder = [](const std::string& path) { return path.substr(0, path.rfind('/') + 1); };
  if (folder(name) != folder(as) || name == as) in.Fault("`as` does not lie beside `name`");
}

RewrappedRollUp ReadRewrappedRollUp(Fields& in) {
  RewrappedRollUp out;
  in.Object("roll_up", [&](Fields& f) { out.container = ReadObject(f); });
  if (out.container.kind != catalog::Kind::kRollUp) in.Fault("`roll_up` is none");
  out.recipients = in.Texts("recipients");
  in.Objects("parts", [&](Fields& f) {
    RewrappedRollUp::Was part{.name = f.Text("name"), .stored_sha256 = f.Sha256("stored_sha256")};
    const size_t number = out.parts.size();
    if (number < out.container.parts.size()) {
      CheckBeside(f, part.name, out.container.parts[number].name);
    }
    out.parts.push_back(std::move(part));
  });
  if (out.parts.size() != out.container.parts.size())
    in.Fault("`parts` are not those of `roll_up`");
  return out;
}

absl::StatusOr<Fact> ReadFact(const std::string& kind, Fields& in) {
  if (kind == "opened") {
    return Opened{.cluster = in.Text("cluster"),
                  .cluster_id = in.Id("cluster_id"),
                  .keeper_version = in.Text("keeper_version"),
                  .public_key = in.Text("public_key"),
                  .why = in.Text("why"),
                  .follows = in.Text("follows", false)};
  }
  if (kind == "stored") return Stored{ReadObject(in)};
  if (kind == "copied") return Copied{.name = in.Text("name"), .store = in.Text("store")};
  if (kind == "reread") return Reread{.name = in.Text("name"), .store = in.Text("store")};
  if (kind == "damaged") {
    return Damaged{.name = in.Text("name"), .store = in.Text("store"), .what = in.Text("what")};
  }
  if (kind == "healed") {
    return Healed{.name = in.Text("name"), .store = in.Text("store"), .from = in.Text("from")};
  }
  if (kind == "rewrapped") {
    Rewrapped rewrapped{.name = in.Text("name"),
                        .as = in.Text("as"),
                        .recipients = in.Texts("recipients"),
                        .stored_bytes = in.Count("stored_bytes"),
                        .stored_sha256 = in.Sha256("stored_sha256"),
                        .stores = {}};
    for (std::string& store : in.Texts("stores")) rewrapped.stores.insert(std::move(store));
    CheckBeside(in, rewrapped.name, rewrapped.as);
    return rewrapped;
  }
  if (kind == "rewrapped_roll_up") return ReadRewrappedRollUp(in);
  if (kind == "proven") {
    Proven proven{.name = in.Text("name"), .proof = {}};
    in.Object("proof", [&](Fields& f) { proven.proof = ReadProof(f); });
    return proven;
  }
  if (kind == "suspected") return Suspected{.name = in.Text("name"), .why = in.Text("why")};
  if (kind == "pinned") return Pinned{.name = in.Text("name"), .pinned = in.Flag("pinned")};
  if (kind == "annotated") return Annotated{.name = in.Text("name"), .note = in.Text("note")};
  if (kind == "pruned") return Pruned{.name = in.Text("name"), .why = in.Text("why")};
  if (kind == "hole") {
    return HoleFound{{.timeline = {},
                      .first_revision = in.Revision("first_revision"),
                      .last_revision = in.Revision("last_revision"),
                      .from = in.Moment("from"),
                      .to = in.Moment("to"),
                      .why = in.Text("why")}};
  }
  return base::MakeStatus(absl::StatusCode::kUnimplemented,
                          "a record of kind {}, which this program does not know: use a newer one",
                          json(kind).dump(-1, ' ', true, json::error_handler_t::replace));
}

}  // namespace

std::string EncodeLine(const Record& record) {
  auto [kind, fact] = std::visit(FactWriter(), record.fact);
  const json line = {{"seq", record.seq},
                     {"previous", record.previous},
                     {"at", base::Rfc3339(record.at)},
                     {"kind", kind},
                     {"fact", std::move(fact)}};
  // Texts come from users and servers: what is not UTF-8 is replaced, and everything else than
  // ASCII escaped, so that a line is a line.
  return line.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

std::string EncodeObject(const catalog::Object& object) {
  std::string line = EncodeLine({.seq = 1,
                                 .previous = std::string(kNoPrevious),
                                 .at = object.last_seen.to,
                                 .fact = Stored{object}});
  line.pop_back();
  return line;
}

absl::StatusOr<catalog::Object> DecodeObject(std::string_view line, std::string_view log_folder) {
  ASSIGN_OR_RETURN(const Record record, DecodeLine(line, log_folder));
  const auto* stored = std::get_if<Stored>(&record.fact);
  if (stored == nullptr) return absl::DataLossError("the record states no object");
  return stored->object;
}

absl::StatusOr<Record> DecodeLine(std::string_view line, std::string_view log_folder) {
  const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::DataLossError("a record is no JSON");
  Fields in(parsed);
  Record record{
      .seq = in.Count("seq"), .previous = in.Sha256("previous"), .at = in.Moment("at"), .fact = {}};
  const std::string kind = in.Text("kind");
  absl::Status unknown;
  in.Object("fact", [&](Fields& fields) {
    absl::StatusOr<Fact> fact = ReadFact(kind, fields);
    if (fact.ok()) {
      record.fact = *std::move(fact);
    } else {
      unknown = fact.status();
    }
  });
  RETURN_IF_ERROR(unknown);
  if (!in.fault().empty()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "record {}: {}", record.seq, in.fault());
  }
  auto* stored = std::get_if<Stored>(&record.fact);
  auto* rewrapped = std::get_if<RewrappedRollUp>(&record.fact);
  if (stored == nullptr && rewrapped == nullptr) return record;
  // An object belongs to the log that states it: one of another cluster cannot be slipped in.
  catalog::Object& object = stored != nullptr ? stored->object : rewrapped->container;
  const size_t writer_at = log_folder.rfind('/');
  if (!object.name.starts_with(fmt::format("{}/", log_folder))) {
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "record {}: object {} does not lie beside its log", record.seq,
                            object.name);
  }
  // What a container holds may be of any writer in that history.
  for (const catalog::Part& part : object.parts) {
    if (part.name.starts_with(log_folder.substr(0, writer_at + 1))) continue;
    return base::MakeStatus(absl::StatusCode::kDataLoss,
                            "record {}: part {} is of another history than its container",
                            record.seq, part.name);
  }
  const size_t timeline_at = log_folder.rfind('/', writer_at - 1);
  object.writer = log_folder.substr(writer_at + 1);
  const auto timeline = catalog::Timeline::Parse(
      std::string(log_folder.substr(timeline_at + 1, writer_at - timeline_at - 1)));
  if (!timeline.has_value()) {
    return base::MakeStatus(absl::StatusCode::kDataLoss, "{}: the folder names no timeline",
                            log_folder);
  }
  object.timeline = *timeline;
  return record;
}

// --- applying ---

struct FactApplier {
  const Record& record;
  const catalog::Timeline& timeline;
  InventoryBuilder& builder;
  catalog::Inventory& inventory;

  absl::StatusOr<catalog::Object*> Find(const std::string& name) const {
    const auto at = builder.by_name_.find(name);
    if (at == builder.by_name_.end()) {
      return base::MakeStatus(absl::StatusCode::kNotFound,
                              "a record speaks of {}, which no record before it states", name);
    }
    return &inventory.objects[at->second];
  }
  template <typename F>
  absl::Status Change(const std::string& name, F change) const {
    ASSIGN_OR_RETURN(catalog::Object * object, Find(name));
    change(*object);
    return absl::OkStatus();
  }

  // What is said of copies is true of the bytes that had this name.
  template <typename F>
  absl::Status ChangeCopy(const std::string& name, F change) const {
    ASSIGN_OR_RETURN(catalog::Object * object, Find(name));
    if (object->name == name) change(*object);
    return absl::OkStatus();
  }

  absl::Status operator()(const Opened&) const {
    if (std::find(inventory.timelines.begin(), inventory.timelines.end(), timeline) ==
        inventory.timelines.end()) {
      inventory.timelines.push_back(timeline);
    }
    return absl::OkStatus();
  }
  absl::Status operator()(const Stored& f) const {
    // A keeper that was killed after it noted an object, and before it cleared its spool, notes it
    // once more.
    const auto known = Find(f.object.name);
    if (known.ok()) {
      if ((*known)->name != f.object.name) return absl::OkStatus();
      (*known)->stores.insert(f.object.stores.begin(), f.object.stores.end());
      return absl::OkStatus();
    }
    if (f.object.kind == catalog::Kind::kRollUp) PutInto(f.object);
    builder.by_name_[f.object.name] = inventory.objects.size();
    inventory.objects.push_back(f.object);
    inventory.objects.back().parts = {};  // the parts themselves say it from here on
    return absl::OkStatus();
  }

  // Says of the parts of a new container where they lie in it. One that other records describe
  // otherwise is not held: it was re-wrapped while this one was made. One that nobody states is of
  // no use. Of several containers the first is the one that it is said to be in.
  void PutInto(const catalog::Object& container) const {
    std::vector<InventoryBuilder::Listed>& parts = builder.parts_[container.name];
    for (const catalog::Part& part : container.parts) {
      const auto at = builder.by_name_.find(part.name);
      if (at == builder.by_name_.end()) continue;
      catalog::Object& object = inventory.objects[at->second];
      if (object.name != part.name || object.level >= container.level ||
          object.stored_bytes != part.bytes) {
        continue;
      }
      parts.push_back({.place = at->second, .offset = part.offset, .rewrapped = object.rewrapped});
      if (!object.container.empty()) continue;
      object.container = container.name;
      object.container_offset = part.offset;
    }
  }

  // Calls `change(part, offset)` for what a container lists and still has the bytes of, as long as
  // it returns true also for what the containers in it list.
  template <typename F>
  void ForListed(const catalog::Object& container, uint64_t offset, F change) const {
    const auto parts = builder.parts_.find(container.name);
    if (parts == builder.parts_.end()) return;
    for (const InventoryBuilder::Listed& listed : parts->second) {
      catalog::Object& part = inventory.objects[listed.place];
      if (part.rewrapped != listed.rewrapped) continue;  // it left, with other bytes
      if (change(part, offset + listed.offset)) ForListed(part, offset + listed.offset, change);
    }
  }
  // The same for those that a store holds in this container alone.
  template <typename F>
  void ChangeHeldIn(const catalog::Object& container, const std::string& store, F change) const {
    ForListed(container, 0, [&](catalog::Object& part, uint64_t) {
      if (part.In(store).name == container.name) change(part);
      return true;
    });
  }
  absl::Status operator()(const Copied& f) const {
    return ChangeCopy(f.name, [&](catalog::Object& o) { o.stores.insert(f.store); });
  }
  absl::Status operator()(const Reread& f) const {
    return ChangeCopy(f.name, [&](catalog::Object& o) {
      o.reread = record.at;
      if (o.kind != catalog::Kind::kRollUp || o.held.contains(f.store)) return;
      // From here on this is where its parts are read.
      o.rolls.insert(f.store);
      std::set<std::string> inner = {o.name};
      ForListed(o, 0, [&](catalog::Object& part, uint64_t offset) {
        // What another container holds there already may be gone from everywhere else.
        const auto at = part.held.find(f.store);
        if (at != part.held.end() && !inner.contains(at->second.name)) return false;
        if (part.kind == catalog::Kind::kRollUp) inner.insert(part.name);
        part.reread = record.at;
        part.held[f.store] = {.name = o.name, .offset = offset};
        part.stores.insert(f.store);
        part.damaged.erase(f.store);
        return true;
      });
    });
  }
  absl::Status operator()(const Damaged& f) const {
    return ChangeCopy(f.name, [&](catalog::Object& o) {
      const auto damage = [&](catalog::Object& it) {
        it.stores.erase(f.store);
        it.damaged.insert(f.store);
      };
      damage(o);
      ChangeHeldIn(o, f.store, damage);
    });
  }
  absl::Status operator()(const Healed& f) const {
    return ChangeCopy(f.name, [&](catalog::Object& o) {
      const auto heal = [&](catalog::Object& it) {
        it.damaged.erase(f.store);
        it.stores.insert(f.store);
      };
      heal(o);
      ChangeHeldIn(o, f.store, heal);
    });
  }
  // All that is known of the parts is applied, whatever becomes of the others.
  absl::Status operator()(const RewrappedRollUp& f) const {
    absl::Status unknown;
    for (size_t i = 0; i < f.parts.size(); ++i) {
      const catalog::Part& part = f.container.parts[i];
      const absl::Status renamed = (*this)(Rewrapped{.name = f.parts[i].name,
                                                     .as = part.name,
                                                     .recipients = f.recipients,
                                                     .stored_bytes = part.bytes,
                                                     .stored_sha256 = f.parts[i].stored_sha256,
                                                     .stores = {}});
      if (unknown.ok()) unknown = renamed;
    }
    RETURN_IF_ERROR((*this)(Stored{f.container}));
    for (const std::string& store : f.container.stores) {
      RETURN_IF_ERROR((*this)(Reread{.name = f.container.name, .store = store}));
    }
    return unknown;
  }
  absl::Status operator()(const Rewrapped& f) const {
    ASSIGN_OR_RETURN(catalog::Object * object, Find(f.name));
    if (object->name == f.as) {  // stated twice, by a keeper that was killed between
      object->stores.insert(f.stores.begin(), f.stores.end());
      return absl::OkStatus();
    }
    builder.by_name_[f.as] = builder.by_name_[f.name];
    // Two keepers may have done it both: the later one counts, whichever is read first.
    if (object->rewrapped.has_value() && record.at < *object->rewrapped) {
      object->former_names.push_back(f.as);
      return absl::OkStatus();
    }
    object->former_names.push_back(std::exchange(object->name, f.as));
    object->rewrapped = record.at;
    object->recipients = f.recipients;
    object->stored_bytes = f.stored_bytes;
    object->stored_sha256 = f.stored_sha256;
    object->stores = f.stores;
    object->damaged.clear();
    // What a container holds are the bytes from before: the new ones lie for themselves.
    object->container.clear();
    object->held.clear();
    object->reread = record.at;
    return absl::OkStatus();
  }
  absl::Status operator()(const Proven& f) const {
    return Change(f.name, [&](catalog::Object& o) { o.proofs.push_back(f.proof); });
  }
  absl::Status operator()(const Suspected& f) const {
    return Change(f.name, [&](catalog::Object& o) { o.suspect = f.why; });
  }
  absl::Status operator()(const Pinned& f) const {
    return Change(f.name, [&](catalog::Object& o) { o.pinned = f.pinned; });
  }
  absl::Status operator()(const Annotated& f) const {
    return Change(f.name, [&](catalog::Object& o) { o.note = f.note; });
  }
  absl::Status operator()(const Pruned& f) const {
    return Change(f.name, [&](catalog::Object& o) {
      o.pruned = true;
      std::set<std::string> gone = {o.name};
      ForListed(o, 0, [&](catalog::Object& part, uint64_t) {
        if (!gone.contains(part.container)) return false;
        if (part.kind == catalog::Kind::kRollUp) gone.insert(part.name);
        part.pruned = true;
        return true;
      });
    });
  }
  absl::Status operator()(const HoleFound& f) const {
    inventory.holes.push_back(f.hole);
    inventory.holes.back().timeline = timeline;
    return absl::OkStatus();
  }
};

absl::Status InventoryBuilder::Apply(const Record& record, const catalog::Timeline& timeline) {
  return std::visit(FactApplier{record, timeline, *this, inventory_}, record.fact);
}

void InventoryBuilder::Watched(const catalog::Timeline& timeline, int64_t revision, Time at) {
  auto& watched = inventory_.watched[timeline];
  // By revisions first: clocks of two writers may differ by much.
  watched = std::max(watched, std::pair(revision, at));
}

}  // namespace ledger
