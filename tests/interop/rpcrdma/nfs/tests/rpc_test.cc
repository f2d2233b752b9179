// The head of RPC calls: what is answered, refused and dropped (RFC 5531).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

namespace rpcrdma {
namespace {

using ::testing::ElementsAreArray;

enum Accept : uint32_t { kSuccess, kProgUnavail, kProgMismatch, kProcUnavail, kGarbageArgs };

class Rpc : public ::testing::Test {
 protected:
  RpcReply Answer(const std::vector<std::byte>& call) { return client_.service().Answer(call); }
  const NfsCounters& counters() { return client_.service().counters(); }

  TestClient client_;
};

TEST_F(Rpc, AnswersNullOfBothPrograms) {
  for (const uint32_t program : {100003u, 100005u}) {
    const RpcReply reply = Answer(HeadOf({.xid = 77, .program = program}));
    EXPECT_FALSE(reply.drop);
    EXPECT_THAT(reply.message, ElementsAreArray(Words({77, 1, 0, 0, 0, kSuccess})));
    EXPECT_EQ(reply.bulk_length, 0u);
  }
}

TEST_F(Rpc, NamesTheRpcVersionThatItHas) {
  for (const uint32_t version : {0u, 1u, 3u, 0xffffffffu}) {
    EXPECT_THAT(Answer(HeadOf({.xid = 5, .rpc_version = version})).message,
                ElementsAreArray(Words({5, 1, 1, 0, 2, 2})));
  }
  EXPECT_EQ(counters().rpc_version_mismatch, 4u);
}

TEST_F(Rpc, RefusesUnknownPrograms) {
  EXPECT_THAT(Answer(HeadOf({.program = 100021})).message,
              ElementsAreArray(Words({1, 1, 0, 0, 0, kProgUnavail})));
  EXPECT_EQ(counters().no_such_program, 1u);
}

TEST_F(Rpc, NamesTheProgramVersionsThatItHas) {
  for (const uint32_t program : {100003u, 100005u}) {
    for (const uint32_t version : {0u, 2u, 4u}) {
      EXPECT_THAT(Answer(HeadOf({.program = program, .version = version})).message,
                  ElementsAreArray(Words({1, 1, 0, 0, 0, kProgMismatch, 3, 3})));
    }
  }
  EXPECT_EQ(counters().program_version_mismatch, 6u);
}

TEST_F(Rpc, RefusesUnknownProcedures) {
  for (const uint32_t procedure : {kNfsProcedures, 0xffffffffu}) {
    EXPECT_THAT(Answer(HeadOf({.procedure = procedure})).message,
                ElementsAreArray(Words({1, 1, 0, 0, 0, kProcUnavail})));
  }
  EXPECT_THAT(Answer(HeadOf({.program = 100005, .procedure = 6})).message,
              ElementsAreArray(Words({1, 1, 0, 0, 0, kProcUnavail})));
  EXPECT_EQ(counters().no_such_procedure, 3u);
}

TEST_F(Rpc, RefusesMissingArguments) {
  for (uint32_t procedure = 1; procedure < kNfsProcedures; ++procedure) {
    EXPECT_THAT(Answer(HeadOf({.procedure = procedure})).message,
                ElementsAreArray(Words({1, 1, 0, 0, 0, kGarbageArgs})));
  }
  EXPECT_EQ(counters().garbage_arguments, kNfsProcedures - 1);
}

TEST_F(Rpc, DropsWhatIsNoCall) {
  const auto call = HeadOf({});
  // (A length that is no multiple of four is taken for missing padding.)
  for (size_t bytes = 0; bytes < 24; bytes += 4) {
    EXPECT_TRUE(Answer({call.begin(), call.begin() + static_cast<ptrdiff_t>(bytes)}).drop) << bytes;
  }
  EXPECT_TRUE(Answer(HeadOf({.direction = 1})).drop);
  EXPECT_TRUE(Answer(HeadOf({.direction = 2})).drop);
  EXPECT_EQ(counters().not_a_call, 8u);
}

// The start of a NULL call, up to the credential.
std::vector<std::byte> WithAuth(std::initializer_list<uint32_t> auth) {
  auto call = Words({1, 0, 2, 100003, 3, 0});
  const auto words = Words(auth);
  call.insert(call.end(), words.begin(), words.end());
  return call;
}

TEST_F(Rpc, TakesAuthSys) {
  // Stamp, machine "box", user, group, two more groups; an empty verifier.
  const auto call = WithAuth({1, 32, 9, 3, 0x626f7800, 1000, 1000, 2, 4, 24, 0, 0});
  EXPECT_THAT(Answer(call).message, ElementsAreArray(Words({1, 1, 0, 0, 0, kSuccess})));
}

TEST_F(Rpc, RefusesBadCredentials) {
  const std::vector<std::vector<std::byte>> calls{
      WithAuth({6, 0, 0, 0}),                         // RPCSEC_GSS
      WithAuth({0xffffffff, 0, 0, 0}),                // no flavor
      WithAuth({1, 0, 0, 0}),                         // AUTH_SYS without a body
      WithAuth({1, 20, 9, 256, 0, 0, 0, 0, 0}),       // machine name too long
      WithAuth({1, 20, 9, 0, 1000, 1000, 17, 0, 0}),  // too many groups
      WithAuth({1, 20, 9, 0, 1000, 1000, 1, 0, 0}),   // fewer groups than it says
      WithAuth({0, 401, 0, 0}),                       // longer than RFC 5531 allows
      WithAuth({0, 0xffffffff, 0, 0}),
      WithAuth({0, 0}),  // without a verifier
  };
  for (const auto& call : calls) {
    EXPECT_THAT(Answer(call).message, ElementsAreArray(Words({1, 1, 1, 1, 1})))
        << &call - calls.data();
  }
  EXPECT_EQ(counters().bad_credential, calls.size());
}

TEST_F(Rpc, AnswersARepeatedCallAsTheFirstTime) {
  Put(client_.PathOf("file"), "data");
  const auto call = client_.Encode(Nfs::kRemove, xdr_Entry, ToEntry(client_.Root(), "file"));
  const auto first = Answer(call).message, again = Answer(call).message;
  EXPECT_EQ(Answered(RpcReply{first}).TakeStatus(), Status::kOk);
  EXPECT_EQ(first, again);
  EXPECT_EQ(counters().repeated, 1u);
  // The next transaction is another call.
  Answered other = client_.Call(Nfs::kRemove, xdr_Entry, ToEntry(client_.Root(), "file"));
  EXPECT_EQ(other.TakeStatus(), Status::kNoEntry);
}

TEST_F(Rpc, TakesDataWithoutPadding) {
  FileHandle file;
  ASSERT_EQ(client_.Create(client_.Root(), "file", &file), Status::kOk);
  auto call = client_.Encode(Nfs::kWrite, xdr_WriteHead,
                             WriteHead{ToHandle(file), 0, 5, NFS3_UNSTABLE, 5}, "bytes");
  call.resize(call.size() - 3);
  EXPECT_EQ(Answered(Answer(call)).TakeStatus(), Status::kOk);
  EXPECT_EQ(ContentOf(client_.PathOf("file")), "bytes");
}

TEST(ReplyCache, ForgetsByAgeAndNumber) {
  ReplyCache cache{SipKey{}};
  const ReplyCache::Clock::time_point start{};
  const ReplyCache::Bytes reply(8);
  for (uint32_t i = 0; i < 2 * ReplyCache::kMaxReplies; ++i) {
    const auto call = Words({i});
    EXPECT_EQ(cache.Find(call, start), nullptr);
    cache.Keep(call, reply, start);
  }
  const auto last = Words({2 * ReplyCache::kMaxReplies - 1});
  EXPECT_EQ(cache.Find(Words({0}), start), nullptr);
  EXPECT_NE(cache.Find(last, start), nullptr);
  EXPECT_EQ(cache.Find(last, start + ReplyCache::kLifetime), nullptr);
}

}  // namespace
}  // namespace rpcrdma
