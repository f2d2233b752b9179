// Request packets as IBTA vol 1, 9.2 to 9.4 and A19.4 describe them.
#include "tests/sim/expected_requests.h"

#include <algorithm>

namespace roci::sim {
namespace {

using roce::WorkOpcode;

constexpr uint32_t kPsnMask = 0xFFFFFF;

// Low five bits of the BTH opcode (table 38).
struct Codes {
  uint8_t first, middle, last, only;
};

Codes CodesOf(WorkOpcode opcode) {
  switch (opcode) {
    case WorkOpcode::kSend:
      return {0x00, 0x01, 0x02, 0x04};
    case WorkOpcode::kSendWithImm:
      return {0x00, 0x01, 0x03, 0x05};
    case WorkOpcode::kSendWithInvalidate:
      return {0x00, 0x01, 0x16, 0x17};
    case WorkOpcode::kRdmaWrite:
      return {0x06, 0x07, 0x08, 0x0A};
    case WorkOpcode::kRdmaWriteWithImm:
      return {0x06, 0x07, 0x09, 0x0B};
    case WorkOpcode::kRdmaRead:
      return {0x0C, 0x0C, 0x0C, 0x0C};
    case WorkOpcode::kCompareSwap:
      return {0x13, 0x13, 0x13, 0x13};
    case WorkOpcode::kFetchAdd:
      return {0x14, 0x14, 0x14, 0x14};
    case WorkOpcode::kFlush:
      return {0x1C, 0x1C, 0x1C, 0x1C};
    default:
      return {0x1D, 0x1D, 0x1D, 0x1D};
  }
}

bool HasPackets(WorkOpcode opcode) {
  return opcode != WorkOpcode::kLocalInvalidate && opcode != WorkOpcode::kBindMw &&
         opcode != WorkOpcode::kRegisterList;
}

bool IsSegmented(WorkOpcode opcode) { return opcode <= WorkOpcode::kRdmaWriteWithImm; }
bool IsWrite(WorkOpcode opcode) {
  return opcode == WorkOpcode::kRdmaWrite || opcode == WorkOpcode::kRdmaWriteWithImm;
}
// The requests that need credits (9.7.7.2).
bool NeedsCredit(WorkOpcode opcode) {
  return IsSegmented(opcode) && opcode != WorkOpcode::kRdmaWrite;
}
bool HasImmediate(WorkOpcode opcode) {
  return opcode == WorkOpcode::kSendWithImm || opcode == WorkOpcode::kRdmaWriteWithImm;
}

bool SameReth(const roce::Reth& reth, uint64_t va, roce::Key rkey, uint32_t length) {
  return reth.va == va && reth.rkey == rkey && reth.length == length;
}

// Compares the headers of a request of one packet.
std::optional<std::string> CompareSingle(const roce::SendWqe& wqe, uint32_t skipped,
                                         uint32_t length, const roce::Packet& packet) {
  if (wqe.opcode == WorkOpcode::kCompareSwap || wqe.opcode == WorkOpcode::kFetchAdd) {
    const bool is_swap = wqe.opcode == WorkOpcode::kCompareSwap;
    const roce::AtomicEth& eth = packet.ext.atomic;
    if (eth.va != wqe.remote_va || eth.rkey != wqe.rkey ||
        eth.swap_add != (is_swap ? wqe.atomic.swap : wqe.atomic.compare_add) ||
        (is_swap && eth.compare != wqe.atomic.compare_add)) {
      return "AtomicETH differs from the work request";
    }
    return std::nullopt;
  }
  if (!SameReth(packet.ext.reth, wqe.remote_va + skipped, wqe.rkey, length)) {
    return "RETH differs from the work request";
  }
  if (wqe.opcode == WorkOpcode::kFlush &&
      (packet.ext.feth.placement_type != wqe.flush.placement_type ||
       packet.ext.feth.selectivity_level != wqe.flush.selectivity_level)) {
    return "FETH differs from the work request";
  }
  return std::nullopt;
}

// Compares the headers of a packet of a SEND or WRITE.
std::optional<std::string> CompareSegmented(const roce::SendWqe& wqe, bool is_first, bool is_last,
                                            const roce::Packet& packet) {
  if (IsWrite(wqe.opcode) && is_first &&
      !SameReth(packet.ext.reth, wqe.remote_va, wqe.rkey, wqe.length)) {
    return "RETH differs from the work request";
  }
  if (!is_last) return std::nullopt;
  if (HasImmediate(wqe.opcode) && packet.ext.imm.value != __builtin_bswap32(wqe.immediate)) {
    return "immediate data differs from the work request";
  }
  if (wqe.opcode == WorkOpcode::kSendWithInvalidate &&
      packet.ext.ieth.rkey.value() != wqe.invalidate_key) {
    return "IETH differs from the work request";
  }
  return std::nullopt;
}

}  // namespace

ExpectedRequests::ExpectedRequests(const Connection& connection, int node, const SimHost* host)
    : host_(host),
      first_psn_(connection.first_psn[static_cast<size_t>(node)].value()),
      mtu_bytes_(128U << static_cast<uint32_t>(connection.mtu)),
      transport_bits_(connection.types[static_cast<size_t>(node)] == roce::QpType::kRc ? 0x00
                                                                                       : 0xA0) {}

Position ExpectedRequests::Locate(roce::Psn psn, Position reference) const {
  const uint32_t base = (first_psn_ + static_cast<uint32_t>(reference)) & kPsnMask;
  const uint32_t ahead = (psn.value() - base) & kPsnMask;
  return reference + (ahead < (1U << 23) ? Position{ahead} : Position{ahead} - (1 << 24));
}

void ExpectedRequests::Extend() {
  const std::vector<PostedSend>& sends = host_->sends();
  while (requests_.size() < sends.size()) {
    const roce::SendWqe& wqe = sends[requests_.size()].wqe;
    ExpectedRequest request{};
    request.begin = requests_.empty() ? 0 : requests_.back().end;
    request.end = request.begin;
    request.is_read = wqe.opcode == WorkOpcode::kRdmaRead;
    request.is_atomic =
        wqe.opcode == WorkOpcode::kCompareSwap || wqe.opcode == WorkOpcode::kFetchAdd;
    request.is_answered = HasPackets(wqe.opcode) && !IsSegmented(wqe.opcode);
    request.fence = wqe.fence;
    if (HasPackets(wqe.opcode)) {
      const bool is_one = request.is_answered && !request.is_read;
      request.end += is_one || wqe.length == 0 ? 1 : (wqe.length + mtu_bytes_ - 1) / mtu_bytes_;
      message_ends_.push_back(request.end);
      receives_.push_back(receives_.back() + (NeedsCredit(wqe.opcode) ? 1 : 0));
    }
    requests_.push_back(request);
  }
}

const ExpectedRequest* ExpectedRequests::Find(Position position) {
  Extend();
  const auto behind = std::partition_point(
      requests_.begin(), requests_.end(),
      [position](const ExpectedRequest& request) { return request.begin <= position; });
  if (behind == requests_.begin() || position >= (behind - 1)->end) return nullptr;
  return &*(behind - 1);
}

uint32_t ExpectedRequests::MessagesBefore(Position position) {
  Extend();
  const auto behind = std::upper_bound(message_ends_.begin(), message_ends_.end(), position);
  return static_cast<uint32_t>(behind - message_ends_.begin()) & kPsnMask;
}

uint32_t ExpectedRequests::ReceivesOf(uint32_t messages) {
  Extend();
  return receives_.at(std::min<size_t>(messages, receives_.size() - 1));
}

bool ExpectedRequests::TakesCredit(const ExpectedRequest& request) const {
  return NeedsCredit(WqeOf(request).opcode);
}

const roce::SendWqe& ExpectedRequests::WqeOf(const ExpectedRequest& request) const {
  return host_->sends()[SlotOf(&request)].wqe;
}

std::optional<std::string> ExpectedRequests::Compare(const ExpectedRequest& request,
                                                     Position position, const roce::Packet& packet,
                                                     bool in_parts) const {
  const roce::SendWqe& wqe = WqeOf(request);
  const bool is_first = position == request.begin;
  const bool is_last = request.is_answered || position + 1 == request.end;
  const Codes codes = CodesOf(wqe.opcode);
  const uint8_t code =
      is_first ? (is_last ? codes.only : codes.first) : (is_last ? codes.last : codes.middle);
  if (static_cast<uint8_t>(packet.opcode) != (transport_bits_ | code)) return "opcode";
  const auto skipped = static_cast<uint32_t>(position - request.begin) * mtu_bytes_;
  const bool has_payload = IsSegmented(wqe.opcode) || wqe.opcode == WorkOpcode::kAtomicWrite;
  if (packet.payload.size() !=
      (has_payload ? std::min(wqe.length - skipped, mtu_bytes_) : uint32_t{0})) {
    return "payload length";
  }
  if (transport_bits_ != 0 && packet.ext.xrc.srq_number != wqe.remote_srq_number) {
    return "shared receive queue number";
  }
  // IBTA vol 1, 9.2.3: set in the last packet of a solicited request that completes a receive.
  if (packet.solicited != (wqe.solicited && is_last && NeedsCredit(wqe.opcode))) {
    return "solicited event bit";
  }
  // Without AckReq, no ACK for the last packet would come before the timeout (9.7.3).
  if (is_last && !packet.ack_request) return "no AckReq in a message's last packet";
  return IsSegmented(wqe.opcode)
             ? CompareSegmented(wqe, is_first, is_last, packet)
             : CompareSingle(wqe, skipped, LengthOf(wqe, skipped, packet, in_parts), packet);
}

// What the RETH of a request of one packet must say: a part of a READ consists of whole packets.
uint32_t ExpectedRequests::LengthOf(const roce::SendWqe& wqe, uint32_t skipped,
                                    const roce::Packet& packet, bool in_parts) const {
  const uint32_t left = wqe.length - skipped;
  const uint32_t length = packet.ext.reth.length;
  const bool is_part = in_parts && wqe.opcode == WorkOpcode::kRdmaRead && length != 0 &&
                       length < left && length % mtu_bytes_ == 0;
  return is_part ? length : left;
}

uint32_t ExpectedRequests::ResponseBytes(const ExpectedRequest& request, Position position) const {
  if (!request.is_read) return 0;
  const auto skipped = static_cast<uint32_t>(position - request.begin) * mtu_bytes_;
  return std::min(WqeOf(request).length - skipped, mtu_bytes_);
}

bool ExpectedRequests::TakesReceive(const ExpectedRequest& request, Position position) const {
  const roce::SendWqe& wqe = WqeOf(request);
  if (!IsSegmented(wqe.opcode)) return false;
  if (IsWrite(wqe.opcode)) return HasImmediate(wqe.opcode) && position + 1 == request.end;
  return position == request.begin;
}

}  // namespace roci::sim
