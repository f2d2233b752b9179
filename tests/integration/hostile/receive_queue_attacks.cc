// Attacks with receive queues, shared receive queues and tag matching: entries at their limits;
// rings and indices overwritten while messages arrive.
#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/rig.h"

namespace roci::testing::hostile {
namespace {

uint64_t Limit64(size_t i) { return kLimits64[i % std::size(kLimits64)]; }
uint32_t Limit32(size_t i) { return kLimits32[i % std::size(kLimits32)]; }

void Drain(RigPair& pair) {
  while (pair.near.cq.Poll() || pair.far.cq.Poll()) {
  }
}

// `receive(pair, i)` posts at the far end, then a message arrives.
auto Received(const std::function<void(RigPair&, size_t)>& receive, uint32_t type = IBV_QPT_RC) {
  return [=](Scene& scene) {
    RigPair pair({.type = type});
    for (size_t i = 0; scene.Goes(); ++i) {
      pair.far.ToReset(pair.far_qp);
      pair.near.ToReset(pair.near_qp);
      EXPECT_EQ(pair.far.Connect(pair.far_qp, pair.near_qp.info.qpn, 1), 0);
      EXPECT_EQ(pair.near.Connect(pair.near_qp, pair.far_qp.info.qpn, 2), 0);
      receive(pair, i);
      for (int sends = 0; sends < 4; ++sends) {
        pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_SEND), {pair.near.region.Sge(2000)});
      }
      for (const auto end = Clock::now() + Milliseconds(2); Clock::now() < end;) Drain(pair);
    }
  };
}

void AnyCount(RigPair& pair, size_t i) {
  pair.far.PostReceive(pair.far_qp, {pair.far.region.Sge(4096), pair.far.region.Sge(4096)},
                       Limit32(i));
}
void AnyLength(RigPair& pair, size_t i) {
  roci_abi_sge first = pair.far.region.Sge(Limit32(i));
  pair.far.PostReceive(pair.far_qp, {first, pair.far.region.Sge(Limit32(i / 2))});
}
void AnyAddress(RigPair& pair, size_t i) {
  roci_abi_sge sge = pair.far.region.Sge(4096);
  sge.va = Limit64(i);
  pair.far.PostReceive(pair.far_qp, {sge});
}
void AnyKey(RigPair& pair, size_t i) {
  roci_abi_sge sge = pair.far.region.Sge(4096);
  sge.lkey = i % 48 < 32 ? sge.lkey ^ 1u << i % 48 : Limit32(i);
  pair.far.PostReceive(pair.far_qp, {sge});
}
void AnyProducer(RigPair& pair, size_t i) {
  for (int n = 0; n < 4; ++n) pair.far.PostReceive(pair.far_qp, {pair.far.region.Sge(4096)});
  pair.far.PublishReceives(pair.far_qp, i % 3 == 0 ? Limit32(i / 3) : static_cast<uint32_t>(i));
}
void Restarts(RigPair& pair, size_t i) {
  pair.far.PostReceive(pair.far_qp, {pair.far.region.Sge(4096)});
  pair.far_qp.recv_queue()->start = Limit32(i);
  ++pair.far_qp.recv_queue()->restarts;
  pair.far.Ring(pair.far_qp.info.handle);
}
void Scribble(RigPair& pair, size_t i) {
  std::minstd_rand random(static_cast<uint32_t>(i + 1));
  for (int n = 0; n < 16; ++n) pair.far.PostReceive(pair.far_qp, {pair.far.region.Sge(4096)});
  std::byte* at = pair.far_qp.memory.data() + pair.far_qp.info.recv_slots_offset;
  const size_t size = pair.far_qp.memory.size() - pair.far_qp.info.recv_slots_offset;
  for (int n = 0; n < 200; ++n) at[random() % size] = static_cast<std::byte>(random());
}

// A shared receive queue with two receivers. Messages arrive while `scribble` writes.
class Shared {
 public:
  Shared() : near("roci0"), far("roci1"), srq(far.MakeSrq(32)) {
    for (int i = 0; i < 2; ++i) {
      senders.push_back(near.MakeQp());
      receivers.push_back(far.MakeQp({.srq = srq.handle}));
    }
    Reconnect();
  }
  void Reconnect() {
    for (size_t i = 0; i < senders.size(); ++i) {
      near.ToReset(senders[i]);
      far.ToReset(receivers[i]);
      EXPECT_EQ(far.Connect(receivers[i], senders[i].info.qpn, 1), 0);
      EXPECT_EQ(near.Connect(senders[i], receivers[i].info.qpn, 2), 0);
    }
  }
  // Entry of slot `slot`, published.
  void PostSlot(uint32_t slot) {
    const roci_abi_recv_wqe wqe{slot, 1, 0};
    const roci_abi_sge sge = far.region.Sge(4096);
    if (slot < srq.layout.max_wr) {
      std::memcpy(srq.Slot(slot), &wqe, sizeof(wqe));
      std::memcpy(srq.Slot(slot) + sizeof(wqe), &sge, sizeof(sge));
    }
    srq.ring()[srq.posted & (srq.layout.ring_capacity - 1)] = slot;
    std::atomic_ref(srq.header()->producer).store(++srq.posted, std::memory_order_release);
  }
  void Send() {
    for (MappedQp& sender : senders) {
      roci_abi_send_wqe wqe{};
      wqe.opcode = ROCI_ABI_WR_SEND;
      wqe.flags = ROCI_ABI_SEND_SIGNALED;
      wqe.num_sge = 1;
      near.Post(sender, wqe, {near.region.Sge(2000)});
    }
    while (near.cq.Poll() || far.cq.Poll()) {
    }
  }
  // A broken queue stays broken: replaces it.
  void Renew() {
    for (MappedQp& receiver : receivers) far.OnHandle(ROCI_ABI_DESTROY_QP, receiver.info.handle);
    receivers.clear();
    roci_abi_destroy_response destroyed;
    roci_abi_handle_request request{};
    request.handle = srq.handle;
    EXPECT_EQ(far.Call(ROCI_ABI_DESTROY_SRQ, request, destroyed), 0);
    srq = far.MakeSrq(32);
    for (size_t i = 0; i < senders.size(); ++i) {
      receivers.push_back(far.MakeQp({.srq = srq.handle}));
    }
    Reconnect();
  }

  Rig near;
  Rig far;
  MappedSrq srq;
  std::vector<MappedQp> senders;
  std::vector<MappedQp> receivers;
};

auto OnShared(const std::function<void(Shared&, Scene&)>& scribble) {
  return [=](Scene& scene) {
    Shared shared;
    for (uint32_t i = 1; scene.Goes(); ++i) {
      for (uint32_t slot = 0; slot < 8; ++slot) shared.PostSlot((i * 8 + slot) % 32);
      scribble(shared, scene);
      for (int sends = 0; sends < 3; ++sends) shared.Send();
      if (i % 4 == 0) shared.Renew();
    }
  };
}

void SlotsOutside(Shared& shared, Scene& scene) {
  shared.PostSlot(scene.Below(2) != 0 ? 32 : Limit32(scene.Random()));
}
void SlotsTwice(Shared& shared, Scene&) {
  for (int i = 0; i < 12; ++i) shared.PostSlot(5);
}
void SharedProducer(Shared& shared, Scene& scene) {
  shared.srq.header()->producer += scene.Below(3) != 0 ? 33 : Limit32(scene.Random());
}
void SharedMemory(Shared& shared, Scene& scene) {
  for (int i = 0; i < 64; ++i) {
    shared.srq.memory.data()[scene.Below(static_cast<uint32_t>(shared.srq.memory.size()))] =
        static_cast<std::byte>(scene.Random());
  }
}
void SharedHoles(Shared& shared, Scene&) {
  madvise(shared.srq.memory.data(), shared.srq.memory.size(), MADV_REMOVE);
}
// The queue is resized while it is overwritten.
void Resizes(Shared& shared, Scene& scene) {
  SharedMemory(shared, scene);
  roci_abi_modify_srq_request request{};
  request.handle = shared.srq.handle;
  request.mask = ROCI_ABI_SRQ_MAX_WR | (scene.Below(2) != 0 ? ROCI_ABI_SRQ_LIMIT : 0);
  request.max_wr = 1 + scene.Below(200);
  request.limit = scene.Below(64);
  roci_abi_modify_srq_response response;
  shared.far.Call(ROCI_ABI_MODIFY_SRQ, request, response);
}

// Tag matching: operations `fill` after each other, with messages that carry tags.
auto Tagged(const std::function<void(roci_abi_tag_op&, Scene&, size_t)>& fill,
            const std::function<void(MappedSrq&, Scene&)>& scribble) {
  return [=](Scene& scene) {
    Rig near("roci0");
    Rig far("roci1");
    MappedQp sender = near.MakeQp();
    for (size_t i = 0; scene.Goes();) {
      MappedSrq srq = far.MakeTagSrq(16, 8, 8);
      MappedQp receiver = far.MakeQp({.srq = srq.handle, .wr = 0});
      near.ToReset(sender);
      EXPECT_EQ(far.Connect(receiver, sender.info.qpn, 1), 0);
      EXPECT_EQ(near.Connect(sender, receiver.info.qpn, 2), 0);
      auto* header = srq.ops.At<roci_abi_tag_queue>(0);
      auto* ops = srq.ops.At<roci_abi_tag_op>(srq.tag_layout.ops_offset);
      for (int n = 0; n < 32; ++n, ++i) {
        roci_abi_tag_op op{};
        op.handle = static_cast<uint32_t>(i % 8);
        op.flags = ROCI_ABI_TAG_SIGNALED;
        op.num_sge = 1;
        op.sges[0] = far.region.Sge(4096);
        fill(op, scene, i);
        std::memcpy(&ops[i % srq.tag_layout.ops_capacity], &op, sizeof(op));
        ++header->producer;
        scribble(srq, scene);
        far.Ring(srq.doorbell);
        roci_abi_send_wqe wqe{};
        wqe.opcode = ROCI_ABI_WR_SEND;
        wqe.num_sge = 1;
        std::memset(near.region.data, static_cast<int>(scene.Below(4)), 64);
        near.region.data[0] = static_cast<std::byte>(1 + scene.Below(3));
        near.Post(sender, wqe, {near.region.Sge(1 + scene.Below(2000))});
        while (near.cq.Poll() || far.cq.Poll()) {
        }
      }
      far.OnHandle(ROCI_ABI_DESTROY_QP, receiver.info.handle);
      roci_abi_destroy_response destroyed;
      roci_abi_handle_request request{};
      request.handle = srq.handle;
      EXPECT_EQ(far.Call(ROCI_ABI_DESTROY_SRQ, request, destroyed), 0);
    }
  };
}

void AnyOperation(roci_abi_tag_op& op, Scene&, size_t i) {
  op.opcode = static_cast<uint8_t>(i % 5);
  op.handle = i % 3 != 0 ? op.handle : Limit32(i);
  op.unexpected_count = Limit32(i / 2);
  op.flags = static_cast<uint8_t>(i);
}
void AnyElements(roci_abi_tag_op& op, Scene&, size_t i) {
  op.num_sge = static_cast<uint8_t>(i);
  for (roci_abi_sge& sge : op.sges) sge = {Limit64(i), Limit32(i / 2), op.sges[0].lkey};
}
void RandomOperation(roci_abi_tag_op& op, Scene& scene, size_t) {
  auto* bytes = reinterpret_cast<std::byte*>(&op);
  for (int n = 0; n < 8; ++n) {
    bytes[scene.Below(sizeof(op))] = static_cast<std::byte>(scene.Random());
  }
}
void Nothing(MappedSrq&, Scene&) {}
void TagProducer(MappedSrq& srq, Scene& scene) {
  if (scene.Below(4) == 0) srq.ops.At<roci_abi_tag_queue>(0)->producer += Limit32(scene.Random());
}
void TagMemory(MappedSrq& srq, Scene& scene) {
  for (int i = 0; i < 32; ++i) {
    srq.ops.data()[scene.Below(static_cast<uint32_t>(srq.ops.size()))] =
        static_cast<std::byte>(scene.Random());
  }
}

}  // namespace

void AddReceiveQueueAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"ReceiveQueue", name, std::move(run), in_sample});
  };
  add("ElementCounts", Received(AnyCount), true);
  add("Lengths", Received(AnyLength));
  add("Addresses", Received(AnyAddress), true);
  add("Keys", Received(AnyKey));
  add("Producer", Received(AnyProducer), true);
  add("Restarts", Received(Restarts));
  add("WholeMemory", Received(Scribble));
  add("ElementCountsOfUc", Received(AnyCount, IBV_QPT_UC));
  add("LengthsOfUd", Received(AnyLength, IBV_QPT_UD));
  add("SharedSlotsOutside", OnShared(SlotsOutside), true);
  add("SharedSlotsTwice", OnShared(SlotsTwice));
  add("SharedProducer", OnShared(SharedProducer), true);
  add("SharedMemory", OnShared(SharedMemory));
  add("SharedHoles", OnShared(SharedHoles));
  add("SharedResizes", OnShared(Resizes), true);
  add("TagOperations", Tagged(AnyOperation, Nothing), true);
  add("TagElements", Tagged(AnyElements, Nothing));
  add("TagRandomOperations", Tagged(RandomOperation, Nothing));
  add("TagProducer", Tagged(AnyOperation, TagProducer));
  add("TagMemory", Tagged(AnyOperation, TagMemory), true);
}

}  // namespace roci::testing::hostile
