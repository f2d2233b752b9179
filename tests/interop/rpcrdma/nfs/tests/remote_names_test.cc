// The NFS client and a server of the environment: names, attributes, links, listings, and the file
// system.
#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "tests/interop/rpcrdma/nfs/tests/remote_server.h"

namespace rpcrdma {
namespace {

constexpr uint32_t kRegular = 1, kFolder = 2, kLink = 5;  // ftype3 of RFC 1813
constexpr uint32_t kMayRead = 1, kMayModify = 4, kMayExtend = 8;

TEST(RemoteNames, NullIsAnswered) {
  RemoteServer server;
  for (int i = 0; i < 50; ++i) server.nfs().Null();
  EXPECT_EQ(server.client().counters().connections, 1u);
}

TEST(RemoteNames, FilesAreMadeFoundAndRemoved) {
  RemoteServer server;
  NfsClient& nfs = server.nfs();
  const RemoteHandle file = server.MakeFile("file");
  EXPECT_EQ(server.Find(server.folder(), "file"), file);
  EXPECT_EQ(server.AttributesOf(file).type, kRegular);
  EXPECT_EQ(server.AttributesOf(server.folder()).type, kFolder);
  EXPECT_EQ(server.Find(server.folder(), ".."), server.root());
  RemoteHandle found;
  EXPECT_EQ(nfs.Lookup(server.folder(), "missing", &found), Status::kNoEntry);
  EXPECT_EQ(nfs.Lookup(file, "below a file", &found), Status::kNotFolder);
  EXPECT_EQ(nfs.Rmdir(server.folder(), "file"), Status::kNotFolder);
  EXPECT_EQ(nfs.Rmdir(server.root(), server.path()), Status::kNotEmpty);
  EXPECT_EQ(nfs.Remove(server.folder(), "file"), Status::kOk);
  EXPECT_EQ(nfs.Remove(server.folder(), "file"), Status::kNoEntry);
  EXPECT_EQ(nfs.Lookup(server.folder(), "file", &found), Status::kNoEntry);
  Attributes attributes{};
  EXPECT_EQ(nfs.Getattr(file, &attributes), Status::kStale);
  EXPECT_EQ(nfs.Rmdir(server.root(), server.path()), Status::kOk);
}

TEST(RemoteNames, HandlesOfNobody) {
  RemoteServer server;
  Attributes attributes{};
  for (const RemoteHandle& handle :
       {RemoteHandle(32, '\0'), RemoteHandle(64, '\xff'), RemoteHandle("x")}) {
    EXPECT_THAT(server.nfs().Getattr(handle, &attributes),
                testing::AnyOf(Status::kBadHandle, Status::kStale));
  }
}

TEST(RemoteNames, CreateIsUncheckedGuardedOrExclusive) {
  RemoteServer server;
  NfsClient& nfs = server.nfs();
  const RemoteHandle file = server.MakeFile("file");
  RemoteHandle made;
  EXPECT_EQ(nfs.Create(server.folder(), "file", Unchecked(), &made), Status::kOk);
  EXPECT_EQ(made, file);
  CreateHow how = Unchecked();
  how.mode = NFS3_GUARDED;
  EXPECT_EQ(nfs.Create(server.folder(), "file", how, &made), Status::kExists);
  how = CreateHow{};
  how.mode = NFS3_EXCLUSIVE;
  std::copy_n("verifier", 8, how.CreateHow_u.verifier);
  EXPECT_EQ(nfs.Create(server.folder(), "exclusive", how, &made), Status::kOk);
  const RemoteHandle exclusive = made;
  EXPECT_EQ(nfs.Create(server.folder(), "exclusive", how, &made), Status::kOk) << "as if resent";
  EXPECT_EQ(made, exclusive);
  std::copy_n("anothers", 8, how.CreateHow_u.verifier);
  EXPECT_EQ(nfs.Create(server.folder(), "exclusive", how, &made), Status::kExists);
  EXPECT_EQ(nfs.Remove(server.folder(), "file"), Status::kOk);
  EXPECT_EQ(nfs.Remove(server.folder(), "exclusive"), Status::kOk);
}

TEST(RemoteNames, AreRenamedAndLinked) {
  RemoteServer server;
  NfsClient& nfs = server.nfs();
  const RemoteHandle file = server.MakeFile("file");
  const RemoteHandle other = server.MakeFolder(server.folder(), "other");
  EXPECT_EQ(nfs.Link(file, other, "linked"), Status::kOk);
  EXPECT_EQ(server.AttributesOf(file).links, 2u);
  EXPECT_EQ(nfs.Link(file, other, "linked"), Status::kExists);
  EXPECT_EQ(nfs.Rename(server.folder(), "file", other, "renamed"), Status::kOk);
  EXPECT_EQ(nfs.Rename(server.folder(), "file", other, "renamed"), Status::kNoEntry);
  EXPECT_EQ(server.AttributesOf(server.Find(other, "renamed")).file_id,
            server.AttributesOf(server.Find(other, "linked")).file_id);
  EXPECT_EQ(server.AttributesOf(file).links, 2u) << "the handle outlives the renaming";
  EXPECT_EQ(nfs.Remove(other, "linked"), Status::kOk);
  EXPECT_EQ(nfs.Remove(other, "renamed"), Status::kOk);
  EXPECT_EQ(nfs.Rmdir(server.folder(), "other"), Status::kOk);
}

// A long target is a Read chunk of SYMLINK; READLINK offers a Write chunk for it.
TEST(RemoteNames, SymbolicLinks) {
  RemoteServer server;
  NfsClient& nfs = server.nfs();
  for (const size_t length : {1u, 3u, 100u, 1000u, 4000u, 4095u}) {
    std::string target(length, 'x');
    for (size_t i = 0; i < length; i += 50) target[i] = '/';
    RemoteHandle link;
    const std::string name = "link " + std::to_string(length);
    ASSERT_EQ(nfs.Symlink(server.folder(), name, target, &link), Status::kOk) << length;
    EXPECT_EQ(nfs.plan().read_chunk, length >= 4000) << length;
    EXPECT_EQ(server.AttributesOf(link).type, kLink);
    std::string path;
    ASSERT_EQ(nfs.Readlink(link, &path), Status::kOk) << length;
    EXPECT_TRUE(nfs.plan().write_chunk);
    EXPECT_EQ(path, target);
    EXPECT_EQ(nfs.Remove(server.folder(), name), Status::kOk);
  }
  const RemoteHandle file = server.MakeFile("file");
  std::string path;
  EXPECT_EQ(nfs.Readlink(file, &path), Status::kInvalid);
  EXPECT_EQ(nfs.Remove(server.folder(), "file"), Status::kOk);
}

TEST(RemoteAttributes, AreSet) {
  RemoteServer server;
  const RemoteHandle file = server.MakeFile("file");
  SetAttributes set = WithMode(0640);
  set.size.set = TRUE;
  set.size.SetSize_u.value = 70'000;
  set.modified.how = NFS3_CLIENT_TIME;
  set.modified.SetTime_u.value = {1'000'000'000, 5000};
  ASSERT_EQ(server.nfs().Setattr(file, set), Status::kOk);
  Attributes attributes = server.AttributesOf(file);
  EXPECT_EQ(attributes.mode & 07777, 0640u);
  EXPECT_EQ(attributes.size, 70'000u);
  EXPECT_EQ(attributes.modified.seconds, 1'000'000'000u);
  EXPECT_EQ(attributes.modified.nanoseconds, 5000u);
  const Time never{1, 1};
  EXPECT_EQ(server.nfs().Setattr(file, WithMode(0600), &never), Status::kNotSync);
  EXPECT_EQ(server.nfs().Setattr(file, WithMode(0600), &attributes.changed), Status::kOk);
  EXPECT_EQ(server.AttributesOf(file).mode & 07777, 0600u);
  uint32_t granted = 0;
  ASSERT_EQ(server.nfs().Access(file, kMayRead | kMayModify | kMayExtend, &granted), Status::kOk);
  EXPECT_EQ(granted, kMayRead | kMayModify | kMayExtend);
  EXPECT_EQ(server.nfs().Remove(server.folder(), "file"), Status::kOk);
}

// In parts that fit inline, and in Reply chunks.
TEST(RemoteListing, HasEachNameOnce) {
  constexpr int kNames = 150;
  RemoteServer server;
  std::set<std::string> wanted;
  for (int i = 0; i < kNames; ++i) {
    wanted.insert("a file with a long name, to fill the listings " + std::to_string(i));
  }
  for (const std::string& name : wanted) server.MakeFile(name);
  for (const uint32_t bytes : {2048u, 4096u, 16'384u, 65'536u}) {
    for (const bool plus : {false, true}) {
      std::multiset<std::string> names;
      for (const RemoteEntry& entry : server.EntriesOf(server.folder(), bytes, plus)) {
        names.insert(entry.name);
        if (!entry.attributes) continue;
        EXPECT_EQ(entry.attributes->type, kRegular);
        EXPECT_EQ(entry.attributes->file_id, entry.file_id);
      }
      EXPECT_TRUE(std::equal(names.begin(), names.end(), wanted.begin(), wanted.end()))
          << names.size() << " names in parts of " << bytes;
      EXPECT_EQ(server.nfs().plan().reply_chunk, bytes > 3000) << bytes;
    }
  }
  for (const std::string& name : wanted) {
    EXPECT_EQ(server.nfs().Remove(server.folder(), name), Status::kOk);
  }
  EXPECT_TRUE(server.EntriesOf(server.folder(), 4096, true).empty());
}

TEST(RemoteFileSystem, SaysWhatItCanDo) {
  RemoteServer server;
  FsinfoOk info{};
  ASSERT_EQ(server.nfs().Fsinfo(server.root(), &info), Status::kOk);
  EXPECT_EQ(info.read_maximum, kMostBytes);
  EXPECT_EQ(info.write_maximum, kMostBytes);
  EXPECT_GE(info.file_maximum, uint64_t{1} << 40);
  FsstatOk space{};
  ASSERT_EQ(server.nfs().Fsstat(server.root(), &space), Status::kOk);
  EXPECT_GT(space.total_bytes, 0u);
  EXPECT_LE(space.free_bytes, space.total_bytes);
  EXPECT_LE(space.available_bytes, space.free_bytes);
  PathconfOk limits{};
  ASSERT_EQ(server.nfs().Pathconf(server.root(), &limits), Status::kOk);
  EXPECT_EQ(limits.name_maximum, 255u);
  EXPECT_TRUE(limits.case_preserving);
  EXPECT_FALSE(limits.case_insensitive);
}

}  // namespace
}  // namespace rpcrdma
