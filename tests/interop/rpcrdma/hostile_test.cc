// What neither end may fall for: headers, chunks, keys and replies that a correct peer does not
// send. After each, the server serves on.
#include <initializer_list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/interop/rpcrdma/private_data.h"
#include "tests/interop/rpcrdma/raw_peer.h"
#include "tests/interop/rpcrdma/served.h"

namespace rpcrdma {
namespace {

using Bytes = std::vector<std::byte>;

Bytes Words(std::initializer_list<uint32_t> words) {
  Bytes bytes;
  for (const uint32_t word : words) AppendWord(bytes, word);
  return bytes;
}

Bytes Message(const Header& header, const Bytes& payload) {
  Bytes message(EncodedLength(header));
  EncodeHeader(header, message);
  message.insert(message.end(), payload.begin(), payload.end());
  return message;
}

Bytes Call(uint32_t xid, TestProcedure procedure, std::initializer_list<uint32_t> arguments = {}) {
  Bytes call = EncodeRpcCall({xid, kTestProgram, kTestVersion, static_cast<uint32_t>(procedure)});
  for (const uint32_t word : arguments) AppendWord(call, word);
  return call;
}

constexpr uint32_t kXid = 0x5001;

Header CallHeader(uint32_t credits = 8) {
  Header header;
  header.xid = kXid;
  header.credits = credits;
  return header;
}

class HostileClient : public ::testing::Test {
 protected:
  HostileClient() : peer_(std::make_unique<RawPeer>(kServerAddress, served_.port())) {}

  // A reply's header, and its payload.
  struct Reply {
    Header header;
    Bytes payload;
    uint32_t invalidated_key = 0;
  };
  Reply Exchange(const Bytes& message) {
    Reply reply;
    EXPECT_EQ(peer_->Send(message), IBV_WC_SUCCESS);
    const auto received = peer_->Receive();
    EXPECT_TRUE(received) << "no reply";
    if (!received) return reply;
    size_t length = 0;
    EXPECT_EQ(DecodeHeader(received->message, {}, reply.header, length), HeaderFault::kNone);
    reply.payload.assign(received->message.begin() + static_cast<ptrdiff_t>(length),
                         received->message.end());
    reply.invalidated_key = received->invalidated_key;
    return reply;
  }

  void ExpectNullCallWorks() {
    const Reply reply = Exchange(Message(CallHeader(), Call(kXid, TestProcedure::kNull)));
    EXPECT_EQ(reply.header.procedure, Procedure::kMsg);
    EXPECT_EQ(reply.payload, EncodeRpcReply(kXid, AcceptStatus::kSuccess));
  }
  // The message is answered by ERR_CHUNK for its XID, and the connection goes on.
  void ExpectChunkError(const Bytes& message) {
    const uint64_t before = served_.counters().chunk_errors.value();
    const Reply reply = Exchange(message);
    EXPECT_EQ(reply.header.procedure, Procedure::kError);
    EXPECT_EQ(reply.header.error, ErrorCode::kChunk);
    EXPECT_EQ(reply.header.xid, kXid);
    EXPECT_EQ(served_.counters().chunk_errors.value(), before + 1);
    ExpectNullCallWorks();
  }
  // The connection ends; a new one works.
  void ExpectClosed(CloseReason reason) {
    EXPECT_FALSE(peer_->Receive());
    EXPECT_TRUE(Served::WaitUntil([&] { return Closed(reason) == 1; })) << Name(reason);
    peer_ = std::make_unique<RawPeer>(kServerAddress, served_.port());
    ExpectNullCallWorks();
  }
  uint64_t Closed(CloseReason reason) const {
    return served_.counters().closed[static_cast<size_t>(reason)].value();
  }
  uint64_t Rejected(HeaderFault fault) const {
    return served_.counters().header_faults[static_cast<size_t>(fault)].value();
  }
  uint64_t Rejected(CallFault fault) const {
    return served_.counters().call_faults[static_cast<size_t>(fault)].value();
  }
  uint64_t Undelivered(ReplyFault fault) const {
    return served_.counters().reply_faults[static_cast<size_t>(fault)].value();
  }
  Segment Own(uint32_t length, uint64_t offset = 0) const {
    return {peer_->rkey(), length, peer_->address() + offset};
  }

  Served served_;
  std::unique_ptr<RawPeer> peer_;
};

TEST_F(HostileClient, OtherVersionsAreToldTheRange) {
  for (const uint32_t version : {0u, 2u, 0xFFFF'FFFFu}) {
    const Reply reply = Exchange(Words({kXid, version, 8, 0, 0, 0, 0}));
    EXPECT_EQ(reply.header.procedure, Procedure::kError);
    EXPECT_EQ(reply.header.error, ErrorCode::kVersion);
    EXPECT_EQ(reply.header.xid, kXid);
    EXPECT_EQ(reply.header.lowest_version, 1u);
    EXPECT_EQ(reply.header.highest_version, 1u);
  }
  EXPECT_EQ(served_.counters().version_errors.value(), 3u);
  EXPECT_EQ(Rejected(HeaderFault::kOtherVersion), 3u);
  ExpectNullCallWorks();
}

// Not even their XID can be trusted (RFC 8166, section 4.5): they get no answer, and their receive
// buffers are posted again.
TEST_F(HostileClient, MessagesShorterThanAHeaderAreIgnored) {
  const Bytes whole = Words({kXid, 2, 8, 0, 0, 0, 0});
  for (size_t length = 0; length < whole.size(); ++length) {
    for (int i = 0; i < 5; ++i) {
      const Bytes part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
      ASSERT_EQ(peer_->Send(part), IBV_WC_SUCCESS) << length;
    }
  }
  ExpectNullCallWorks();
  EXPECT_EQ(served_.counters().short_messages.value(), 5 * whole.size());
  EXPECT_EQ(served_.counters().version_errors.value(), 0u);
}

TEST_F(HostileClient, TruncatedLists) {
  const Bytes whole = [this] {
    Header header = CallHeader();
    header.reads = {{40, Own(8)}, {40, Own(8, 8)}};
    header.writes = {{Own(8, 16)}, {Own(8, 24), Own(8, 32)}};
    header.reply = Chunk{Own(8, 40)};
    return Message(header, {});
  }();
  size_t count = 0;
  for (size_t length = kEmptyHeaderBytes; length < whole.size(); length += 4, ++count) {
    ExpectChunkError({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)});
  }
  EXPECT_EQ(Rejected(HeaderFault::kTruncated), count);
  EXPECT_EQ(served_.counters().reads.value(), 0u);
}

TEST_F(HostileClient, HugeCounts) {
  ExpectChunkError(Words({kXid, 1, 8, 0, 0, 1, 0xFFFF'FFFF, 0, 0, 0, 0}));
  ExpectChunkError(Words({kXid, 1, 8, 0, 0, 0, 1, 0x1000'0001}));
  EXPECT_EQ(Rejected(HeaderFault::kTooManySegments), 2u);
  Header header = CallHeader();
  header.reads.assign(129, {40, Own(4)});
  ExpectChunkError(Message(header, Call(kXid, TestProcedure::kNull)));
  EXPECT_EQ(Rejected(HeaderFault::kTooManySegments), 3u);
  header = CallHeader();
  header.writes.resize(17);
  ExpectChunkError(Message(header, Call(kXid, TestProcedure::kNull)));
  EXPECT_EQ(Rejected(HeaderFault::kTooManyChunks), 1u);
}

TEST_F(HostileClient, HugeLengths) {
  Header header = CallHeader();
  header.reads.assign(8, {40, {peer_->rkey(), 0xFFFF'FFFF, peer_->address()}});
  ExpectChunkError(Message(header, Call(kXid, TestProcedure::kPut, {1})));
  EXPECT_EQ(Rejected(HeaderFault::kChunkTooLong), 1u);
  header.reads.assign(2, {40, Own(1 << 20)});
  ExpectChunkError(Message(header, Call(kXid, TestProcedure::kPut, {1})));
  EXPECT_EQ(Rejected(CallFault::kTooLong), 1u);
  header.reads = {{40, {peer_->rkey(), 100, 0xFFFF'FFFF'FFFF'FFF0}}};
  ExpectChunkError(Message(header, Call(kXid, TestProcedure::kPut, {1})));
  EXPECT_EQ(Rejected(HeaderFault::kSegmentWraps), 1u);
}

TEST_F(HostileClient, Positions) {
  const Bytes call = Call(kXid, TestProcedure::kPut, {1, 100});
  const auto with = [&](std::vector<ReadSegment> reads) {
    Header header = CallHeader();
    header.reads = std::move(reads);
    return Message(header, call);
  };
  ExpectChunkError(with({{0, Own(100)}}));
  ExpectChunkError(with({{46, Own(100)}}));
  ExpectChunkError(with({{52, Own(100)}}));
  ExpectChunkError(with({{0xFFFF'FFFC, Own(100)}}));
  ExpectChunkError(with({{40, Own(100)}, {48, Own(100)}}));
  EXPECT_EQ(Rejected(CallFault::kPositionZeroInMsg), 1u);
  EXPECT_EQ(Rejected(CallFault::kUnalignedPosition), 1u);
  EXPECT_EQ(Rejected(CallFault::kPositionBeyondEnd), 2u);
  EXPECT_EQ(Rejected(CallFault::kPositionInChunk), 1u);
}

TEST_F(HostileClient, LongCallsWithoutTheirChunk) {
  Header header = CallHeader();
  header.procedure = Procedure::kNomsg;
  ExpectChunkError(Message(header, {}));
  header.reads = {{0, Own(40)}};
  ExpectChunkError(Message(header, Call(kXid, TestProcedure::kNull)));
  EXPECT_EQ(Rejected(CallFault::kNoPositionZero), 1u);
  EXPECT_EQ(Rejected(CallFault::kPayloadInNomsg), 1u);
}

TEST_F(HostileClient, WrongKeysEndTheConnection) {
  Header header = CallHeader();
  header.reads = {{48, {peer_->rkey() ^ 0x5A5A00, 100, peer_->address()}}};
  peer_->Send(Message(header, Call(kXid, TestProcedure::kPut, {1, 100})));
  ExpectClosed(CloseReason::kWorkRequestFailed);
}

TEST_F(HostileClient, SegmentsBeyondTheRegionEndTheConnection) {
  Header header = CallHeader();
  header.writes = {{{peer_->rkey(), 50'000, peer_->address() + (1 << 20) - 49'999}}};
  peer_->Send(Message(header, Call(kXid, TestProcedure::kGet, {50'000, 1})));
  ExpectClosed(CloseReason::kWorkRequestFailed);
}

TEST_F(HostileClient, ChunksTooShortForTheReply) {
  Header header = CallHeader();
  header.writes = {{Own(9'999)}};
  ExpectChunkError(Message(header, Call(kXid, TestProcedure::kGet, {10'000, 1})));
  header = CallHeader();
  header.reply = Chunk{Own(10'027)};
  ExpectChunkError(Message(header, Call(kXid, TestProcedure::kList, {10'000, 1})));
  ExpectChunkError(Message(CallHeader(), Call(kXid, TestProcedure::kList, {10'000, 1})));
  EXPECT_EQ(Undelivered(ReplyFault::kWriteChunkTooShort), 1u);
  EXPECT_EQ(Undelivered(ReplyFault::kReplyChunkTooShort), 1u);
  EXPECT_EQ(Undelivered(ReplyFault::kTooLongForInline), 1u);
}

TEST_F(HostileClient, Credits) {
  for (const auto& [asked, granted] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 1}, {7, 7}, {0xFFFF'FFFF, 64}}) {
    const Reply reply = Exchange(Message(CallHeader(asked), Call(kXid, TestProcedure::kNull)));
    EXPECT_EQ(reply.header.credits, granted);
    EXPECT_EQ(reply.header.procedure, Procedure::kMsg);
  }
}

// More calls than credits: the receives that were posted serve them, and no call is lost.
TEST_F(HostileClient, CallsThatDoNotWaitForReplies) {
  const Bytes message = Message(CallHeader(), Call(kXid, TestProcedure::kNull));
  for (int i = 0; i < 500; ++i) ASSERT_EQ(peer_->Send(message), IBV_WC_SUCCESS) << i;
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(peer_->Receive()) << i;
}

TEST_F(HostileClient, XidsThatDiffer) {
  ExpectChunkError(Message(CallHeader(), Call(kXid + 1, TestProcedure::kNull)));
  ExpectChunkError(Message(CallHeader(), {}));
  EXPECT_EQ(served_.counters().wrong_xids.value(), 2u);
}

TEST_F(HostileClient, ProceduresBeyondTheRfc) {
  ExpectChunkError(Words({kXid, 1, 8, 2, 64, 0, 0, 0, 0}));
  ExpectChunkError(Words({kXid, 1, 8, 77, 0, 0, 0}));
  EXPECT_EQ(Rejected(HeaderFault::kWithdrawnProcedure), 1u);
  EXPECT_EQ(Rejected(HeaderFault::kUnknownProcedure), 1u);
}

TEST_F(HostileClient, ErrorsOfOtherVersionsAreIgnored) {
  for (const uint32_t version : {0u, 2u}) {
    ASSERT_EQ(peer_->Send(Words({kXid, version, 8, 4, 1, 2, 2})), IBV_WC_SUCCESS);
  }
  ExpectNullCallWorks();
  EXPECT_EQ(served_.counters().version_errors.value(), 0u);
  EXPECT_EQ(Rejected(HeaderFault::kOtherVersion), 2u);
}

// They get no answer, and their receive buffers are posted again.
TEST_F(HostileClient, ErrorsAndDonesAreIgnored) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(peer_->Send(Words({kXid, 1, 8, 3, 0, 0, 0})), IBV_WC_SUCCESS);
    ASSERT_EQ(peer_->Send(Words({kXid, 1, 8, 4, 2, 0, 0})), IBV_WC_SUCCESS);
    ASSERT_EQ(peer_->Send(Words({kXid, 1, 8, 4, 99, 0, 0})), IBV_WC_SUCCESS);
  }
  ExpectNullCallWorks();
  EXPECT_EQ(served_.counters().ignored_messages.value(), 200u);
  EXPECT_EQ(Rejected(HeaderFault::kUnknownError), 100u);
}

TEST_F(HostileClient, MessagesThatAreNoCalls) {
  peer_->Send(Message(CallHeader(), Words({kXid, 1, 2, 3})));
  ExpectClosed(CloseReason::kServiceDropped);
}

TEST_F(HostileClient, MessagesLongerThanAReceiveBuffer) {
  EXPECT_NE(peer_->Send(Bytes(5000)), IBV_WC_SUCCESS);
  ExpectClosed(CloseReason::kWorkRequestFailed);
}

TEST_F(HostileClient, BreaksWhileItsChunkIsRead) {
  Header header = CallHeader();
  header.reads = {{48, Own(1 << 20)}};
  EXPECT_EQ(peer_->Send(Message(header, Call(kXid, TestProcedure::kPut, {1, 1 << 20}))),
            IBV_WC_SUCCESS);
  peer_->Break();
  const auto has_replied = [this] { return served_.counters().replies.value() != 0; };
  Served::WaitUntil([&] { return served_.open_connections() == 0 || has_replied(); });
  // The READ was faster: an idle server notices nothing but the disconnection.
  if (has_replied()) peer_.reset();
  EXPECT_TRUE(served_.WaitForConnections(0));
  peer_ = std::make_unique<RawPeer>(kServerAddress, served_.port());
  ExpectNullCallWorks();
}

// A peer whose replies find no receive, and which retries for ever: it holds buffers for a while,
// and not longer by sending on.
TEST(StalledClient, IsClosed) {
  ServerOptions options = AnyPort();
  options.stall_limit_s = 2;
  Served served(options);
  RawPeer peer(kServerAddress, served.port(), {.receives = 1, .posts_again = false});
  const Bytes call = Message(CallHeader(), Call(kXid, TestProcedure::kNull));
  for (int i = 0; i < 5; ++i) ASSERT_EQ(peer.Send(call), IBV_WC_SUCCESS);
  while (served.open_connections() != 0) {
    peer.Send(Words({kXid, 1, 8, 3}));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(served.counters().closed[static_cast<size_t>(CloseReason::kStalled)].value(), 1u);
}

// Read chunks of a peer whose connection permits no READ.
TEST_F(HostileClient, NoResponderResources) {
  peer_ = std::make_unique<RawPeer>(kServerAddress, served_.port(),
                                    RawPeerOptions{.responder_resources = 0});
  Header header = CallHeader();
  header.reads = {{48, Own(100)}};
  ExpectChunkError(Message(header, Call(kXid, TestProcedure::kPut, {1, 100})));
  EXPECT_EQ(served_.counters().unreadable_chunks.value(), 1u);
}

// A peer that says nothing of itself gets 1 KiB inline, and no SEND with invalidate.
TEST_F(HostileClient, SilentPeersGetTheDefaults) {
  Header header = CallHeader();
  header.reply = Chunk{Own(4096)};
  Reply reply = Exchange(Message(header, Call(kXid, TestProcedure::kList, {960, 1})));
  EXPECT_EQ(reply.header.procedure, Procedure::kMsg);
  reply = Exchange(Message(header, Call(kXid, TestProcedure::kList, {1000, 1})));
  EXPECT_EQ(reply.header.procedure, Procedure::kNomsg);
  EXPECT_EQ(reply.invalidated_key, 0u);
  const auto own = DecodePrivateData(peer_->peer_data());
  ASSERT_TRUE(own);
  EXPECT_EQ(*own, (PrivateData{false, 4096, 4096}));
}

// As Linux does without RFC 8797: the chunk contains the round-up.
TEST_F(HostileClient, ReadChunkWithItsRoundUp) {
  for (uint32_t length = 97; length <= 100; ++length) {
    FillPattern(peer_->memory().first(length), length);
    for (const uint32_t chunk : {length, PaddedLength(length)}) {
      Header header = CallHeader();
      header.reads = {{48, Own(chunk)}};
      const Reply reply =
          Exchange(Message(header, Call(kXid, TestProcedure::kPut, {length, length})));
      Bytes expected = EncodeRpcReply(kXid, AcceptStatus::kSuccess);
      AppendWord(expected, 1);
      EXPECT_EQ(reply.payload, expected) << length << " " << chunk;
    }
  }
}

// ---- A server that does not what it should. The client must notice, and go on.

class HostileServer : public ::testing::Test {
 protected:
  explicit HostileServer(Registration registration = Registration::kRegions)
      : listener_(kServerAddress, 0) {
    ClientOptions options;
    options.registration = registration;
    options.address = kServerAddress;
    options.port = listener_.port();
    options.call_limit_ms = 3000;
    options.first_delay_ms = 1;
    options.most_delay_ms = 10;
    client_ = std::make_unique<Client>(options);
    calls_ = std::make_unique<TestCalls>(*client_, 100'000);
    Connect();
  }

  // The client's steps run on a thread of their own while this one takes the request.
  void Connect() {
    const uint64_t target = ++connections_;
    std::thread progress([this, target] {
      for (int i = 0; i < 300 && client_->counters().connections < target; ++i) {
        client_->Progress(100);
      }
    });
    server_.reset();
    server_ = std::make_unique<RawPeer>(listener_.channel(), RawPeerOptions{});
    progress.join();
    ASSERT_TRUE(client_->is_connected());
  }
  // Sends the prepared call; the header that arrives.
  Header TakeCall() {
    EXPECT_EQ(client_->Send(calls_->request()), SendResult::kSent);
    return ReceiveCall();
  }
  Header ReceiveCall() {
    Header header;
    size_t length = 0;
    const auto received = server_->Receive();
    EXPECT_TRUE(received);
    if (received) {
      EXPECT_EQ(DecodeHeader(received->message, {}, header, length), HeaderFault::kNone);
    }
    return header;
  }
  CallStatus Answer(const Bytes& message, int timeout_ms = 20'000) {
    EXPECT_EQ(server_->Send(message), IBV_WC_SUCCESS);
    for (int i = 0; i < timeout_ms && calls_->request().status() == CallStatus::kPending; ++i) {
      client_->Progress(1);
    }
    return calls_->request().status();
  }
  // The usual reply's header.
  static Header ReplyTo(const Header& call) {
    Header reply;
    reply.xid = call.xid;
    reply.credits = 8;
    return reply;
  }
  static Bytes Success(const Header& call) {
    return EncodeRpcReply(call.xid, AcceptStatus::kSuccess);
  }
  void ExpectNullCallWorks() {
    calls_->Begin(TestProcedure::kNull);
    const Header call = TakeCall();
    EXPECT_EQ(Answer(Message(ReplyTo(call), Success(call))), CallStatus::kDone);
  }

  RawListener listener_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<TestCalls> calls_;
  std::unique_ptr<RawPeer> server_;
  uint64_t connections_ = 0;
};

TEST_F(HostileServer, GrantsOfNoneAndOfTooMany) {
  for (const auto& [granted, taken] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 1}, {5, 5}, {0xFFFF'FFFF, 32}}) {
    calls_->Begin(TestProcedure::kNull);
    const Header call = TakeCall();
    Header reply = ReplyTo(call);
    reply.credits = granted;
    EXPECT_EQ(Answer(Message(reply, Success(call))), CallStatus::kDone);
    EXPECT_EQ(client_->credits(), taken);
  }
}

TEST_F(HostileServer, RepliesToNoCall) {
  calls_->Begin(TestProcedure::kNull);
  const Header call = TakeCall();
  Header other = ReplyTo(call);
  other.xid = call.xid + 1;
  EXPECT_EQ(Answer(Message(other, Success(other)), 50), CallStatus::kPending);
  EXPECT_EQ(Answer(Words({call.xid, 1}), 50), CallStatus::kPending);
  EXPECT_EQ(client_->counters().unknown_replies, 2u);
  EXPECT_EQ(Answer(Message(ReplyTo(call), Success(call))), CallStatus::kDone);
  // The same reply once more.
  EXPECT_EQ(server_->Send(Message(ReplyTo(call), Success(call))), IBV_WC_SUCCESS);
  ExpectNullCallWorks();
  EXPECT_EQ(client_->counters().unknown_replies, 3u);
}

TEST_F(HostileServer, BadRepliesEndTheCallAlone) {
  const auto expect_bad = [this](const auto& make) {
    calls_->PrepareGet(50'000, 1);
    const Header call = TakeCall();
    ASSERT_EQ(call.writes.size(), 1u);
    EXPECT_EQ(Answer(make(call)), CallStatus::kBadReply);
    ExpectNullCallWorks();
  };
  expect_bad([](const Header& call) { return Words({call.xid, 2, 8, 0, 0, 0, 0}); });
  expect_bad([](const Header& call) { return Words({call.xid, 1, 8, 0, 0, 1, 0xFFFF'FFFF}); });
  expect_bad([](const Header& call) { return Words({call.xid, 1, 8, 0, 0, 0}); });
  expect_bad([](const Header& call) { return Words({call.xid, 1, 8, 4, 99}); });
  expect_bad([](const Header& call) { return Message(ReplyTo(call), {}); });
  expect_bad([](const Header& call) {
    return Message(ReplyTo(call), EncodeRpcReply(call.xid + 1, AcceptStatus::kSuccess));
  });
  expect_bad([](const Header& call) {  // more than was offered
    Header reply = ReplyTo(call);
    reply.writes = call.writes;
    ++reply.writes[0][0].length;
    return Message(reply, Success(call));
  });
  expect_bad([](const Header& call) {  // another segment
    Header reply = ReplyTo(call);
    reply.writes = call.writes;
    ++reply.writes[0][0].offset;
    return Message(reply, Success(call));
  });
  expect_bad([](const Header& call) {  // a chunk more
    Header reply = ReplyTo(call);
    reply.writes = {call.writes[0], call.writes[0]};
    return Message(reply, Success(call));
  });
  expect_bad([](const Header& call) {  // a Reply chunk that was not offered
    Header reply = ReplyTo(call);
    reply.procedure = Procedure::kNomsg;
    reply.reply = call.writes[0];
    return Message(reply, {});
  });
  expect_bad([](const Header& call) {  // NOMSG without one
    Header reply = ReplyTo(call);
    reply.procedure = Procedure::kNomsg;
    return Message(reply, {});
  });
  expect_bad([](const Header& call) {  // a Read list
    Header reply = ReplyTo(call);
    reply.reads = {{0, call.writes[0][0]}};
    return Message(reply, Success(call));
  });
  EXPECT_EQ(client_->counters().bad_replies, 12u);
  EXPECT_EQ(client_->counters().connections, 1u);
}

TEST_F(HostileServer, ErrorsEndTheCall) {
  for (const bool is_version : {true, false}) {
    calls_->Begin(TestProcedure::kNull);
    const Header call = TakeCall();
    const Header error = is_version ? VersionError(call.xid, 8) : ChunkError(call.xid, 8);
    EXPECT_EQ(Answer(Message(error, {})), CallStatus::kRemoteError);
  }
  EXPECT_EQ(client_->counters().remote_errors, 2u);
  ExpectNullCallWorks();
}

// A call without a reply: after its time limit it is sent again on a new connection, with its XID.
TEST_F(HostileServer, SilenceEndsTheConnection) {
  calls_->Begin(TestProcedure::kNull);
  const Header first = TakeCall();
  while (client_->counters().call_timeouts == 0) client_->Progress(1000);
  Connect();
  client_->Progress(1);
  const Header again = ReceiveCall();
  EXPECT_EQ(again.xid, first.xid);
  EXPECT_EQ(Answer(Message(ReplyTo(again), Success(again))), CallStatus::kDone);
  EXPECT_EQ(calls_->request().transmissions(), 2u);
}

class HostileServerOfWindows : public HostileServer {
 protected:
  HostileServerOfWindows() : HostileServer(Registration::kWindows) {}
};

// When a call is done, its memory is the caller's alone.
TEST_F(HostileServerOfWindows, KeysEndWithTheCall) {
  calls_->PrepareGet(50'000, 1);
  Header call = TakeCall();
  ASSERT_EQ(call.writes.size(), 1u);
  ASSERT_EQ(call.writes[0].size(), 1u);
  Segment& data = call.writes[0][0];
  const Bytes early(8, std::byte{'a'});
  EXPECT_EQ(server_->Write(early, data.offset, data.handle), IBV_WC_SUCCESS);
  Header reply = ReplyTo(call);
  data.length = 8;
  reply.writes = call.writes;
  EXPECT_EQ(Answer(Message(reply, Success(call))), CallStatus::kDone);
  EXPECT_EQ(client_->counters().local_invalidations, 1u);
  const Bytes late(8, std::byte{'b'});
  EXPECT_EQ(server_->Write(late, data.offset, data.handle), IBV_WC_REM_ACCESS_ERR);
  const auto held = calls_->request().data();
  EXPECT_EQ(Bytes(held.begin(), held.end()), early);
}

TEST_F(HostileServerOfWindows, WindowsCoverTheCallAlone) {
  calls_->PrepareGet(50'000, 1);
  const Header call = TakeCall();
  ASSERT_EQ(call.writes.size(), 1u);
  const Segment& data = call.writes[0][0];
  EXPECT_EQ(server_->Write(Bytes(8), data.offset + data.length - 4, data.handle),
            IBV_WC_REM_ACCESS_ERR);
}

TEST_F(HostileServer, Disconnects) {
  calls_->Begin(TestProcedure::kNull);
  const Header first = TakeCall();
  server_.reset();
  Connect();
  client_->Progress(1);
  const Header again = ReceiveCall();
  EXPECT_EQ(again.xid, first.xid);
  EXPECT_EQ(Answer(Message(ReplyTo(again), Success(again))), CallStatus::kDone);
}

}  // namespace
}  // namespace rpcrdma
