// Calls that end too early, and calls with random words: an answer or a refusal, and nothing
// outside of the export changes.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <random>

#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

namespace rpcrdma {
namespace {

namespace fs = std::filesystem;

class Truncated : public ::testing::Test {
 protected:
  Truncated() {
    Put(client_.Outside("secret"), "secret");
    Put(client_.PathOf("file"), "data");
    fs::create_symlink("file", client_.PathOf("link"));
    root_ = client_.Root();
    file_ = client_.At("file");
  }

  // A right call of each procedure with arguments.
  std::vector<std::vector<std::byte>> Calls() {
    const Handle root = ToHandle(root_), file = ToHandle(file_);
    const Entry entry = ToEntry(root_, "name"), other = ToEntry(root_, "other");
    SetAttributes attributes{};
    attributes.mode.set = attributes.size.set = attributes.owner.set = attributes.group.set = TRUE;
    attributes.owner.SetNumber_u.value = attributes.group.SetNumber_u.value = 0xffffffff;
    attributes.accessed.how = attributes.modified.how = NFS3_CLIENT_TIME;
    CreateArguments exclusive{entry, {}};
    exclusive.how.mode = NFS3_EXCLUSIVE;
    char path[] = "target";
    return {
        client_.Encode(Nfs::kGetattr, xdr_Handle, root),
        client_.Encode(Nfs::kSetattr, xdr_SetattrArguments,
                       SetattrArguments{file, attributes, {TRUE, {}}}),
        client_.Encode(Nfs::kLookup, xdr_Entry, entry),
        client_.Encode(Nfs::kAccess, xdr_AccessArguments, AccessArguments{root, 63}),
        client_.Encode(Nfs::kReadlink, xdr_Handle, ToHandle(client_.At("link"))),
        client_.Encode(Nfs::kRead, xdr_ReadArguments, ReadArguments{file, 0, 100}),
        client_.Encode(Nfs::kWrite, xdr_WriteHead, WriteHead{file, 0, 4, NFS3_FILE_SYNC, 4},
                       "abcd"),
        client_.Encode(Nfs::kCreate, xdr_CreateArguments, exclusive),
        client_.Encode(Nfs::kMkdir, xdr_MkdirArguments, MkdirArguments{entry, {}}),
        client_.Encode(Nfs::kSymlink, xdr_SymlinkArguments,
                       SymlinkArguments{entry, attributes, {6, path}}),
        client_.Encode(Nfs::kMknod, xdr_Entry, entry),
        client_.Encode(Nfs::kRemove, xdr_Entry, entry),
        client_.Encode(Nfs::kRmdir, xdr_Entry, entry),
        client_.Encode(Nfs::kRename, xdr_RenameArguments, RenameArguments{entry, other}),
        client_.Encode(Nfs::kLink, xdr_LinkArguments, LinkArguments{file, other}),
        client_.Encode(Nfs::kReaddir, xdr_ReaddirArguments, ReaddirArguments{root, 0, {}, 4096}),
        client_.Encode(Nfs::kReaddirplus, xdr_ReaddirplusArguments,
                       ReaddirplusArguments{root, 0, {}, 4096, 4096}),
        client_.Encode(Nfs::kFsstat, xdr_Handle, root),
        client_.Encode(Nfs::kFsinfo, xdr_Handle, root),
        client_.Encode(Nfs::kPathconf, xdr_Handle, root),
        client_.Encode(Nfs::kCommit, xdr_CommitArguments, CommitArguments{file, 0, 0}),
    };
  }

  void ExpectOutsideIntact() {
    EXPECT_EQ(ContentOf(client_.Outside("secret")), "secret");
    EXPECT_EQ(std::distance(fs::directory_iterator(client_.Outside("")), {}), 1);
  }

  TestClient client_;
  FileHandle root_, file_;
};

// The word of the accept_stat.
constexpr size_t kHeadBytes = 40;
constexpr uint32_t kGarbageArgs = 4;

TEST_F(Truncated, CallsAreGarbageAtEveryWord) {
  for (const auto& call : Calls()) {
    EXPECT_EQ(Answered(client_.service().Answer(call)).accept(), 0u);
    for (size_t bytes = kHeadBytes; bytes < call.size(); bytes += 4) {
      const Answered answered(client_.service().Answer(std::span(call).first(bytes)));
      EXPECT_EQ(answered.accept(), kGarbageArgs)
          << std::to_integer<int>(call[23]) << " with " << bytes << " bytes";
    }
  }
  ExpectOutsideIntact();
}

TEST_F(Truncated, CallsWithRandomWordsAreAnswered) {
  std::minstd_rand random(7);
  const auto calls = Calls();
  for (int round = 0; round < 300; ++round) {
    for (auto call : calls) {
      // The head stays, and one or two words change: to a small number, a large one, or at random.
      for (int change = 0; change < 1 + round % 2; ++change) {
        const size_t word = kHeadBytes / 4 + random() % ((call.size() - kHeadBytes) / 4);
        const uint32_t values[] = {static_cast<uint32_t>(random() % 70),
                                   0xffffffff - static_cast<uint32_t>(random() % 9),
                                   static_cast<uint32_t>(random())};
        const auto bytes = Words({values[random() % 3]});
        std::copy(bytes.begin(), bytes.end(), call.begin() + static_cast<ptrdiff_t>(4 * word));
      }
      const RpcReply reply = client_.service().Answer(call);
      EXPECT_FALSE(reply.drop);
      EXPECT_EQ(reply.message.size() % 4, 0u);
      EXPECT_LE(reply.bulk_offset + reply.bulk_length, reply.message.size());
    }
  }
  ExpectOutsideIntact();
}

}  // namespace
}  // namespace rpcrdma
