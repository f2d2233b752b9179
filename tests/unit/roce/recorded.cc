#include "tests/unit/roce/recorded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "roce/parse.h"
#include "tests/source_paths.h"
#include "tests/unit/roce/vectors.h"

namespace roci::roce {
namespace {

PathMtu MtuOf(const std::vector<Recorded>& recorded) {
  uint32_t largest = 256;
  for (const Recorded& r : recorded) {
    largest = std::max(largest, r.packet.tx.payload_length);
  }
  return *PathMtuFromBytes(std::bit_ceil(largest));
}

std::byte* Locate(ScriptedHost& host, Key key, uint64_t va) {
  const auto& grant = host.grants.at(key.value());
  return host.bytes.data() + grant.backing + (va - grant.va);
}

}  // namespace

std::string CaptureFile(const std::string& name) {
  const char* folder = name == kNicToNic ? "/" : "/rxe/";
  return VectorDir() + std::string(folder) + name + ".pcap";
}

std::vector<Recorded> Load(const std::string& name, Transport transport) {
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
    recorded.dst = packet.dst_gid;
    all.push_back(std::move(recorded));
  }
  return all;
}

std::vector<Conversation> LoadConversations(const std::string& name) {
  using End = std::pair<std::array<uint8_t, 16>, uint32_t>;  // address and queue pair number
  const auto end_of = [](const Recorded& r) {
    return End(r.dst.bytes, r.packet.tx.dest_qpn.value());
  };
  const std::vector<Recorded> all = Load(name);
  std::map<End, size_t> conversation_of;
  size_t count = 0;
  for (const Recorded& request : all) {
    if (!request.packet.info().is_request) continue;
    const auto answer = std::find_if(all.begin(), all.end(), [&request](const Recorded& r) {
      return !r.packet.info().is_request && r.src == request.dst && r.dst == request.src &&
             r.packet.tx.psn == request.packet.tx.psn;
    });
    if (answer == all.end()) continue;
    const auto [known, is_new] = conversation_of.try_emplace(end_of(request), count);
    const auto other = conversation_of.try_emplace(end_of(*answer), known->second).first;
    known->second = other->second;
    if (is_new && known->second == count) ++count;
  }
  std::vector<Conversation> conversations(count);
  for (const Recorded& r : all) {
    const auto known = conversation_of.find(end_of(r));
    if (known != conversation_of.end()) conversations[known->second].push_back(r);
  }
  return conversations;
}

bool HasReth(const WirePacket& packet) { return packet.info().Has(ExtHeader::kReth); }
bool HasAtomicEth(const WirePacket& packet) { return packet.info().Has(ExtHeader::kAtomicEth); }

NodeOptions OptionsFor(const std::vector<Recorded>& recorded, Psn first) {
  NodeOptions options;
  options.path_mtu = MtuOf(recorded);
  options.memory_bytes = 4 << 20;
  options.limits.ack_every_packets = 64;  // as in Linux
  options.max_rd_atomic = options.max_dest_rd_atomic = 16;
  options.rq_psn = options.sq_psn = first;
  options.records = 256;
  return options;
}

Split SplitBy(const std::vector<Recorded>& recorded, const Gid& asker) {
  Split split;
  for (const Recorded& r : recorded) {
    const bool is_request = r.packet.info().is_request;
    if (is_request && r.src == asker) split.requests.push_back(r);
    if (!is_request && r.src != asker) split.answers.push_back(r);
  }
  return split;
}

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

void PostReceives(Node& node, int count) {
  for (int i = 0; i < count; ++i) node.host.PostRecv(70'000, 2 << 20);
}

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
      if (info.operation == Operation::kWrite) {
        wqe->opcode = WorkOpcode::kRdmaWrite;
        wqe->length = wqe->first_sge.length = tx.ext.reth.length;
      }
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
        wqe->atomic = {is_swap ? eth.compare : eth.swap_add, eth.swap_add};
        filled = 8;
      }
    }
    if (!r.packet.payload.empty()) {
      std::memcpy(&node.host.bytes[offset + filled], r.packet.payload.data(),
                  r.packet.payload.size());
    }
    if (info.operation != Operation::kWrite) {
      wqe->length += static_cast<uint32_t>(r.packet.payload.size());
    }
    filled += r.packet.payload.size();
    if (info.Has(ExtHeader::kImmDt)) {
      wqe->immediate = SwapNetworkOrder(tx.ext.imm.value);
      wqe->opcode = info.operation == Operation::kSend ? WorkOpcode::kSendWithImm
                                                       : WorkOpcode::kRdmaWriteWithImm;
    }
    if (info.Has(ExtHeader::kIeth)) {
      wqe->invalidate_key = tx.ext.ieth.rkey.value();
      wqe->opcode = WorkOpcode::kSendWithInvalidate;
    }
    if (info.IsLast()) {
      wqe->solicited = tx.solicited;
      wqe->first_sge.length = wqe->length;
      offset += (filled + 63) & ~uint64_t{63};
      if (offset > (3u << 20)) offset = 1 << 20;  // only READs get this far, and all are alike
    }
  }
}

void ExpectSameAnswer(const WirePacket& ours, const WirePacket& theirs) {
  EXPECT_EQ(ours.tx.opcode, theirs.tx.opcode);
  EXPECT_EQ(ours.tx.psn, theirs.tx.psn);
  EXPECT_EQ(ours.payload, theirs.payload);
  if (ours.info().Has(ExtHeader::kAeth)) {
    // The credits are those of other receive queues.
    EXPECT_EQ(ours.tx.ext.aeth.kind(), theirs.tx.ext.aeth.kind());
    if (ours.tx.ext.aeth.kind() != AethKind::kAck) {
      EXPECT_EQ(ours.tx.ext.aeth.syndrome, theirs.tx.ext.aeth.syndrome);
    }
    EXPECT_EQ(ours.tx.ext.aeth.msn, theirs.tx.ext.aeth.msn);
  }
  if (ours.info().Has(ExtHeader::kAtomicAckEth)) {
    EXPECT_EQ(ours.tx.ext.atomic_ack.original, theirs.tx.ext.atomic_ack.original);
  }
}

void ExpectSameRequest(const WirePacket& ours, const WirePacket& theirs) {
  EXPECT_EQ(ours.tx.opcode, theirs.tx.opcode);
  EXPECT_EQ(ours.tx.psn, theirs.tx.psn);
  EXPECT_EQ(ours.payload, theirs.payload);
  EXPECT_EQ(ours.tx.solicited, theirs.tx.solicited);
  // Linux counts the packets up to the next AckReq across messages, we restart with each request.
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

}  // namespace roci::roce
