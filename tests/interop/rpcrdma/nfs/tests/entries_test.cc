// CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

namespace rpcrdma {
namespace {

namespace fs = std::filesystem;

class Entries : public ::testing::Test {
 protected:
  Entry InRoot(std::string_view name) { return ToEntry(root_, name); }

  Status Exclusive(const char* name, const char* verifier) {
    CreateArguments arguments{InRoot(name), {}};
    arguments.how.mode = NFS3_EXCLUSIVE;
    std::memcpy(arguments.how.CreateHow_u.verifier, verifier, 8);
    return client_.Call(Nfs::kCreate, xdr_CreateArguments, arguments).TakeStatus();
  }
  Status Create(const char* name, uint32_t mode, const SetAttributes& attributes) {
    CreateArguments arguments{InRoot(name), {}};
    arguments.how.mode = mode;
    arguments.how.CreateHow_u.attributes = attributes;
    return client_.Call(Nfs::kCreate, xdr_CreateArguments, arguments).TakeStatus();
  }
  Status Mkdir(std::string_view name) {
    return client_.Call(Nfs::kMkdir, xdr_MkdirArguments, MkdirArguments{InRoot(name), {}})
        .TakeStatus();
  }
  Status Remove(std::string_view name) {
    return client_.Call(Nfs::kRemove, xdr_Entry, InRoot(name)).TakeStatus();
  }
  Status Rmdir(std::string_view name) {
    return client_.Call(Nfs::kRmdir, xdr_Entry, InRoot(name)).TakeStatus();
  }
  Status Rename(std::string_view from, std::string_view to) {
    return client_
        .Call(Nfs::kRename, xdr_RenameArguments, RenameArguments{InRoot(from), InRoot(to)})
        .TakeStatus();
  }
  Status Link(const FileHandle& file, std::string_view name) {
    return client_.Call(Nfs::kLink, xdr_LinkArguments, LinkArguments{ToHandle(file), InRoot(name)})
        .TakeStatus();
  }
  Status Symlink(std::string_view name, std::string_view target) {
    return client_
        .Call(
            Nfs::kSymlink, xdr_SymlinkArguments,
            SymlinkArguments{InRoot(name),
                             {},
                             {static_cast<u_int>(target.size()), const_cast<char*>(target.data())}})
        .TakeStatus();
  }

  TestClient client_;
  const FileHandle root_ = client_.Root();
};

SetAttributes Mode(uint32_t mode) {
  SetAttributes attributes{};
  attributes.mode = {TRUE, {mode}};
  return attributes;
}

TEST_F(Entries, CreateSetsTheAttributes) {
  EXPECT_EQ(Create("file", NFS3_GUARDED, Mode(0644)), Status::kOk);
  EXPECT_EQ(client_.Getattr(client_.At("file")).mode, 0644u);
}

TEST_F(Entries, CreateOfAnExistingFile) {
  Put(client_.PathOf("file"), "data");
  chmod(client_.PathOf("file").c_str(), 0600);
  EXPECT_EQ(Create("file", NFS3_GUARDED, Mode(0644)), Status::kExists);
  EXPECT_EQ(Create("file", NFS3_UNCHECKED, Mode(0644)), Status::kOk);
  EXPECT_EQ(ContentOf(client_.PathOf("file")), "data");
  EXPECT_EQ(client_.Getattr(client_.At("file")).mode, 0600u);
  SetAttributes empty{};
  empty.size.set = TRUE;
  EXPECT_EQ(Create("file", NFS3_UNCHECKED, empty), Status::kOk);
  EXPECT_EQ(ContentOf(client_.PathOf("file")), "");
}

TEST_F(Entries, ExclusiveCreateRecognisesItsOwnFile) {
  EXPECT_EQ(Exclusive("file", "12345678"), Status::kOk);
  EXPECT_EQ(Exclusive("file", "12345678"), Status::kOk);
  EXPECT_EQ(Exclusive("file", "12345679"), Status::kExists);
  EXPECT_EQ(Exclusive("file", "92345678"), Status::kExists);
  client_.Restart();
  EXPECT_EQ(Exclusive("file", "12345678"), Status::kOk);
  Put(client_.PathOf("file"), "data");
  EXPECT_EQ(Exclusive("file", "12345678"), Status::kExists);
  EXPECT_EQ(ContentOf(client_.PathOf("file")), "data");
}

TEST_F(Entries, DotsAreNotMadeOrRemoved) {
  for (const std::string_view name : {".", ".."}) {
    FileHandle made;
    EXPECT_EQ(client_.Create(root_, name, &made), Status::kExists);
    EXPECT_EQ(Mkdir(name), Status::kExists);
    EXPECT_EQ(Symlink(name, "x"), Status::kExists);
    EXPECT_EQ(Link(root_, name), Status::kIsFolder);
    EXPECT_EQ(Remove(name), Status::kInvalid);
    EXPECT_EQ(Rmdir(name), Status::kInvalid);
    EXPECT_EQ(Rename(name, "x"), Status::kInvalid);
    EXPECT_EQ(Rename("x", name), Status::kInvalid);
  }
  EXPECT_TRUE(fs::is_empty(client_.PathOf("")));
}

TEST_F(Entries, NamesStayInTheFolder) {
  Put(client_.Outside("secret"), "secret");
  Put(client_.PathOf("file"), "data");
  const FileHandle file = client_.At("file");
  for (const std::string_view name :
       {std::string_view("../outside/secret"), std::string_view("../outside/new"),
        std::string_view("/tmp/x"), std::string_view(""), std::string_view("a\0b", 3)}) {
    FileHandle made;
    EXPECT_EQ(client_.Create(root_, name, &made), Status::kAccess);
    EXPECT_EQ(Mkdir(name), Status::kAccess);
    EXPECT_EQ(Symlink(name, "x"), Status::kAccess);
    EXPECT_EQ(Link(file, name), Status::kAccess);
    EXPECT_EQ(Remove(name), Status::kAccess);
    EXPECT_EQ(Rmdir(name), Status::kAccess);
    EXPECT_EQ(Rename(name, "x"), Status::kAccess);
    EXPECT_EQ(Rename("file", name), Status::kAccess);
  }
  EXPECT_EQ(ContentOf(client_.Outside("secret")), "secret");
  EXPECT_FALSE(fs::exists(client_.Outside("new")));
}

TEST_F(Entries, FoldersAreMadeAndRemoved) {
  EXPECT_EQ(Mkdir("folder"), Status::kOk);
  EXPECT_EQ(Mkdir("folder"), Status::kExists);
  Put(client_.PathOf("folder/file"), "");
  EXPECT_EQ(Rmdir("folder"), Status::kNotEmpty);
  EXPECT_EQ(Remove("folder"), Status::kIsFolder);
  fs::remove(client_.PathOf("folder/file"));
  EXPECT_EQ(Rmdir("folder"), Status::kOk);
  EXPECT_EQ(Rmdir("folder"), Status::kNoEntry);
}

TEST_F(Entries, FilesAreRemoved) {
  Put(client_.PathOf("file"), "");
  EXPECT_EQ(Rmdir("file"), Status::kNotFolder);
  Answered answered = client_.Call(Nfs::kRemove, xdr_Entry, InRoot("file"));
  EXPECT_EQ(answered.TakeStatus(), Status::kOk);
  const auto result = answered.results().Take(xdr_WccResult);
  EXPECT_TRUE(result->wcc.before.follow && result->wcc.after.follow);
  EXPECT_EQ(Remove("file"), Status::kNoEntry);
}

TEST_F(Entries, RenameReplaces) {
  Put(client_.PathOf("one"), "1");
  Put(client_.PathOf("two"), "2");
  EXPECT_EQ(Rename("one", "two"), Status::kOk);
  EXPECT_EQ(ContentOf(client_.PathOf("two")), "1");
  EXPECT_EQ(Rename("one", "two"), Status::kNoEntry);
  EXPECT_EQ(Mkdir("folder"), Status::kOk);
  EXPECT_EQ(Rename("two", "folder"), Status::kIsFolder);
  EXPECT_EQ(Rename("folder", "two"), Status::kNotFolder);
}

TEST_F(Entries, RenameMovesSymbolicLinksThemselves) {
  Put(client_.Outside("secret"), "secret");
  EXPECT_EQ(Symlink("link", client_.Outside("secret")), Status::kOk);
  Put(client_.PathOf("file"), "data");
  EXPECT_EQ(Rename("file", "link"), Status::kOk);
  EXPECT_EQ(ContentOf(client_.PathOf("link")), "data");
  EXPECT_EQ(ContentOf(client_.Outside("secret")), "secret");
}

TEST_F(Entries, LinksShareTheFile) {
  Put(client_.PathOf("one"), "1");
  const FileHandle file = client_.At("one");
  EXPECT_EQ(Link(file, "two"), Status::kOk);
  EXPECT_EQ(client_.At("two"), file);
  EXPECT_EQ(client_.Getattr(file).links, 2u);
  EXPECT_EQ(Link(file, "two"), Status::kExists);
  // A link to a symbolic link is one to the link itself.
  EXPECT_EQ(Symlink("soft", client_.Outside("secret")), Status::kOk);
  EXPECT_EQ(Link(client_.At("soft"), "soft too"), Status::kOk);
  EXPECT_TRUE(fs::is_symlink(client_.PathOf("soft too")));
}

TEST_F(Entries, SymbolicLinksKeepAnyPath) {
  const std::string path(4000, 'p');
  EXPECT_EQ(Symlink("link", path), Status::kOk);
  EXPECT_EQ(fs::read_symlink(client_.PathOf("link")), path);
  EXPECT_EQ(Symlink("link", "x"), Status::kExists);
  EXPECT_EQ(Symlink("nul", std::string_view("a\0b", 3)), Status::kInvalid);
  EXPECT_EQ(Symlink("long", std::string(NFS3_PATH_BYTES, 'p')), Status::kNameTooLong);
  EXPECT_EQ(Symlink("empty", ""), Status::kNoEntry);
}

TEST_F(Entries, DevicesAreNotMade) {
  Answered answered = client_.Call(Nfs::kMknod, xdr_Entry, InRoot("pipe"));
  EXPECT_EQ(answered.TakeStatus(), Status::kNotSupported);
  EXPECT_TRUE(answered.results().Take(xdr_WccData)->after.follow);
}

}  // namespace
}  // namespace rpcrdma
