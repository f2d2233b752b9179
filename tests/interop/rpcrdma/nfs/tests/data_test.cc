// READ, WRITE, COMMIT, READLINK.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"
#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

namespace rpcrdma {
namespace {

namespace fs = std::filesystem;

std::string Pattern(size_t bytes) {
  std::string pattern(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<char>(i * 7 + i / 251);
  return pattern;
}

class Data : public ::testing::Test {
 protected:
  FileHandle File(std::string_view content) {
    Put(client_.PathOf("file"), content);
    return client_.At("file");
  }
  Status WriteStatus(WriteHead head, std::string_view data) {
    return client_.Call(Nfs::kWrite, xdr_WriteHead, head, data).TakeStatus();
  }

  TestClient client_;
};

TEST_F(Data, ReadsAnyPart) {
  const std::string content = Pattern(70001);
  const FileHandle file = File(content);
  for (const uint64_t offset : {0, 1, 4095, 65536, 70000, 70001, 70002}) {
    for (const uint32_t count : {0u, 1u, 2u, 3u, 4u, 4096u, 70001u, 200000u}) {
      bool end = false;
      const std::string wanted = offset > content.size() ? "" : content.substr(offset, count);
      EXPECT_EQ(client_.Read(file, offset, count, &end), wanted);
      EXPECT_EQ(end, offset + wanted.size() >= content.size()) << offset << " " << count;
    }
  }
}

TEST_F(Data, ReadsEmptyFiles) {
  bool end = false;
  EXPECT_EQ(client_.Read(File(""), 0, 4096, &end), "");
  EXPECT_TRUE(end);
}

TEST_F(Data, ReadsNoMoreThanItPromises) {
  const FileHandle file = File(Pattern(kMaxIoBytes + 5));
  bool end = true;
  EXPECT_EQ(client_.Read(file, 0, 0xffffffff, &end).size(), kMaxIoBytes);
  EXPECT_FALSE(end);
  EXPECT_EQ(client_.Read(file, 0xffffffffffffffff, 0xffffffff, &end), "");
  EXPECT_TRUE(end);
}

TEST_F(Data, BulkPartIsTheDataWithoutPadding) {
  Answered answered =
      client_.Call(Nfs::kRead, xdr_ReadArguments, ReadArguments{ToHandle(File("abcde")), 0, 100});
  const RpcReply& reply = answered.reply();
  EXPECT_EQ(answered.bulk(), "abcde");
  EXPECT_EQ(reply.bulk_offset + 8, reply.message.size());
  EXPECT_EQ(reply.message.back(), std::byte{0});
}

TEST_F(Data, BulkPartOfReadlinkIsThePath) {
  fs::create_symlink("../some/path", client_.PathOf("link"));
  Answered answered = client_.Call(Nfs::kReadlink, xdr_Handle, ToHandle(client_.At("link")));
  EXPECT_EQ(answered.TakeStatus(), Status::kOk);
  EXPECT_EQ(answered.bulk(), "../some/path");
  EXPECT_EQ(answered.results().Take(xdr_ReadlinkOk)->path.Path_len, 12u);
  EXPECT_EQ(client_.Call(Nfs::kReadlink, xdr_Handle, ToHandle(File(""))).TakeStatus(),
            Status::kInvalid);
  EXPECT_EQ(client_.Call(Nfs::kReadlink, xdr_Handle, ToHandle(client_.Root())).TakeStatus(),
            Status::kInvalid);
}

TEST_F(Data, FoldersHaveNone) {
  Answered read =
      client_.Call(Nfs::kRead, xdr_ReadArguments, ReadArguments{ToHandle(client_.Root()), 0, 100});
  EXPECT_EQ(read.TakeStatus(), Status::kIsFolder);
  EXPECT_TRUE(read.results().Take(xdr_PostAttributes)->follow);
  EXPECT_EQ(read.reply().bulk_length, 0u);
  EXPECT_EQ(client_.Write(client_.Root(), 0, "x"), Status::kIsFolder);
}

TEST_F(Data, WritesAnyPart) {
  const FileHandle file = File("0123456789");
  EXPECT_EQ(client_.Write(file, 3, "abc"), Status::kOk);
  EXPECT_EQ(client_.Write(file, 12, "end", NFS3_DATA_SYNC), Status::kOk);
  EXPECT_EQ(client_.Write(file, 0, "", NFS3_FILE_SYNC), Status::kOk);
  EXPECT_EQ(ContentOf(client_.PathOf("file")), std::string("012abc6789\0\0end", 15));
  const std::string large = Pattern(kMaxIoBytes);
  EXPECT_EQ(client_.Write(file, 1, large, NFS3_FILE_SYNC), Status::kOk);
  EXPECT_EQ(ContentOf(client_.PathOf("file")), "0" + large);
}

TEST_F(Data, WriteChecksItsNumbers) {
  const FileHandle handle = File("data");
  const Handle file = ToHandle(handle);
  EXPECT_EQ(WriteStatus({file, 0, 3, NFS3_UNSTABLE, 4}, "abcd"), Status::kInvalid);
  EXPECT_EQ(WriteStatus({file, 0, 4, 3, 4}, "abcd"), Status::kInvalid);
  EXPECT_EQ(WriteStatus({file, 0, 4, 0xffffffff, 4}, "abcd"), Status::kInvalid);
  for (const uint64_t offset : {uint64_t{1} << 63, ~uint64_t{0}, (uint64_t{1} << 63) - 3}) {
    EXPECT_EQ(WriteStatus({file, offset, 4, NFS3_UNSTABLE, 4}, "abcd"), Status::kTooBig);
  }
  EXPECT_EQ(ContentOf(client_.PathOf("file")), "data");
}

TEST_F(Data, WriteOfMoreBytesThanTheCallHasIsGarbage) {
  const FileHandle handle = File("data");
  const Handle file = ToHandle(handle);
  for (const u_int length : {5u, 0x7fffffffu, 0xffffffffu}) {
    const auto call = client_.Encode(Nfs::kWrite, xdr_WriteHead,
                                     WriteHead{file, 0, length, NFS3_UNSTABLE, length}, "abcd");
    EXPECT_EQ(Answered(client_.service().Answer(call)).accept(), 4u);
  }
  EXPECT_EQ(ContentOf(client_.PathOf("file")), "data");
}

std::string VerifierOf(Answered answered) {
  EXPECT_EQ(answered.TakeStatus(), Status::kOk);
  const auto ok = answered.results().Take(xdr_CommitOk);
  EXPECT_TRUE(ok && ok->wcc.before.follow && ok->wcc.after.follow);
  return {ok->verifier, sizeof ok->verifier};
}

TEST_F(Data, VerifierOfWritesChangesWithARestart) {
  const FileHandle handle = File("data");
  const Handle file = ToHandle(handle);
  const auto commit = [&] {
    return VerifierOf(client_.Call(Nfs::kCommit, xdr_CommitArguments, CommitArguments{file, 0, 0}));
  };
  const std::string first = commit();
  EXPECT_EQ(commit(), first);
  Answered write =
      client_.Call(Nfs::kWrite, xdr_WriteHead, WriteHead{file, 0, 0, NFS3_UNSTABLE, 0});
  EXPECT_EQ(write.TakeStatus(), Status::kOk);
  EXPECT_EQ(std::memcmp(write.results().Take(xdr_WriteOk)->verifier, first.data(), first.size()),
            0);
  client_.Restart();
  EXPECT_NE(commit(), first);
}

TEST_F(Data, WccTellsWhatAWriteChanges) {
  const FileHandle handle = File("data");
  const Handle file = ToHandle(handle);
  Answered answered =
      client_.Call(Nfs::kWrite, xdr_WriteHead, WriteHead{file, 4, 4, NFS3_UNSTABLE, 4}, "more");
  ASSERT_EQ(answered.TakeStatus(), Status::kOk);
  const auto ok = answered.results().Take(xdr_WriteOk);
  EXPECT_EQ(ok->wcc.before.PreAttributes_u.attributes.size, 4u);
  EXPECT_EQ(ok->wcc.after.PostAttributes_u.attributes.size, 8u);
}

}  // namespace
}  // namespace rpcrdma
