#include "tools/trace/trace_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <span>

#include "absl/strings/ascii.h"
#include "control/manage/event_table.h"
#include "control/manage/manage_protocol.h"
#include "roce/headers.h"
#include "roce/opcode.h"
#include "roce/qp_attributes.h"
#include "verbs_provider/abi/rings.h"

namespace roci::tools {
namespace {

using dataplane::TraceCompletion;
using dataplane::TraceKind;
using dataplane::TracePacket;
using dataplane::TracePost;
using dataplane::TraceRecord;
using dataplane::TraceState;
using roce::ExtHeader;

struct Name {
  uint32_t value;
  std::string_view name;
};

// Names of enum ibv_wr_opcode, without IBV_WR_.
constexpr auto kPostNames = std::to_array<Name>({
    {ROCI_ABI_WR_RDMA_WRITE, "RDMA_WRITE"},
    {ROCI_ABI_WR_RDMA_WRITE_WITH_IMM, "RDMA_WRITE_WITH_IMM"},
    {ROCI_ABI_WR_SEND, "SEND"},
    {ROCI_ABI_WR_SEND_WITH_IMM, "SEND_WITH_IMM"},
    {ROCI_ABI_WR_RDMA_READ, "RDMA_READ"},
    {ROCI_ABI_WR_ATOMIC_CMP_AND_SWP, "ATOMIC_CMP_AND_SWP"},
    {ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, "ATOMIC_FETCH_AND_ADD"},
    {ROCI_ABI_WR_LOCAL_INV, "LOCAL_INV"},
    {ROCI_ABI_WR_BIND_MW, "BIND_MW"},
    {ROCI_ABI_WR_SEND_WITH_INV, "SEND_WITH_INV"},
    {ROCI_ABI_WR_TSO, "TSO"},
    {ROCI_ABI_WR_FLUSH, "FLUSH"},
    {ROCI_ABI_WR_ATOMIC_WRITE, "ATOMIC_WRITE"},
    {ROCI_ABI_WR_REG_LIST, "REG_LIST"},
    {TracePost::kReceive, "RECV"},
});

// Of enum ibv_wc_opcode, without IBV_WC_.
constexpr auto kCompletionNames = std::to_array<Name>({
    {0, "SEND"},
    {1, "RDMA_WRITE"},
    {2, "RDMA_READ"},
    {3, "COMP_SWAP"},
    {4, "FETCH_ADD"},
    {5, "BIND_MW"},
    {6, "LOCAL_INV"},
    {8, "FLUSH"},
    {9, "ATOMIC_WRITE"},
    {128, "RECV"},
    {129, "RECV_RDMA_WITH_IMM"},
    {135, "REG_LIST"},
});

// Of enum ibv_wc_status, without IBV_WC_.
constexpr auto kStatusNames = std::to_array<Name>({
    {0, "SUCCESS"},         {1, "LOC_LEN_ERR"},         {2, "LOC_QP_OP_ERR"},
    {3, "LOC_EEC_OP_ERR"},  {4, "LOC_PROT_ERR"},        {5, "WR_FLUSH_ERR"},
    {6, "MW_BIND_ERR"},     {7, "BAD_RESP_ERR"},        {8, "LOC_ACCESS_ERR"},
    {9, "REM_INV_REQ_ERR"}, {10, "REM_ACCESS_ERR"},     {11, "REM_OP_ERR"},
    {12, "RETRY_EXC_ERR"},  {13, "RNR_RETRY_EXC_ERR"},  {16, "REM_ABORT_ERR"},
    {19, "FATAL_ERR"},      {20, "RESP_TIMEOUT_ERR"},   {21, "GENERAL_ERR"},
    {22, "TM_ERR"},         {23, "TM_RNDV_INCOMPLETE"},
});

// A value without a name is `what` and its number.
std::string NameOf(std::span<const Name> names, uint32_t value, const char* what = "opcode_") {
  const auto it = std::ranges::find(names, value, &Name::value);
  return it != names.end() ? std::string(it->name) : what + std::to_string(value);
}

std::string UpperCase(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = absl::ascii_toupper(static_cast<unsigned char>(c));
  return upper;
}

std::string EventName(uint32_t type) {
  const auto& table = control::kEventTable;
  const auto it = std::ranges::find(table, type, &control::EventRow::number);
  return it != table.end() ? UpperCase(it->name) : "event_" + std::to_string(type);
}

std::string_view StateName(uint8_t state) {
  if (state == TraceState::kDestroyed) return "DESTROYED";
  return state < roce::kQpStateCount ? roce::QpStateName(static_cast<roce::QpState>(state)) : "?";
}

std::string_view NakName(uint8_t code) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"PSN_SEQUENCE_ERROR", "INVALID_REQUEST", "REMOTE_ACCESS_ERROR", "REMOTE_OPERATIONAL_ERROR",
       "INVALID_RD_REQUEST"});
  return code < kNames.size() ? kNames[code] : "RESERVED";
}

const std::byte* HeaderAt(const TracePacket& packet, const roce::OpcodeInfo& info,
                          ExtHeader header) {
  return packet.headers.data() + info.OffsetOf(header);
}

// Whether the record has the header: the copy is shorter than the headers of some packets.
bool Has(const TracePacket& packet, const roce::OpcodeInfo& info, ExtHeader header) {
  return info.known && info.Has(header) &&
         info.OffsetOf(header) + roce::kExtHeaderBytes[static_cast<size_t>(header)] <=
             std::min<size_t>(packet.bytes, packet.headers.size());
}

// "ACK", "NAK", "RNR_NAK" of an acknowledge packet, else the opcode's name.
std::string_view PacketName(const TracePacket& packet, const roce::OpcodeInfo& info) {
  if (!info.known) return "RESERVED_OPCODE";
  if (info.operation != roce::Operation::kAcknowledge || !Has(packet, info, ExtHeader::kAeth)) {
    return info.name;
  }
  switch (roce::Aeth::Load(HeaderAt(packet, info, ExtHeader::kAeth)).kind()) {
    case roce::AethKind::kAck:
      return "ACK";
    case roce::AethKind::kRnrNak:
      return "RNR_NAK";
    case roce::AethKind::kNak:
      return "NAK";
    default:
      return info.name;
  }
}

void AppendAeth(const roce::Aeth& aeth, TraceFields& fields) {
  fields.Number("msn", aeth.msn.value());
  if (aeth.kind() == roce::AethKind::kNak) fields.Named("code", NakName(aeth.value()));
  if (aeth.kind() == roce::AethKind::kRnrNak) {
    fields.Number("timer_us", roce::kRnrTimerNs[aeth.value()] / 1000);
  }
}

void AppendExtensions(const TracePacket& packet, const roce::OpcodeInfo& info,
                      TraceFields& fields) {
  const auto at = [&](ExtHeader header) { return HeaderAt(packet, info, header); };
  if (Has(packet, info, ExtHeader::kDeth)) {
    fields.Number("src_qp", roce::Deth::Load(at(ExtHeader::kDeth)).src_qpn.value());
  }
  if (Has(packet, info, ExtHeader::kXrcEth)) {
    fields.Number("srq", roce::XrcEth::Load(at(ExtHeader::kXrcEth)).srq_number);
  }
  if (Has(packet, info, ExtHeader::kReth)) {
    const roce::Reth reth = roce::Reth::Load(at(ExtHeader::kReth));
    fields.Hex("va", reth.va);
    fields.Hex("rkey", reth.rkey.value());
    fields.Number("dma_len", reth.length);
  }
  if (Has(packet, info, ExtHeader::kAtomicEth)) {
    const roce::AtomicEth atomic = roce::AtomicEth::Load(at(ExtHeader::kAtomicEth));
    fields.Hex("va", atomic.va);
    fields.Hex("rkey", atomic.rkey.value());
  }
  if (Has(packet, info, ExtHeader::kAeth)) {
    AppendAeth(roce::Aeth::Load(at(ExtHeader::kAeth)), fields);
  }
  if (Has(packet, info, ExtHeader::kImmDt)) {
    fields.Hex("imm", roce::ImmDt::Load(at(ExtHeader::kImmDt)).value);
  }
}

uint32_t FromNetwork(uint32_t value) { return __builtin_bswap32(value); }

void AppendPost(const TracePost& post, TraceFields& fields) {
  fields.Word("opcode", TracePostName(post));
  fields.Number("wr_id", post.wr_id);
  fields.Number("len", post.length);
  if (post.opcode == TracePost::kReceive) return;
  if (post.num_sge > 1) fields.Number("sges", post.num_sge);
  if (post.rkey != 0) {
    fields.Hex("va", post.remote_va);
    fields.Hex("rkey", post.rkey);
  }
  if (post.opcode == ROCI_ABI_WR_SEND_WITH_IMM || post.opcode == ROCI_ABI_WR_RDMA_WRITE_WITH_IMM) {
    fields.Hex("imm", FromNetwork(post.immediate));
  }
  if ((post.flags & ROCI_ABI_SEND_SIGNALED) != 0) fields.Flag("signaled");
  if ((post.flags & ROCI_ABI_SEND_SOLICITED) != 0) fields.Flag("solicited");
  if ((post.flags & ROCI_ABI_SEND_FENCE) != 0) fields.Flag("fence");
}

void AppendCompletion(const TraceCompletion& completion, TraceFields& fields) {
  fields.Word("opcode", TraceCompletionName(completion));
  fields.Number("wr_id", completion.wr_id);
  fields.Named("status", NameOf(kStatusNames, completion.status, "status_"));
  if (completion.status != 0) {
    fields.Hex("vendor_err", completion.vendor_error);
    return;
  }
  if (!completion.is_send) fields.Number("len", completion.byte_length);
  if (completion.source_qpn != 0 && !completion.is_send)
    fields.Number("src_qp", completion.source_qpn);
  if (completion.has_immediate) fields.Hex("imm", FromNetwork(completion.immediate));
  if (completion.has_invalidate) fields.Hex("invalidated", completion.immediate);
}

// A limit of 7 on RNR retries stands for none (IBTA vol 1, 9.7.5.2.8).
std::string LimitOf(const dataplane::TraceTimer& timer) {
  return timer.is_rnr && timer.most == 7 ? "any" : std::to_string(timer.most);
}

void AppendTimer(const dataplane::TraceTimer& timer, TraceFields& fields) {
  fields.Word("what", timer.is_rnr ? "rnr" : "retry");
  if (!fields.is_json()) {
    const std::string which = timer.retry == 0 ? "none left" : std::to_string(timer.retry);
    return fields.Word("", which + " of " + LimitOf(timer));
  }
  fields.Number("retry", timer.retry);
  fields.Named("of", LimitOf(timer));
}

// A new connection has PSNs of its own.
bool StartsAnew(const TraceState& state) {
  return state.to == TraceState::kDestroyed ||
         state.to == static_cast<uint8_t>(roce::QpState::kReset) ||
         state.from == static_cast<uint8_t>(roce::QpState::kRtr);
}

void AppendState(const TraceState& state, TraceFields& fields) {
  fields.Word("from", StateName(state.from));
  if (!fields.is_json()) fields.Word("", "->");
  fields.Word("to", StateName(state.to));
}

}  // namespace

std::string TracePostName(const TracePost& post) { return NameOf(kPostNames, post.opcode); }

std::string_view TracePacketName(const TracePacket& packet) {
  return PacketName(packet, roce::InfoOf(roce::Bth::Load(packet.headers.data()).opcode));
}

std::string TraceCompletionName(const TraceCompletion& completion) {
  return NameOf(kCompletionNames, completion.opcode);
}

void AppendAll(std::string& out, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) out += part;
}

void TraceFields::Word(std::string_view name, std::string_view value) {
  if (json_) return Named(name, value);
  AppendAll(out_, {" ", value});
}

void TraceFields::Named(std::string_view name, std::string_view value) {
  if (json_) {
    AppendAll(out_, {",\"", name, "\":\"", value, "\""});
  } else {
    AppendAll(out_, {" ", name, "=", value});
  }
}

void TraceFields::Number(std::string_view name, uint64_t value) {
  if (json_) {
    AppendAll(out_, {",\"", name, "\":", std::to_string(value)});
  } else {
    AppendAll(out_, {" ", name, "=", std::to_string(value)});
  }
}

void TraceFields::Hex(std::string_view name, uint64_t value) {
  if (json_) return Number(name, value);
  std::array<char, 16> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  AppendAll(out_, {" ", name, "=0x", std::string_view(digits.data(), end)});
}

void TraceFields::Flag(std::string_view name) {
  if (json_) {
    AppendAll(out_, {",\"", name, "\":true"});
  } else {
    AppendAll(out_, {" ", name});
  }
}

const std::string& TraceText::DeviceOf(const TraceRecord& record) const {
  static const std::string unknown = "?";
  return record.device < devices_.size() ? devices_[record.device] : unknown;
}

// Whether the queue pair has sent a request with this PSN before.
bool TraceText::IsRepeat(const TraceRecord& record, roce::Psn psn) {
  const auto [it, is_first] = next_psn_.try_emplace({record.device, record.qpn}, psn);
  if (!is_first && roce::Distance(psn, it->second) > 0) return true;
  it->second = psn + 1;
  return false;
}

void TraceText::AppendPacket(const TraceRecord& record, TraceFields& fields) {
  const TracePacket& packet = record.packet;
  const roce::Bth bth = roce::Bth::Load(packet.headers.data());
  const roce::OpcodeInfo& info = roce::InfoOf(bth.opcode);
  fields.Word("opcode", PacketName(packet, info));
  fields.Number("psn", bth.psn.value());
  const uint32_t around = info.header_bytes + bth.pad_count + 4;  // headers, pad, ICRC
  if (info.known && info.payload != roce::PayloadRule::kNone)
    fields.Number("len", packet.bytes > around ? packet.bytes - around : 0);
  AppendExtensions(packet, info, fields);
  if (packet.is_sent) fields.Hex("to_qp", bth.dest_qpn.value());
  if (bth.ack_request) fields.Flag("ack_req");
  if (bth.solicited) fields.Flag("solicited");
  if (packet.is_marked) fields.Flag("ce");
  const bool is_sequenced = info.known && info.is_request &&
                            info.operation != roce::Operation::kCnp &&
                            !Has(packet, info, ExtHeader::kDeth);
  if (packet.is_sent && is_sequenced && IsRepeat(record, bth.psn)) fields.Flag("again");
}

void TraceText::AppendFields(const TraceRecord& record, TraceFields& fields) {
  switch (record.kind) {
    case TraceKind::kPost:
      return AppendPost(record.post, fields);
    case TraceKind::kPacket:
      return AppendPacket(record, fields);
    case TraceKind::kCompletion:
      return AppendCompletion(record.completion, fields);
    case TraceKind::kTimer:
      return AppendTimer(record.timer, fields);
    case TraceKind::kEvent:
      return fields.Word("event", EventName(record.event.type));
    case TraceKind::kState:
      if (StartsAnew(record.state)) next_psn_.erase({record.device, record.qpn});
      return AppendState(record.state, fields);
    case TraceKind::kLost:
      return fields.Number("records", record.lost.records);
  }
}

namespace {

// The part of the line before the fields.
std::string_view TextOfKind(const TraceRecord& record) {
  if (record.kind == TraceKind::kPacket) return record.packet.is_sent ? "->" : "<-";
  return control::kTraceKindNames[static_cast<size_t>(record.kind)];
}

}  // namespace

void TraceText::AppendLine(const TraceRecord& record, std::string& out) {
  const uint64_t time_ns = TimeOf(record);
  char head[64];
  if (record.kind == TraceKind::kLost) {
    std::snprintf(head, sizeof(head), "%6" PRIu64 ".%06" PRIu64, time_ns / 1'000'000'000,
                  time_ns / 1000 % 1'000'000);
    AppendAll(out, {head, " ", std::to_string(record.lost.records), " records lost\n"});
    return;
  }
  std::snprintf(head, sizeof(head), "%6" PRIu64 ".%06" PRIu64 " %s/0x%-6" PRIx32 " ",
                time_ns / 1'000'000'000, time_ns / 1000 % 1'000'000, DeviceOf(record).c_str(),
                record.qpn);
  AppendAll(out, {head, TextOfKind(record)});
  TraceFields fields(/*json=*/false, out);
  AppendFields(record, fields);
  out += '\n';
}

void TraceText::AppendJson(const TraceRecord& record, std::string& out) {
  AppendAll(out, {"{\"time_ns\":", std::to_string(TimeOf(record))});
  TraceFields fields(/*json=*/true, out);
  if (record.kind == TraceKind::kLost) {
    fields.Named("kind", "lost");
  } else {
    fields.Named("device", DeviceOf(record));
    fields.Number("qp", record.qpn);
    fields.Named("kind", control::kTraceKindNames[static_cast<size_t>(record.kind)]);
  }
  if (record.kind == TraceKind::kPacket)
    fields.Named("direction", record.packet.is_sent ? "out" : "in");
  AppendFields(record, fields);
  out += "}\n";
}

}  // namespace roci::tools
