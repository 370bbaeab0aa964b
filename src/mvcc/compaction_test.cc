// The list of what a compaction drops; the job itself is tested with the store.
#include "mvcc/compaction.h"

#include <set>

#include "base/random.h"
#include "base/testing.h"

namespace mvcc {
namespace {

TEST(DropListTest, KnowsWhatGoesInWhateverOrderItCame) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{20000}}) {
    base::SeededRandom random(count);
    std::set<std::pair<int64_t, int64_t>> added;
    DropList drops;
    while (added.size() < count) {
      const Revision revision{static_cast<int64_t>(random.Below(15000)),
                              static_cast<int64_t>(random.Below(3))};
      if (!added.insert({revision.main, revision.sub}).second) continue;
      drops.Add({revision, revision.sub == 1});
    }
    drops.Close();
    size_t found = 0;
    for (int64_t main = 0; main < 15000; ++main) {
      for (int64_t sub = 0; sub < 3; ++sub) {
        // A record of the other kind is not in it, and does not hide the one that is.
        if (sub == 1) {
          ASSERT_FALSE(drops.Goes({{main, sub}, false}));
        }
        const bool goes = drops.Goes({{main, sub}, sub == 1});
        ASSERT_EQ(goes, added.contains({main, sub})) << count << ": " << main << "/" << sub;
        found += goes;
      }
    }
    EXPECT_EQ(found, count);
  }
}

}  // namespace
}  // namespace mvcc
