// The cache of the daemon's prefetched answers.
#include "verbs_provider/cm/cm_answer_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

namespace roci::provider {
namespace {

constexpr uint32_t kQuery = 19;
constexpr uint32_t kAttributes = 11;
constexpr uint64_t kNow = 5'000'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

// A response whose own answer has `own` bytes.
roci_abi_cm_response Response(uint32_t own = 12) {
  roci_abi_cm_response response = {};
  response.out_size = response.data_size = own;
  return response;
}

void Add(roci_abi_cm_response& response, uint32_t command, uint32_t id, uint32_t what,
         const std::vector<unsigned char>& bytes) {
  const roci_abi_cm_prefetched head = {command, id, what, static_cast<uint32_t>(bytes.size())};
  const size_t at = (size_t{response.data_size} + 7) & ~size_t{7};
  memcpy(response.data + at, &head, sizeof(head));
  memcpy(response.data + at + sizeof(head), bytes.data(), bytes.size());
  response.data_size = static_cast<uint32_t>(at + sizeof(head) + bytes.size());
}

std::vector<unsigned char> Bytes(unsigned char value, size_t size = 16) {
  return std::vector<unsigned char>(size, value);
}

// The first byte of the answer; -1 if there is none.
int Ask(CmAnswerCache& answers, uint32_t command, uint32_t id, uint32_t what, uint64_t now = kNow,
        size_t room = 64) {
  unsigned char bytes[64] = {};
  return answers.Find(command, id, what, now, bytes, room) ? bytes[0] : -1;
}

class CmAnswerCacheTest : public testing::Test {
 protected:
  void Insert(uint32_t id, uint32_t serial) {
    roci_abi_cm_response response = Response();
    Add(response, kQuery, id, 0, Bytes(1));
    Add(response, kQuery, id, 2, Bytes(2));
    Add(response, kAttributes, id, 2, Bytes(3, 24));
    answers_.Insert(response, serial, kNow);
  }
  CmAnswerCache answers_;
};

TEST_F(CmAnswerCacheTest, FindsAnswersByQuery) {
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), -1);
  Insert(7, 1);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), 1);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 2), 2);
  EXPECT_EQ(Ask(answers_, kAttributes, 7, 2), 3);
  EXPECT_EQ(Ask(answers_, kAttributes, 7, 0), -1);
  EXPECT_EQ(Ask(answers_, kQuery, 8, 0), -1);
  // Another identifier with the same slot.
  EXPECT_EQ(Ask(answers_, kQuery, 7 + 256, 0), -1);
  // Finding an answer does not remove it.
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), 1);
}

TEST_F(CmAnswerCacheTest, DoesNotFindAnAnswerLongerThanTheRoom) {
  Insert(7, 1);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0, kNow, 15), -1);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0, kNow, 16), 1);
}

TEST_F(CmAnswerCacheTest, ExpiresAnswersAfterASecond) {
  Insert(7, 1);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0, kNow + kSecond), 1);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0, kNow + kSecond + 1), -1);
}

TEST_F(CmAnswerCacheTest, RemovesAnswersWhenTheIdentifierChanges) {
  Insert(7, 1);
  Insert(8, 2);
  answers_.Invalidate(7, 3);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), -1);
  EXPECT_EQ(Ask(answers_, kQuery, 8, 0), 1);
  Insert(7, 4);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), 1);
  answers_.Remove(7);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), -1);
}

// Two threads: an answer to a request older than the other thread's change is not inserted after
// it.
TEST_F(CmAnswerCacheTest, IgnoresAnswersOlderThanTheChange) {
  answers_.Invalidate(7, 5);
  Insert(7, 4);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), -1);
  Insert(7, 6);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), 1);
  // Serial numbers wrap around.
  answers_.Invalidate(9, 0xFFFFFFF0);
  answers_.Invalidate(9, 2);
  Insert(9, 0xFFFFFFF8);
  EXPECT_EQ(Ask(answers_, kQuery, 9, 0), -1);
  Insert(9, 3);
  EXPECT_EQ(Ask(answers_, kQuery, 9, 0), 1);
}

TEST_F(CmAnswerCacheTest, ReplacesTheAnswersOfAnotherIdentifierInTheSlot) {
  Insert(7, 1);
  Insert(7 + 256, 2);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), -1);
  EXPECT_EQ(Ask(answers_, kQuery, 7 + 256, 0), 1);
}

TEST_F(CmAnswerCacheTest, IgnoresMissingAndMalformedAnswers) {
  answers_.Insert(Response(), 1, kNow);
  roci_abi_cm_response response = Response(ROCI_ABI_CM_ANSWERS_MAX);
  answers_.Insert(response, 2, kNow);
  response.data_size = ~0u;
  answers_.Insert(response, 3, kNow);
  response.out_size = ~0u;
  answers_.Insert(response, 4, kNow);
  // An answer that claims to be longer than the message, alone and after another answer.
  response = Response();
  Add(response, kQuery, 7, 0, Bytes(1));
  response.data_size -= 8;
  answers_.Insert(response, 5, kNow);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), -1);
  response = Response();
  Add(response, kQuery, 7, 0, Bytes(1));
  Add(response, kQuery, 7, 1, Bytes(2));
  response.data_size -= 8;
  answers_.Insert(response, 6, kNow);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 0), 1);
  EXPECT_EQ(Ask(answers_, kQuery, 7, 1), -1);
}

}  // namespace
}  // namespace roci::provider
