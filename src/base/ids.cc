#include "base/ids.h"

#include <openssl/sha.h>

#include <algorithm>

#include "base/bytes.h"

namespace base {
namespace {

uint64_t FirstEight(std::string_view data) {
  const auto digest = Sha1(data);
  return LoadBe64(reinterpret_cast<const char*>(digest.data()));
}

}  // namespace

std::array<uint8_t, 20> Sha1(std::string_view data) {
  std::array<uint8_t, 20> digest{};
  ::SHA1(reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest.data());
  return digest;
}

uint64_t MemberId(std::vector<std::string> peer_urls, std::string_view suffix) {
  std::sort(peer_urls.begin(), peer_urls.end());
  std::string joined;
  for (const std::string& url : peer_urls) joined += url;
  joined += suffix;
  return FirstEight(joined);
}

uint64_t ClusterId(std::vector<uint64_t> member_ids) {
  std::sort(member_ids.begin(), member_ids.end());
  std::string joined(member_ids.size() * 8, '\0');
  for (size_t i = 0; i < member_ids.size(); ++i) StoreBe64(joined.data() + i * 8, member_ids[i]);
  return FirstEight(joined);
}

IdGenerator::IdGenerator(uint64_t member_id, Duration wall_now)
    : prefix_((member_id & 0xffff) << 48),
      next_((static_cast<uint64_t>(
                 std::chrono::duration_cast<std::chrono::milliseconds>(wall_now).count()) &
             ((1ULL << 40) - 1))
            << 8) {}

}  // namespace base
