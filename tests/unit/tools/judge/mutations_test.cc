// The judge against recorded captures: those as they are show no violation, and each of a table of
// changes is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "roce/headers.h"
#include "tests/source_paths.h"
#include "tests/unit/tools/judge/captured.h"
#include "tools/judge/report.h"

namespace roci::tools::judge {
namespace {

using roce::Opcode;
using testing::Contains;
using testing::IsSubsetOf;
using testing::Not;

constexpr char kNics[] = "nic-to-nic.pcap";
constexpr char kSend[] = "rxe/vec-rc_send-v4-mtu1024.pcap";
constexpr char kWrite[] = "rxe/vec-rc_write-v4-mtu1024.pcap";
constexpr char kRead[] = "rxe/vec-rc_read-v4-mtu1024.pcap";
constexpr char kAtomic[] = "rxe/vec-rc_atomic-v4.pcap";
constexpr char kRnr[] = "rxe/vec-rnr-v4.pcap";
constexpr char kUc[] = "rxe/vec-uc_send-v4-mtu1024.pcap";
constexpr char kCm[] = "rxe/rping-v4.pcap";

std::string AllText(const Judge& judge) {
  std::string out;
  for (const Finding& finding : judge.findings().list()) out += FindingText(finding) + "\n";
  return out;
}

// ---- Captures as they are ----

TEST(JudgeOfRecordedCaptures, FindsNoViolationBetweenTwoNics) {
  Judge judge;
  JudgeAll(LoadVector(kNics), judge);
  // ConnectX sets a reserved bit and uses low source ports.
  EXPECT_THAT(NamesOf(judge), testing::ElementsAre("reserved_bits", "source_port_range"))
      << AllText(judge);
  EXPECT_EQ(judge.totals().roce, 105u);
  const Flow& flow = judge.flows().flows().front();
  ASSERT_NE(flow.peer, nullptr);
  EXPECT_EQ(flow.peer->mtu, 1024u);
  EXPECT_EQ(flow.peer->totals.messages, 34u);
  EXPECT_EQ(flow.peer->totals.missing + flow.peer->totals.repeated, 0u);
  EXPECT_GT(flow.peer->totals.rtt.count(), 20u);
}

// Each capture of soft-RoCE: only what is known to differ.
TEST(JudgeOfRecordedCaptures, FindsOnlyKnownDeviationsOfSoftRoce) {
  const std::vector<std::string> known = {"mig_req", "ack_req_unreliable", "nak_after_rnr",
                                          "ack_missing?"};
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(VectorDir() + "/rxe")) {
    if (entry.path().extension() != ".pcap") continue;
    ++files;
    Judge judge;
    JudgeAll(LoadVector("rxe/" + entry.path().filename().string()), judge);
    EXPECT_THAT(NamesOf(judge), IsSubsetOf(known)) << entry.path() << "\n" << AllText(judge);
    EXPECT_THAT(NamesOf(judge), Contains("mig_req")) << entry.path();
  }
  EXPECT_GT(files, 30u);
}

// ---- Broken captures ----

struct Broken {
  const char* name;
  const char* vector;
  const char* rule;  // "?": unsure
  void (*change)(Frames& frames);
};

void Erase(Frames& frames, size_t index) {
  frames.erase(frames.begin() + static_cast<ptrdiff_t>(index));
}

// Inserts a copy of a frame before the frame `before`, with its time.
Captured& Copy(Frames& frames, size_t from, size_t before) {
  Captured copy = frames[from];
  copy.time_ns =
      before < frames.size() ? frames[before].time_ns : frames.back().time_ns + 1'000'000;
  return *frames.insert(frames.begin() + static_cast<ptrdiff_t>(before), std::move(copy));
}

void AddTo(Captured& frame, std::string_view field, uint64_t value) {
  SetField(frame, field, GetField(frame, field) + value);
}

// A CNP in the direction of the n-th frame with `opcode`, after it.
Captured& InsertCnp(Frames& frames, Opcode opcode, size_t n) {
  const size_t index = IndexOf(frames, opcode, n);
  Captured cnp = frames[index];
  constexpr size_t kBytes = 14 + 20 + 8 + 12 + 16 + 4;
  cnp.bytes.resize(kBytes);
  std::fill(cnp.bytes.begin() + 42 + 12, cnp.bytes.end(), std::byte{0});
  cnp.original_length = kBytes;
  roce::StoreBe<uint16_t>(cnp.ip() + 2, kBytes - 14);
  roce::StoreBe<uint16_t>(cnp.udp() + 4, kBytes - 34);
  *cnp.bth() = static_cast<std::byte>(Opcode::kCnp);
  cnp.bth()[1] = std::byte{0x40};
  SetField(cnp, "bth.becn", 1);
  SetField(cnp, "bth.psn", 0);
  return *frames.insert(frames.begin() + static_cast<ptrdiff_t>(index) + 1, std::move(cnp));
}

// A sequence NAK for the PSN that is `before` less than that of the frame at `index`.
Captured NakOf(Frames& frames, size_t index, uint64_t before) {
  size_t n = 0;
  const auto is_opposite = [&](Captured& ack) {
    return std::equal(ack.ip() + 12, ack.ip() + 16, frames[index].ip() + 16);
  };
  while (!is_opposite(FrameOf(frames, Opcode::kRcAcknowledge, n))) ++n;
  Captured nak = FrameOf(frames, Opcode::kRcAcknowledge, n);
  nak.time_ns = frames[index].time_ns;
  SetField(nak, "bth.psn", GetField(frames[index], "bth.psn") - before);
  SetField(nak, "aeth.syndrome", 0x60);
  return nak;
}

void MarkCongestion(Captured& frame) {
  frame.ip()[1] |= std::byte{3};
  Seal(frame);
}

const Broken kBroken[] = {
    // ---- Constants ----
    {"a flipped bit of the payload", kNics, "icrc",
     [](Frames& f) { FrameOf(f, Opcode::kRcSendFirst, 3).bytes[200] ^= std::byte{1}; }},
    {"a transport version", kNics, "transport_version",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcSendFirst, 3), "bth.tver", 1); }},
    {"a reserved opcode", kNics, "opcode",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcAcknowledge, 3), "bth.opcode", 0x1F); }},
    {"a pad count without a payload", kNics, "pad_count",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcAcknowledge, 3), "bth.padcnt", 2); }},
    {"headers that are cut", kNics, "headers",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcAcknowledge, 3), "bth.opcode", 0x13); }},
    {"a hop limit of 0", kNics, "hop_limit",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kRcSendFirst, 3);
       frame.ip()[8] = std::byte{0};
       Seal(frame);
     }},
    {"fragmentation allowed", kNics, "dont_fragment",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kRcSendFirst, 3);
       frame.ip()[6] = std::byte{0};
       Seal(frame);
     }},
    {"a fragment", kNics, "ip_fragment",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kRcSendFirst, 3);
       frame.ip()[6] = std::byte{0x20};
       Seal(frame);
     }},
    {"an IPv4 checksum", kNics, "ip_header",
     [](Frames& f) { FrameOf(f, Opcode::kRcSendFirst, 3).ip()[10] ^= std::byte{1}; }},
    {"a UDP length", kNics, "udp_length",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kRcSendFirst, 3);
       roce::StoreBe<uint16_t>(frame.udp() + 4, 100);
       Seal(frame);
     }},
    {"a UDP checksum", kSend, "udp_checksum",
     [](Frames& f) { FrameOf(f, Opcode::kRcSendOnly, 3).udp()[6] = std::byte{0x12}; }},
    {"a source port that changes", kNics, "source_port",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kRcSendFirst, 3);
       roce::StoreBe<uint16_t>(frame.udp(), 0xC001);
       Seal(frame);
     }},
    {"a low source port", kSend, "source_port_range",
     [](Frames& f) {
       for (Captured& frame : f) {
         if (frame.bytes.size() < 60) continue;
         roce::StoreBe<uint16_t>(frame.udp(), 1000);
         Seal(frame);
       }
     }},
    {"a P_Key that changes", kNics, "pkey",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcSendFirst, 3), "bth.pkey", 0x8001); }},
    {"MigReq 0", kNics, "mig_req",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcSendFirst, 3), "bth.migreq", 0); }},
    {"a reserved bit", kSend, "reserved_bits",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kRcSendOnly, 3);
       frame.bth()[8] |= std::byte{1};
       Seal(frame);
     }},
    {"a solicited event within a message", kNics, "solicited",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcSendFirst, 3), "bth.se", 1); }},
    {"a mark on a flow without ECN", kSend, "ecn_bits",
     [](Frames& f) { MarkCongestion(FrameOf(f, Opcode::kRcSendOnly, 3)); }},

    // ---- Requests ----
    {"FIRST becomes MIDDLE", kNics, "opcode_sequence",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcSendFirst, 3), "bth.opcode", 1); }},
    {"FIRST becomes ONLY", kNics, "opcode_sequence",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcSendFirst, 3), "bth.opcode", 4); }},
    {"MIDDLE of another operation", kSend, "opcode_sequence",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcSendMiddle, 3), "bth.opcode", 7); }},
    {"a MIDDLE that does not fill the path MTU", kSend, "payload_length",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcSendMiddle, 3), "bth.padcnt", 1); }},
    {"a WRITE that is longer than its RETH", kWrite, "write_length",
     [](Frames& f) {
       AddTo(FrameOf(f, Opcode::kRcWriteFirst, 0), "reth.length", uint64_t{0} - 1);
     }},
    {"a WRITE that is shorter than its RETH", kWrite, "write_length",
     [](Frames& f) { AddTo(FrameOf(f, Opcode::kRcWriteOnly, 3), "reth.length", 1); }},
    {"a READ of more than 2^31 bytes", kRead, "message_length",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcReadRequest, 3), "reth.length", 0x80000001); }},
    {"an atomic with an odd address", kAtomic, "atomic_address",
     [](Frames& f) { AddTo(FrameOf(f, Opcode::kRcFetchAdd, 0), "atomiceth.va", 1); }},
    {"a PSN far away", kNics, "psn_order",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcSendFirst, 3), "bth.psn", 0x400000); }},
    {"a missing request", kNics, "psn_gap?",
     [](Frames& f) { Erase(f, IndexOf(f, Opcode::kRcSendFirst, 3)); }},
    {"a starting PSN", kCm, "starting_psn",
     [](Frames& f) {
       Captured& rep = FrameOf(f, Opcode::kUdSendOnly, 1);
       rep.mad()[24 + 22] ^= std::byte{1};  // of 24 bits at byte 20
       Seal(rep);
     }},
    {"a repeated request with another length", kSend, "repeat_differs",
     [](Frames& f) {
       const size_t first = IndexOf(f, Opcode::kRcSendOnly, 6);
       Captured& again = Copy(f, first, first + 2);
       again.time_ns += 100'000'000;
       SetField(again, "bth.padcnt", (GetField(again, "bth.padcnt") + 1) % 4);
     }},
    {"an acknowledged request again", kSend, "repeat_acknowledged?",
     [](Frames& f) {
       const size_t first = IndexOf(f, Opcode::kRcSendOnly, 6);
       const size_t end = IndexOf(f, Opcode::kRcSendMiddle, 0);
       Copy(f, first, end);
     }},
    {"sent again after 1 us, without a NAK", kNics, "repeat_early?",
     [](Frames& f) {
       const size_t first = IndexOf(f, Opcode::kRcSendFirst, 0);
       Copy(f, first, first + 2).time_ns = f[first + 1].time_ns + 1'000;
     }},
    {"a repeated PSN on UC", kUc, "repeat_unreliable?",
     [](Frames& f) {
       const size_t first = IndexOf(f, Opcode::kUcSendOnly, 3);
       Copy(f, first, IndexOf(f, Opcode::kUcSendOnly, 5));
     }},
    {"a request too early after an RNR NAK", kRnr, "rnr_timer",
     [](Frames& f) {
       const size_t again = IndexOf(f, Opcode::kRcSendFirst, 1);
       const int64_t early = f[again].time_ns - f[again - 1].time_ns - 5'000;
       for (size_t i = again; i < f.size(); ++i) f[i].time_ns -= early;
     }},
    {"no credit", kNics, "credits",
     [](Frames& f) {
       for (size_t n = 0; n < 30; ++n) {
         SetField(FrameOf(f, Opcode::kRcAcknowledge, n), "aeth.syndrome", 0);
       }
       for (size_t i = 0; i < f.size(); ++i) f[i].time_ns += static_cast<int64_t>(i) * 1'000'000;
     }},
    {"no answer", kNics, "ack_missing?",
     [](Frames& f) {
       Erase(f, f.size() - 1);
       Captured last = FrameOf(f, Opcode::kRcSendOnlyImm, 0);
       last.time_ns = f.back().time_ns + 2'000'000'000;
       f.push_back(last);
     }},

    // ---- Responses ----
    {"a reserved syndrome", kNics, "syndrome",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcAcknowledge, 6), "aeth.syndrome", 0x40); }},
    {"a reserved NAK", kNics, "syndrome",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcAcknowledge, 6), "aeth.syndrome", 0x67); }},
    {"an acknowledgement of what is not sent yet", kNics, "ack_unsent",
     [](Frames& f) { AddTo(FrameOf(f, Opcode::kRcAcknowledge, 6), "bth.psn", 20); }},
    {"acknowledgements that are swapped", kNics, "ack_backwards?",
     [](Frames& f) {
       std::swap(FrameOf(f, Opcode::kRcAcknowledge, 1).bytes,
                 FrameOf(f, Opcode::kRcAcknowledge, 2).bytes);
     }},
    {"an MSN", kNics, "msn",
     [](Frames& f) { AddTo(FrameOf(f, Opcode::kRcAcknowledge, 9), "aeth.msn", 5); }},
    {"a sequence NAK without a gap", kNics, "nak_without_gap",
     [](Frames& f) {
       Captured& ack = FrameOf(f, Opcode::kRcAcknowledge, 1);
       AddTo(ack, "bth.psn", 2);
       SetField(ack, "aeth.syndrome", 0x60);
     }},
    {"a NAK of an acknowledged request", kNics, "nak_acknowledged?",
     [](Frames& f) {
       Captured& ack = FrameOf(f, Opcode::kRcAcknowledge, 9);
       AddTo(ack, "bth.psn", uint64_t{0} - 6);
       SetField(ack, "aeth.syndrome", 0x60);
     }},
    {"two NAKs for one gap", kSend, "second_nak",
     [](Frames& f) {
       const size_t middle = IndexOf(f, Opcode::kRcSendMiddle, 20);
       f.insert(f.begin() + static_cast<ptrdiff_t>(middle) + 1, 2, NakOf(f, middle, 2));
     }},
    {"a NAK without a retransmission", kSend, "nak_ignored",
     [](Frames& f) {
       const size_t middle = IndexOf(f, Opcode::kRcSendMiddle, 20);
       f.insert(f.begin() + static_cast<ptrdiff_t>(middle) + 1, NakOf(f, middle, 2));
       for (size_t i = middle + 2; i < f.size(); ++i) f[i].time_ns += 600'000'000;
     }},
    {"a retransmission after what is missing", kSend, "repeat_skips?",
     [](Frames& f) {
       const size_t middle = IndexOf(f, Opcode::kRcSendMiddle, 20);
       const size_t repeated = IndexOf(f, Opcode::kRcSendMiddle, 19);
       f.insert(f.begin() + static_cast<ptrdiff_t>(middle) + 1, NakOf(f, middle, 2));
       Copy(f, repeated, middle + 2);
     }},
    {"a retransmission that leaves out packets", kSend, "not_go_back_n?",
     [](Frames& f) {
       const size_t middle = IndexOf(f, Opcode::kRcSendMiddle, 20);
       const size_t repeated = IndexOf(f, Opcode::kRcSendMiddle, 18);
       f.insert(f.begin() + static_cast<ptrdiff_t>(middle) + 1, NakOf(f, middle, 2));
       Copy(f, repeated, middle + 2);
     }},
    {"an eighth retry", kSend, "retry_count",
     [](Frames& f) {
       const size_t index = IndexOf(f, Opcode::kRcSendOnly, 2);
       Frames more(8, f[index]);
       for (size_t i = 0; i < more.size(); ++i) {
         more[i].time_ns += static_cast<int64_t>(i + 1) * 10'000'000;
       }
       f.insert(f.begin() + static_cast<ptrdiff_t>(index) + 1, more.begin(), more.end());
     }},
    {"an ACK after a fatal NAK", kNics, "ack_after_fault",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcAcknowledge, 6), "aeth.syndrome", 0x62); }},
    {"an ACK instead of a READ response", kRead, "ack_overtakes?",
     [](Frames& f) {
       const size_t response = IndexOf(f, Opcode::kRcReadResponseOnly, 2);
       Captured& frame = f[response];
       constexpr size_t kAck = 14 + 20 + 8 + 12 + 4 + 4;
       frame.bytes.resize(kAck);
       frame.original_length = kAck;
       roce::StoreBe<uint16_t>(frame.ip() + 2, kAck - 14);
       roce::StoreBe<uint16_t>(frame.udp() + 4, kAck - 34);
       SetField(frame, "bth.padcnt", 0);
       SetField(frame, "bth.opcode", 0x11);
     }},
    {"a READ response without a READ", kNics, "read_unasked",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcAcknowledge, 6), "bth.opcode", 0x10); }},
    {"a missing READ response", kRead, "read_gap?",
     [](Frames& f) { Erase(f, IndexOf(f, Opcode::kRcReadResponseMiddle, 2)); }},
    {"a READ response twice", kRead, "read_repeated?",
     [](Frames& f) {
       const size_t response = IndexOf(f, Opcode::kRcReadResponseMiddle, 2);
       Copy(f, response, response + 2);
     }},
    {"LAST within a READ", kRead, "read_position",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcReadResponseFirst, 2), "bth.opcode", 0x0F); }},
    {"a READ response that is too short", kRead, "read_length",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kRcReadResponseMiddle, 2), "bth.padcnt", 1); }},
    {"a READ response with a NAK", kRead, "read_syndrome",
     [](Frames& f) {
       SetField(FrameOf(f, Opcode::kRcReadResponseLast, 2), "aeth.syndrome", 0x62);
     }},
    {"an atomic response without an atomic", kRead, "atomic_unasked",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kRcReadResponseOnly, 1);
       constexpr size_t kBytes = 14 + 20 + 8 + 12 + 4 + 8 + 4;
       frame.bytes.resize(kBytes);
       frame.original_length = kBytes;
       roce::StoreBe<uint16_t>(frame.ip() + 2, kBytes - 14);
       roce::StoreBe<uint16_t>(frame.udp() + 4, kBytes - 34);
       SetField(frame, "bth.padcnt", 0);
       SetField(frame, "bth.opcode", 0x12);
     }},
    {"a repeated atomic with another result", kAtomic, "atomic_replay",
     [](Frames& f) {
       const size_t request = IndexOf(f, Opcode::kRcFetchAdd, 0);
       const size_t response = IndexOf(f, Opcode::kRcAtomicAcknowledge, 0);
       Copy(f, request, response + 1).time_ns += 100'000'000;
       Captured& again = Copy(f, response, response + 2);
       again.time_ns += 100'010'000;
       AddTo(again, "atomicacketh.value", 1);
     }},

    // ---- Congestion ----
    {"a CNP without BECN", kNics, "cnp_bits",
     [](Frames& f) { SetField(InsertCnp(f, Opcode::kRcAcknowledge, 6), "bth.becn", 0); }},
    {"a CNP without a mark", kNics, "cnp_unmarked?",
     [](Frames& f) { InsertCnp(f, Opcode::kRcAcknowledge, 6); }},
    {"a second CNP for one mark", kNics, "cnp_unmarked?",
     [](Frames& f) {
       MarkCongestion(FrameOf(f, Opcode::kRcSendFirst, 2));
       InsertCnp(f, Opcode::kRcAcknowledge, 6);
       InsertCnp(f, Opcode::kRcAcknowledge, 8);
     }},

    // ---- Connection manager ----
    {"a MAD of another version", kCm, "mad_header",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kUdSendOnly, 0);
       frame.mad()[0] = std::byte{2};
       Seal(frame);
     }},
    {"a MAD of another method", kCm, "mad_header",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kUdSendOnly, 2);
       frame.mad()[3] = std::byte{0x81};
       Seal(frame);
     }},
    {"a MAD with another Q_Key", kCm, "cm_qkey",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kUdSendOnly, 0), "deth.qkey", 0x11111111); }},
    {"a MAD of another queue pair", kCm, "cm_source_qp",
     [](Frames& f) { SetField(FrameOf(f, Opcode::kUdSendOnly, 0), "deth.srcqp", 17); }},
    {"a REP with another transaction", kCm, "cm_transaction",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kUdSendOnly, 1);
       frame.mad()[15] ^= std::byte{1};
       Seal(frame);
     }},
    {"a REP to another ID", kCm, "cm_ids",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kUdSendOnly, 1);
       frame.mad()[24 + 7] ^= std::byte{1};
       Seal(frame);
     }},
    {"an RTU to another ID", kCm, "cm_ids",
     [](Frames& f) {
       Captured& frame = FrameOf(f, Opcode::kUdSendOnly, 2);
       frame.mad()[24 + 7] ^= std::byte{1};
       Seal(frame);
     }},
    {"a REP without a REQ", kCm, "cm_order?",
     [](Frames& f) { Erase(f, IndexOf(f, Opcode::kUdSendOnly, 0)); }},
    {"a REQ again at once", kCm, "cm_early",
     [](Frames& f) {
       const size_t req = IndexOf(f, Opcode::kUdSendOnly, 0);
       Copy(f, req, req + 1).time_ns += 1'000;
     }},
    {"a REQ again and again", kCm, "cm_retries",
     [](Frames& f) {
       const size_t req = IndexOf(f, Opcode::kUdSendOnly, 0);
       f.insert(f.begin() + static_cast<ptrdiff_t>(req), 16, f[req]);
     }},
    {"a REQ again that differs", kCm, "cm_retry_differs",
     [](Frames& f) {
       const size_t req = IndexOf(f, Opcode::kUdSendOnly, 0);
       Captured& again = Copy(f, req, req + 1);
       again.mad()[250] ^= std::byte{1};
       Seal(again);
     }},
};

class BrokenCapture : public testing::TestWithParam<Broken> {};

TEST_P(BrokenCapture, IsNamed) {
  const Broken& broken = GetParam();
  Frames frames = LoadVector(broken.vector);
  Judge before;
  JudgeAll(frames, before);
  const std::string_view rule(broken.rule);
  if (rule != "mig_req" || broken.vector == std::string_view(kNics)) {
    ASSERT_THAT(NamesOf(before), Not(Contains(rule)));
  }
  broken.change(frames);
  Judge judge;
  JudgeAll(frames, judge);
  EXPECT_THAT(NamesOf(judge), Contains(rule)) << AllText(judge);
}

INSTANTIATE_TEST_SUITE_P(All, BrokenCapture, testing::ValuesIn(kBroken), [](const auto& row) {
  std::string name;
  for (const char c : std::string_view(row.param.name)) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name + "_" + std::to_string(row.index);
});

}  // namespace
}  // namespace roci::tools::judge
