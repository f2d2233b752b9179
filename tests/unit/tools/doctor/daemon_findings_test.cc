#include "tools/doctor/daemon_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "tools/doctor/verbs_library.h"

namespace roci::tools {
namespace {

using testing::HasSubstr;

constexpr char kVersion[] = "0.1.0";

DaemonFacts Answering(const std::string& version, const std::string& abi) {
  DaemonFacts facts;
  facts.runtime_dir = "/run/roci";
  facts.state = DaemonState::kAnswers;
  facts.pid = 17;
  facts.answer = {{"version", version}, {"abi", abi}};
  return facts;
}

TEST(DaemonFinding, NamesVersions) {
  const Finding same = JudgeDaemon(Answering(kVersion, "3.0"), kVersion);
  EXPECT_EQ(same.verdict, Verdict::kOk);
  EXPECT_THAT(same.found, HasSubstr("rocid 0.1.0 (process 17, user 0) answers at /run/roci"));
  EXPECT_EQ(JudgeDaemon(Answering("0.2.0", "3.7"), kVersion).verdict, Verdict::kSlow);
  const Finding other_abi = JudgeDaemon(Answering("0.2.0", "4.0"), kVersion);
  EXPECT_TRUE(other_abi.nothing_works);
  EXPECT_THAT(other_abi.found, HasSubstr("session ABI 4.0"));
  EXPECT_THAT(other_abi.found, HasSubstr("the tool is too old"));
  EXPECT_THAT(JudgeDaemon(Answering("0.2.0", "2.9"), kVersion).found,
              HasSubstr("the daemon is too old"));
}

TEST(DaemonFinding, AnAbsentOneCanBeStarted) {
  DaemonFacts facts;
  const Finding finding = JudgeDaemon(facts, kVersion);
  EXPECT_EQ(finding.verdict, Verdict::kMissing);
  EXPECT_FALSE(finding.nothing_works);
  EXPECT_THAT(finding.found, HasSubstr("nor is rocid beside"));
  facts.answer = {{"version", kVersion}};
  EXPECT_THAT(JudgeDaemon(facts, kVersion).found, HasSubstr("0.1.0 is installed"));
}

TEST(DaemonFinding, ASilentOneStopsEverything) {
  DaemonFacts facts;
  facts.state = DaemonState::kSilent;
  facts.problem = "it sleeps";
  EXPECT_TRUE(JudgeDaemon(facts, kVersion).nothing_works);
  EXPECT_THAT(JudgeDaemon(facts, kVersion).found, HasSubstr("it sleeps"));
  facts.state = DaemonState::kPrivate;
  EXPECT_EQ(JudgeDaemon(facts, kVersion).verdict, Verdict::kOk);
}

TEST(DaemonFinding, OddAnswersAreHarmless) {
  for (const nlohmann::json& answer :
       {nlohmann::json(), nlohmann::json(3), nlohmann::json::array(),
        nlohmann::json{{"errors", 3}, {"drivers", "x"}, {"running", 7}},
        nlohmann::json{{"errors", {{"tap", "x"}}}, {"drivers", {{"a", 3}}}}}) {
    DaemonFacts facts = Answering(kVersion, "3.0");
    facts.answer = answer;
    EXPECT_EQ(facts.ErrorOf("tap"), std::nullopt);
    EXPECT_EQ(facts.Running("hugepages"), nullptr);
    JudgeDaemon(facts, kVersion);
    JudgeCapabilities(facts);
    JudgeDrivers(facts);
  }
}

TEST(Capabilities, AreThingsThatWereTried) {
  DaemonFacts facts = Answering(kVersion, "3.0");
  EXPECT_THAT(JudgeCapabilities(facts).found, HasSubstr("not known"));
  facts.answer["errors"] = {{"raw_sockets", 0}, {"map_files", 0}};
  EXPECT_EQ(JudgeCapabilities(facts).verdict, Verdict::kOk);
  facts.answer["errors"]["raw_sockets"] = EPERM;
  const Finding finding = JudgeCapabilities(facts);
  EXPECT_EQ(finding.verdict, Verdict::kSlow);
  EXPECT_THAT(finding.found, HasSubstr("raw sockets (Operation not permitted)"));
  EXPECT_THAT(finding.cost, HasSubstr("packet:NAME"));
  EXPECT_THAT(finding.remedy, HasSubstr("CAP_NET_RAW"));
}

TEST(Drivers, AreThoseOfTheDaemon) {
  DaemonFacts facts = Answering(kVersion, "3.0");
  facts.answer["drivers"] = {{"net_tap", true}, {"net_memif", true}};
  EXPECT_EQ(JudgeDrivers(facts).verdict, Verdict::kOk);
  facts.answer["drivers"]["net_memif"] = false;
  EXPECT_EQ(JudgeDrivers(facts).verdict, Verdict::kSlow);
  EXPECT_THAT(JudgeDrivers(facts).cost, HasSubstr("no ports net_memif "));
  facts.answer["drivers"]["mempool_ring"] = false;
  EXPECT_TRUE(JudgeDrivers(facts).nothing_works) << "rocid does not start";
}

TEST(Library, ItsVersionIsInItsName) {
  EXPECT_EQ(VersionInName("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0"), "44");
  EXPECT_EQ(VersionInName("/usr/lib/libibverbs.so.1"), "");
  EXPECT_EQ(VersionInName(""), "");
}

TEST(Library, MustTakePlugins) {
  VerbsFacts facts;
  EXPECT_TRUE(JudgeLibrary(facts).nothing_works);
  facts.library = "/lib/libibverbs.so.1";
  EXPECT_TRUE(JudgeLibrary(facts).nothing_works);
  facts.private_abi = 34;
  EXPECT_EQ(JudgeLibrary(facts).verdict, Verdict::kOk);
}

TEST(PluginFinding, MustFitTheLibrary) {
  VerbsFacts facts;
  facts.private_abi = 34;
  EXPECT_TRUE(JudgePlugin(facts).nothing_works);
  facts.plugin_abis = {57, 59};
  EXPECT_TRUE(JudgePlugin(facts).nothing_works);
  EXPECT_THAT(JudgePlugin(facts).found, HasSubstr("for ABI 57, 59"));
  EXPECT_THAT(JudgePlugin(facts).found, HasSubstr("none for ABI 34"));
  facts.plugin_abis = {34, 57};
  EXPECT_EQ(JudgePlugin(facts).verdict, Verdict::kOk);
}

TEST(Devices, AreOpenedByTheLibrary) {
  VerbsFacts facts;
  EXPECT_EQ(JudgeDevices(facts).verdict, Verdict::kMissing);
  EXPECT_FALSE(JudgeDevices(facts).nothing_works) << "rocid can be started";
  facts.has_daemon = true;
  facts.said = "libroci: cannot open roci0";
  EXPECT_TRUE(JudgeDevices(facts).nothing_works);
  EXPECT_THAT(JudgeDevices(facts).found, HasSubstr("cannot open roci0"));
  facts.opened = {"roci0"};
  EXPECT_EQ(JudgeDevices(facts).verdict, Verdict::kOk);
  facts.by_environment = true;
  EXPECT_EQ(JudgeDevices(facts).verdict, Verdict::kSlow);
  facts.failed = {"roci1: Operation not permitted"};
  EXPECT_THAT(JudgeDevices(facts).found, HasSubstr("not roci1"));
}

}  // namespace
}  // namespace roci::tools
