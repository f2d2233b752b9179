// GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"
#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

namespace rpcrdma {
namespace {

namespace fs = std::filesystem;

class Attributes3 : public ::testing::Test {
 protected:
  Attributes3() { Put(client_.PathOf("file"), "0123456789"); }

  Status Set(const std::string& path, const SetAttributes& attributes) {
    SetattrArguments arguments{};
    const FileHandle handle = client_.At(path);
    arguments.object = ToHandle(handle);
    arguments.attributes = attributes;
    return client_.Call(Nfs::kSetattr, xdr_SetattrArguments, arguments).TakeStatus();
  }

  TestClient client_;
};

SetAttributes SizeTo(uint64_t size) {
  SetAttributes attributes{};
  attributes.size = {TRUE, {size}};
  return attributes;
}

TEST_F(Attributes3, AreThoseOfTheFile) {
  chmod(client_.PathOf("file").c_str(), 0640);
  struct stat now {};
  ASSERT_EQ(stat(client_.PathOf("file").c_str(), &now), 0);
  const ::Attributes got = client_.Getattr(client_.At("file"));
  EXPECT_EQ(got.type, 1u);
  EXPECT_EQ(got.mode, 0640u);
  EXPECT_EQ(got.links, 1u);
  EXPECT_EQ(got.owner, now.st_uid);
  EXPECT_EQ(got.group, now.st_gid);
  EXPECT_EQ(got.size, 10u);
  EXPECT_EQ(got.used, static_cast<uint64_t>(now.st_blocks) * 512);
  EXPECT_EQ(got.file_id, now.st_ino);
  EXPECT_EQ(got.file_system, now.st_dev);
  EXPECT_EQ(got.modified.seconds, now.st_mtim.tv_sec);
  EXPECT_EQ(got.modified.nanoseconds, now.st_mtim.tv_nsec);
  EXPECT_EQ(got.changed.nanoseconds, now.st_ctim.tv_nsec);
}

TEST_F(Attributes3, ModeAndTimesAreSet) {
  SetAttributes attributes{};
  attributes.mode = {TRUE, {0751}};
  attributes.accessed.how = attributes.modified.how = NFS3_CLIENT_TIME;
  attributes.accessed.SetTime_u.value = {1000, 5};
  attributes.modified.SetTime_u.value = {2000, 999'999'999};
  EXPECT_EQ(Set("file", attributes), Status::kOk);
  const ::Attributes got = client_.Getattr(client_.At("file"));
  EXPECT_EQ(got.mode, 0751u);
  EXPECT_EQ(got.accessed.seconds, 1000u);
  EXPECT_EQ(got.modified.seconds, 2000u);
  attributes = {};
  attributes.modified.how = NFS3_SERVER_TIME;
  EXPECT_EQ(Set("file", attributes), Status::kOk);
  EXPECT_GT(client_.Getattr(client_.At("file")).modified.seconds, 2000u);
  EXPECT_EQ(client_.Getattr(client_.At("file")).accessed.seconds, 1000u);
}

TEST_F(Attributes3, TimesMustBeTimes) {
  SetAttributes attributes{};
  attributes.modified.how = NFS3_CLIENT_TIME;
  for (const uint32_t nanoseconds : {1'000'000'000u, 0x3fffffffu, 0x3ffffffeu, 0xffffffffu}) {
    attributes.modified.SetTime_u.value = {2000, nanoseconds};
    EXPECT_EQ(Set("file", attributes), Status::kInvalid);
  }
}

TEST_F(Attributes3, SizeIsSet) {
  EXPECT_EQ(Set("file", SizeTo(3)), Status::kOk);
  EXPECT_EQ(ContentOf(client_.PathOf("file")), "012");
  EXPECT_EQ(Set("file", SizeTo(5)), Status::kOk);
  EXPECT_EQ(ContentOf(client_.PathOf("file")), std::string("012\0\0", 5));
  EXPECT_EQ(Set("file", SizeTo(uint64_t{1} << 63)), Status::kTooBig);
  EXPECT_EQ(Set("", SizeTo(0)), Status::kIsFolder);
}

TEST_F(Attributes3, AGuardThatDiffersPreventsTheChange) {
  SetattrArguments arguments{};
  const FileHandle file = client_.At("file");
  arguments.object = ToHandle(file);
  arguments.attributes = SizeTo(0);
  arguments.guard = {TRUE, {client_.Getattr(file).changed}};
  arguments.guard.Guard_u.changed.nanoseconds ^= 1;
  EXPECT_EQ(client_.Call(Nfs::kSetattr, xdr_SetattrArguments, arguments).TakeStatus(),
            Status::kNotSync);
  EXPECT_EQ(ContentOf(client_.PathOf("file")), "0123456789");
  arguments.guard.Guard_u.changed.nanoseconds ^= 1;
  Answered answered = client_.Call(Nfs::kSetattr, xdr_SetattrArguments, arguments);
  EXPECT_EQ(answered.TakeStatus(), Status::kOk);
  const auto result = answered.results().Take(xdr_WccResult);
  EXPECT_EQ(result->wcc.before.PreAttributes_u.attributes.size, 10u);
  EXPECT_EQ(result->wcc.after.PostAttributes_u.attributes.size, 0u);
}

TEST_F(Attributes3, AccessIsThatOfTheServersUser) {
  const auto access = [&](const std::string& path) {
    Answered answered = client_.Call(Nfs::kAccess, xdr_AccessArguments,
                                     AccessArguments{ToHandle(client_.At(path)), 0x3f});
    EXPECT_EQ(answered.TakeStatus(), Status::kOk);
    return answered.results().Take(xdr_AccessOk)->access;
  };
  chmod(client_.PathOf("file").c_str(), 0600);
  EXPECT_EQ(access("file"), 0x0du);
  chmod(client_.PathOf("file").c_str(), 0700);
  EXPECT_EQ(access("file"), 0x2du);
  EXPECT_EQ(access(""), 0x1fu);
  if (geteuid() == 0) return;
  chmod(client_.PathOf("file").c_str(), 0400);
  EXPECT_EQ(access("file"), 0x01u);
}

TEST_F(Attributes3, FileSystemTellsItsLimits) {
  const FileHandle root = client_.Root();
  Answered info = client_.Call(Nfs::kFsinfo, xdr_Handle, ToHandle(root));
  ASSERT_EQ(info.TakeStatus(), Status::kOk);
  EXPECT_EQ(info.results().Take(xdr_FsinfoOk)->read_maximum, kMaxIoBytes);
  Answered space = client_.Call(Nfs::kFsstat, xdr_Handle, ToHandle(root));
  ASSERT_EQ(space.TakeStatus(), Status::kOk);
  const auto bytes = space.results().Take(xdr_FsstatOk);
  EXPECT_GT(bytes->total_bytes, 0u);
  EXPECT_LE(bytes->available_bytes, bytes->free_bytes);
  Answered limits = client_.Call(Nfs::kPathconf, xdr_Handle, ToHandle(root));
  ASSERT_EQ(limits.TakeStatus(), Status::kOk);
  const auto names = limits.results().Take(xdr_PathconfOk);
  EXPECT_EQ(names->name_maximum, 255u);
  EXPECT_TRUE(names->no_truncation && names->case_preserving && !names->case_insensitive);
}

}  // namespace
}  // namespace rpcrdma
