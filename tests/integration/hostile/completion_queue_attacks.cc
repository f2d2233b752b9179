// Attacks with completion queues: overwritten indices and entries; queues that overflow, are
// resized and destroyed during traffic; channels that are not read.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/rig.h"

namespace roci::testing::hostile {
namespace {

uint32_t Limit32(size_t i) { return kLimits32[i % std::size(kLimits32)]; }

// A small queue keeps getting completions while `meddle` modifies it.
auto Completing(const std::function<void(RigPair&, MappedCq&, Scene&)>& meddle) {
  return [=](Scene& scene) {
    RigPair pair;
    for (uint32_t i = 0; scene.Goes(); ++i) {
      MappedCq cq = pair.near.MakeCq(8);
      MappedQp qp = pair.near.MakeQp({}, cq.handle);
      EXPECT_EQ(pair.near.Connect(qp, pair.far_qp.info.qpn, 2), 0);
      pair.far.ToReset(pair.far_qp);
      EXPECT_EQ(pair.far.Connect(pair.far_qp, qp.info.qpn, 1), 0);
      for (int n = 0; n < 40; ++n) {
        pair.near.Post(qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {pair.near.region.Sge(64)});
        meddle(pair, cq, scene);
        usleep(20);
      }
      pair.near.OnHandle(ROCI_ABI_DESTROY_QP, qp.info.handle);
      pair.near.OnHandle(ROCI_ABI_DESTROY_CQ, cq.handle);
    }
  };
}

void Overflows(RigPair&, MappedCq&, Scene&) {}
void ConsumerJumps(RigPair&, MappedCq& cq, Scene& scene) {
  cq.header()->consumer = scene.Below(2) != 0 ? scene.Random() : Limit32(scene.Random());
}
void EntriesOverwritten(RigPair&, MappedCq& cq, Scene& scene) {
  for (int i = 0; i < 64; ++i) {
    cq.memory.data()[scene.Below(static_cast<uint32_t>(cq.memory.size()))] =
        static_cast<std::byte>(scene.Random());
  }
}
void DaemonsFields(RigPair&, MappedCq& cq, Scene& scene) {
  cq.header()->consumer = cq.header()->producer;
  cq.header()->producer = scene.Random();
  cq.header()->overflowed = scene.Random();
}
void Holes(RigPair&, MappedCq& cq, Scene&) {
  cq.header()->consumer = cq.header()->producer;
  madvise(cq.memory.data(), cq.memory.size(), MADV_REMOVE);
}
void Resizes(RigPair& pair, MappedCq& cq, Scene& scene) {
  roci_abi_resize_cq_request request{};
  request.handle = cq.handle;
  request.entries = scene.Below(4) != 0 ? 1 + scene.Below(64) : Limit32(scene.Random()) & 0x1FFFF;
  request.consumer = scene.Below(2) != 0 ? Limit32(scene.Random()) : cq.header()->producer;
  roci_abi_resize_cq_response response;
  if (pair.near.Call(ROCI_ABI_RESIZE_CQ, request, response) != 0) return;
  cq.memory = Mapping(pair.near.fds()[0], response.memory_size);
  cq.capacity = response.capacity;
}
void Moderates(RigPair& pair, MappedCq& cq, Scene& scene) {
  cq.header()->arm = scene.Random() % 4;
  roci_abi_modify_cq_request request{};
  request.handle = cq.handle;
  request.count = scene.Below(3) != 0 ? Limit32(scene.Random()) : 3;
  request.period_us = scene.Below(3) != 0 ? Limit32(scene.Random()) : 100;
  roci_abi_plain_response response;
  pair.near.Call(ROCI_ABI_MODIFY_CQ, request, response);
}
void Sealed(RigPair& pair, MappedCq&, Scene&) {
  const MappedCq other = pair.near.MakeCq(8);
  const int fd = pair.near.fds().empty() ? -1 : pair.near.fds()[0];
  EXPECT_NE(ftruncate(fd, 0), 0) << "the memory of a completion queue";
  EXPECT_NE(ftruncate(fd, 1 << 20), 0);
  EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
  pair.near.OnHandle(ROCI_ABI_DESTROY_CQ, other.handle);
}

// Unread events accumulate in a channel.
void ChannelNobodyReads(Scene& scene) {
  RigPair pair;
  const uint32_t channel = pair.near.CreateChannel();
  ASSERT_NE(channel, 0u);
  const int socket = dup(pair.near.fds()[0]);
  std::vector<MappedCq> cqs;
  std::vector<MappedQp> qps;
  for (int i = 0; i < 16; ++i) {
    cqs.push_back(pair.near.MakeCq(1024, channel));
    qps.push_back(pair.near.MakeQp({}, cqs.back().handle));
  }
  // Queue pairs in ERR complete all posted requests.
  roci_abi_qp_attr attr{};
  for (MappedQp& qp : qps) {
    EXPECT_EQ(pair.near.Connect(qp, pair.far_qp.info.qpn, 2), 0);
    attr.state = IBV_QPS_ERR;
    EXPECT_EQ(pair.near.Modify(qp.info.handle, IBV_QP_STATE, attr), 0);
  }
  while (scene.Goes()) {
    for (size_t i = 0; i < qps.size(); ++i) {
      cqs[i].header()->arm = ROCI_ABI_CQ_ARM_ANY;
      while (cqs[i].Poll()) {
      }
      pair.near.Post(qps[i], pair.ValidWqe(ROCI_ABI_WR_SEND), {pair.near.region.Sge(8)});
    }
  }
  close(socket);
}

// The same with asynchronous events.
void EventsNobodyReads(Scene& scene) {
  Rig rig;
  for (int i = 0; scene.Goes(); ++i) {
    const MappedCq cq = rig.MakeCq(1);
    MappedQp qp = rig.MakeQp({}, cq.handle);
    EXPECT_EQ(rig.Connect(qp, qp.info.qpn, 1), 0);
    roci_abi_qp_attr attr{};
    attr.state = IBV_QPS_ERR;
    EXPECT_EQ(rig.Modify(qp.info.handle, IBV_QP_STATE, attr), 0);
    for (int n = 0; n < 8; ++n) rig.Post(qp, roci_abi_send_wqe{}, {});
    if (i % 4 != 0) continue;
    rig.OnHandle(ROCI_ABI_DESTROY_QP, qp.info.handle);
    rig.OnHandle(ROCI_ABI_DESTROY_CQ, cq.handle);
  }
}

}  // namespace

void AddCompletionQueueAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"CompletionQueue", name, std::move(run), in_sample});
  };
  add("Overflows", Completing(Overflows), true);
  add("ConsumerJumps", Completing(ConsumerJumps), true);
  add("EntriesOverwritten", Completing(EntriesOverwritten));
  add("DaemonsFields", Completing(DaemonsFields));
  add("Holes", Completing(Holes));
  add("Resizes", Completing(Resizes), true);
  add("Moderates", Completing(Moderates));
  add("IsSealed", Completing(Sealed));
  add("ChannelNobodyReads", ChannelNobodyReads, true);
  add("EventsNobodyReads", EventsNobodyReads);
}

}  // namespace roci::testing::hostile
