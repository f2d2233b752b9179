#include "control/config/personality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "control/config/config.h"
#include "verbs_provider/abi/send_opcodes.h"

namespace roci::control {
namespace {

using ::testing::HasSubstr;

std::string FaultOf(std::string_view text) {
  const absl::StatusOr<Personality> personality = ParsePersonality(text, "p.toml");
  return personality.ok() ? "" : std::string(personality.status().message());
}

TEST(PersonalityTest, EveryBuiltinIsReadAndAdvertisesNoMoreThanTheDeviceHas) {
  ASSERT_EQ(PersonalityNames().size(), 5u);
  roci_abi_query_device_response plain = {};
  DescribeDevice(DeviceLimits(), DeviceIdentity(), 1, plain);
  for (const std::string_view name : PersonalityNames()) {
    SCOPED_TRACE(name);
    const absl::StatusOr<Personality> personality = LoadPersonality(std::string(name));
    ASSERT_TRUE(personality.ok()) << personality.status();
    EXPECT_EQ(personality->name, name);
    roci_abi_query_device_response like = {};
    DescribeDevice(Smaller(DeviceLimits(), *personality), personality->identity, 1, like);
    for (uint32_t roci_abi_query_device_response::*field :
         {&roci_abi_query_device_response::max_qp, &roci_abi_query_device_response::max_qp_wr,
          &roci_abi_query_device_response::max_sge, &roci_abi_query_device_response::max_cq,
          &roci_abi_query_device_response::max_cqe, &roci_abi_query_device_response::max_mr,
          &roci_abi_query_device_response::max_mw, &roci_abi_query_device_response::max_pd,
          &roci_abi_query_device_response::max_ah, &roci_abi_query_device_response::max_srq,
          &roci_abi_query_device_response::max_srq_wr, &roci_abi_query_device_response::max_srq_sge,
          &roci_abi_query_device_response::max_mcast_grp,
          &roci_abi_query_device_response::max_inline}) {
      EXPECT_LE(like.*field, plain.*field);
    }
    EXPECT_EQ(like.device_cap_flags & ~plain.device_cap_flags, 0u);
    EXPECT_EQ(like.device_cap_flags_ex & ~plain.device_cap_flags_ex, 0u);
    EXPECT_GE(like.local_ca_ack_delay, plain.local_ca_ack_delay) << "a promise to peers";
  }
}

TEST(PersonalityTest, VendorErrorsAreThoseOfTheFileOrTheNumbersOfTheStatuses) {
  const auto personality =
      ParsePersonality("lenient_posts = true\n[vendor_errors]\nretry_exc_err = 0x81\n", "p.toml");
  ASSERT_TRUE(personality.ok()) << personality.status();
  EXPECT_TRUE(personality->has_lenient_posts);
  dataplane::VendorErrors expected = dataplane::kPlainVendorErrors;
  expected[static_cast<size_t>(roce::CompletionStatus::kRetryExceeded)] = 0x81;
  EXPECT_EQ(personality->vendor_errors, expected);
  EXPECT_EQ(ParsePersonality("", "p.toml")->vendor_errors, dataplane::kPlainVendorErrors);
  EXPECT_EQ(FaultOf("[vendor_errors]\nfatal_err = 0\n"),
            "p.toml:2: vendor_errors.fatal_err: must be a whole number from 1 to 4294967295");
  EXPECT_THAT(FaultOf("[vendor_errors]\nretry_err = 1\n"), HasSubstr("the nearest is"));
}

TEST(PersonalityTest, AFileMustBeReadableAndBounded) {
  for (const char* const path : {"/dev/zero", "/", "/nonexistent"}) {
    EXPECT_FALSE(LoadPersonality(path).ok()) << path;
  }
  const std::string fifo = absl::StrCat(::testing::TempDir(), "/fifo", getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(LoadPersonality(fifo).status().message(), HasSubstr("not a regular file"));
  unlink(fifo.c_str());
}

TEST(PersonalityTest, WithoutOneTheDeviceIsAsBefore) {
  roci_abi_query_device_response plain = {};
  DescribeDevice(DeviceLimits(), DeviceIdentity(), 1, plain);
  EXPECT_EQ(plain.vendor_id, ROCI_ABI_VENDOR_ID);
  EXPECT_STREQ(plain.fw_ver, kFirmwareVersion);
  EXPECT_EQ(plain.device_cap_flags, 0x05323c02u);
  EXPECT_EQ(plain.device_cap_flags_ex, 0x1c005323c02u);
  EXPECT_EQ(plain.atomic_cap, 1u);
  EXPECT_EQ(plain.flags, 0);
  const Personality none;
  const DeviceLimits same = Smaller(DeviceLimits(), none);
  EXPECT_EQ(same.max_mw, DeviceLimits().max_mw);
  EXPECT_EQ(same.features, ~0u);
}

TEST(PersonalityTest, LowersLimitsAndNotesWhereTheAdapterHasMore) {
  const absl::StatusOr<Personality> e810 = LoadPersonality("e810");
  ASSERT_TRUE(e810.ok()) << e810.status();
  const DeviceLimits limits = Smaller(DeviceLimits(), *e810);
  EXPECT_EQ(limits.max_sge, 6u);
  EXPECT_EQ(limits.max_srq, 0u);
  EXPECT_EQ(limits.max_mr, DeviceLimits().max_mr);
  EXPECT_FALSE(limits.HasQpType(3)) << "UC";
  const auto mr = std::ranges::find(e810->differences, "max_mr", &PersonalityDifference::attribute);
  ASSERT_NE(mr, e810->differences.end());
  EXPECT_EQ(mr->adapter, "4194301");
  EXPECT_EQ(mr->device, "65536");
  EXPECT_EQ(std::ranges::count(e810->differences, "max_sge", &PersonalityDifference::attribute), 0);
}

TEST(PersonalityTest, LimitsOfTheConfigurationStillLower) {
  Personality personality;
  personality.limits.max_qp = 100;
  DeviceLimits configured;
  configured.max_qp = 50;
  EXPECT_EQ(Smaller(configured, personality).max_qp, 50u);
}

TEST(PersonalityTest, FlagsAndTypesAgree) {
  const absl::StatusOr<Personality> no_xrc =
      ParsePersonality("device_cap_flags = 0\nqp_types = [\"rc\", \"xrc\"]\n", "p.toml");
  ASSERT_TRUE(no_xrc.ok());
  EXPECT_EQ(no_xrc->limits.qp_types, 1u << 2);
  EXPECT_EQ(no_xrc->limits.max_mw, 0u) << "no MEM_WINDOW";
  const absl::StatusOr<Personality> few = ParsePersonality("[limits]\nmax_sge = 2\n", "p.toml");
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->limits.max_sge_rd, 2u) << "a work request has no more elements";
  const absl::StatusOr<Personality> no_type =
      ParsePersonality("device_cap_flags = 0x05100000\nqp_types = [\"ud\"]\n", "p.toml");
  ASSERT_TRUE(no_type.ok());
  EXPECT_FALSE(no_type->limits.HasCapabilities(kCapXrc));
  EXPECT_FALSE(no_type->limits.Has(Feature::kFlows)) << "which raw packets need";
}

TEST(PersonalityTest, ACallMayBeMissingWithoutItsLimit) {
  const absl::StatusOr<Personality> bnxt = LoadPersonality("bnxt");
  ASSERT_TRUE(bnxt.ok()) << bnxt.status();
  const DeviceLimits limits = Smaller(DeviceLimits(), *bnxt);
  EXPECT_GT(limits.max_mw, 0u);
  EXPECT_FALSE(limits.HasWindows());
  EXPECT_FALSE(limits.Has(Feature::kReregMr));
  EXPECT_TRUE(limits.Has(Feature::kResizeCq));
  EXPECT_NE(limits.LackingOpcodes() & abi::kWindowOpcodes, 0u);
  const absl::StatusOr<Personality> few = ParsePersonality("features = []\n", "p.toml");
  ASSERT_TRUE(few.ok());
  EXPECT_TRUE(few->limits.Has(Feature::kReregMr)) << "not named as missing";
  EXPECT_THAT(FaultOf("missing_calls = [\"alloc_mv\"]\n"), HasSubstr("the nearest is alloc_mw"));
}

TEST(PersonalityTest, FaultsAreOneLineWithThePlaceAndTheNearestWord) {
  EXPECT_EQ(FaultOf("[limits]\nmax_qps = 1\n"),
            "p.toml:2: limits.max_qps: unknown key; the nearest is max_qp");
  EXPECT_THAT(FaultOf("[limits]\nmax_qp = 0\n"), HasSubstr("p.toml:2: limits.max_qp"));
  EXPECT_THAT(FaultOf("features = [\"atomic\"]\n"), HasSubstr("the nearest is atomics"));
  EXPECT_THAT(FaultOf("qp_types = [\"raw\"]\n"), HasSubstr("there is no raw; the nearest is"));
  EXPECT_THAT(FaultOf("firmware = \"\"\n"), HasSubstr("p.toml:1: firmware"));
  EXPECT_THAT(FaultOf("board_id = \"a\\nb\"\n"), HasSubstr("p.toml:1: board_id"));
  EXPECT_THAT(FaultOf("vendor_id = \n"), HasSubstr("p.toml:1"));
  EXPECT_THAT(LoadPersonality("conectx6").status().message(),
              HasSubstr("there is no personality conectx6; the nearest is connectx-6"));
  EXPECT_THAT(LoadPersonality("/nowhere/p.toml").status().message(),
              HasSubstr("cannot be read: No such file"));
}

TEST(PersonalityTest, IsAKeyOfADevice) {
  const absl::StatusOr<Config> config = ParseConfig(
      "[[wire]]\nname = \"w\"\n[[device]]\nname = \"a\"\nwire = \"w\"\npersonality = \"rxe\"\n",
      "t.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices[0].personality.name, "rxe");
  EXPECT_EQ(ParseConfig("[[wire]]\nname = \"w\"\n[[device]]\nname = \"a\"\nwire = \"w\"\n"
                        "personality = \"rex\"\n",
                        "t.toml")
                .status()
                .message(),
            "t.toml:6: device[0].personality: there is no personality rex; the nearest is rxe "
            "(a file needs a path with a /)");
}

}  // namespace
}  // namespace roci::control
