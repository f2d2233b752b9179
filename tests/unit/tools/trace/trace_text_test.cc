#include "tools/trace/trace_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "roce/headers.h"
#include "roce/opcode.h"
#include "tools/trace/trace_chrome.h"

namespace roci::tools {
namespace {

using dataplane::TraceKind;
using dataplane::TraceRecord;

constexpr uint64_t kStartNs = 5'000'000'000;

TraceRecord Record(TraceKind kind, uint64_t after_ns = 1'234'567) {
  TraceRecord record{};
  record.time_ns = kStartNs + after_ns;
  record.qpn = 18;
  record.kind = kind;
  return record;
}

TraceRecord Post(uint64_t wr_id, uint8_t opcode = 2, uint8_t flags = 2) {
  TraceRecord record = Record(TraceKind::kPost);
  record.post.wr_id = wr_id;
  record.post.opcode = opcode;
  record.post.flags = flags;
  record.post.length = 64;
  return record;
}

TraceRecord Completion(uint64_t wr_id, uint8_t status = 0, bool is_send = true) {
  TraceRecord record = Record(TraceKind::kCompletion, 2'000'000);
  record.completion.wr_id = wr_id;
  record.completion.status = status;
  record.completion.vendor_error = status;
  record.completion.is_send = is_send;
  record.completion.opcode = is_send ? 0 : 128;
  record.completion.byte_length = 64;
  return record;
}

TraceRecord Packet(roce::Opcode opcode, uint32_t psn, bool is_sent, uint16_t payload = 0) {
  TraceRecord record = Record(TraceKind::kPacket);
  roce::Bth bth;
  bth.opcode = opcode;
  bth.psn = roce::Psn(psn);
  bth.dest_qpn = roce::Qpn(20);
  bth.Store(record.packet.headers.data());
  record.packet.bytes = static_cast<uint16_t>(roce::InfoOf(opcode).header_bytes + payload + 4);
  record.packet.is_sent = is_sent;
  return record;
}

class TraceTextTest : public ::testing::Test {
 protected:
  std::string Line(const TraceRecord& record) {
    std::string out;
    text_.AppendLine(record, out);
    return out;
  }
  nlohmann::json Json(const TraceRecord& record) {
    std::string out;
    text_.AppendJson(record, out);
    return nlohmann::json::parse(out);
  }
  TraceText text_{{"roci0", "roci1"}, kStartNs};
};

TEST_F(TraceTextTest, PrintsPostsAndCompletions) {
  EXPECT_EQ(Line(Post(7)), "     0.001234 roci0/0x12     post SEND wr_id=7 len=64 signaled\n");
  EXPECT_EQ(Line(Post(UINT64_MAX, dataplane::TracePost::kReceive)),
            "     0.001234 roci0/0x12     post RECV wr_id=18446744073709551615 len=64\n");
  EXPECT_EQ(Line(Post(1, 77)),
            "     0.001234 roci0/0x12     post opcode_77 wr_id=1 len=64 signaled\n");
  EXPECT_EQ(Line(Completion(7)),
            "     0.002000 roci0/0x12     complete SEND wr_id=7 status=SUCCESS\n");
  EXPECT_EQ(
      Line(Completion(7, 12)),
      "     0.002000 roci0/0x12     complete SEND wr_id=7 status=RETRY_EXC_ERR vendor_err=0xc\n");
  EXPECT_EQ(Line(Completion(3, 0, false)),
            "     0.002000 roci0/0x12     complete RECV wr_id=3 status=SUCCESS len=64\n");
}

TEST_F(TraceTextTest, PrintsPackets) {
  EXPECT_EQ(Line(Packet(roce::Opcode::kRcSendOnly, 9, true, 64)),
            "     0.001234 roci0/0x12     -> RC_SEND_ONLY psn=9 len=64 to_qp=0x14\n");
  TraceRecord answer = Packet(roce::Opcode::kRcAcknowledge, 9, false);
  roce::Aeth::Ack(roce::Msn(3)).Store(answer.packet.headers.data() + roce::kBthBytes);
  EXPECT_EQ(Line(answer), "     0.001234 roci0/0x12     <- ACK psn=9 msn=3\n");
  roce::Aeth::Nak(roce::Msn(3), roce::NakCode::kPsnSequenceError)
      .Store(answer.packet.headers.data() + roce::kBthBytes);
  EXPECT_EQ(Line(answer),
            "     0.001234 roci0/0x12     <- NAK psn=9 msn=3 code=PSN_SEQUENCE_ERROR\n");
  roce::Aeth::RnrNak(roce::Msn(3), 4).Store(answer.packet.headers.data() + roce::kBthBytes);
  EXPECT_EQ(Line(answer), "     0.001234 roci0/0x12     <- RNR_NAK psn=9 msn=3 timer_us=40\n");
}

TEST_F(TraceTextTest, PrintsEveryOpcodeOfAnyLength) {
  for (uint32_t opcode = 0; opcode < 256; ++opcode) {
    for (const uint16_t bytes : {uint16_t{0}, uint16_t{12}, uint16_t{40}, uint16_t{4100}}) {
      TraceRecord packet = Packet(static_cast<roce::Opcode>(opcode), 1, false);
      packet.packet.bytes = bytes;
      EXPECT_FALSE(Line(packet).empty());
      EXPECT_EQ(Json(packet)["psn"], 1);
    }
  }
}

TEST_F(TraceTextTest, MarksRepeats) {
  constexpr auto kSend = roce::Opcode::kRcSendOnly;
  for (const uint32_t psn : {0xFFFFFEu, 0xFFFFFFu, 0u}) {
    EXPECT_FALSE(Json(Packet(kSend, psn, true)).contains("again")) << psn;
  }
  EXPECT_TRUE(Json(Packet(kSend, 0xFFFFFF, true)).contains("again"));
  EXPECT_FALSE(Json(Packet(kSend, 0xFFFFFF, false)).contains("again"));
  EXPECT_FALSE(Json(Packet(kSend, 1, true)).contains("again"));
  // After a new connection, PSNs begin anew.
  TraceRecord state = Record(TraceKind::kState);
  state.state.from = 2;
  state.state.to = 3;
  EXPECT_EQ(Line(state), "     0.001234 roci0/0x12     state RTR -> RTS\n");
  EXPECT_FALSE(Json(Packet(kSend, 0xFFFFFF, true)).contains("again"));
}

TEST_F(TraceTextTest, PrintsTimersEventsAndStates) {
  TraceRecord timer = Record(TraceKind::kTimer);
  timer.timer.retry = 3;
  timer.timer.most = 7;
  EXPECT_EQ(Line(timer), "     0.001234 roci0/0x12     timer retry 3 of 7\n");
  timer.timer.retry = 0;
  EXPECT_EQ(Line(timer), "     0.001234 roci0/0x12     timer retry none left of 7\n");
  TraceRecord event = Record(TraceKind::kEvent);
  event.event.type = 1;
  EXPECT_EQ(Line(event), "     0.001234 roci0/0x12     event QP_FATAL\n");
  event.event.type = 99;
  EXPECT_EQ(Json(event)["event"], "event_99");
  TraceRecord state = Record(TraceKind::kState);
  state.state.from = 6;
  state.state.to = dataplane::TraceState::kDestroyed;
  EXPECT_EQ(Line(state), "     0.001234 roci0/0x12     state ERR -> DESTROYED\n");
  TraceRecord lost = Record(TraceKind::kLost);
  lost.lost.records = 12;
  EXPECT_EQ(Line(lost), "     0.001234 12 records lost\n");
  EXPECT_EQ(Json(lost)["records"], 12);
}

TEST_F(TraceTextTest, ShowsTimesBeforeTheStartAsZero) {
  TraceRecord early = Post(1);
  early.time_ns = kStartNs - 1;
  EXPECT_EQ(Json(early)["time_ns"], 0);
}

TEST_F(TraceTextTest, WritesChromeTraces) {
  TraceChrome chrome(text_);
  std::string out;
  for (const uint64_t wr_id : {1, 2, 3}) chrome.Append(Post(wr_id), out);
  chrome.Append(Packet(roce::Opcode::kRcSendOnly, 9, true, 64), out);
  chrome.Append(Completion(2), out);  // the first was not signaled
  chrome.Append(Completion(77), out);
  chrome.Finish(out);
  const nlohmann::json events = nlohmann::json::parse(out);
  std::vector<uint64_t> begun, ended;
  for (const nlohmann::json& event : events) {
    if (event["ph"] == "b") begun.push_back(event["id"]);
    if (event["ph"] != "e") continue;
    ended.push_back(event["id"]);
    EXPECT_EQ(event["ts"], 2000.0);
  }
  EXPECT_EQ(begun, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(ended, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(events[1]["args"]["name"], "queue pair 18");
}

class TraceChromeTest : public TraceTextTest {
 protected:
  // Work requests that have begun, in their order, and those that have ended.
  std::vector<uint64_t> Ids(std::string_view phase) {
    std::vector<uint64_t> ids;
    for (const nlohmann::json& event : nlohmann::json::parse(out_ + "]")) {
      if (event["ph"] == phase) ids.push_back(event["id"]);
    }
    return ids;
  }
  void Append(const TraceRecord& record) { chrome_.Append(record, out_); }

  TraceChrome chrome_{text_};
  std::string out_;
};

constexpr uint8_t kUnsignaled = 0;

// As perftest posts: one wr_id for a queue pair, and each 100th request is signaled.
TEST_F(TraceChromeTest, TellsRequestsOfTheSameIdByTheirSignal) {
  for (const uint8_t flags : {kUnsignaled, kUnsignaled, uint8_t{2}, kUnsignaled, uint8_t{2}}) {
    Append(Post(0, 2, flags));
  }
  Append(Completion(0));
  EXPECT_EQ(Ids("e"), (std::vector<uint64_t>{1, 2, 3}));
  Append(Completion(0, 12));  // unsignaled requests complete with errors, too
  EXPECT_EQ(Ids("e"), (std::vector<uint64_t>{1, 2, 3, 4}));
  Append(Completion(0, 5));
  EXPECT_EQ(Ids("e"), Ids("b"));
}

TEST_F(TraceChromeTest, EndsRequestsWithTheConnection) {
  for (const uint8_t to : {uint8_t{0}, dataplane::TraceState::kDestroyed}) {
    Append(Post(1));
    Append(Post(2, dataplane::TracePost::kReceive));
    TraceRecord state = Record(TraceKind::kState);
    state.state.from = 3;
    state.state.to = 6;
    Append(state);
    EXPECT_EQ(Ids("b").size(), Ids("e").size() + 2);
    state.state.to = to;
    Append(state);
    EXPECT_EQ(Ids("b"), Ids("e"));
  }
}

TEST_F(TraceTextTest, WritesAnEmptyChromeTrace) {
  TraceChrome chrome(text_);
  std::string out;
  chrome.Finish(out);
  EXPECT_EQ(nlohmann::json::parse(out), nlohmann::json::array());
}

}  // namespace
}  // namespace roci::tools
