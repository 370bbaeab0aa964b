#include "bolt/check.h"

#include "base/status.h"
#include "bolt/walk.h"

namespace bolt {

CheckReport Check(const ReadTx& tx, uint64_t findings_max) {
  CheckReport report;
  const auto add = [&report, findings_max](std::string_view finding) {
    if (report.findings_count++ < findings_max) report.findings.emplace_back(finding);
    return true;
  };
  const Meta& meta = tx.meta();
  internal::PageSet reachable(meta.page_count);
  internal::WalkReachable(tx.source(), meta, &reachable, add);
  const auto mark = [&](PageId id) {
    if (!reachable.Insert(id)) add(fmt::format("page {}: multiple references", id));
  };
  mark(0);
  mark(1);
  const bool stored = meta.freelist != kNoFreelist;
  std::vector<PageId> free;
  if (stored) {
    uint32_t overflow = 0;
    if (absl::Status status =
            internal::ReadFreelistPage(tx.source(), meta.freelist, &free, &overflow);
        !status.ok()) {
      add(base::Message(status));
    }
    for (PageId id = meta.freelist; id <= meta.freelist + overflow; ++id) mark(id);
  }
  internal::PageSet listed(meta.page_count);
  for (const PageId id : free) {
    if (id < 2 || id >= meta.page_count) continue;  // a finding already
    listed.Insert(id);
    if (reachable.Contains(id)) add(fmt::format("page {}: reachable freed", id));
  }
  for (PageId id = 0; id < meta.page_count; ++id) {
    if (reachable.Contains(id)) {
      ++report.reachable_pages;
    } else if (stored && !listed.Contains(id)) {
      add(fmt::format("page {}: unreachable unfreed", id));
    }
  }
  report.free_pages = free.size();
  return report;
}

}  // namespace bolt
