// Unreliable connections and datagrams over a link that loses, damages, duplicates and delays
// frames, over many seeds. The oracle: completed messages are complete and equal to the sent ones;
// messages without a fault complete; no fault moves the queue pair to ERR.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string>

#include "memory/copy.h"
#include "roce/frame.h"
#include "roce/parse.h"
#include "roce/qp.h"
#include "tests/sim/arena.h"
#include "tests/sim/random.h"
#include "tests/sim/seeded_runs.h"
#include "tests/sim/sim_host.h"

namespace roci::sim {
namespace {

using roce::QpState;
using roce::QpType;

constexpr uint32_t kQkey = 0x1234;
constexpr uint32_t kReceives = 16;
constexpr uint32_t kReceiveBytes = 4096;  // of each buffer; no message with its header is longer

Arena* ArenaOf(int node) {
  static Arena arenas[2];
  return &arenas[node];
}

struct Faults {
  uint32_t loss = 0, corrupt = 0, duplicate = 0, reorder = 0;  // permille
  bool KeepsOrder() const { return duplicate == 0 && reorder == 0; }
};

struct End {
  End(QpType type, uint32_t qpn, Arena* arena)
      : host(arena, qpn), records(16), resources(1), qp(Config(type, qpn), records, resources) {}

  static roce::QpConfig Config(QpType type, uint32_t qpn) {
    roce::QpConfig config;
    config.type = type;
    config.qpn = roce::Qpn(qpn);
    config.limits.max_dest_rd_atomic = 1;
    config.limits.max_path_mtu = roce::PathMtu::k1024;
    return config;
  }

  void ToRts(roce::PathMtu mtu, roce::Qpn peer, roce::Psn psn) {
    const bool is_ud = qp.type() == roce::QpType::kUd;
    roce::QpAttributes a;
    a.port = 1;
    a.access_flags = roce::kQpAccessRemoteWrite;
    a.path_mtu = mtu;
    a.dest_qpn = peer;
    a.rq_psn = a.sq_psn = psn;
    a.qkey = kQkey;
    const auto modify = [&](roce::QpState state, uint32_t mask) {
      a.state = state;
      if (qp.Modify(host, a, mask | roce::kAttrState) != roce::ModifyResult::kOk) abort();
    };
    modify(roce::QpState::kInit, roce::kAttrPkeyIndex | roce::kAttrPort |
                                     (is_ud ? roce::kAttrQkey : roce::kAttrAccessFlags));
    modify(roce::QpState::kRtr, is_ud ? 0
                                      : roce::kAttrAddressVector | roce::kAttrPathMtu |
                                            roce::kAttrDestQpn | roce::kAttrRqPsn);
    modify(roce::QpState::kRts, roce::kAttrSqPsn);
  }

  SimHost host;
  std::vector<roce::SendRecord> records;
  std::vector<roce::ResponderResource> resources;
  roce::Qp<SimHost> qp;
};

// A message. Its immediate data is its number.
struct Message {
  bool is_write = false;
  bool solicited = false;
  uint32_t length = 0;
  uint32_t source = 0;  // offset in kSource of the sender
  uint32_t target = 0;  // WRITE: offset in kTarget of the receiver
  bool harmed = false;  // a frame of it was lost or damaged, or its Q_Key is wrong
  uint32_t received = 0;
};

class SeededRun {
 public:
  SeededRun(QpType type, uint64_t seed)
      : random_(seed),
        type_(type),
        mtu_(type == QpType::kUd ? roce::PathMtu::k1024
                                 : static_cast<roce::PathMtu>(random_.Between(1, 3))),
        sender_(type, 0x100, ArenaOf(0)),
        receiver_(type, 0x101, ArenaOf(1)),
        buffer_(roce::kMaxFrameBytes) {
    for (int node = 0; node < 2; ++node) ArenaOf(node)->Reset(random_);
    const roce::Psn psn = roce::Psn(0xFFFFFF) - static_cast<uint32_t>(random_.Below(60));
    sender_.ToRts(mtu_, receiver_.qp.qpn(), psn);
    receiver_.ToRts(mtu_, sender_.qp.qpn(), psn);
    const bool ipv6 = random_.Chance(500);
    roce::Path path;
    path.src_gid = Address(1, ipv6);
    path.dst_gid = Address(2, ipv6);
    frame_ = roce::FrameTemplate(path);
    const auto some = [this](uint32_t most) {
      return random_.Chance(500) ? static_cast<uint32_t>(random_.Below(most)) : 0;
    };
    if (!random_.Chance(100)) faults_ = {some(200), some(150), some(150), some(150)};
    for (uint32_t i = 0; i < kReceives; ++i) PostRecv(i);
  }

  std::optional<std::string> Go() {
    const auto messages = static_cast<uint32_t>(random_.Between(1, 60));
    while (messages_.size() < messages) {
      const uint64_t batch = random_.Between(1, 5);
      for (uint64_t i = 0; i < batch; ++i) PostSend();
      sender_.qp.HandleWork(sender_.host);
      if (auto wrong = Transmit()) return wrong;
    }
    if (auto wrong = DeliverDelayed(0)) return wrong;
    return CheckEnd();
  }

  uint64_t harmed() const { return harmed_; }
  uint64_t delivered() const { return receiver_.host.recv_completions().size(); }

 private:
  static roce::Gid Address(uint8_t last, bool ipv6) {
    if (!ipv6) return roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, last}});
    roce::Gid gid;
    gid.bytes[0] = 0xFD;
    gid.bytes[15] = last;
    return gid;
  }
  uint32_t HeaderBytes() const { return type_ == QpType::kUd ? roce::kGrhBytes : 0; }

  void PostRecv(uint32_t buffer) {
    PostedRecv post;
    const Arena& arena = *ArenaOf(1);
    post.sges = {{arena.va(kReceive) + uint64_t{buffer} * kReceiveBytes, kReceiveBytes,
                  roce::Key(arena.key(kReceive))}};
    post.wqe.wr_id = buffer;
    post.wqe.capacity = kReceiveBytes;
    post.wqe.num_sge = 1;
    post.wqe.first_sge = post.sges[0];
    receiver_.host.PostRecv(std::move(post));
  }

  void PostSend() {
    Message message;
    const bool is_ud = type_ == QpType::kUd;
    message.is_write = !is_ud && random_.Chance(400);
    message.length = static_cast<uint32_t>(
        random_.Below(is_ud ? roce::PathMtuBytes(mtu_) + 1 : kReceiveBytes + 1));
    message.source = static_cast<uint32_t>(random_.Below(65536 - message.length));
    message.target = static_cast<uint32_t>(random_.Below(65536 - message.length));
    PostedSend post;
    roce::SendWqe& wqe = post.wqe;
    const Arena& mine = *ArenaOf(0);
    const Arena& theirs = *ArenaOf(1);
    wqe.wr_id = messages_.size();
    wqe.opcode =
        message.is_write ? roce::WorkOpcode::kRdmaWriteWithImm : roce::WorkOpcode::kSendWithImm;
    wqe.length = message.length;
    wqe.immediate = static_cast<uint32_t>(messages_.size());
    wqe.signaled = true;
    wqe.remote_va = theirs.va(kTarget) + message.target;
    wqe.rkey = roce::Key(theirs.key(kTarget));
    wqe.datagram.remote_qpn = receiver_.qp.qpn().value();
    wqe.solicited = message.solicited = random_.Chance(500);
    wqe.datagram.remote_qkey = kQkey;
    if (is_ud) ChooseQkey(wqe, message);
    post.sges = {{mine.va(kSource) + message.source, message.length, roce::Key(mine.key(kSource))}};
    wqe.num_sge = 1;
    wqe.first_sge = post.sges[0];
    sender_.host.PostSend(std::move(post));
    messages_.push_back(message);
  }

  // If the top bit is set, the queue pair's own Q_Key is sent instead (IBTA vol 1, 10.2.5). The
  // receiver silently drops a message with another Q_Key than its own (9.8.3).
  void ChooseQkey(roce::SendWqe& wqe, Message& message) {
    if (random_.Chance(200)) {
      wqe.datagram.remote_qkey = 0x80000000U | static_cast<uint32_t>(random_.Next());
    } else if (random_.Chance(150)) {
      wqe.datagram.remote_qkey ^= 1U << random_.Below(31);
      message.harmed = true;
    }
  }

  // Sends all frames that the sender has, and applies the faults to each.
  std::optional<std::string> Transmit() {
    roce::TxPacket packet;
    memory::SegmentList payload;
    for (;;) {
      if (!sender_.qp.PollTransmit(sender_.host, 1, packet, payload)) return std::nullopt;
      std::byte* place = roce::StartFrame(frame_, packet, 0, buffer_.data());
      if (memory::CopyOut(payload, {place, packet.payload_length}) != memory::MemoryStatus::kOk) {
        abort();
      }
      const uint32_t length = roce::FinishFrame(frame_, packet, buffer_.data());
      std::vector<std::byte> bytes(buffer_.begin(), buffer_.begin() + length);
      // The current message is the first that is not completely sent.
      const size_t number = sent_;
      const roce::OpcodeInfo& info = roce::InfoOf(packet.opcode);
      if (info.IsLast()) ++sent_;
      if (auto wrong = Fate(std::move(bytes), number)) return wrong;
    }
  }

  std::optional<std::string> Fate(std::vector<std::byte> frame, size_t number) {
    if (random_.Chance(faults_.loss)) {
      Harm(number);
      return std::nullopt;
    }
    if (random_.Chance(faults_.corrupt)) {
      Harm(number);
      // Damages a byte of which every bit is checked: immediate data, payload, or the ICRC.
      frame[frame.size() - random_.Between(1, 8)] ^= static_cast<std::byte>(1u << random_.Below(8));
    }
    if (random_.Chance(faults_.reorder)) {
      delayed_.push_back(std::move(frame));
      return std::nullopt;
    }
    if (auto wrong = Deliver(frame)) return wrong;
    if (random_.Chance(faults_.duplicate)) {
      if (auto wrong = Deliver(frame)) return wrong;
    }
    return DeliverDelayed(static_cast<size_t>(random_.Below(3)));
  }

  void Harm(size_t number) {
    harmed_ += messages_[number].harmed ? 0 : 1;
    messages_[number].harmed = true;
  }

  std::optional<std::string> DeliverDelayed(size_t keep) {
    while (delayed_.size() > keep) {
      const std::vector<std::byte> frame = std::move(delayed_.front());
      delayed_.erase(delayed_.begin());
      if (auto wrong = Deliver(frame)) return wrong;
    }
    return std::nullopt;
  }

  std::optional<std::string> Deliver(const std::vector<std::byte>& frame) {
    if (roce::ParsePacket(frame, packet_) == roce::DropReason::kNone) {
      receiver_.qp.HandlePacket(receiver_.host, 1, packet_);
    }
    if (!ArenaOf(1)->GuardsIntact()) return std::string("wrote outside of a region");
    const auto& completions = receiver_.host.recv_completions();
    for (; seen_ < completions.size(); ++seen_) {
      if (auto wrong = CheckReceived(completions[seen_])) return wrong;
      PostRecv(static_cast<uint32_t>(completions[seen_].wr_id));
    }
    return std::nullopt;
  }

  std::optional<std::string> CheckReceived(const roce::Completion& completion) {
    if (completion.status != roce::CompletionStatus::kSuccess || !completion.has_immediate) {
      return "receive with status " + std::to_string(static_cast<int>(completion.status));
    }
    const uint32_t number = completion.immediate;
    if (number >= sent_ + 1 || number >= messages_.size())
      return std::string("a message of nobody");
    Message& message = messages_[number];
    const std::string name = "message " + std::to_string(number);
    if (completion.byte_length != message.length + (message.is_write ? 0 : HeaderBytes())) {
      return name + ": length";
    }
    if (completion.solicited != message.solicited) return name + ": solicited or not";
    if (type_ == QpType::kUd && completion.source_qpn != sender_.qp.qpn()) {
      return name + ": of another queue pair";
    }
    const auto source = ArenaOf(0)->bytes(kSource).subspan(message.source, message.length);
    const auto place = message.is_write
                           ? ArenaOf(1)->bytes(kTarget).subspan(message.target, message.length)
                           : ArenaOf(1)->bytes(kReceive).subspan(
                                 completion.wr_id * kReceiveBytes + HeaderBytes(), message.length);
    if (!std::equal(source.begin(), source.end(), place.begin())) return name + ": other bytes";
    if (faults_.KeepsOrder() && number < next_in_order_) return name + ": twice or out of order";
    next_in_order_ = number + 1;
    ++message.received;
    return std::nullopt;
  }

  std::optional<std::string> CheckEnd() {
    if (sender_.qp.state() != QpState::kRts || receiver_.qp.state() != QpState::kRts) {
      return std::string("a queue pair has ended");
    }
    if (sender_.qp.NextTimeout() != roce::kNever) return std::string("a timer runs");
    if (sender_.host.send_completions().size() != messages_.size()) {
      return std::string("requests without a completion");
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (sender_.host.send_completions()[i].status != roce::CompletionStatus::kSuccess ||
          sender_.host.send_completions()[i].wr_id != i) {
        return std::string("completion of a request");
      }
      const Message& message = messages_[i];
      const std::string name = "message " + std::to_string(i);
      // A doubled frame of a harmed message may be the undamaged one only if it was harmed before.
      if (message.harmed && message.received != 0) return name + ": harmed, and yet received";
      const bool must_come = !message.harmed && (faults_.KeepsOrder() || type_ == QpType::kUd);
      if (must_come && message.received == 0) return name + ": lost without a reason";
      if (faults_.duplicate == 0 && message.received > 1) return name + ": received twice";
    }
    return std::nullopt;
  }

  Random random_;
  QpType type_;
  roce::PathMtu mtu_;
  End sender_;
  End receiver_;
  Faults faults_;
  roce::FrameTemplate frame_;
  roce::Packet packet_;
  std::vector<std::byte> buffer_;
  std::vector<Message> messages_;
  std::vector<std::vector<std::byte>> delayed_;
  size_t sent_ = 0;  // number of completely sent messages
  size_t seen_ = 0;
  uint32_t next_in_order_ = 0;
  uint64_t harmed_ = 0;
};

class UnreliableSimulation : public ::testing::TestWithParam<QpType> {};
INSTANTIATE_TEST_SUITE_P(Services, UnreliableSimulation,
                         ::testing::Values(QpType::kUc, QpType::kUd), [](const auto& service) {
                           return service.param == QpType::kUc ? "Uc" : "Ud";
                         });

TEST_P(UnreliableSimulation, ReceivedMessagesAreCompleteAndLostOnesReportNothing) {
  const Seeds seeds(4000);
  uint64_t harmed = 0;
  uint64_t delivered = 0;
  ForEachSeed(
      seeds, [](uint64_t seed) { return SeededRun(GetParam(), seed); },
      [&](const SeededRun& run) {
        harmed += run.harmed();
        delivered += run.delivered();
      });
  if (seeds.AreMany()) {
    EXPECT_GT(harmed, seeds.count / 10) << "a simulation without faults shows nothing";
    EXPECT_GT(delivered, seeds.count);
  }
}

}  // namespace
}  // namespace roci::sim
