// MOUNT version 3.
#include <gtest/gtest.h>
#include <mount3.h>

#include <filesystem>

#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

namespace rpcrdma {
namespace {

enum MountProcedure : uint32_t { kMnt = 1, kDump, kUmnt, kUmntAll, kExport };

class Mounts : public ::testing::Test {
 protected:
  // Calls with AUTH_SYS, as a machine of that name.
  Answered Call(uint32_t procedure, std::string machine, const std::string& path = "") {
    Reply call;
    AuthSysBytes(std::move(machine), procedure, &call);
    if (!path.empty())
      call.Put(xdr_MountPath,
               MountPath{static_cast<u_int>(path.size()), const_cast<char*>(path.data())});
    return Answered(client_.service().Answer(call.Take().message));
  }

  static void AuthSysBytes(std::string machine, uint32_t procedure, Reply* call) {
    for (const uint32_t word : {1u, 0u, 2u, 100005u, 3u, procedure, 1u}) call->PutWord(word);
    const auto length = static_cast<uint32_t>(machine.size());
    call->PutWord(static_cast<uint32_t>(20 + Padded(machine.size())));
    call->PutWord(0);
    call->PutWord(length);
    machine.resize(Padded(machine.size()));
    std::copy_n(reinterpret_cast<const std::byte*>(machine.data()), machine.size(),
                call->Extend(machine.size()));
    for (const uint32_t word : {0u, 0u, 0u, 0u, 0u}) call->PutWord(word);
  }

  // The names of the machines that DUMP lists.
  std::vector<std::string> Clients() {
    Answered answered = Call(kDump, "asks");
    std::vector<std::string> clients;
    while (*answered.results().Take(xdr_bool)) {
      const auto entry = answered.results().Take(xdr_MountEntry);
      clients.emplace_back(entry->host.MountName_val, entry->host.MountName_len);
    }
    return clients;
  }

  TestClient client_;
  const std::string path_ = client_.service().path();
};

TEST_F(Mounts, GiveTheRoot) {
  Answered answered = Call(kMnt, "box", path_);
  EXPECT_EQ(answered.TakeStatus(), Status::kOk);
  const auto ok = answered.results().Take(xdr_MountOk);
  ASSERT_TRUE(ok);
  const FileHandle root = client_.Root();
  EXPECT_EQ(std::string_view(ok->handle.handle_val, ok->handle.handle_len),
            std::string_view(root.data(), root.size()));
  ASSERT_EQ(ok->flavors.flavors_len, 2u);
  EXPECT_EQ(ok->flavors.flavors_val[0], 1u);
  EXPECT_EQ(Call(kMnt, "box", path_ + "//").TakeStatus(), Status::kOk);
}

TEST_F(Mounts, GiveNothingElse) {
  std::filesystem::create_directory(client_.PathOf("folder"));
  for (const std::string& path :
       {std::string("/"), path_ + "/..", path_ + "/folder", path_.substr(1), path_ + "/.",
        client_.Outside(""), path_ + std::string(1, '\0')}) {
    EXPECT_EQ(Call(kMnt, "box", path).TakeStatus(), Status::kNoEntry) << path;
  }
  EXPECT_EQ(Call(kMnt, "box", std::string(MOUNT3_PATH_BYTES + 1, 'p')).accept(), 4u);
  EXPECT_TRUE(Clients().empty());
}

TEST_F(Mounts, AreListedUntilTheyEnd) {
  for (const char* client : {"one", "two", "two", "three"})
    EXPECT_EQ(Call(kMnt, client, path_).TakeStatus(), Status::kOk);
  EXPECT_EQ(Clients(), (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(Call(kUmnt, "one", path_).accept(), 0u);
  EXPECT_EQ(Call(kUmnt, "two", "/other").accept(), 0u);
  EXPECT_EQ(Call(kUmntAll, "three").accept(), 0u);
  EXPECT_EQ(Clients(), (std::vector<std::string>{"two"}));
}

TEST_F(Mounts, OfManyClientsAreForgotten) {
  for (size_t i = 0; i < MountProcedures::kMaxMounts + 10; ++i)
    Call(kMnt, std::to_string(i), path_);
  const auto clients = Clients();
  EXPECT_EQ(clients.size(), MountProcedures::kMaxMounts);
  EXPECT_EQ(clients.front(), "10");
}

TEST_F(Mounts, ExportIsTheFolder) {
  Answered answered = Call(kExport, "box");
  ASSERT_TRUE(*answered.results().Take(xdr_bool));
  const auto path = answered.results().Take(xdr_MountPath);
  EXPECT_EQ(std::string(path->MountPath_val, path->MountPath_len), path_);
  EXPECT_FALSE(*answered.results().Take(xdr_bool));
  EXPECT_FALSE(*answered.results().Take(xdr_bool));
  EXPECT_TRUE(answered.results().Rest().empty());
}

}  // namespace
}  // namespace rpcrdma
