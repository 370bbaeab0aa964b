#include "catalog/rollup.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/time_text.h"
#include "catalog/coverage.h"
#include "catalog/timetable.h"

namespace catalog {
namespace {

// No name has it otherwise: the rest are hex digits and times.
constexpr std::string_view kRewrapped = "-w";
constexpr size_t kRewrappedDigits = 12;

// Spans are counted from 1970 on, so that every keeper cuts them alike.
int64_t SpanOf(const Object& object, Time span) { return SeenOf(object).to / span; }

bool Rolls(const Object& object, const std::string& writer) {
  return (object.kind == Kind::kSegment || object.kind == Kind::kRollUp) &&
         object.writer == writer && object.container.empty() && Usable(object);
}

// Cuts the parts of one span into containers of the permitted size.
void Cut(uint32_t level, const std::vector<const Object*>& objects, const RollUpPolicy& policy,
         std::vector<RollUp>* out) {
  RollUp next{.level = level};
  uint64_t bytes = 0;
  const auto close = [&] {
    if (next.parts.size() > 1) out->push_back(std::move(next));
    next = {.level = level};
    bytes = 0;
  };
  for (const Object* object : objects) {
    const bool full =
        next.parts.size() >= policy.parts_max || bytes + object->stored_bytes > policy.bytes_max;
    if (full) close();
    next.parts.push_back(object);
    bytes += object->stored_bytes;
  }
  close();
}

// The roll-ups of one timeline.
std::vector<RollUp> Due(Time now, std::vector<const Object*> objects, const std::string& by,
                        std::set<std::string>* names, const RollUpPolicy& policy) {
  std::stable_sort(objects.begin(), objects.end(), [](const Object* a, const Object* b) {
    return a->first_revision != b->first_revision ? a->first_revision < b->first_revision
                                                  : a->last_revision < b->last_revision;
  });
  std::vector<RollUp> due;
  for (size_t i = 0; i < policy.spans.size(); ++i) {
    const auto level = static_cast<uint32_t>(i + 1);
    const Time span = policy.spans[i];
    std::map<int64_t, std::vector<const Object*>> by_span;
    std::set<int64_t> waiting;
    for (const RollUp& lower : due) {
      for (const Object* part : lower.parts) waiting.insert(SpanOf(*part, span));
    }
    for (const Object* object : objects) {
      const int64_t number = SpanOf(*object, span);
      // A span that is yet to come was met by a clock that has been set back since: it is over.
      const bool ended = (number + 1) * span + policy.settle <= now || number > now / span;
      if (object->level < level && ended && !waiting.contains(number)) {
        by_span[number].push_back(object);
      }
    }
    for (const auto& [number, parts] : by_span) Cut(level, parts, policy, &due);
  }
  // A name stands for one container for ever, also once that was pruned.
  for (RollUp& roll_up : due) {
    while (!names->insert(ContainerOf(roll_up, by).name).second) ++roll_up.number;
  }
  return due;
}

}  // namespace

std::vector<RollUp> DueRollUps(Time now, const Inventory& inventory, const std::string& writer,
                               const std::string& by, const RollUpPolicy& policy) {
  std::map<Timeline, std::vector<const Object*>> by_timeline;
  std::set<std::string> names = policy.taken;
  for (const Object& object : inventory.objects) {
    if (object.kind == Kind::kRollUp) names.insert(object.name);
    if (Rolls(object, writer)) by_timeline[object.timeline].push_back(&object);
  }
  std::vector<RollUp> all;
  for (auto& [timeline, objects] : by_timeline) {
    std::vector<RollUp> due = Due(now, std::move(objects), by, &names, policy);
    std::move(due.begin(), due.end(), std::back_inserter(all));
  }
  return all;
}

std::set<std::string> WritersToRollUpFor(Time now, const std::map<std::string, Time>& last_signed,
                                         const std::string& own, Time gone_after) {
  std::set<std::string> gone;
  for (const auto& [writer, at] : last_signed) {
    if (writer == own) continue;
    if (now - at > gone_after) {
      gone.insert(writer);
    } else if (writer < own) {
      return {};
    }
  }
  return gone;
}

Object ContainerOf(const RollUp& roll_up, const std::string& writer) {
  const Object& first = *roll_up.parts.front();
  Object container{.kind = Kind::kRollUp, .timeline = first.timeline, .writer = writer};
  container.level = roll_up.level;
  container.first_revision = first.first_revision;
  container.first_seen = first.first_seen;
  container.keeper_version = first.keeper_version;
  for (const Object* part : roll_up.parts) {
    container.parts.push_back(
        {.name = part->name, .offset = container.stored_bytes, .bytes = part->stored_bytes});
    container.stored_bytes += part->stored_bytes;
    container.events += part->events;
    if (part->last_revision < container.last_revision) continue;
    container.last_revision = part->last_revision;
    container.last_seen = SeenOf(*part);
  }
  container.plain_bytes = container.stored_bytes;
  const std::string number = roll_up.number == 0 ? "" : fmt::format("-{}", roll_up.number);
  container.name = fmt::format(
      "{}/{}/{}/archive/{}/{:016x}-{:016x}-{}{}.seg", first.name.substr(0, first.name.find('/')),
      first.timeline.Name(), writer, roll_up.level, container.first_revision,
      container.last_revision, base::CompactUtc(container.last_seen.to), number);
  return container;
}

Containers::Containers(const Inventory& inventory) {
  for (const Object& object : inventory.objects) {
    if (object.kind == Kind::kRollUp) by_name_[object.name] = &object;
  }
}

std::string Containers::OutermostOf(const Object& object) const {
  std::string name = object.kind == Kind::kRollUp ? object.name : std::string();
  std::string outer = object.container;
  while (!outer.empty()) {
    name = outer;
    const Object* container = Find(outer);
    if (container == nullptr) break;
    outer = container->container;
  }
  return name;
}

const Object* Containers::Find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : at->second;
}

std::string RewrappedName(const Object& object, const std::string& stored_sha256) {
  const std::string& first = object.FirstName();
  const size_t dot = first.find('.', first.rfind('/'));
  const size_t end = dot == std::string::npos ? first.size() : dot;
  return fmt::format("{}{}{}{}", first.substr(0, end), kRewrapped,
                     stored_sha256.substr(0, kRewrappedDigits), first.substr(end));
}

bool IsRewrappedName(std::string_view name) {
  return name.substr(name.rfind('/') + 1).find(kRewrapped) != std::string_view::npos;
}

std::vector<const Object*> PartsOf(const Inventory& inventory, const Object& container) {
  std::vector<const Object*> parts;
  for (const Object& object : inventory.objects) {
    if (object.container == container.name && !object.container.empty()) parts.push_back(&object);
  }
  std::sort(parts.begin(), parts.end(), [](const Object* a, const Object* b) {
    return a->container_offset < b->container_offset;
  });
  return parts;
}

}  // namespace catalog
