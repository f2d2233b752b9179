// Tables of `roci show`, and that each of their columns is explained.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "control/manage/manage_protocol.h"
#include "tools/show/tables.h"
#include "tools/show/terms.h"

namespace roci::tools {
namespace {

TEST(ShowTest, EveryColumnIsExplained) {
  std::vector<std::string> kinds = {"addresses", "routes"};
  for (const std::string_view name : control::kShowKindNames) {
    const bool is_table = name != "ports" && name != "counters";
    if (is_table) kinds.emplace_back(name);
  }
  for (const std::string& what : kinds) {
    EXPECT_FALSE(ExplainColumns(what).empty()) << what;
    std::string titles = FormatItems(what, nlohmann::json::array());
    titles.erase(titles.find('\n'));
    const std::string text = ExplainColumns(what);
    // Titles are two blanks apart; what is in brackets explains itself.
    for (size_t at = 0; at != std::string::npos && at < titles.size();) {
      const size_t end = titles.find("  ", at);
      std::string title = titles.substr(at, end - at);
      title = title.substr(0, title.find(" ("));
      EXPECT_TRUE(title == "MAC" || text.find(title) != std::string::npos) << what << ": " << title;
      at = end == std::string::npos ? end : titles.find_first_not_of(' ', end);
    }
  }
  EXPECT_FALSE(ExplainColumns("ports").empty());
  EXPECT_EQ(ExplainColumns("ports"), ExplainColumns("counters"));
  EXPECT_EQ(ExplainColumns("nonsense"), "");
}

TEST(ShowTest, LcoreLoadIsThatOfTheLastInterval) {
  const nlohmann::json before = {{{"lcore", 0}, {"busy_cycles", 900}, {"idle_cycles", 100}},
                                 {{"lcore", 1}, {"busy_cycles", 5}, {"idle_cycles", 5}}};
  nlohmann::json after = before;
  EXPECT_NE(FormatItems("lcores", before).find("90%"), std::string::npos);
  after[0]["busy_cycles"] = 925;
  after[0]["idle_cycles"] = 175;
  const std::string table = FormatItems("lcores", LcoresSince(before, after));
  EXPECT_NE(table.find(" 25%"), std::string::npos) << table;
  EXPECT_NE(table.find(" 0%"), std::string::npos) << table;
}

TEST(ShowTest, FiltersByDevice) {
  const nlohmann::json qps = {{{"device", "roci0"}, {"qpn", 1}},
                              {{"device", "roci1"}, {"qpn", 2}},
                              {{"device", nullptr}, {"qpn", 3}}};
  EXPECT_EQ(OfDevice(qps, "roci1"), nlohmann::json::array({qps[1]}));
  EXPECT_EQ(OfDevice(qps, "roci2"), nlohmann::json::array());
  const nlohmann::json devices = {{{"name", "roci0"}}, {{"name", "roci1"}}};
  EXPECT_EQ(OfDevice(devices, "roci0"), nlohmann::json::array({devices[0]}));
}

TEST(ShowTest, AnAppWithoutAnOpenDeviceHasNoDevice) {
  const std::string table = FormatItems(
      "apps", {{{"session", 3}, {"program", "x"}, {"pid", 7}, {"uid", 1}, {"device", nullptr}}});
  std::istringstream lines(table);
  std::string word;
  std::getline(lines, word);
  std::vector<std::string> row;
  while (lines >> word) row.push_back(word);
  ASSERT_GE(row.size(), 4u);
  EXPECT_EQ(row[1], "x[7]");
  EXPECT_EQ(row[3], "-");
}

TEST(ShowTest, FasterMemoryIsNotedOnceBelowTheTable) {
  const nlohmann::json reason = {{"why_not_mapped", "the memory is private"},
                                 {"faster_with", "shared memory"}};
  const nlohmann::json none = {{"why_not_mapped", nullptr}, {"faster_with", nullptr}};
  const std::string note = "not mapped: the memory is private. Faster: shared memory\n";
  std::string table = FormatItems("mrs", {reason, reason, none});
  EXPECT_EQ(table.find(note), table.size() - note.size()) << table;
  table = FormatItems("apps", {{{"memory", reason}}, {{"memory", reason}}, {{"memory", nullptr}}});
  EXPECT_EQ(table.find(note), table.size() - note.size()) << table;
  EXPECT_EQ(FormatItems("mrs", nlohmann::json::array({none})).find("not mapped:"),
            std::string::npos);
}

TEST(ShowTest, WhatAUserHasIsNotedOncePerUserAndDevice) {
  const nlohmann::json app = {{"uid", 7},
                              {"device", "roci0"},
                              {"user",
                               {{"trusted", true},
                                {"sessions", {{"used", 2}, {"limit", 10}}},
                                {"memory_bytes", {{"used", 3 << 20}, {"limit", 1 << 30}}},
                                {"control_ms", 5}}},
                              {"objects_of_user", {{"qps", {{"used", 1}, {"limit", 4}}}}}};
  const std::string note =
      "user 7 (trusted): memory_bytes 3072K/1024M, sessions 2/10, control_ms 5\n"
      "user 7 (trusted) on roci0: qps 1/4\n";
  const std::string table = FormatItems("apps", {app, app});
  EXPECT_EQ(table.find(note), table.size() - note.size()) << table;
}

}  // namespace
}  // namespace roci::tools
