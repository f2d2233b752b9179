#include "tools/judge/sent_requests.h"

#include <algorithm>

namespace roci::tools::judge {
namespace {

using roce::Distance;
using roce::OpcodeInfo;
using roce::Operation;
using roce::Psn;

// Drops the oldest request.
void Forget(Flow& flow) {
  SetAnswered(flow, flow.requests.sent.front());
  flow.requests.sent.pop_front();
}

// Sets the PSN of the next new request, and forgets those that are older than half of the PSNs.
void MoveNext(Flow& flow, Psn next) {
  RequestState& state = flow.requests;
  const auto psns_to_next = [&](Psn from) {
    return ((state.next.value() - from.value()) & roce::kMask24) +
           ((next.value() - state.next.value()) & roce::kMask24);
  };
  const bool has_old = psns_to_next(state.first) > kMostKnownPsns;
  if (psns_to_next(state.unanswered) >= kMostKnownPsns) {
    state.unanswered = next - (kMostKnownPsns - 1);  // `next` is later than that
  }
  state.next = next;
  if (!has_old) return;
  state.first = next - kMostKnownPsns;
  while (!state.sent.empty() && !state.Knows(state.sent.front().psn)) Forget(flow);
  std::erase_if(state.gaps, [&](const PsnGap& gap) { return !state.Knows(gap.begin); });
}

}  // namespace

bool IsAtomic(Operation operation) {
  return operation == Operation::kCompareSwap || operation == Operation::kFetchAdd;
}

bool TakesReceive(const OpcodeInfo& info) {
  return info.operation == Operation::kSend || info.Has(roce::ExtHeader::kImmDt);
}

bool HasResponse(const SentRequest& sent) {
  const Operation operation = roce::InfoOf(sent.opcode).operation;
  return operation != Operation::kSend && operation != Operation::kWrite;
}

SentRequest Describe(const SeenFrame& frame, const Flow& flow) {
  const roce::Packet& packet = frame.packet;
  SentRequest sent;
  sent.psn = packet.psn;
  sent.opcode = packet.opcode;
  sent.ack_request = packet.ack_request;
  sent.length = static_cast<uint32_t>(packet.payload.size());
  sent.last_ns = frame.time_ns;
  sent.frame = frame.number;
  if (packet.info->operation == Operation::kReadRequest) {
    sent.length = packet.ext.reth.length;
    sent.span = ReadSpan(sent.length, flow.mtu);
    sent.va = packet.ext.reth.va;
  } else if (IsAtomic(packet.info->operation)) {
    sent.va = packet.ext.atomic.va;
    sent.operands = packet.ext.atomic.swap_add * 31 + packet.ext.atomic.compare;
  }
  return sent;
}

void AppendRequest(const SeenFrame& frame, Flow& flow) {
  RequestState& state = flow.requests;
  const OpcodeInfo& info = *frame.packet.info;
  SentRequest sent = Describe(frame, flow);
  if (info.IsLast()) {
    ++state.messages;
    ++flow.totals.messages;
    state.receives += TakesReceive(info) ? 1 : 0;
  }
  sent.messages = state.messages;
  sent.receives = state.receives;
  sent.epoch = state.epoch;
  if (state.unanswered == sent.psn) state.progress_ns = frame.time_ns;
  MoveNext(flow, sent.psn + std::max(sent.span, 1u));
  state.awaiting += HasResponse(sent) ? 1 : 0;
  state.sent.push_back(sent);
  if (state.sent.size() > kMostSent) Forget(flow);
  if (state.sent.size() > kMostAnswered && state.has_answer &&
      Distance(state.sent.front().last(), state.unanswered) > 0) {
    Forget(flow);
  }
}

void InsertRequest(const SeenFrame& frame, Flow& flow) {
  RequestState& state = flow.requests;
  SentRequest sent = Describe(frame, flow);
  const auto place =
      std::find_if(state.sent.rbegin(), state.sent.rend(),
                   [&](const SentRequest& s) { return Distance(s.psn, sent.psn) > 0; });
  sent.span = std::max(sent.span, 1u);
  sent.epoch = UINT32_MAX;
  state.awaiting += HasResponse(sent) ? 1 : 0;
  state.sent.insert(place.base(), sent);
}

SentRequest* FindSent(Flow& flow, Psn psn) {
  std::deque<SentRequest>& sent = flow.requests.sent;
  if (sent.empty()) return nullptr;
  const Psn origin = sent.front().psn;
  const int32_t at = Distance(origin, psn);
  if (at < 0) return nullptr;
  // Usually each has one PSN.
  if (static_cast<size_t>(at) < sent.size() && sent[static_cast<size_t>(at)].psn == psn) {
    return &sent[static_cast<size_t>(at)];
  }
  auto after = std::upper_bound(sent.begin(), sent.end(), at, [&](int32_t value, const auto& each) {
    return value < Distance(origin, each.psn);
  });
  SentRequest& found = *--after;
  return Distance(found.last(), psn) <= 0 ? &found : nullptr;
}

bool MayBeAnswered(Flow& flow, Psn psn) {
  const RequestState& state = flow.requests;
  if (!state.Knows(psn)) return false;
  return Distance(psn, state.next) <= kFarPsns || FindSent(flow, psn) != nullptr;
}

void SetAnswered(Flow& flow, SentRequest& sent) {
  if (!sent.is_answered && HasResponse(sent)) --flow.requests.awaiting;
  sent.is_answered = true;
}

bool AwaitsResponse(Flow& flow, Psn begin, Psn end) {
  if (flow.requests.awaiting == 0) return false;
  const std::deque<SentRequest>& sent = flow.requests.sent;
  return std::any_of(sent.rbegin(), sent.rend(), [&](const SentRequest& each) {
    if (Distance(each.last(), begin) > 0 || Distance(each.psn, end) <= 0) return false;
    return !each.is_answered && HasResponse(each);
  });
}

uint32_t ReadSpan(uint32_t length, uint32_t mtu) {
  if (length <= 256) return 1;
  return mtu == 0 ? 0 : (length - 1) / mtu + 1;
}

uint32_t MtuOf(const Flow& flow, const SentRequest& read) {
  if (flow.mtu != 0 || read.span <= 1) return flow.mtu;
  for (uint32_t mtu = 256; mtu <= roce::kMaxPathMtuBytes; mtu *= 2) {
    if (ReadSpan(read.length, mtu) == read.span) return mtu;
  }
  return 0;
}

void LearnMtu(Flow& flow, uint32_t bytes) {
  if (flow.mtu != 0 || !roce::PathMtuFromBytes(bytes)) return;
  flow.mtu = bytes;
  RequestState& state = flow.requests;
  if (state.sent.empty() || state.sent.back().span != 0) return;
  state.sent.back().span = ReadSpan(state.sent.back().length, bytes);
  MoveNext(flow, state.sent.back().last() + 1);
}

void SettleSpan(Flow& flow, Psn psn) {
  RequestState& state = flow.requests;
  if (state.sent.empty() || state.sent.back().span != 0) return;
  SentRequest& read = state.sent.back();
  const int32_t span = Distance(read.psn, psn);
  for (uint32_t mtu = 256; mtu <= roce::kMaxPathMtuBytes; mtu *= 2) {
    if (span <= 0 || ReadSpan(read.length, mtu) != static_cast<uint32_t>(span)) continue;
    read.span = static_cast<uint32_t>(span);
    MoveNext(flow, psn);
    return;
  }
}

}  // namespace roci::tools::judge
