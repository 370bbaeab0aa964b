// Collects the changes of a revision, or of a stretch of history, and encodes each once as watchers
// get it. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "mvcc/key_value.h"
#include "mvcc/revision.h"
#include "mvcc/watch_hub.h"

namespace mvcc {

class EventBuilder {
 public:
  // `key`, `stored` (the KeyValue of a put, unused for a tombstone) and `previous` must stay valid
  // until Build. The key of a put lies in `stored`.
  void Add(Revision revision, bool tombstone, std::string_view key, std::string_view stored,
           std::optional<std::string_view> previous);
  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  void Clear() { items_.clear(); }

  // Encodes everything and starts afresh.
  std::shared_ptr<const EventBatch> Build(int64_t first_revision, int64_t last_revision,
                                          bool has_previous);

 private:
  struct Item {
    int64_t revision = 0;
    bool tombstone = false;
    std::string_view key;
    std::string_view stored;
    std::optional<std::string_view> previous;
  };
  static KeyValue DeletedKeyValue(const Item& item);

  std::vector<Item> items_;
};

}  // namespace mvcc
