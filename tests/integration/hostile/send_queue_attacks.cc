// Attacks with send queues: every field of an entry at its limits, and ring indices overwritten
// during traffic.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/rig.h"

namespace roci::testing::hostile {
namespace {

constexpr uint8_t kRcOpcodes[] = {
    ROCI_ABI_WR_SEND,          ROCI_ABI_WR_RDMA_WRITE,           ROCI_ABI_WR_RDMA_READ,
    ROCI_ABI_WR_SEND_WITH_IMM, ROCI_ABI_WR_RDMA_WRITE_WITH_IMM,  ROCI_ABI_WR_LOCAL_INV,
    ROCI_ABI_WR_BIND_MW,       ROCI_ABI_WR_ATOMIC_CMP_AND_SWP,   ROCI_ABI_WR_SEND_WITH_INV,
    ROCI_ABI_WR_FLUSH,         ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, ROCI_ABI_WR_ATOMIC_WRITE,
    ROCI_ABI_WR_REG_LIST};

// A WQE and its SGEs.
struct Entry {
  roci_abi_send_wqe wqe;
  std::vector<roci_abi_sge> sges;
};

// Posts entry after entry, each with a different fault, and polls completions. Reconnects a queue
// pair that has failed.
class Barrage {
 public:
  explicit Barrage(const QpOptions& options = {}) : pair(options) {}

  void Fire(const Entry& entry) {
    pair.near.Post(pair.near_qp, entry.wqe, entry.sges);
    bool has_failed = false;
    for (const auto end = Clock::now() + Milliseconds(2); Clock::now() < end;) {
      roci_abi_cqe cqe;
      while (pair.far.cq.Poll()) {
      }
      if (!pair.near.cq.Poll(&cqe)) continue;
      has_failed = cqe.status != IBV_WC_SUCCESS;
      ++completed;
      break;
    }
    if (has_failed || ++fired % 8 == 0) pair.Reconnect();
  }
  Entry Valid(uint8_t opcode) {
    const bool is_atomic = opcode == ROCI_ABI_WR_ATOMIC_CMP_AND_SWP ||
                           opcode == ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD ||
                           opcode == ROCI_ABI_WR_ATOMIC_WRITE;
    return {pair.ValidWqe(opcode), {pair.near.region.Sge(is_atomic ? 8 : 2048)}};
  }

  RigPair pair;
  uint32_t completed = 0;
  uint32_t fired = 0;
};

using Spoil = std::function<void(Entry&, size_t)>;

// Calls `spoil(entry, i)` for i < `count` on each operation.
auto EachOpcode(uint32_t type, size_t count, const Spoil& spoil) {
  return [=](Scene& scene) {
    Barrage barrage({.type = type});
    for (size_t i = 0; i < count; ++i) {
      for (const uint8_t opcode : kRcOpcodes) {
        Entry entry = barrage.Valid(opcode);
        spoil(entry, i);
        barrage.Fire(entry);
        if (!scene.is_long && !scene.Goes()) break;
      }
    }
    EXPECT_GT(barrage.completed, 0u) << "no entry completed";
  };
}

uint64_t Limit64(size_t i) { return kLimits64[i % std::size(kLimits64)]; }
uint32_t Limit32(size_t i) { return kLimits32[i % std::size(kLimits32)]; }

void AnyOpcode(Entry& entry, size_t i) { entry.wqe.opcode = static_cast<uint8_t>(i); }
void AnyFlags(Entry& entry, size_t i) { entry.wqe.flags = static_cast<uint8_t>(i); }
void AnySgeCount(Entry& entry, size_t i) { entry.wqe.num_sge = static_cast<uint8_t>(i); }
void AnyInlineLength(Entry& entry, size_t i) {
  entry.wqe.flags |= ROCI_ABI_SEND_INLINE;
  entry.wqe.inline_length = Limit32(i);
}
void AnyLength(Entry& entry, size_t i) {
  entry.sges.resize(2, entry.sges[0]);
  entry.wqe.num_sge = static_cast<uint8_t>(1 + i % 2);
  entry.sges[0].length = Limit32(i);
  entry.sges[1].length = Limit32(i / 2);
}
void AnyAddress(Entry& entry, size_t i) { entry.sges[0].va = Limit64(i); }
void AddressNearEnd(Entry& entry, size_t i) {
  entry.sges[0].va += 16 * kPage - i;
  entry.sges[0].length = static_cast<uint32_t>(i) + 1;
}
void AnyLocalKey(Entry& entry, size_t i) {
  const uint32_t key = entry.sges[0].lkey;
  entry.sges[0].lkey = i < 32 ? key ^ 1u << i : Limit32(i);
}
void AnyRemoteKey(Entry& entry, size_t i) {
  entry.wqe.rkey = i < 32 ? entry.wqe.rkey ^ 1u << i : Limit32(i);
}
void AnyRemoteAddress(Entry& entry, size_t i) { entry.wqe.remote_va = Limit64(i); }
void RemoteAddressNearEnd(Entry& entry, size_t i) { entry.wqe.remote_va += 16 * kPage - i; }
void AnyOperands(Entry& entry, size_t i) {
  entry.wqe.u.atomic.compare_add = Limit64(i);
  entry.wqe.u.atomic.swap = Limit64(i / 2);
  entry.wqe.remote_va += i % 16;
}
void AnyBinding(Entry& entry, size_t i) {
  entry.wqe.opcode = i % 2 != 0 ? ROCI_ABI_WR_BIND_MW : ROCI_ABI_WR_REG_LIST;
  entry.wqe.u.bind.length = Limit64(i);
  entry.wqe.u.bind.window = Limit32(i / 2);
  entry.wqe.u.bind.access = Limit32(i / 3);
  entry.wqe.u.bind.region_key = i % 3 != 0 ? entry.sges[0].lkey : Limit32(i);
  entry.wqe.u.bind.new_key = Limit32(i + 1);
}
void AnyFlush(Entry& entry, size_t i) {
  entry.wqe.opcode = ROCI_ABI_WR_FLUSH;
  entry.wqe.num_sge = 0;
  entry.wqe.u.flush.length = Limit64(i);
  entry.wqe.u.flush.type = static_cast<uint32_t>(i % 20);
  entry.wqe.u.flush.level = Limit32(i / 5);
}
void AnySrqNumber(Entry& entry, size_t i) { entry.wqe.remote_srqn = Limit32(i); }
void AnyAddressHandle(Entry& entry, size_t i) { entry.wqe.u.ud.address_handle = Limit32(i); }
void AnyDestination(Entry& entry, size_t i) {
  entry.wqe.u.ud.remote_qpn = Limit32(i);
  entry.wqe.u.ud.remote_qkey = Limit32(i / 2);
}
void AnyInvalidation(Entry& entry, size_t i) {
  entry.wqe.opcode = i % 2 != 0 ? ROCI_ABI_WR_LOCAL_INV : ROCI_ABI_WR_SEND_WITH_INV;
  entry.wqe.immediate = i % 3 != 0 ? Limit32(i) : entry.wqe.rkey;
}

// Entries of random bytes.
auto RandomEntries(uint32_t type) {
  return [=](Scene& scene) {
    Barrage barrage({.type = type});
    while (scene.Goes()) {
      Entry entry = barrage.Valid(ROCI_ABI_WR_SEND);
      auto* bytes = reinterpret_cast<std::byte*>(&entry.wqe);
      for (uint32_t i = 1 + scene.Below(12); i > 0; --i) {
        bytes[scene.Below(sizeof(entry.wqe))] = static_cast<std::byte>(scene.Random());
      }
      entry.wqe.opcode %= 18;
      barrage.Fire(entry);
    }
  };
}

// Valid operations continue while `scribble(queue, scene)` writes anything.
auto Scribbled(const std::function<void(MappedQp&, Scene&)>& scribble) {
  return [=](Scene& scene) {
    RigPair pair;
    for (uint32_t i = 1; scene.Goes(); ++i) {
      pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE),
                     {pair.near.region.Sge(3000)});
      scribble(pair.near_qp, scene);
      pair.near.Ring(pair.near_qp.info.handle);
      while (pair.near.cq.Poll() || pair.far.cq.Poll()) {
      }
      if (i % 32 == 0) pair.Reconnect();
    }
  };
}

void JumpAhead(MappedQp& qp, Scene& scene) {
  const uint32_t steps[] = {qp.info.send_capacity, qp.info.send_capacity + 1, 0x80000000, ~0u};
  qp.send_queue()->producer += steps[scene.Below(std::size(steps))];
}
void JumpBack(MappedQp& qp, Scene& scene) { qp.send_queue()->producer -= scene.Below(40); }
void AnyProducer(MappedQp& qp, Scene& scene) { qp.send_queue()->producer = scene.Random(); }
void AnyRestart(MappedQp& qp, Scene& scene) {
  qp.send_queue()->start = scene.Below(2) != 0 ? scene.Random() : qp.sent + scene.Below(40) - 20;
  qp.send_queue()->restarts += scene.Below(3);
}
void DaemonsFields(MappedQp& qp, Scene& scene) {
  qp.send_queue()->armed = scene.Random();
  qp.send_queue()->consumer = scene.Random();
  qp.recv_queue()->armed = scene.Random();
  qp.recv_queue()->consumer = scene.Random();
}
void WholeMemory(MappedQp& qp, Scene& scene) {
  for (int i = 0; i < 64; ++i) {
    qp.memory.data()[scene.Below(static_cast<uint32_t>(qp.memory.size()))] =
        static_cast<std::byte>(scene.Random());
  }
}
void Holes(MappedQp& qp, Scene&) { madvise(qp.memory.data(), qp.memory.size(), MADV_REMOVE); }

// One thread posts, another changes the entries that are being read.
void EntriesChangeWhileRead(Scene& scene) {
  RigPair pair;
  std::atomic<bool> goes = true;
  std::thread changer([&] {
    std::minstd_rand random(1);
    while (goes) {
      auto* wqe = reinterpret_cast<roci_abi_send_wqe*>(
          pair.near_qp.SendSlot(static_cast<uint32_t>(random())));
      auto* sge = reinterpret_cast<roci_abi_sge*>(wqe + 1);
      volatile uint8_t& count = wqe->num_sge;
      volatile uint32_t& length = sge->length;
      volatile uint32_t& inline_length = wqe->inline_length;
      volatile uint8_t& flags = wqe->flags;
      count = static_cast<uint8_t>(random());
      length = random() % 2 != 0 ? 100 : ~0u;
      inline_length = random() % 2 != 0 ? 8 : ~0u;
      flags = static_cast<uint8_t>(random());
    }
  });
  for (uint32_t i = 1; scene.Goes(); ++i) {
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE),
                   {pair.near.region.Sge(100), pair.near.region.Sge(100)});
    while (pair.near.cq.Poll() || pair.far.cq.Poll()) {
    }
    if (i % 32 == 0) pair.Reconnect();
  }
  goes = false;
  changer.join();
}

// Shared receive queues of an XRC domain, with any number.
void XrcNumbers(Scene& scene) {
  Rig near("roci0");
  Rig far("roci1");
  roci_abi_open_xrcd_request open{};
  open.flags = ROCI_ABI_XRCD_CREATE;
  roci_abi_handle_response xrcd;
  ASSERT_EQ(far.Call(ROCI_ABI_OPEN_XRCD, open, xrcd), 0);
  const MappedSrq srq = far.MakeSrq(16, ROCI_ABI_SRQ_XRC, xrcd.handle);
  MappedQp sender = near.MakeQp({.type = IBV_QPT_XRC_SEND});
  MappedQp receiver = far.MakeQp({.type = IBV_QPT_XRC_RECV, .xrcd = xrcd.handle});
  for (size_t i = 0; scene.Goes(); ++i) {
    near.ToReset(sender);
    far.ToReset(receiver);
    ASSERT_EQ(far.Connect(receiver, sender.info.qpn, 1), 0);
    ASSERT_EQ(near.Connect(sender, receiver.info.qpn, 2), 0);
    for (int n = 0; n < 4; ++n) {
      roci_abi_send_wqe wqe{};
      wqe.opcode = static_cast<uint8_t>(scene.Below(18));
      wqe.flags = ROCI_ABI_SEND_SIGNALED;
      wqe.num_sge = 1;
      wqe.rkey = far.region.key;
      wqe.remote_va = far.region.va();
      wqe.remote_srqn = i % 2 != 0 ? Limit32(i) : srq.number;
      srq.ring()[n] = static_cast<uint32_t>(n);
      srq.header()->producer += scene.Below(2);
      near.Post(sender, wqe, {near.region.Sge(1000)});
    }
    usleep(500);
    while (near.cq.Poll() || far.cq.Poll()) {
    }
  }
}

// Runs of a list region, and the description of a signature region.
void ListMemory(Scene& scene) {
  RigPair pair;
  roci_abi_alloc_signature_mr_request request{};
  request.pd = pair.near.pd;
  request.max_runs = 8;
  request.max_protection_runs = 4;
  roci_abi_alloc_list_mr_response list;
  ASSERT_EQ(pair.near.Call(ROCI_ABI_ALLOC_SIGNATURE_MR, request, list), 0);
  const Mapping memory(pair.near.fds()[0], list.memory_size);
  for (size_t i = 0; scene.Goes(); ++i) {
    for (size_t word = 0; word < memory.size() / 4; ++word) {
      memory.At<uint32_t>(0)[word] = scene.Below(3) != 0 ? pair.near.region.key : Limit32(i + word);
    }
    *memory.At<uint8_t>(0) = static_cast<uint8_t>(scene.Below(3));
    roci_abi_send_wqe wqe = pair.ValidWqe(ROCI_ABI_WR_REG_LIST);
    wqe.num_sge = 0;
    wqe.remote_va = Limit64(i);
    wqe.u.list.list = list.handle;
    wqe.u.list.runs = i % 2 != 0 ? 1 + i % 8 : Limit64(i);
    wqe.u.list.access = static_cast<uint32_t>(i % 16);
    wqe.u.list.new_key = (list.handle << 8) + static_cast<uint32_t>(i % 256);
    pair.near.Post(pair.near_qp, wqe, {});
    roci_abi_sge sge = {wqe.remote_va, 512, wqe.u.list.new_key};
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {sge});
    usleep(200);
    pair.Reconnect();
  }
}

}  // namespace

void AddSendQueueAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"SendQueue", name, std::move(run), in_sample});
  };
  constexpr size_t kWords = std::size(kLimits32);
  constexpr size_t kLongs = std::size(kLimits64);
  add("OpcodesOfRc", EachOpcode(IBV_QPT_RC, 256, AnyOpcode), true);
  add("OpcodesOfUc", EachOpcode(IBV_QPT_UC, 64, AnyOpcode));
  add("OpcodesOfUd", EachOpcode(IBV_QPT_UD, 64, AnyOpcode));
  add("Flags", EachOpcode(IBV_QPT_RC, 256, AnyFlags));
  add("ElementCounts", EachOpcode(IBV_QPT_RC, 256, AnySgeCount), true);
  add("InlineLengths", EachOpcode(IBV_QPT_RC, kWords, AnyInlineLength), true);
  add("Lengths", EachOpcode(IBV_QPT_RC, 2 * kWords, AnyLength), true);
  add("LengthsOfUd", EachOpcode(IBV_QPT_UD, 2 * kWords, AnyLength));
  add("Addresses", EachOpcode(IBV_QPT_RC, kLongs, AnyAddress), true);
  add("AddressesAtTheEnd", EachOpcode(IBV_QPT_RC, 64, AddressNearEnd));
  add("LocalKeys", EachOpcode(IBV_QPT_RC, 32 + kWords, AnyLocalKey));
  add("RemoteKeys", EachOpcode(IBV_QPT_RC, 32 + kWords, AnyRemoteKey));
  add("RemoteAddresses", EachOpcode(IBV_QPT_RC, kLongs, AnyRemoteAddress), true);
  add("RemoteAddressesAtTheEnd", EachOpcode(IBV_QPT_RC, 64, RemoteAddressNearEnd));
  add("RemoteAddressesOfUc", EachOpcode(IBV_QPT_UC, kLongs, AnyRemoteAddress));
  add("AtomicOperands", EachOpcode(IBV_QPT_RC, 2 * kLongs, AnyOperands));
  add("Bindings", EachOpcode(IBV_QPT_RC, 6 * kWords, AnyBinding));
  add("Invalidations", EachOpcode(IBV_QPT_RC, 4 * kWords, AnyInvalidation));
  add("Flushes", EachOpcode(IBV_QPT_RC, 4 * kWords, AnyFlush));
  add("SharedQueueNumbers", EachOpcode(IBV_QPT_RC, kWords, AnySrqNumber));
  add("AddressHandles", EachOpcode(IBV_QPT_UD, kWords, AnyAddressHandle), true);
  add("DatagramDestinations", EachOpcode(IBV_QPT_UD, 2 * kWords, AnyDestination));
  add("RandomEntriesOfRc", RandomEntries(IBV_QPT_RC), true);
  add("RandomEntriesOfUc", RandomEntries(IBV_QPT_UC));
  add("RandomEntriesOfUd", RandomEntries(IBV_QPT_UD));
  add("ProducerJumpsAhead", Scribbled(JumpAhead), true);
  add("ProducerJumpsBack", Scribbled(JumpBack));
  add("ProducerIsAnything", Scribbled(AnyProducer));
  add("RestartsAnywhere", Scribbled(AnyRestart), true);
  add("DaemonsFields", Scribbled(DaemonsFields));
  add("WholeMemory", Scribbled(WholeMemory), true);
  add("HolesInTheRing", Scribbled(Holes));
  add("EntriesChangeWhileRead", EntriesChangeWhileRead, true);
  add("XrcNumbers", XrcNumbers);
  add("ListAndSignatureMemory", ListMemory, true);
}

}  // namespace roci::testing::hostile
