#include "bolt/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/testing.h"
#include "bolt/node.h"
#include "bolt/store.h"
#include "bolt/tree_editor.h"
#include "bolt/walk.h"

namespace bolt {
namespace {

using base::StatusIs;

std::string FromHex(std::string_view hex) {
  std::string bytes;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ') continue;
    digits.push_back(c);
    if (digits.size() == 2) {
      bytes.push_back(static_cast<char>(std::stoi(digits, nullptr, 16)));
      digits.clear();
    }
  }
  return bytes;
}

TEST(Page, FreshFileIsByteForByteAsTheReferenceMakesIt) {
  const std::string image = FreshImage(4096);
  ASSERT_EQ(image.size(), 16384u);
  const std::string meta0 = FromHex(
      "00 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 ed da 0c ed 02 00 00 00 00 10 00 00 00 00 "
      "00 00"
      "03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 04 00 00 00 00 00 "
      "00 00"
      "00 00 00 00 00 00 00 00 ee fd 89 46 11 6e 51 07");
  EXPECT_EQ(image.substr(0, meta0.size()), meta0);
  EXPECT_EQ(image.substr(0x1040, 16), FromHex("01 00 00 00 00 00 00 00 0f 48 79 51 1a 35 4c 26"));
  EXPECT_EQ(image.substr(0x2000, 16), FromHex("02 00 00 00 00 00 00 00 10 00 00 00 00 00 00 00"));
  EXPECT_EQ(image.substr(0x3000, 16), FromHex("03 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00"));
  EXPECT_EQ(image.find_first_not_of('\0', 0x3009), std::string::npos);
}

TEST(Page, MetaSaysWhatIsWrongWithIt) {
  std::string page(4096, '\0');
  EncodeMetaPage(
      {.page_bytes = 4096, .root = 3, .freelist = kNoFreelist, .page_count = 9, .txid = 77}, 1,
      page.data());
  ASSERT_OK_AND_ASSIGN(const Meta meta, DecodeMetaPage(page));
  EXPECT_EQ(meta.root, 3u);
  EXPECT_EQ(meta.freelist, kNoFreelist);
  EXPECT_EQ(meta.page_count, 9u);
  EXPECT_EQ(meta.txid, 77u);
  for (size_t at = 16; at < 80; ++at) {
    std::string bad = page;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_THAT(DecodeMetaPage(bad),
                StatusIs(absl::StatusCode::kDataLoss, at < 20   ? "invalid database"
                                                      : at < 24 ? "version mismatch"
                                                                : "checksum error"));
  }
  EXPECT_THAT(DecodeMetaPage("short"), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(Page, ReadsAnInlineBucketAtAnyAlignment) {
  const std::string value = FromHex(
      "00 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00"
      "00 00 00 00 00 00 00 00 02 00 01 00 00 00 00 00"
      "00 00 00 00 10 00 00 00 02 00 00 00 02 00 00 00 6b 31 76 31");
  const std::string shifted = "x" + value;
  const auto header = DecodeBucketHeader(std::string_view(shifted).substr(1));
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->root, kInlineRoot);
  EXPECT_EQ(header->sequence, 7u);
  PageView page;
  ASSERT_TRUE(PageView::LoadInline(header->inline_image, &page));
  ASSERT_EQ(page.count(), 1u);
  Element element;
  ASSERT_TRUE(page.Get(0, &element));
  EXPECT_EQ(element.key, "k1");
  EXPECT_EQ(element.value, "v1");
  EXPECT_FALSE(PageView::LoadInline(header->inline_image.substr(0, 20), &page));
  EXPECT_FALSE(DecodeBucketHeader("too short").has_value());
}

TEST(Page, RefusesHeadersAndElementsThatLeaveThePage) {
  internal::Node node;
  const std::string value(40, 'v');
  for (const char* key : {"a", "b", "c"}) {
    node.items.push_back(internal::Item::Leaf(key, value, 0));
    node.data_bytes += 41;
  }
  std::string good(1024, '\0');
  internal::EncodePage(node, 0, 3, 7, 0, good.data(), good.size());
  PageView page;
  ASSERT_TRUE(PageView::Load(good.data(), 7, 1024, 1024, &page));
  const auto loads = [&](size_t at, auto bytes, uint64_t available = 1024) {
    std::string bad = good;
    base::StoreLe(bad.data() + at, bytes);
    PageView view;
    const bool loaded = PageView::Load(bad.data(), 7, available, 1024, &view);
    EXPECT_THAT(DescribeDamage(bad.data(), 7, available, 1024),
                testing::StartsWith("page 7: expected "));
    Element element;
    return loaded && view.Get(0, &element);
  };
  EXPECT_FALSE(loads(0, uint64_t{8}));  // id
  EXPECT_FALSE(loads(8, uint16_t{3}));  // flags
  EXPECT_FALSE(loads(8, uint16_t{kMetaPage}));
  EXPECT_FALSE(loads(10, uint16_t{64}));  // count
  EXPECT_FALSE(loads(12, uint32_t{1}));   // overflow beyond the file
  EXPECT_FALSE(loads(12, ~uint32_t{0}));
  EXPECT_FALSE(loads(20, uint32_t{15}));  // position inside the element's header
  EXPECT_FALSE(loads(20, uint32_t{1000}));
  EXPECT_FALSE(loads(20, ~uint32_t{0}));
  EXPECT_FALSE(loads(24, uint32_t{0}));  // empty key
  EXPECT_FALSE(loads(24, uint32_t{2000}));
  EXPECT_FALSE(loads(28, uint32_t{2000}));  // value
  EXPECT_TRUE(loads(28, uint32_t{100}));
  EXPECT_FALSE(loads(0, uint64_t{7}, 512));
}

TEST(Page, SplitsAsTheReferenceDoes) {
  // 65-byte elements at fill 0.5: 31 in a page of 4096, since 16 + 31 * 65 = 2031 <= 2048.
  internal::Node node;
  const std::string value(43, 'v');
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) keys.push_back(std::to_string(100'000 + i));
  for (const std::string& key : keys) {
    node.items.push_back(internal::Item::Leaf(key, value, 0));
    node.data_bytes += 49;
  }
  EXPECT_THAT(internal::SplitPoints(node, 4096, 0.5), testing::ElementsAre(31, 62, 100));
  node.items.resize(62);
  node.data_bytes = 62 * 49;  // 4046 bytes fit a page
  EXPECT_THAT(internal::SplitPoints(node, 4096, 0.5), testing::ElementsAre(62));

  // Never split at four elements or fewer, however large; two in each part at least.
  const std::string large(5000, 'v');
  internal::Node few;
  for (int i = 0; i < 5; ++i) {
    few.items.push_back(internal::Item::Leaf(keys[static_cast<size_t>(i)], large, 0));
    few.data_bytes += 5006;
  }
  EXPECT_THAT(internal::SplitPoints(few, 4096, 0.5), testing::ElementsAre(2, 5));
  few.items.resize(4);
  few.data_bytes = 4 * 5006;
  EXPECT_THAT(internal::SplitPoints(few, 4096, 0.5), testing::ElementsAre(4));
}

TEST(Page, NeverPutsMoreElementsIntoAPageThanItsCountCanSay) {
  internal::Node node;
  std::vector<std::string> keys;
  for (int i = 0; i < 140'000; ++i) keys.push_back(std::to_string(1'000'000 + i));
  for (const std::string& key : keys) node.items.push_back(internal::Item::Leaf(key, "", 0));
  node.data_bytes = node.items.size() * 7;
  EXPECT_THAT(internal::SplitPoints(node, 16 << 20, 1.0),
              testing::ElementsAre(65534, 131068, 140000));
}

TEST(Page, GrowthNumbersAreTheReferences) {
  EXPECT_EQ(internal::MapBytes(1), 32u << 10);
  EXPECT_EQ(internal::MapBytes((32 << 10) + 1), 64u << 10);
  EXPECT_EQ(internal::MapBytes(uint64_t{1} << 30), uint64_t{1} << 30);
  EXPECT_EQ(internal::MapBytes((uint64_t{1} << 30) + 1), uint64_t{2} << 30);
  EXPECT_EQ(internal::MapBytes(uint64_t{10} << 30), uint64_t{10} << 30);
  EXPECT_EQ(internal::GrownFileBytes(6 * 4096, uint64_t{10} << 30), 16801792u);
  EXPECT_EQ(internal::GrownFileBytes(6 * 4096, 32 << 10), 32u << 10);
}

TEST(Page, ReadsFreelistsOfAnyLength) {
  const std::string path = "/db";
  for (const uint64_t count : {0, 1, 65534, 65535, 65536}) {
    const uint64_t page_count = count + 600;
    std::string file(4096 * 300, '\0');
    char* const page = file.data() + 2 * 4096;
    const bool counted = count >= 0xFFFF;
    StorePageHeader(page, {.id = 2,
                           .flags = kFreelistPage,
                           .count = static_cast<uint16_t>(std::min<uint64_t>(count, 0xFFFF)),
                           .overflow = 140});
    if (counted) base::StoreLe(page + 16, count);
    for (uint64_t i = 0; i < count; ++i)
      base::StoreLe(page + (counted ? 24 : 16) + i * 8, uint64_t{599} + count - i);
    const internal::PageSource source{
        .data = file.data(), .page_count = page_count, .page_bytes = 4096, .path = &path};
    std::vector<PageId> ids;
    uint32_t overflow;
    ASSERT_OK(internal::ReadFreelistPage(source, 2, &ids, &overflow));
    ASSERT_EQ(ids.size(), count);
    EXPECT_EQ(overflow, 140u);
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    if (count < 2) continue;
    base::StoreLe(page + 24, base::LoadLe<uint64_t>(page + 32));
    EXPECT_THAT(internal::ReadFreelistPage(source, 2, &ids, &overflow),
                StatusIs(absl::StatusCode::kDataLoss));
  }
}

}  // namespace
}  // namespace bolt
