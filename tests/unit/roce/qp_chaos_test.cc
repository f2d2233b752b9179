// Random packets, host results and call order: the queue pair keeps its invariants, completes every
// request exactly once and in order, and becomes idle.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/roce/qp_host.h"
#include "tests/unit/roce/rng.h"

namespace roci::roce {
namespace {

constexpr uint32_t kRecords = 16;

NodeOptions ChaosOptions(Rng& rng, QpType type) {
  NodeOptions options;
  options.type = type;
  options.records = kRecords;
  options.path_mtu = static_cast<PathMtu>(1 + rng() % 3);
  options.limits.window_packets = 2 + rng() % 40;
  options.limits.ack_every_packets = static_cast<uint16_t>(1 + rng() % 8);
  options.limits.max_path_mtu = PathMtu::k1024;
  options.max_rd_atomic = static_cast<uint8_t>(rng() % 5);
  options.max_dest_rd_atomic = static_cast<uint8_t>(rng() % 5);
  options.timeout = static_cast<uint8_t>(rng() % 3);
  options.retry_count = static_cast<uint8_t>(rng() % 8);
  options.rnr_retry = static_cast<uint8_t>(rng() % 8);
  options.uses_srq = rng() % 8 == 0;
  options.sq_psn = Psn(0xFFFFF0 + rng() % 32);
  options.rq_psn = Psn(0xFFFFF0 + rng() % 32);
  return options;
}

class Chaos {
 public:
  // Every second seed enables congestion control.
  Chaos(uint32_t seed, QpType type)
      : controlled_(seed % 2 == 0), rng_(seed), node_(Options(ChaosOptions(rng_, type))) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) {
      Step();
      CheckInvariants();
    }
    node_.Modify(QpState::kErr);
    for (int i = 0; node_.PassTimeout(); ++i) ASSERT_LT(i, 1000);
    EXPECT_TRUE(node_.host.sends.empty());
    QpDebug debug;
    node_.qp.Describe(node_.now, debug);
    EXPECT_EQ(debug.requester.records, 0u);
    CheckInvariants();
  }

 private:
  NodeOptions Options(NodeOptions options) {
    if (controlled_) options.congestion = &dcqcn_;
    return options;
  }

  void Step() {
    if (controlled_ && rng_() % 8 == 0) ReceiveCnp();
    switch (rng_() % 16) {
      case 0:
      case 1:
        PostSend();
        break;
      case 2:
        node_.host.PostRecv(rng_() % 1200, rng_() % 4096);
        if (rng_() % 40 == 0) node_.host.bad_receive = CompletionStatus::kLocalQpOperationError;
        node_.Work();
        break;
      case 3:
        node_.PassTimeout();
        break;
      case 4:
        BreakTheHost();
        break;
      case 5:
        Modify();
        break;
      case 6:
      case 7:
        Emit(1 + rng_() % 20);
        break;
      case 8:
      case 9:
      case 10:
        node_.now += rng_() % 10'000;
        Receive(PlausibleRequest());
        break;
      case 11:
      case 12:
      case 13:
        Receive(PlausibleResponse());
        break;
      default:
        Receive(AnyPacket());
        break;
    }
  }

  void PostSend() {
    SendWqe& wqe = node_.host.PostSend(AnyRequest(), rng_() % 3000, rng_() % 4096, rng_() % 4096);
    const bool has_eight_bytes = wqe.opcode == WorkOpcode::kCompareSwap ||
                                 wqe.opcode == WorkOpcode::kFetchAdd ||
                                 wqe.opcode == WorkOpcode::kAtomicWrite;
    wqe.fence = rng_() % 4 == 0;
    wqe.signaled = rng_() % 2 == 0;
    if (rng_() % 60 == 0) wqe.first_sge.lkey = Key(rng_());
    if (rng_() % 60 == 0) wqe.length = rng_();
    if (has_eight_bytes) wqe.length = 8;
    if (rng_() % 60 == 0) node_.host.bad_send = CompletionStatus::kLocalLengthError;
    node_.Work();
  }

  // One that gate 2 lets through for this type of queue pair (IBTA vol 1, 10.8.2).
  WorkOpcode AnyRequest() {
    constexpr WorkOpcode kUnreliable[] = {WorkOpcode::kSend,
                                          WorkOpcode::kSendWithImm,
                                          WorkOpcode::kRdmaWrite,
                                          WorkOpcode::kRdmaWriteWithImm,
                                          WorkOpcode::kLocalInvalidate,
                                          WorkOpcode::kBindMw};
    switch (node_.options.type) {
      case QpType::kUd:
        return rng_() % 2 == 0 ? WorkOpcode::kSend : WorkOpcode::kSendWithImm;
      case QpType::kUc:
        return kUnreliable[rng_() % std::size(kUnreliable)];
      default:
        return static_cast<WorkOpcode>(rng_() % 12);
    }
  }

  void BreakTheHost() {
    ScriptedHost& host = node_.host;
    host.place_faults = rng_() % 30 == 0;
    host.atomic_faults = rng_() % 30 == 0;
    host.invalidate_fails = rng_() % 2 == 0;
    auto& remote = host.grants[ScriptedHost::kRkey.value()];
    remote.length = rng_() % 30 == 0 ? 0 : host.bytes.size();
    remote.va = ScriptedHost::kMemoryVa;
    remote.access = memory::Access::kLocalWrite | memory::Access::kRemoteWrite |
                    memory::Access::kRemoteRead | memory::Access::kRemoteAtomic;
  }

  void Modify() {
    const QpState targets[] = {QpState::kRts, QpState::kSqd, QpState::kRts, QpState::kRts};
    node_.attributes.en_sqd_async_notify = true;
    const QpState target = rng_() % 200 == 0 ? QpState::kErr : targets[rng_() % 4];
    node_.Modify(target,
                 target == QpState::kSqd && node_.qp.state() == QpState::kRts ? kAttrSqdNotify : 0);
  }

  void Emit(uint32_t budget) {
    for (uint32_t i = 0; i < budget; ++i) {
      const auto packet = node_.Poll();
      if (!packet) return;
      ASSERT_LE(packet->payload.size(), 1024u);
      ASSERT_TRUE(packet->info().known);
      if (rng_() % 100 == 0) node_.qp.HandleTransmitFault(node_.host, node_.now, packet->tx);
      last_sent_ = packet->tx;
    }
  }

  // A request close to the PSN that the responder expects.
  WirePacket PlausibleRequest() {
    QpDebug debug;
    node_.qp.Describe(node_.now, debug);
    const uint32_t jitter = rng_() % 10;
    const Psn psn = debug.responder.expected_psn + (jitter < 6 ? 0 : rng_() % 6 - 3);
    static constexpr Opcode kOpcodes[] = {
        Opcode::kRcSendFirst, Opcode::kRcSendMiddle,  Opcode::kRcSendLast,   Opcode::kRcSendOnly,
        Opcode::kRcWriteOnly, Opcode::kRcWriteFirst,  Opcode::kRcWriteLast,  Opcode::kRcReadRequest,
        Opcode::kRcFetchAdd,  Opcode::kRcCompareSwap, Opcode::kRcSendOnlyImm};
    const Opcode opcode = kOpcodes[rng_() % std::size(kOpcodes)];
    const uint32_t mtu = PathMtuBytes(node_.options.path_mtu);
    const bool full = opcode == Opcode::kRcSendFirst || opcode == Opcode::kRcSendMiddle ||
                      opcode == Opcode::kRcWriteFirst;
    const OpcodeInfo& info = InfoOf(opcode);
    uint32_t bytes = info.payload == PayloadRule::kNone ? 0 : full ? mtu : rng_() % 64;
    if (rng_() % 50 == 0) bytes = rng_() % 1100;
    if (info.payload == PayloadRule::kNone) bytes = 0;
    WirePacket packet = MakeRequest(opcode, psn, bytes, rng_() % 2 == 0);
    const uint64_t va = ScriptedHost::kMemoryVa + rng_() % 4096;
    packet.tx.ext.reth = {va, ScriptedHost::kRkey,
                          info.operation == Operation::kReadRequest ? rng_() % 3000 : bytes};
    if (opcode == Opcode::kRcWriteFirst) packet.tx.ext.reth.length = mtu + rng_() % 64;
    packet.tx.ext.atomic = {va & ~uint64_t{7}, ScriptedHost::kRkey, rng_(), rng_()};
    return packet;
  }

  // ACKs of any kind, half of them with few credits.
  WirePacket PlausibleResponse() {
    WirePacket packet = ResponseWithoutCredits();
    Aeth& aeth = packet.tx.ext.aeth;
    if (aeth.kind() == AethKind::kAck && rng_() % 2 == 0) {
      aeth = Aeth::Ack(Msn(rng_() % 64), static_cast<uint8_t>(rng_() % 4));
    }
    return packet;
  }

  // A response close to the PSNs that the requester waits for, or just before them.
  WirePacket ResponseWithoutCredits() {
    QpDebug debug;
    node_.qp.Describe(node_.now, debug);
    Psn psn = debug.requester.oldest_unacknowledged + rng_() % 5 - 1;
    if (rng_() % 4 == 0) psn = last_sent_.psn;
    switch (rng_() % 8) {
      case 0:
        return MakeRnrNak(psn, 1);
      case 1:
        return MakeNak(psn, NakCode::kPsnSequenceError);
      case 2:
        return MakeAtomicAck(psn, rng_());
      case 3:
      case 4: {
        static constexpr Opcode kOpcodes[] = {
            Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle,
            Opcode::kRcReadResponseLast, Opcode::kRcReadResponseOnly};
        const uint32_t kind = rng_() % 4;
        const uint32_t mtu = PathMtuBytes(node_.options.path_mtu);
        return MakeReadResponse(kOpcodes[kind], psn, kind < 2 ? mtu : rng_() % (mtu + 1));
      }
      case 5:
        if (rng_() % 20 == 0) return MakeNak(psn, static_cast<NakCode>(rng_() % 32));
        [[fallthrough]];
      default:
        return MakeAck(psn);
    }
  }

  WirePacket AnyPacket() {
    Opcode opcode{};
    do {
      opcode = static_cast<Opcode>(rng_());
    } while (!InfoOf(opcode).known || InfoOf(opcode).operation == Operation::kCnp);
    WirePacket packet = MakeRequest(opcode, Psn(rng_()), rng_() % 1100, rng_() % 2 == 0);
    packet.tx.ext.reth = {rng_(), Key(rng_()), rng_()};
    packet.tx.ext.aeth = {static_cast<uint8_t>(rng_()), Msn(rng_())};
    packet.tx.ext.deth.qkey = rng_() % 2 == 0 ? 0 : rng_();
    return packet;
  }

  // Mostly sets the opcode's transport to the QP's own, so that the QP does not drop the packet
  // for its transport.
  void Receive(WirePacket packet) {
    static constexpr std::byte kNetworkHeader[40] = {};
    const Opcode same = WithTransport(packet.tx.opcode, TransportOf(node_.options.type));
    if (InfoOf(same).known && rng_() % 16 != 0) packet.tx.opcode = same;
    Packet view = packet.View();
    view.network_header = kNetworkHeader;
    view.is_ipv6 = true;
    if (controlled_ && rng_() % 4 == 0) view.traffic_class = kEcnCongestionExperienced;
    node_.Receive(view);
  }

  void ReceiveCnp() {
    WirePacket cnp;
    cnp.tx.opcode = Opcode::kCnp;
    cnp.tx.becn = rng_() % 8 != 0;
    cnp.tx.psn = Psn(rng_());
    EXPECT_EQ(node_.Receive(cnp), DropReason::kNone);
  }

  void CheckInvariants() {
    const ScriptedHost& host = node_.host;
    for (; seen_sends_ < host.send_completions.size(); ++seen_sends_) {
      ASSERT_EQ(host.send_completions[seen_sends_].slot, seen_sends_);
    }
    for (; seen_receives_ < host.recv_completions.size(); ++seen_receives_) {
      ASSERT_EQ(host.recv_completions[seen_receives_].slot, seen_receives_);
    }
    QpDebug debug;
    node_.qp.Describe(node_.now, debug);
    const RequesterDebug& r = debug.requester;
    const uint32_t in_flight = StepsForward(r.oldest_unacknowledged, r.end_of_sent);
    ASSERT_LE(StepsForward(r.oldest_unacknowledged, r.next_to_send), in_flight);
    ASSERT_LE(r.records, kRecords);
    ASSERT_LE(r.rd_atomic_outstanding, node_.options.max_rd_atomic);
    ASSERT_LE(debug.responder.resources_pending, node_.options.max_dest_rd_atomic);
    ASSERT_EQ(host.state, node_.qp.state());
    const bool error = node_.qp.state() == QpState::kErr;
    ASSERT_LE(host.count(QpCounter::kCnpsSent), host.count(QpCounter::kMarkedPackets));
    if (r.records == 0 && !debug.flushing) {
      // After a CNP, rate control may delay READ responses, which needs a timer.
      if (host.count(QpCounter::kCnpsHandled) == 0) {
        ASSERT_EQ(node_.qp.NextTimeout(), kNever);
      }
      ASSERT_EQ(r.rd_atomic_outstanding * (error ? 0 : 1), 0u);
    }
    // A request that is held back goes on with an answer, or else with a timeout.
    if (r.credit_waiting && in_flight == 0) {
      ASSERT_NE(node_.qp.NextTimeout(), kNever);
    }
    if (r.rnr_waiting) {
      ASSERT_NE(node_.qp.NextTimeout(), kNever);
    }
  }

  const bool controlled_;
  CongestionPort port_;
  Dcqcn dcqcn_{&port_};
  Rng rng_;
  Node node_;
  TxPacket last_sent_;
  size_t seen_sends_ = 0;
  size_t seen_receives_ = 0;
};

class QpChaos : public testing::TestWithParam<QpType> {};

TEST_P(QpChaos, InvariantsHold) {
  const char* factor = std::getenv("ROCI_TEST_SEEDS");
  const uint32_t seeds = 400 * (factor == nullptr ? 1 : static_cast<uint32_t>(std::atoi(factor)));
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Chaos(seed, GetParam()).Run(300);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Services, QpChaos,
                         testing::Values(QpType::kRc, QpType::kUc, QpType::kUd, QpType::kXrcSend));

}  // namespace
}  // namespace roci::roce
