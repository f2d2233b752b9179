// Which programs `roci run` refuses or warns of. (run_namespace_test.py has real programs.)
#include "tools/run/check_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace roci::tools {
namespace {

using testing::HasSubstr;

const Plugins kPlugins = {"/lib/libibverbs/libroci", {34, 57, 59, 64, 65}};

// A program that is linked with a libibverbs.
Program Linked(int private_abi, int public_version) {
  Program program;
  program.path = "/bin/program";
  program.is_native = true;
  program.interpreter = "/lib64/ld-linux-x86-64.so.2";
  program.libibverbs = "/opt/lib/libibverbs.so.1";
  program.links_libibverbs = true;
  program.private_abi = private_abi;
  program.public_version = public_version;
  return program;
}

std::string Refusal(const Program& program) {
  return std::string(CheckProgram(program, kPlugins).message());
}

TEST(CheckProgram, AcceptsEveryGenerationWithAPlugin) {
  for (const auto& [private_abi, version] :
       {std::pair{34, 14}, {57, 14}, {59, 15}, {59, 16}, {64, 17}, {65, 18}}) {
    EXPECT_EQ(Refusal(Linked(private_abi, version)), "") << private_abi;
    EXPECT_EQ(WarningFor(Linked(private_abi, version), kPlugins), "") << private_abi;
  }
}

TEST(CheckProgram, RefusesGenerationsWithoutAPlugin) {
  for (const auto& [private_abi, version] :
       {std::pair{34, 13}, {22, 6}, {59, 17}, {65, 19}, {66, 19}, {0, 0}}) {
    EXPECT_THAT(Refusal(Linked(private_abi, version)), HasSubstr("/opt/lib/libibverbs.so.1"));
  }
  EXPECT_THAT(Refusal(Linked(66, 19)), HasSubstr("private ABI 66, IBVERBS_1.19"));
  EXPECT_THAT(Refusal(Linked(66, 19)),
              HasSubstr("34, 57, 59, 64, 65 (rdma-core 36 to 56, 57 and 58, "));
  const Plugins some = {"/lib/libroci", {34}};
  EXPECT_FALSE(CheckProgram(Linked(65, 18), some).ok());
}

TEST(CheckProgram, RefusesAStaticLibibverbs) {
  Program program = Linked(0, 0);
  program.links_libibverbs = false;
  program.libibverbs.clear();
  program.contains_libibverbs = true;
  EXPECT_THAT(Refusal(program), HasSubstr("statically linked"));
}

TEST(CheckProgram, RefusesMuslOnlyWithLibibverbs) {
  Program program = Linked(34, 14);
  program.interpreter = "/lib/ld-musl-x86_64.so.1";
  EXPECT_THAT(Refusal(program), HasSubstr("musl"));
  EXPECT_FALSE(CanPreload(program));
  program.links_libibverbs = false;
  EXPECT_EQ(Refusal(program), "");
}

TEST(CheckProgram, WarnsOfALibibverbsThatAProgramMayLoad) {
  Program program = Linked(66, 19);
  program.links_libibverbs = false;
  EXPECT_EQ(Refusal(program), "");
  EXPECT_THAT(WarningFor(program, kPlugins), HasSubstr("find no devices"));
  program.libibverbs.clear();
  EXPECT_EQ(WarningFor(program, kPlugins), "");
}

TEST(CheckProgram, PreloadsIntoNativeProgramsOnly) {
  EXPECT_TRUE(CanPreload(Program()));  // not found: exec says so
  EXPECT_TRUE(CanPreload(Linked(34, 14)));
  Program program = Linked(34, 14);
  program.is_native = false;
  EXPECT_FALSE(CanPreload(program));
}

}  // namespace
}  // namespace roci::tools
