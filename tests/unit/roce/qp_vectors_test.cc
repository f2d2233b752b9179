// Recorded conversations of Linux's software RDMA, and one between two hardware NICs: our queue
// pair takes the place of one side and must say what the other implementation said. Where it
// differs on purpose, roce/deviations.md says why.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "roce/parse.h"
#include "tests/unit/roce/qp_host.h"
#include "tests/unit/roce/vectors.h"

namespace roci::roce {
namespace {

struct Recorded {
  WirePacket packet;
  Gid src;
};

constexpr char kNicToNic[] = "nic-to-nic";  // all others are Linux's

std::string CaptureFile(const std::string& name) {
  const char* folder = name == kNicToNic ? "/" : "/rxe/";
  return ROCI_VECTOR_DIR + std::string(folder) + name + ".pcap";
}

// The packets of one service in a capture between one QP on each side.
std::vector<Recorded> Load(const std::string& name, Transport transport = Transport::kRc) {
  std::vector<Recorded> all;
  for (const NamedFrame& frame : ReadPcap(CaptureFile(name))) {
    Packet packet;
    if (ParsePacket(frame.bytes, packet) != DropReason::kNone) continue;
    if (packet.info->transport != transport) continue;
    Recorded recorded;
    TxPacket& tx = recorded.packet.tx;
    tx.opcode = packet.opcode;
    tx.solicited = packet.solicited;
    tx.ack_request = packet.ack_request;
    tx.psn = packet.psn;
    tx.dest_qpn = packet.dest_qpn;
    tx.payload_length = static_cast<uint32_t>(packet.payload.size());
    tx.ext = packet.ext;
    recorded.packet.payload.assign(packet.payload.begin(), packet.payload.end());
    recorded.src = packet.src_gid;
    all.push_back(std::move(recorded));
  }
  return all;
}

bool HasReth(const WirePacket& packet) { return packet.info().Has(ExtHeader::kReth); }
bool HasAtomicEth(const WirePacket& packet) { return packet.info().Has(ExtHeader::kAtomicEth); }

PathMtu MtuOf(const std::vector<Recorded>& recorded) {
  uint32_t largest = 256;
  for (const Recorded& r : recorded) {
    largest = std::max(largest, r.packet.tx.payload_length);
  }
  return *PathMtuFromBytes(std::bit_ceil(largest));
}

// One key per region that the requests name, all that they touch and no more.
void GrantWhatIsNamed(ScriptedHost& host, const std::vector<Recorded>& requests) {
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> ranges;  // first, end
  for (const Recorded& r : requests) {
    const TxPacket& tx = r.packet.tx;
    uint64_t va = 0, length = 0;
    uint32_t key = 0;
    if (HasReth(r.packet)) {
      va = tx.ext.reth.va, length = tx.ext.reth.length, key = tx.ext.reth.rkey.value();
    } else if (HasAtomicEth(r.packet)) {
      va = tx.ext.atomic.va, length = 8, key = tx.ext.atomic.rkey.value();
    } else {
      continue;
    }
    auto [it, is_new] = ranges.try_emplace(key, va, va + length);
    it->second = {std::min(it->second.first, va), std::max(it->second.second, va + length)};
  }
  const auto access = host.grants[ScriptedHost::kRkey.value()].access;
  uint64_t backing = 4096;
  for (const auto& [key, range] : ranges) {
    host.grants[key] = {range.first, range.second - range.first, access, backing};
    backing += range.second - range.first;
  }
}

std::byte* Locate(ScriptedHost& host, Key key, uint64_t va) {
  const auto& grant = host.grants.at(key.value());
  return host.bytes.data() + grant.backing + (va - grant.va);
}

// Gives our memory what Linux's held when it got `request`, as far as its answer tells. The operand
// of an atomic is given once per place: later ones must come out of our own arithmetic.
void FillForRequest(ScriptedHost& host, const std::vector<Recorded>& answers,
                    const WirePacket& request, uint32_t mtu_bytes,
                    std::set<uint64_t>& seen_atomics) {
  const bool is_read = request.tx.opcode == Opcode::kRcReadRequest;
  if (!is_read && !HasAtomicEth(request)) return;
  const Reth& reth = request.tx.ext.reth;
  const AtomicEth& eth = request.tx.ext.atomic;
  if (!is_read && !seen_atomics.insert(eth.va).second) return;
  const uint32_t psns = is_read ? std::max(1u, (reth.length + mtu_bytes - 1) / mtu_bytes) : 1;
  for (const Recorded& r : answers) {
    const TxPacket& tx = r.packet.tx;
    const uint32_t index = StepsForward(request.tx.psn, tx.psn);
    if (index >= psns) continue;
    if (r.packet.info().operation == Operation::kReadResponse && !r.packet.payload.empty()) {
      std::memcpy(Locate(host, reth.rkey, reth.va + uint64_t{index} * mtu_bytes),
                  r.packet.payload.data(), r.packet.payload.size());
    } else if (tx.opcode == Opcode::kRcAtomicAcknowledge) {
      std::memcpy(Locate(host, eth.rkey, eth.va), &tx.ext.atomic_ack.original, 8);
    }
  }
}

void ExpectSameAnswer(const WirePacket& ours, const WirePacket& theirs) {
  EXPECT_EQ(ours.tx.opcode, theirs.tx.opcode);
  EXPECT_EQ(ours.tx.psn, theirs.tx.psn);
  EXPECT_EQ(ours.payload, theirs.payload);
  if (ours.info().Has(ExtHeader::kAeth)) {
    // NICs give credits.
    const bool has_credits = theirs.tx.ext.aeth.kind() == AethKind::kAck;
    EXPECT_EQ(ours.tx.ext.aeth.syndrome, has_credits ? kNoCredits : theirs.tx.ext.aeth.syndrome);
    EXPECT_EQ(ours.tx.ext.aeth.msn, theirs.tx.ext.aeth.msn);
  }
  if (ours.info().Has(ExtHeader::kAtomicAckEth)) {
    EXPECT_EQ(ours.tx.ext.atomic_ack.original, theirs.tx.ext.atomic_ack.original);
  }
}

struct Split {
  std::vector<Recorded> requests, answers;
};
Split SplitBy(const std::vector<Recorded>& recorded, const Gid& asker) {
  Split split;
  for (const Recorded& r : recorded) {
    const bool is_request = r.packet.info().is_request;
    if (is_request && r.src == asker) split.requests.push_back(r);
    if (!is_request && r.src != asker) split.answers.push_back(r);
  }
  return split;
}

// A NIC may acknowledge what did not ask for it; we do not. Answers how many there were.
size_t DropUnaskedAnswers(Split& split) {
  std::set<uint32_t> asked;
  for (const Recorded& r : split.requests) {
    if (r.packet.tx.ack_request) asked.insert(r.packet.tx.psn.value());
  }
  return std::erase_if(split.answers,
                       [&](const Recorded& r) { return !asked.contains(r.packet.tx.psn.value()); });
}

NodeOptions OptionsFor(const std::vector<Recorded>& recorded, Psn first) {
  NodeOptions options;
  options.path_mtu = MtuOf(recorded);
  options.memory_bytes = 4 << 20;
  options.limits.ack_every_packets = 64;  // as Linux
  options.max_rd_atomic = options.max_dest_rd_atomic = 16;
  options.rq_psn = options.sq_psn = first;
  options.records = 256;
  return options;
}

// All who asked anything in a capture.
std::vector<Gid> Askers(const std::vector<Recorded>& recorded) {
  std::vector<Gid> askers;
  for (const Recorded& r : recorded) {
    if (r.packet.info().is_request &&
        std::find(askers.begin(), askers.end(), r.src) == askers.end()) {
      askers.push_back(r.src);
    }
  }
  return askers;
}

void PostReceives(Node& node, int count) {
  for (int i = 0; i < count; ++i) node.host.PostRecv(70'000, 2 << 20);
}

const char* const kCleanCaptures[] = {
    "vec-rc_send-v4-mtu256",
    "vec-rc_write-v4-mtu256",
    "vec-rc_write-v4-mtu4096",
    "vec-rc_read-v4-mtu256",
    "vec-rc_read-v4-mtu1024",
    "vec-rc_read_pipe-v4",
    "vec-rc_atomic-v4",
    "vec-rc_burst-v4",
    "vec-send_inv-v4",
    "ibv_rc_pingpong-v4",
    "ib_atomic_bw-FETCH_AND_ADD-v4",
    "ib_atomic_bw-CMP_AND_SWAP-v4",
    "rping-v4",
    "rping-16000-v4",
    kNicToNic,
};

TEST(QpVectors, OurResponderAnswersAsTheyDid) {
  for (const char* name : kCleanCaptures) {
    const auto recorded = Load(name);
    ASSERT_FALSE(recorded.empty()) << name;
    for (const Gid& asker : Askers(recorded)) {
      SCOPED_TRACE(name);
      Split split = SplitBy(recorded, asker);
      if (name == std::string(kNicToNic)) {
        EXPECT_LE(DropUnaskedAnswers(split), 1u);
      }
      Node node(OptionsFor(recorded, split.requests.front().packet.tx.psn));
      GrantWhatIsNamed(node.host, split.requests);
      std::set<uint64_t> seen_atomics;
      PostReceives(node, 600);
      std::vector<WirePacket> ours;
      for (const Recorded& request : split.requests) {
        FillForRequest(node.host, split.answers, request.packet,
                       PathMtuBytes(node.options.path_mtu), seen_atomics);
        node.Receive(request.packet);
        for (WirePacket& packet : node.PollAll()) ours.push_back(std::move(packet));
      }
      // A capture of Linux may have been cut before the last answers.
      if (name == std::string(kNicToNic)) {
        EXPECT_EQ(ours.size(), split.answers.size());
      }
      ASSERT_GE(ours.size(), split.answers.size());
      for (size_t i = 0; i < split.answers.size(); ++i) {
        ExpectSameAnswer(ours[i], split.answers[i].packet);
        if (testing::Test::HasFailure()) {
          FAIL() << "answer " << i;
        }
      }
    }
  }
}

// Work requests that would make the recorded requests. Payloads are put into our memory.
void PostFromRequests(Node& node, const std::vector<Recorded>& requests) {
  uint64_t offset = 1 << 20;
  SendWqe* wqe = nullptr;
  uint64_t filled = 0;
  for (const Recorded& r : requests) {
    const TxPacket& tx = r.packet.tx;
    const OpcodeInfo& info = r.packet.info();
    if (info.IsFirst()) {
      wqe = &node.host.PostSend(WorkOpcode::kSend, 0, offset);
      filled = 0;
      if (info.operation == Operation::kWrite) wqe->opcode = WorkOpcode::kRdmaWrite;
      if (info.operation == Operation::kReadRequest) {
        wqe->opcode = WorkOpcode::kRdmaRead;
        wqe->length = tx.ext.reth.length;
        filled = wqe->length;
      }
      if (HasReth(r.packet)) {
        wqe->remote_va = tx.ext.reth.va;
        wqe->rkey = tx.ext.reth.rkey;
      }
      if (HasAtomicEth(r.packet)) {
        const AtomicEth& eth = tx.ext.atomic;
        const bool is_swap = info.operation == Operation::kCompareSwap;
        wqe->opcode = is_swap ? WorkOpcode::kCompareSwap : WorkOpcode::kFetchAdd;
        wqe->length = 8;
        wqe->remote_va = eth.va;
        wqe->rkey = eth.rkey;
        wqe->compare_add = is_swap ? eth.compare : eth.swap_add;
        wqe->swap = eth.swap_add;
        filled = 8;
      }
    }
    if (!r.packet.payload.empty()) {
      std::memcpy(&node.host.bytes[offset + filled], r.packet.payload.data(),
                  r.packet.payload.size());
    }
    wqe->length += static_cast<uint32_t>(r.packet.payload.size());
    filled += r.packet.payload.size();
    if (info.Has(ExtHeader::kImmDt)) {
      wqe->immediate = SwapNetworkOrder(tx.ext.imm.value);
      wqe->opcode = info.operation == Operation::kSend ? WorkOpcode::kSendWithImm
                                                       : WorkOpcode::kRdmaWriteWithImm;
    }
    if (info.Has(ExtHeader::kIeth)) {
      wqe->immediate = tx.ext.ieth.rkey.value();
      wqe->opcode = WorkOpcode::kSendWithInvalidate;
    }
    if (info.IsLast()) {
      wqe->solicited = tx.solicited;
      wqe->first_sge.length = wqe->length;
      offset += (filled + 63) & ~uint64_t{63};
      if (offset > (3u << 20)) offset = 1 << 20;  // only READs, which all look the same
    }
  }
}

void ExpectSameRequest(const WirePacket& ours, const WirePacket& theirs) {
  EXPECT_EQ(ours.tx.opcode, theirs.tx.opcode);
  EXPECT_EQ(ours.tx.psn, theirs.tx.psn);
  EXPECT_EQ(ours.payload, theirs.payload);
  EXPECT_EQ(ours.tx.solicited, theirs.tx.solicited);
  // Linux counts the packets to the next AckReq across messages; we begin anew with each request.
  if (theirs.info().IsLast()) {
    EXPECT_TRUE(ours.tx.ack_request);
  }
  if (HasReth(ours)) {
    EXPECT_EQ(ours.tx.ext.reth.va, theirs.tx.ext.reth.va);
    EXPECT_EQ(ours.tx.ext.reth.rkey, theirs.tx.ext.reth.rkey);
    EXPECT_EQ(ours.tx.ext.reth.length, theirs.tx.ext.reth.length);
  }
  if (HasAtomicEth(ours)) {
    EXPECT_EQ(ours.tx.ext.atomic.va, theirs.tx.ext.atomic.va);
    EXPECT_EQ(ours.tx.ext.atomic.swap_add, theirs.tx.ext.atomic.swap_add);
    if (ours.tx.opcode == Opcode::kRcCompareSwap) {
      EXPECT_EQ(ours.tx.ext.atomic.compare, theirs.tx.ext.atomic.compare);
    }
  }
  if (ours.info().Has(ExtHeader::kImmDt)) {
    EXPECT_EQ(ours.tx.ext.imm.value, theirs.tx.ext.imm.value);
  }
  if (ours.info().Has(ExtHeader::kIeth)) {
    EXPECT_EQ(ours.tx.ext.ieth.rkey, theirs.tx.ext.ieth.rkey);
  }
}

TEST(QpVectors, OurRequesterAsksAsTheyDidAndTakesTheAnswers) {
  for (const char* name : kCleanCaptures) {
    const auto recorded = Load(name);
    for (const Gid& asker : Askers(recorded)) {
      SCOPED_TRACE(name);
      const Split split = SplitBy(recorded, asker);
      Node node(OptionsFor(recorded, split.requests.front().packet.tx.psn));
      PostFromRequests(node, split.requests);
      const size_t posted = node.host.sends.size();
      node.Work();
      size_t compared = 0;
      for (const Recorded& r : recorded) {
        const bool is_request = r.packet.info().is_request;
        if (is_request && r.src == asker) {
          const auto ours = node.Poll();
          ASSERT_TRUE(ours.has_value()) << "request " << compared;
          ExpectSameRequest(*ours, r.packet);
          if (testing::Test::HasFailure()) {
            FAIL() << "request " << compared;
          }
          ++compared;
        } else if (!is_request && r.src != asker) {
          EXPECT_EQ(node.Receive(r.packet), DropReason::kNone);
        }
      }
      EXPECT_EQ(compared, split.requests.size());
      const std::string capture = name;
      const bool ends_in_nak = capture == "vec-send_inv-v4";
      for (size_t i = 0; i < node.host.send_completions.size(); ++i) {
        const bool is_last = i + 1 == posted;
        EXPECT_EQ(node.host.send_completions[i].status, ends_in_nak && is_last
                                                            ? CompletionStatus::kRemoteAccessError
                                                            : CompletionStatus::kSuccess);
      }
      EXPECT_EQ(node.host.count(QpCounter::kRetransmittedPackets), 0u);
      // Cut captures apart, everything completed.
      if (capture == kNicToNic || (capture.starts_with("vec-") && !capture.ends_with("pipe-v4"))) {
        EXPECT_EQ(node.host.send_completions.size(), posted);
      }
    }
  }
}

// What the two tests above replay of the NICs has a reserved bit of the BTH set, which counts for
// nothing (its byte is masked in the ICRC).
TEST(QpVectors, NicsSetAReservedBit) {
  constexpr size_t kByte4OfBth = 14 + 20 + 8 + 4;
  size_t requests = 0;
  for (const NamedFrame& frame : ReadPcap(CaptureFile(kNicToNic))) {
    Packet packet;
    if (ParsePacket(frame.bytes, packet) != DropReason::kNone) continue;
    if (!packet.info->is_request) continue;
    ++requests;
    EXPECT_EQ(frame.bytes[kByte4OfBth] & std::byte{0x3F}, std::byte{16}) << frame.name;
  }
  EXPECT_EQ(requests, 68u);
  EXPECT_EQ(Load(kNicToNic).size(), 105u);
}

TEST(QpVectors, AccessFaultsAreAnsweredAsLinuxDid) {
  for (const char* name : {"vec-nak_access_write-v4", "vec-nak_access_read-v4"}) {
    SCOPED_TRACE(name);
    const auto recorded = Load(name);
    ASSERT_EQ(recorded.size(), 2u);
    Node node(OptionsFor(recorded, recorded[0].packet.tx.psn));
    node.Receive(recorded[0].packet);  // nothing is granted
    const auto answers = node.PollAll();
    ASSERT_EQ(answers.size(), 1u);
    ExpectSameAnswer(answers[0], recorded[1].packet);

    Node asker(OptionsFor(recorded, recorded[0].packet.tx.psn));
    PostFromRequests(asker, {recorded[0]});
    EXPECT_EQ(asker.Run().size(), 1u);
    asker.Receive(recorded[1].packet);
    ASSERT_EQ(asker.host.send_completions.size(), 1u);
    EXPECT_EQ(asker.host.send_completions[0].status, CompletionStatus::kRemoteAccessError);
  }
}

TEST(QpVectors, SequenceGapIsAnsweredAsLinuxDid) {
  const auto recorded = Load("vec-psn_nak-v4");
  const Recorded& nak = recorded[1];
  Node node(OptionsFor(recorded, nak.packet.tx.psn));  // Linux's expected PSN
  PostReceives(node, 1);
  std::vector<WirePacket> answers;
  for (const Recorded& r : recorded) {
    if (!r.packet.info().is_request) continue;
    node.Receive(r.packet);
    for (auto& packet : node.PollAll()) answers.push_back(packet);
  }
  ASSERT_EQ(answers.size(), 1u);  // once, for all three
  ExpectSameAnswer(answers[0], nak.packet);
}

TEST(QpVectors, DuplicatesAreAcknowledgedEachTimeAsLinuxDid) {
  const auto recorded = Load("vec-dup-v4");
  Node node(OptionsFor(recorded, recorded[0].packet.tx.psn + 1));
  for (const Recorded& r : recorded) {
    if (!r.packet.info().is_request) continue;
    node.Receive(r.packet);
    const auto answers = node.PollAll();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].tx.opcode, Opcode::kRcAcknowledge);
    EXPECT_EQ(answers[0].tx.ext.aeth.syndrome, 0x1F);
  }
  EXPECT_TRUE(node.host.recv_completions.empty());
}

TEST(QpVectors, NotReadyIsAnsweredAsLinuxDid) {
  const auto recorded = Load("vec-rnr-v4");
  NodeOptions options = OptionsFor(recorded, recorded[0].packet.tx.psn);
  options.min_rnr_timer = 12;
  Node node(options);
  // Linux's answers to what follows (another NAK) are left out: we are silent.
  std::vector<WirePacket> theirs, ours;
  size_t requests = 0;
  for (const Recorded& r : recorded) requests += r.packet.info().is_request ? 1 : 0;
  for (const Recorded& r : recorded) {
    if (!r.packet.info().is_request) {
      if (r.packet.tx.ext.aeth.syndrome != 0x60) theirs.push_back(r.packet);
      continue;
    }
    if (requests-- == 2) PostReceives(node, 1);
    node.Receive(r.packet);
    for (auto& packet : node.PollAll()) ours.push_back(packet);
  }
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) ExpectSameAnswer(ours[i], theirs[i]);
  EXPECT_EQ(node.host.recv_completions.size(), 1u);
}

TEST(QpVectors, OurRequesterSurvivesLinuxNotBeingReady) {
  const auto recorded = Load("vec-rnr-v4");
  const Gid asker = recorded[0].src;
  NodeOptions options = OptionsFor(recorded, recorded[0].packet.tx.psn);
  options.rnr_retry = 7;
  Node node(options);
  PostFromRequests(node, {recorded[0], recorded[2]});
  node.Run();
  for (const Recorded& r : recorded) {
    if (r.src == asker) continue;
    node.Receive(r.packet);
    if (r.packet.tx.ext.aeth.syndrome == 0x60) {
      // The wait goes on.
      EXPECT_FALSE(node.qp.HasTransmit());
      node.PassTimeout();
      EXPECT_EQ(node.PollAll().size(), 2u);
    }
  }
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
}

TEST(QpVectors, UnreliableConnectionAsLinuxDid) {
  for (const char* name :
       {"vec-uc_send-v4-mtu256", "vec-uc_write-v4-mtu256", "ibv_uc_pingpong-v4"}) {
    const auto recorded = Load(name, Transport::kUc);
    ASSERT_FALSE(recorded.empty()) << name;
    for (const Gid& asker : Askers(recorded)) {
      SCOPED_TRACE(name);
      const Split split = SplitBy(recorded, asker);
      NodeOptions options = OptionsFor(recorded, split.requests.front().packet.tx.psn);
      options.type = QpType::kUc;
      Node sender(options), receiver(options);
      PostFromRequests(sender, split.requests);
      PostReceives(receiver, 600);
      GrantWhatIsNamed(receiver.host, split.requests);
      sender.Work();
      size_t messages = 0, receives = 0;
      for (const Recorded& r : split.requests) {
        const auto ours = sender.Poll();
        ASSERT_TRUE(ours.has_value());
        EXPECT_EQ(ours->tx.opcode, r.packet.tx.opcode);
        EXPECT_EQ(ours->tx.psn, r.packet.tx.psn);
        EXPECT_EQ(ours->payload, r.packet.payload);
        EXPECT_EQ(ours->tx.solicited, r.packet.tx.solicited);
        EXPECT_FALSE(ours->tx.ack_request);
        EXPECT_EQ(receiver.Receive(r.packet), DropReason::kNone);
        const OpcodeInfo& info = r.packet.info();
        messages += info.IsLast() ? 1 : 0;
        receives +=
            info.IsLast() && (info.operation == Operation::kSend || info.Has(ExtHeader::kImmDt))
                ? 1
                : 0;
      }
      EXPECT_TRUE(sender.PollAll().empty());
      EXPECT_TRUE(receiver.PollAll().empty());
      EXPECT_EQ(sender.host.send_completions.size(), messages);
      EXPECT_EQ(receiver.host.recv_completions.size(), receives);
    }
  }
}

TEST(QpVectors, DatagramsAsLinuxDid) {
  for (const char* name : {"vec-ud_send-v4-mtu1024", "vec-ud_send-v4-mtu4096"}) {
    SCOPED_TRACE(name);
    NodeOptions options;
    options.type = QpType::kUd;
    size_t datagrams = 0;
    for (const NamedFrame& frame : ReadPcap(CaptureFile(name))) {
      Packet packet;
      if (ParsePacket(frame.bytes, packet) != DropReason::kNone) continue;
      if (packet.info->transport != Transport::kUd || packet.dest_qpn == kGsiQpn) continue;
      ++datagrams;
      options.qkey = packet.ext.deth.qkey;
      options.qpn = packet.ext.deth.src_qpn;
      options.sq_psn = packet.psn;
      Node sender(options), receiver(options);
      std::copy(packet.payload.begin(), packet.payload.end(), sender.host.bytes.begin());
      const bool has_immediate = packet.info->Has(ExtHeader::kImmDt);
      SendWqe& wqe =
          sender.host.PostSend(has_immediate ? WorkOpcode::kSendWithImm : WorkOpcode::kSend,
                               static_cast<uint32_t>(packet.payload.size()));
      wqe.remote_qpn = packet.dest_qpn;
      wqe.remote_qkey = packet.ext.deth.qkey;
      wqe.solicited = packet.solicited;
      if (has_immediate) wqe.immediate = SwapNetworkOrder(packet.ext.imm.value);
      const auto ours = sender.Run();
      ASSERT_EQ(ours.size(), 1u);
      EXPECT_EQ(ours[0].tx.opcode, packet.opcode);
      EXPECT_EQ(ours[0].tx.psn, packet.psn);
      EXPECT_EQ(ours[0].tx.dest_qpn, packet.dest_qpn);
      EXPECT_EQ(ours[0].tx.solicited, packet.solicited);
      EXPECT_EQ(ours[0].tx.ext.deth.qkey, packet.ext.deth.qkey);
      EXPECT_EQ(ours[0].tx.ext.deth.src_qpn, packet.ext.deth.src_qpn);
      EXPECT_TRUE(std::equal(packet.payload.begin(), packet.payload.end(), ours[0].payload.begin(),
                             ours[0].payload.end()));
      receiver.host.PostRecv(8192, 512);
      EXPECT_EQ(receiver.Receive(packet), DropReason::kNone);
      ASSERT_EQ(receiver.host.recv_completions.size(), 1u);
      const Completion& completion = receiver.host.recv_completions[0];
      EXPECT_EQ(completion.byte_length, kGrhBytes + packet.payload.size());
      EXPECT_EQ(completion.source_qpn, packet.ext.deth.src_qpn);
      EXPECT_EQ(completion.has_immediate, has_immediate);
      // The IPv4 header in the last 20 of the 40 bytes.
      EXPECT_EQ(receiver.host.bytes[512 + 20], std::byte{0x45});
    }
    EXPECT_GT(datagrams, 5u);
  }
}

}  // namespace
}  // namespace roci::roce
