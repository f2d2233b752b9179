// The layouts of libibverbs' private structures, against what upstream's history says (history.h).
// compare_headers_test.py compares them with libibverbs' own headers, where Debian has them.
#include "verbs_provider/generations/layouts.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/verbs_provider/generations/history.h"
#include "verbs_provider/abi/generations.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

struct Row {
  std::string name;
  size_t offset;
  bool operator==(const Row&) const = default;
};

std::vector<std::string> Words(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The rows that the table of a release has by upstream's history.
std::vector<Row> RowsByHistory(int release) {
  std::vector<std::string> names = Words(history::kOperationsOf36);
  for (const history::Release& change : history::kReleases) {
    if (change.first > release) continue;
    for (const std::string& name : Words(change.new_operations)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::vector<Row> rows;
  for (const std::string& name : names) rows.push_back({name, rows.size() * sizeof(void (*)())});
  return rows;
}

void PrintTo(const Row& row, std::ostream* os) { *os << row.name << ' ' << row.offset; }

// Rows() of each namespace: the rows that the plugins' table has.
#define ROCI_LAYOUT 34
namespace layout34 {
#include "tests/unit/verbs_provider/generations/layout_rows.inc"
}
#undef ROCI_LAYOUT
#define ROCI_LAYOUT 59
namespace layout59 {
#include "tests/unit/verbs_provider/generations/layout_rows.inc"
}
#undef ROCI_LAYOUT
#define ROCI_LAYOUT 62
namespace layout62 {
#include "tests/unit/verbs_provider/generations/layout_rows.inc"
}
#undef ROCI_LAYOUT
#define ROCI_LAYOUT 64
namespace layout64 {
#include "tests/unit/verbs_provider/generations/layout_rows.inc"
}
#undef ROCI_LAYOUT
#define ROCI_LAYOUT 65
namespace layout65 {
#include "tests/unit/verbs_provider/generations/layout_rows.inc"
}
#undef ROCI_LAYOUT

TEST(Layouts, OperationTablesHaveTheRowsOfTheirReleases) {
  EXPECT_EQ(layout34::Rows(), RowsByHistory(36));
  EXPECT_EQ(layout34::Rows(), RowsByHistory(58));
  EXPECT_EQ(layout59::Rows(), RowsByHistory(59));
  EXPECT_EQ(layout59::Rows(), RowsByHistory(61));
  EXPECT_EQ(layout62::Rows(), RowsByHistory(62));
  EXPECT_EQ(layout62::Rows(), RowsByHistory(63));
  EXPECT_EQ(layout64::Rows(), RowsByHistory(64));
  EXPECT_EQ(layout65::Rows(), RowsByHistory(65));
}

TEST(Layouts, ContextsLieAtTheEndOfLibibverbsOwn) {
  for (const history::Release& release : history::kReleases) {
    const int layout = release.first == 36 ? 34 : release.first;
    // An ibv_context has one mutex.
    const size_t mutex_bytes_on_x86 = 40;
    EXPECT_EQ(ContextOffset(layout) + sizeof(ibv_context),
              release.verbs_context_bytes_on_x86 + sizeof(pthread_mutex_t) - mutex_bytes_on_x86);
  }
}

TEST(Layouts, GenerationsAreKnownByNumberAndNewestSymbolVersion) {
  const auto layout = [](int private_abi, int public_version) {
    const abi::LibibverbsGeneration* found = abi::FindGeneration(private_abi, public_version);
    return found != nullptr ? found->layout : 0;
  };
  EXPECT_EQ(layout(34, 14), 34);
  EXPECT_EQ(layout(57, 14), 34);
  EXPECT_EQ(layout(59, 15), 59);
  EXPECT_EQ(layout(59, 16), 62);
  EXPECT_EQ(layout(64, 17), 64);
  EXPECT_EQ(layout(65, 18), 65);
  EXPECT_EQ(layout(34, 13), 0);  // rdma-core 35, which has another operation table
  EXPECT_EQ(layout(59, 17), 0);
  EXPECT_EQ(layout(65, 19), 0);
  EXPECT_EQ(layout(22, 6), 0);
}

// The flags that ibv_qp_to_qp_ex reads have moved while the number was 34.
TEST(Layouts, QueuePairFlagsLieBehindTheCallsOfEachRelease) {
  const size_t calls_of_36 = offsetof(ibv_qp_ex, wr_abort) + sizeof(void*);
  EXPECT_EQ(offsetof(verbs_qp, tail.flags_of_36), calls_of_36);
  EXPECT_EQ(offsetof(verbs_qp, tail.flags_of_44), calls_of_36 + sizeof(void*));
  EXPECT_EQ(offsetof(verbs_qp, tail.flags_of_45), calls_of_36 + 2 * sizeof(void*));
}

}  // namespace
}  // namespace roci::provider
