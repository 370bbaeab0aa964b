#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "bolt/store.h"
#include "bolt/tx.h"

namespace bolt {

ReadTx::ReadTx(std::shared_ptr<internal::Store> store, std::shared_ptr<const void> mapping,
               internal::PageSource source, const Meta& meta)
    : store_(std::move(store)), mapping_(std::move(mapping)), source_(source), meta_(meta) {
  root_.source_ = &source_;
  root_.root_ = meta_.root;
  root_.sequence_ = meta_.root_sequence;
}

ReadTx::~ReadTx() { store_->EndRead(meta_.txid); }

// Both meta pages of an image refer to the same root: whichever a reader chooses, the other pages
// fit it.
const std::string& ReadTx::MetaPages() const {
  std::call_once(meta_pages_once_, [this] {
    meta_pages_.resize(size_t{2} * meta_.page_bytes);
    EncodeMetaPage(meta_, 0, meta_pages_.data());
    Meta older = meta_;
    older.txid -= std::min<TxId>(older.txid, 1);
    EncodeMetaPage(older, 1, meta_pages_.data() + meta_.page_bytes);
  });
  return meta_pages_;
}

std::string_view ReadTx::ImageView(uint64_t offset, size_t n) const {
  if (offset >= size_bytes()) return {};
  const std::string& metas = MetaPages();
  if (offset < metas.size()) return std::string_view(metas).substr(static_cast<size_t>(offset), n);
  return {source_.data + offset, static_cast<size_t>(std::min<uint64_t>(n, size_bytes() - offset))};
}

absl::Status ReadTx::ReadImage(uint64_t offset, char* out, size_t n) const {
  if (offset > size_bytes() || n > size_bytes() - offset) {
    return base::MakeStatus(absl::StatusCode::kOutOfRange,
                            "db file {}: expected a part of the {} bytes of its image", path(),
                            size_bytes());
  }
  while (n > 0) {
    const std::string_view part = ImageView(offset, n);
    std::memcpy(out, part.data(), part.size());
    out += part.size();
    offset += part.size();
    n -= part.size();
  }
  return absl::OkStatus();
}

}  // namespace bolt
