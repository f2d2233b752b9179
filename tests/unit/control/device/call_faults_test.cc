#include "control/device/call_faults.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "verbs_provider/abi/session_device.h"

namespace roci::control {
namespace {

constexpr roce::TimeNs kNow = 1'000;

CallFaultSettings Failing(const std::string& verb, int error) {
  CallFaultSettings settings;
  settings.verb = verb;
  settings.commands = CommandsOf(verb);
  settings.error = error;
  return settings;
}

TEST(CallFaultsTest, NamesArePatternsOfVerbs) {
  EXPECT_EQ(CommandsOf("reg_mr").count(), 1u);
  EXPECT_TRUE(CommandsOf("reg_mr").test(ROCI_ABI_REG_MR));
  EXPECT_EQ(CommandsOf("create_qp").count(), 2u) << "also that with receive side scaling";
  EXPECT_TRUE(CommandsOf("dereg_*").test(ROCI_ABI_DEREG_MR));
  EXPECT_TRUE(CommandsOf("post_send").none());
  EXPECT_TRUE(CommandsOf("").none());
  for (const uint32_t internal :
       {ROCI_ABI_UNSHARE_RANGE, ROCI_ABI_RETURN_EVENTS, ROCI_ABI_NAME_CONTEXT, ROCI_ABI_ATTACH}) {
    EXPECT_FALSE(CommandsOf("*").test(internal)) << internal;
  }
}

TEST(CallFaultsTest, LibrdmacmsCallsHaveAPrefixThatPatternsMustHave) {
  EXPECT_FALSE(HasCmCommands(CommandsOf("*")));
  EXPECT_FALSE(HasCmCommands(CommandsOf("r*")));
  EXPECT_TRUE(HasCmCommands(CommandsOf("rdma_*")));
  EXPECT_EQ(CommandsOf("rdma_resolve_addr").count(), 2u) << "the old and the new command";
  EXPECT_EQ(CommandsOf("rdma_connect").count(), 1u);
  EXPECT_TRUE(CommandsOf("rdma_post_send").none());
}

TEST(CallFaultsTest, OnlyTheProcessOfTheNumber) {
  CallFaults faults;
  CallFaultSettings settings = Failing("rdma_connect", ECONNREFUSED);
  settings.program.pid = 7;
  ASSERT_TRUE(faults.Add(1, settings, kNow).ok());
  const auto error_of = [&](uint32_t pid) {
    uint32_t command = 0;
    while (!settings.commands.test(command)) ++command;
    return faults.Apply(command, "a", kNow, pid).error;
  };
  EXPECT_EQ(error_of(8), 0);
  EXPECT_EQ(error_of(7), ECONNREFUSED);
}

TEST(CallFaultsTest, LimitsOfAnswersAreLoweredNeverRaised) {
  const auto limit = [](std::string_view name, uint64_t most) {
    for (const AnswerLimit& each : AnswerLimits()) {
      if (each.name == name) return LoweredLimit{&each, most};
    }
    ADD_FAILURE() << name;
    return LoweredLimit{AnswerLimits().data(), 0};
  };
  roci_abi_query_device_response device{};
  device.max_qp = 100;
  device.max_cq = 50;
  device.max_mr_size = 1ull << 40;
  roci_abi_query_port_response port{};
  port.pkey_table_length = 16;
  port.max_message_size = 1u << 30;
  const LoweredLimit limits[] = {limit("max_qp", 7), limit("max_cq", 70),
                                 limit("max_mr_size", 4096), limit("pkey_tbl_len", 2),
                                 limit("max_msg_sz", 1024)};
  LowerLimits(limits, ROCI_ABI_QUERY_DEVICE, std::as_writable_bytes(std::span(&device, 1)));
  EXPECT_EQ(device.max_qp, 7u);
  EXPECT_EQ(device.max_cq, 50u);
  EXPECT_EQ(device.max_mr_size, 4096u);
  LowerLimits(limits, ROCI_ABI_QUERY_PORT, std::as_writable_bytes(std::span(&port, 1)));
  EXPECT_EQ(port.pkey_table_length, 2u);
  EXPECT_EQ(port.max_message_size, 1024u);
  std::array<std::byte, 8> shorter{};
  LowerLimits(limits, ROCI_ABI_QUERY_PORT, shorter);
  for (const AnswerLimit& each : AnswerLimits()) {
    EXPECT_TRUE(each.bytes == 2 || each.bytes == 4 || each.bytes == 8) << each.name;
  }
}

TEST(CallFaultsTest, TheNthCallOfAVerbFails) {
  CallFaults faults;
  CallFaultSettings settings = Failing("reg_mr", ENOMEM);
  settings.when.nth = 2;
  settings.when.times = 1;
  ASSERT_TRUE(faults.Add(7, settings, kNow).ok());
  EXPECT_EQ(faults.Apply(ROCI_ABI_REG_MR, "a", kNow).error, 0);
  EXPECT_EQ(faults.Apply(ROCI_ABI_ALLOC_PD, "a", kNow).error, 0);
  const CallFaults::Fate fate = faults.Apply(ROCI_ABI_REG_MR, "a", kNow);
  EXPECT_EQ(fate.error, ENOMEM);
  EXPECT_EQ(fate.fault, 7u);
  EXPECT_EQ(faults.Apply(ROCI_ABI_REG_MR, "a", kNow).error, 0);
  EXPECT_EQ(faults.all()[0].matched, 3u);
  EXPECT_EQ(faults.all()[0].hit, 1u);
}

TEST(CallFaultsTest, HitTheOccasionsThatFaultsOfPacketsHit) {
  constexpr dataplane::FaultOccasions kOccasions[] = {
      {},
      {.nth = 5, .every = 3},
      {.nth = 4, .times = 2},
      {.every = 2, .chance = dataplane::kAlways / 3, .seed = 7, .times = 9},
  };
  for (const dataplane::FaultOccasions& when : kOccasions) {
    CallFaults faults;
    CallFaultSettings settings = Failing("reg_mr", ENOMEM);
    settings.when = when;
    ASSERT_TRUE(faults.Add(1, settings, kNow).ok());
    std::atomic<uint64_t> matched = 0, hits = 0;
    for (int i = 0; i < 100; ++i) {
      const bool is_hit = when.Count(matched, hits);
      EXPECT_EQ(faults.Apply(ROCI_ABI_REG_MR, "a", kNow).error != 0, is_hit) << i;
    }
    EXPECT_EQ(faults.all()[0].matched, 100u);
    EXPECT_EQ(faults.all()[0].hit, hits);
    EXPECT_GT(hits, 0u);
  }
}

TEST(CallFaultsTest, OnlyProgramsOfTheNameAndInTheTime) {
  CallFaults faults;
  CallFaultSettings settings = Failing("*", EIO);
  settings.program.name = "rping";
  settings.when.after_ns = 10;
  settings.when.for_ns = 5;
  ASSERT_TRUE(faults.Add(1, settings, kNow).ok());
  EXPECT_EQ(faults.Apply(ROCI_ABI_REG_MR, "rping", kNow + 9).error, 0);
  EXPECT_EQ(faults.Apply(ROCI_ABI_REG_MR, "rping", kNow + 10).error, EIO);
  EXPECT_EQ(faults.Apply(ROCI_ABI_REG_MR, "rpin", kNow + 10).error, 0);
  EXPECT_EQ(faults.Apply(ROCI_ABI_REG_MR, "rping", kNow + 15).error, 0);
}

TEST(CallFaultsTest, DelaysAddUpAndTheFirstErrorCounts) {
  CallFaults faults;
  for (uint32_t id = 1; id <= 3; ++id) {
    CallFaultSettings settings = Failing("alloc_pd", id == 1 ? 0 : static_cast<int>(id));
    settings.delay_ns = 10;
    ASSERT_TRUE(faults.Add(id, settings, kNow).ok());
  }
  const CallFaults::Fate fate = faults.Apply(ROCI_ABI_ALLOC_PD, "a", kNow);
  EXPECT_EQ(fate.delay_ns, 30u);
  EXPECT_EQ(fate.error, 2);
  EXPECT_TRUE(faults.Remove(2));
  EXPECT_FALSE(faults.Remove(2));
  EXPECT_EQ(faults.Apply(ROCI_ABI_ALLOC_PD, "a", kNow).error, 3);
}

TEST(CallFaultsTest, TheSumOfDelaysIsBounded) {
  CallFaults faults;
  CallFaultSettings settings = Failing("alloc_pd", 0);
  settings.delay_ns = CallFaultSettings::kMostDelayNs - 1;
  for (uint32_t id = 1; id <= 3; ++id) ASSERT_TRUE(faults.Add(id, settings, kNow).ok());
  EXPECT_EQ(faults.Apply(ROCI_ABI_ALLOC_PD, "a", kNow).delay_ns, CallFaultSettings::kMostDelayNs);
}

TEST(CallFaultsTest, TheirNumberIsBounded) {
  CallFaults faults;
  for (uint32_t id = 0; id < CallFaults::kMost; ++id) {
    ASSERT_TRUE(faults.Add(id, Failing("*", EIO), kNow).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(faults.Add(1'000, Failing("*", EIO), kNow)));
}

TEST(CallFaultsTest, EveryVerbHasACommandOfItsOwnOrSharesItByName) {
  CommandSet seen;
  const std::vector<std::string_view> names = VerbNames();
  const std::set<std::string_view> distinct(names.begin(), names.end());
  for (const std::string_view name : distinct) {
    const CommandSet commands = CommandsOf(std::string(name));
    EXPECT_TRUE((seen & commands).none()) << name;
    seen |= commands;
  }
}

}  // namespace
}  // namespace roci::control
