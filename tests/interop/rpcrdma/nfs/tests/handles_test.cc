// File handles and names: nothing outside of the export is reached, and handles outlive renames and
// restarts.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

namespace rpcrdma {
namespace {

namespace fs = std::filesystem;

class Handles : public ::testing::Test {
 protected:
  Handles() {
    Put(client_.Outside("secret"), "secret");
    fs::create_directories(client_.PathOf("a/b"));
    Put(client_.PathOf("a/b/file"), "inside");
  }

  Status StatusOfGetattr(const Handle& handle) {
    return client_.Call(Nfs::kGetattr, xdr_Handle, handle).TakeStatus();
  }
  Status Lookup(const std::string& folder, std::string_view name) {
    FileHandle found;
    return client_.Lookup(client_.At(folder), name, &found);
  }

  TestClient client_;
};

TEST_F(Handles, LeadToTheirFile) {
  EXPECT_EQ(client_.Read(client_.At("a/b/file"), 0, 100), "inside");
  EXPECT_EQ(client_.Getattr(client_.Root()).type, 2u);
}

TEST_F(Handles, ThatTheServerHasNotMadeAreBad) {
  const FileHandle good = client_.At("a/b/file");
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    FileHandle bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    EXPECT_EQ(StatusOfGetattr(ToHandle(bad)), Status::kBadHandle) << bit;
  }
}

TEST_F(Handles, OfOtherLengthsAreBad) {
  FileHandle good = client_.At("a");
  std::string longer(good.begin(), good.end());
  longer.resize(NFS3_HANDLE_BYTES);
  for (u_int length = 0; length <= NFS3_HANDLE_BYTES; ++length) {
    const Status status = StatusOfGetattr(Handle{length, longer.data()});
    EXPECT_EQ(status, length == kHandleBytes ? Status::kOk : Status::kBadHandle) << length;
  }
}

TEST_F(Handles, LongerThanTheProtocolAllowsAreGarbage) {
  auto call = HeadOf({.procedure = 1});
  const auto length = Words({NFS3_HANDLE_BYTES + 4});
  call.insert(call.end(), length.begin(), length.end());
  call.resize(call.size() + NFS3_HANDLE_BYTES + 4);
  EXPECT_EQ(Answered(client_.service().Answer(call)).accept(), 4u);
}

TEST_F(Handles, OfRemovedFilesAreStale) {
  const FileHandle file = client_.At("a/b/file");
  fs::remove(client_.PathOf("a/b/file"));
  EXPECT_EQ(StatusOfGetattr(ToHandle(file)), Status::kStale);
  // A file of the same name is another one.
  Put(client_.PathOf("a/b/file"), "new");
  EXPECT_EQ(StatusOfGetattr(ToHandle(file)), Status::kStale);
}

TEST_F(Handles, StayValidOverRenames) {
  const FileHandle file = client_.At("a/b/file"), folder = client_.At("a/b");
  // Beside the server.
  fs::rename(client_.PathOf("a/b"), client_.PathOf("c"));
  EXPECT_EQ(client_.Read(file, 0, 100), "inside");
  // By the server.
  Answered renamed =
      client_.Call(Nfs::kRename, xdr_RenameArguments,
                   RenameArguments{ToEntry(client_.Root(), "c"), ToEntry(client_.At("a"), "d")});
  EXPECT_EQ(renamed.TakeStatus(), Status::kOk);
  EXPECT_EQ(client_.Read(file, 0, 100), "inside");
  EXPECT_EQ(client_.Getattr(folder).type, 2u);
}

TEST_F(Handles, StayValidOverARestart) {
  const FileHandle file = client_.At("a/b/file");
  client_.Restart();
  EXPECT_EQ(client_.Read(file, 0, 100), "inside");
}

TEST_F(Handles, AreBadForAServerWithAnotherKey) {
  const FileHandle file = client_.At("a/b/file");
  client_.Restart(false);
  EXPECT_EQ(StatusOfGetattr(ToHandle(file)), Status::kBadHandle);
}

TEST_F(Handles, OfFilesThatHaveLeftTheExportAreStale) {
  const FileHandle file = client_.At("a/b/file"), folder = client_.At("a/b");
  fs::rename(client_.PathOf("a/b"), client_.Outside("b"));
  EXPECT_EQ(StatusOfGetattr(ToHandle(file)), Status::kStale);
  EXPECT_EQ(StatusOfGetattr(ToHandle(folder)), Status::kStale);
  // Nor does a symbolic link lead there.
  fs::create_directory_symlink(client_.Outside("b"), client_.PathOf("a/b"));
  EXPECT_EQ(StatusOfGetattr(ToHandle(file)), Status::kStale);
  EXPECT_EQ(StatusOfGetattr(ToHandle(folder)), Status::kStale);
}

TEST_F(Handles, OfFailedCallsBringNoAttributesOfOtherFiles) {
  const FileHandle file = client_.At("a/b/file");
  fs::remove(client_.PathOf("a/b/file"));
  Put(client_.PathOf("a/b/file"), "new");
  Answered answered =
      client_.Call(Nfs::kRead, xdr_ReadArguments, ReadArguments{ToHandle(file), 0, 10});
  EXPECT_EQ(answered.TakeStatus(), Status::kStale);
  EXPECT_FALSE(answered.results().Take(xdr_PostAttributes)->follow);
}

TEST_F(Handles, ParentOfTheRootIsTheRoot) {
  FileHandle found = client_.Root();
  for (const char* name : {"..", "..", "."}) {
    ASSERT_EQ(client_.Lookup(found, name, &found), Status::kOk);
    EXPECT_EQ(found, client_.Root());
  }
  ASSERT_EQ(client_.Lookup(client_.At("a/b"), "..", &found), Status::kOk);
  EXPECT_EQ(found, client_.At("a"));
}

TEST_F(Handles, NamesStayInTheirFolder) {
  for (const std::string_view name :
       {std::string_view("../outside/secret"), std::string_view("/etc/passwd"),
        std::string_view("a/b"), std::string_view("b/.."), std::string_view("/"),
        std::string_view(""), std::string_view("a\0", 2), std::string_view("\0", 1)}) {
    EXPECT_EQ(Lookup("", name), Status::kAccess) << name;
  }
  EXPECT_EQ(Lookup("", std::string(256, 'n')), Status::kNameTooLong);
  EXPECT_EQ(Lookup("", std::string(NFS3_NAME_BYTES, 'n')), Status::kNameTooLong);
  EXPECT_EQ(Lookup("", "no such file"), Status::kNoEntry);
}

TEST_F(Handles, FoldersAreNoFiles) {
  EXPECT_EQ(Lookup("a/b/file", "x"), Status::kNotFolder);
  FileHandle made;
  EXPECT_EQ(client_.Create(client_.At("a/b/file"), "x", &made), Status::kNotFolder);
}

TEST_F(Handles, SymbolicLinksAreNotFollowed) {
  fs::create_directory_symlink(client_.Outside(""), client_.PathOf("folder"));
  fs::create_symlink(client_.Outside("secret"), client_.PathOf("file"));
  fs::create_symlink(client_.Outside("new"), client_.PathOf("dangling"));
  EXPECT_EQ(Lookup("folder", "secret"), Status::kNotFolder);
  for (const char* name : {"folder", "file", "dangling"}) {
    EXPECT_EQ(client_.Getattr(client_.At(name)).type, 5u) << name;
    const FileHandle handle = client_.At(name);
    const Handle link = ToHandle(handle);
    Answered read = client_.Call(Nfs::kRead, xdr_ReadArguments, ReadArguments{link, 0, 10});
    EXPECT_EQ(read.TakeStatus(), Status::kInvalid);
    EXPECT_EQ(client_.Write(client_.At(name), 0, "x"), Status::kInvalid);
    Answered commit = client_.Call(Nfs::kCommit, xdr_CommitArguments, CommitArguments{link, 0, 0});
    EXPECT_EQ(commit.TakeStatus(), Status::kInvalid);
    FileHandle made;
    EXPECT_EQ(client_.Create(client_.Root(), name, &made), Status::kExists);
    EXPECT_EQ(client_.Create(client_.At(name), "x", &made), Status::kNotFolder);
  }
  EXPECT_EQ(ContentOf(client_.Outside("secret")), "secret");
  EXPECT_FALSE(fs::exists(client_.Outside("new")));
}

TEST_F(Handles, AttributesOfSymbolicLinksAreTheirOwn) {
  chmod(client_.Outside("secret").c_str(), 0600);
  fs::create_symlink(client_.Outside("secret"), client_.PathOf("file"));
  SetattrArguments arguments{};
  const FileHandle file = client_.At("file");
  arguments.object = ToHandle(file);
  arguments.attributes.mode = {TRUE, {0777}};
  arguments.attributes.modified.how = NFS3_CLIENT_TIME;
  arguments.attributes.modified.SetTime_u.value = {1000, 0};
  EXPECT_EQ(client_.Call(Nfs::kSetattr, xdr_SetattrArguments, arguments).TakeStatus(), Status::kOk);
  struct stat secret {};
  ASSERT_EQ(stat(client_.Outside("secret").c_str(), &secret), 0);
  EXPECT_EQ(secret.st_mode & 07777, 0600u);
  EXPECT_NE(secret.st_mtime, 1000);
  EXPECT_EQ(client_.Getattr(client_.At("file")).modified.seconds, 1000u);
  // Nor is the file truncated.
  arguments.attributes = {};
  arguments.attributes.size.set = TRUE;
  EXPECT_EQ(client_.Call(Nfs::kSetattr, xdr_SetattrArguments, arguments).TakeStatus(),
            Status::kInvalid);
  EXPECT_EQ(ContentOf(client_.Outside("secret")), "secret");
}

TEST_F(Handles, PipesAreNotOpened) {
  ASSERT_EQ(mkfifo(client_.PathOf("pipe").c_str(), 0600), 0);
  Answered read = client_.Call(Nfs::kRead, xdr_ReadArguments,
                               ReadArguments{ToHandle(client_.At("pipe")), 0, 10});
  EXPECT_EQ(read.TakeStatus(), Status::kInvalid);
  EXPECT_EQ(client_.Write(client_.At("pipe"), 0, "x"), Status::kInvalid);
  EXPECT_EQ(client_.Getattr(client_.At("pipe")).type, 7u);
}

// Mounts a file system on the folder, in a mount namespace that ends with this process.
bool MountOn(const std::string& folder) {
  return unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", folder.c_str(), "tmpfs", 0, nullptr) == 0;
}

TEST_F(Handles, MountsBelowTheExportAreNotEntered) {
  constexpr int kCannotMount = 77;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!MountOn(client_.PathOf("a"))) _exit(kCannotMount);
    client_.Restart();  // the service before has opened the export without the mount
    _exit(Lookup("", "a") == Status::kAccess ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotMount) GTEST_SKIP() << "this user may not mount";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Handles, HardLinksOfARemovedNameAreFound) {
  const FileHandle file = client_.At("a/b/file");
  fs::create_hard_link(client_.PathOf("a/b/file"), client_.PathOf("other"));
  fs::remove(client_.PathOf("a/b/file"));
  EXPECT_EQ(client_.Read(file, 0, 100), "inside");
}

}  // namespace
}  // namespace rpcrdma
