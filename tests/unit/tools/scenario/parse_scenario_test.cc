#include "tools/scenario/parse_scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace roci::tools {
namespace {

using ::testing::HasSubstr;

constexpr char kWhole[] = R"(
title = "A title"
text = "A text"
time_limit = "5s"

[[step]]
roci = "fault add roci1 --drop --nth 3"

[[program]]
name = "server"
command = "ib_send_bw -p {port} 'a b'"
ready = {listens = "{port}", after = "10ms"}
stop = "TERM"

[[program]]
name = "client"
command = "ib_send_bw -p {port} 127.0.0.1"
when = {ready = "server", show = "qps", device = "roci0", value = "/0/qpn", is = ">= 1"}
exit = [1, 2]
lasts = ["<= 5s", ">= 10ms"]
prints = "Failed status 12"
prints_not = ["segfault", "abort"]

[[step]]
name = "kill"
at = "1s"
wait = "20ms"
when = {program = "client", prints = "^begin", ended = "server", done = "check"}
signal = "KILL"
program = "client"

[[step]]
name = "check"
show = "ports"
device = "roci0"
value = "/0/state"
is = "active"

[[expect]]
show = "counters"
value = "/0/counters/tx_packets"
is = ">= 7"

[[expect]]
fault = "roci1"
counter = "matched"
is = 3

[[expect]]
file = "{dir}/copy"
bytes = 4096

[[expect]]
lasts = "<= 9s"
log_not = "warning"
)";

Scenario Parsed(const std::string& text) {
  const absl::StatusOr<Scenario> scenario = ParseScenario(text, "folder/a_name.toml");
  EXPECT_TRUE(scenario.ok()) << scenario.status();
  return scenario.ok() ? *scenario : Scenario();
}

std::string FaultOf(const std::string& text) {
  return std::string(ParseScenario(text, "f.toml").status().message());
}

// A scenario with a program, and `more` behind it, on line 6 and further.
std::string With(const std::string& more) {
  return "title = 't'\ntext = 't'\n[[program]]\nname = 'client'\ncommand = 'true'\n" + more;
}

TEST(ParseScenario, ReadsEveryKey) {
  const Scenario scenario = Parsed(kWhole);
  EXPECT_EQ(scenario.name, "a_name");
  EXPECT_EQ(scenario.title, "A title");
  EXPECT_EQ(scenario.text, "A text");
  EXPECT_EQ(scenario.time_limit_ns, 5'000'000'000);
  ASSERT_EQ(scenario.programs.size(), 2);
  const ScenarioProgram& server = scenario.programs[0];
  EXPECT_EQ(server.ready.listens, "{port}");
  EXPECT_EQ(server.ready.after_ns, 10'000'000);
  EXPECT_EQ(server.stop_signal, SIGTERM);
  EXPECT_EQ(server.end.kind, ProgramEnd::Kind::kStopped);
  const ScenarioProgram& client = scenario.programs[1];
  ASSERT_EQ(client.trigger.when.size(), 2);
  EXPECT_EQ(TextOf(scenario, client.trigger.when[0]), "server is ready");
  EXPECT_EQ(TextOf(scenario, client.trigger.when[1]), "qps roci0 /0/qpn >= 1");
  EXPECT_EQ(client.end.statuses, (std::vector<int>{1, 2}));
  EXPECT_EQ(client.lasts.size(), 2);
  EXPECT_EQ(client.prints.size(), 1);
  EXPECT_EQ(client.prints_not.size(), 2);
}

TEST(ParseScenario, ReadsSteps) {
  const Scenario scenario = Parsed(kWhole);
  ASSERT_EQ(scenario.steps.size(), 3);
  EXPECT_EQ(scenario.FirstSteps(), 1);
  const auto& fault = std::get<RunRoci>(scenario.steps[0].action);
  ASSERT_TRUE(fault.hits.has_value());
  EXPECT_EQ(fault.hits->text(), ">= 1");  // a fault that never hits shows nothing
  const Step& kill = scenario.steps[1];
  EXPECT_EQ(kill.trigger.at_ns, 1'000'000'000);
  EXPECT_EQ(kill.trigger.wait_ns, 20'000'000);
  EXPECT_EQ(kill.trigger.when.size(), 3);
  EXPECT_EQ(std::get<SendSignal>(kill.action).signal, SIGKILL);
  EXPECT_EQ(std::get<SendSignal>(kill.action).program, 1);
  EXPECT_TRUE(std::holds_alternative<CheckValue>(scenario.steps[2].action));
}

TEST(ParseScenario, ReadsExpectations) {
  const Scenario scenario = Parsed(kWhole);
  std::vector<std::string> texts;
  for (const Expectation& each : scenario.expectations) texts.push_back(TextOf(each));
  EXPECT_THAT(texts, ::testing::ElementsAre(
                         "counters /0/counters/tx_packets >= 7", "fault 1 of roci1: matched == 3",
                         "bytes of {dir}/copy == 4096", "lasts <= 9s", "the log has no /warning/"));
}

TEST(ParseScenario, TakesTheDaemonsConfigurationAsTextOrTable) {
  EXPECT_EQ(Parsed("rocid = '[daemon]'\n" + With("")).rocid_config, "[daemon]");
  const std::string table = Parsed(With("[rocid.daemon]\nlcores = 2\n")).rocid_config;
  EXPECT_THAT(table, HasSubstr("[daemon]"));
  EXPECT_THAT(table, HasSubstr("lcores = 2"));
}

struct WrongCase {
  const char* more;
  const char* says;
};

TEST(ParseScenario, NamesLineKeyAndNearestRightKey) {
  constexpr WrongCase kCases[] = {
      {"exti = 1", "f.toml:6: program[0].exti: unknown key; the nearest is exit"},
      {"exit = 256", "f.toml:6: program[0].exit: a status is a number from 0 to 255"},
      {"exit = 4294967296", "program[0].exit: a status is a number from 0 to 255"},
      {"exit = [0, -4294967296]", "program[0].exit: a status is a number from 0 to 255"},
      {"exit = [0, 4294967297]", "program[0].exit: a status is a number from 0 to 255"},
      {"exit = [0, true]", "program[0].exit: a status is a number from 0 to 255"},
      {"exit = []", "program[0].exit: a status is a number from 0 to 255"},
      {"exit = 'KIL'", "program[0].exit: must be a status"},
      {"when = {ready = 'clint'}", "nothing has the name clint; the nearest is client"},
      {"when = {redy = 'client'}", "program[0].when.redy: unknown key; the nearest is ready"},
      {"when = {}", "names no condition"},
      {"ready = {listens = '{prot}'}", "there is no placeholder {prot}; the nearest is {port}"},
      {"lasts = '5'", "is no bound of a time"},
      {"prints = '('", "is not a regular expression"},
      {"wait = '5'", "is not a time"},
      {"stop = 'KILLL'", "there is no signal KILLL"},
      {"[[step]]\nwait = '1s'", "f.toml:6: step[0]: needs one of roci, signal and show"},
      {"[[step]]\nroci = 'fault add'\nsignal = 'KILL'", "needs one of roci, signal and show"},
      {"[[step]]\nsignal = 'KILL'", "needs \"program\""},
      {"[[step]]\nroci = 'link down x'\nhits = 1", "is for `fault add` only"},
      {"[[step]]\nroci = \"fault 'add\"", "the quote ' is open"},
      {"[[step]]\nroci = 'roci link down x'", "begins with the subcommand"},
      {"[[step]]\nroci = 'event x --qp {qsp x /0/qpn}'", "the nearest is qps"},
      {"[[step]]\nshow = 'qp'\nis = 1", "the nearest is qps"},
      {"[[step]]\nshow = 'qps'\nvalue = '0/qpn'\nis = 1", "is not a JSON pointer"},
      {"[[step]]\nshow = 'qps'", "step[0].is: is missing"},
      {"[[step]]\nshow = 'qps'\nis = '>= many'", "is no comparison"},
      {"[[expect]]\ndevice = 'roci0'", "expects nothing"},
      {"[[program]]\nname = 'client'\ncommand = 'true'", "there are two of the name client"},
      {"[[program]]\nname = 'a b'\ncommand = 'true'", "must be letters, digits"},
      {"[[program]]\nname = 'b'", "f.toml:6: program[1].command: is missing"},
      {"[[expect]\n", "f.toml:6"},
  };
  for (const WrongCase& wrong : kCases) {
    EXPECT_THAT(FaultOf(With(wrong.more)), HasSubstr(wrong.says)) << wrong.more;
  }
  EXPECT_THAT(FaultOf("title = 't'"), HasSubstr("text: is missing"));
}

TEST(ParseScenario, HasBounds) {
  std::string many;
  for (size_t i = 0; i <= Scenario::kMostPrograms; ++i) {
    many += "[[program]]\nname = 'p" + std::to_string(i) + "'\ncommand = 'true'\n";
  }
  EXPECT_THAT(FaultOf("title = 't'\ntext = 't'\n" + many), HasSubstr("there are more than 32"));
  EXPECT_THAT(FaultOf("time_limit = '3601s'\n" + With("")), HasSubstr("is not a time up to 3600s"));
}

TEST(LoadScenario, SaysWhyAFileCannotBeRead) {
  EXPECT_THAT(std::string(LoadScenario("/nowhere.toml").status().message()),
              HasSubstr("/nowhere.toml: cannot be read: No such file"));
  EXPECT_THAT(std::string(LoadScenario("/").status().message()), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace roci::tools
