// Packets that an ordinary user may not send, and packets for queue pairs of other users.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/messages.h"

namespace roci::testing::hostile {
namespace {

void RawPacketsRefused(Scene&) {
  Rig rig;
  roci_abi_create_qp_response response;
  for (const uint32_t flags : {0u, ROCI_ABI_QP_BLOCK_SELF_MULTICAST, 1u << 30, ~0u}) {
    auto request = RawSession::QpRequest(rig.pd, rig.cq.handle, IBV_QPT_RAW_PACKET);
    request.flags = flags;
    EXPECT_GT(rig.CreateQp(request, response), 0) << flags;
  }
  auto request = RawSession::QpRequest(rig.pd, rig.cq.handle, IBV_QPT_RAW_PACKET);
  EXPECT_EQ(rig.CreateQp(request, response), EPERM);
  // A permitted queue pair sends nothing.
  request.flags = ROCI_ABI_QP_WORK_QUEUE;
  EXPECT_GT(rig.CreateQp(request, response), 0);
}

// Neither 0 (SMI) nor 1 (GSI), nor any other type.
void QueuePairTypes(Scene&) {
  Rig rig;
  for (uint32_t type = 0; type < 300; ++type) {
    const bool is_ordinary = type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD ||
                             type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
    if (is_ordinary) continue;
    roci_abi_create_qp_response response;
    EXPECT_GT(rig.CreateQp(RawSession::QpRequest(rig.pd, rig.cq.handle, type), response), 0)
        << type;
  }
}

void FlowRulesRefused(Scene&) {
  Rig rig;
  const MappedQp qp = rig.MakeQp({.type = IBV_QPT_UD});
  for (uint32_t type = 0; type < 5; ++type) {
    for (uint32_t actions = 0; actions < 8; ++actions) {
      roci_abi_create_flow_request request{};
      request.qp = qp.info.handle;
      request.port = 1;
      request.type = type;
      request.actions = actions;
      roci_abi_handle_response response;
      EXPECT_GT(rig.Call(ROCI_ABI_CREATE_FLOW, request, response), 0);
    }
  }
}

// A work queue of an indirection table is permitted, and receives no frames of other users.
void RssWithoutRights(Scene&) {
  Rig rig;
  auto create = RawSession::QpRequest(rig.pd, rig.cq.handle, IBV_QPT_RAW_PACKET);
  create.flags = ROCI_ABI_QP_WORK_QUEUE;
  create.max_send_wr = 0;
  roci_abi_create_qp_response queue;
  ASSERT_EQ(rig.CreateQp(create, queue), 0);
  roci_abi_create_queue_table_request table{};
  table.queues[0] = queue.handle;
  roci_abi_handle_response made;
  if (rig.Call(ROCI_ABI_CREATE_QUEUE_TABLE, table, made) != 0) return;
  roci_abi_create_rss_qp_request rss{};
  rss.pd = rig.pd;
  rss.table = made.handle;
  roci_abi_create_qp_response response;
  EXPECT_GT(rig.Call(ROCI_ABI_CREATE_RSS_QP, rss, response), 0);
}

void ControlledKeysRefused(Scene&) {
  Rig rig;
  const MappedQp qp = rig.MakeQp({.type = IBV_QPT_UD});
  roci_abi_qp_attr attr{};
  attr.state = IBV_QPS_INIT;
  attr.port = 1;
  for (const uint32_t qkey : {0x80000000u, 0x80010000u, ~0u}) {
    attr.qkey = qkey;
    EXPECT_EQ(rig.Modify(qp.info.handle,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, attr),
              EPERM);
  }
}

// Forged MADs to the peer's connection manager, from a queue pair other than QP1.
void ManagementDatagrams(Scene& scene) {
  RigPair pair({.type = IBV_QPT_UD});
  const uint32_t self = pair.near.MakeAh(1);
  for (uint32_t i = 0; scene.Goes(); ++i) {
    for (int at = 0; at < 256; ++at) {
      pair.near.region.data[at] = static_cast<std::byte>(scene.Random());
    }
    const uint8_t head[] = {1, 7, 2, 3};  // of the communication management class
    std::memcpy(pair.near.region.data, head, sizeof(head));
    const uint8_t attributes[] = {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A};
    pair.near.region.data[16] = std::byte{0};
    pair.near.region.data[17] = std::byte{attributes[i % std::size(attributes)]};
    roci_abi_send_wqe wqe = pair.ValidWqe(ROCI_ABI_WR_SEND);
    wqe.u.ud.remote_qpn = i % 16 == 0 ? 0 : 1;
    wqe.u.ud.remote_qkey = i % 2 != 0 ? 0x80010000 : 0x1234;
    if (i % 4 == 0) wqe.u.ud.address_handle = self;
    pair.near.Post(pair.near_qp, wqe, {pair.near.region.Sge(256)});
    usleep(50);
    while (pair.near.cq.Poll()) {
    }
    if (i % 16 == 15) pair.Reconnect();
  }
}

// Packets for the victim's queue pairs, from an attacker that knows their numbers and its key.
// Packets that the network cannot distinguish from the peer's are limited by the victim's PSN.
auto AtTheVictim(uint32_t type) {
  return [=](Scene& scene) {
    Rig near("roci0");
    MappedQp qp = near.MakeQp({.type = type});
    for (uint32_t i = 0; scene.Goes(); ++i) {
      near.ToReset(qp);
      const uint32_t qpn = i % 2 != 0 ? scene.victim.far_qpn.load() : scene.victim.near_qpn.load();
      ASSERT_EQ(near.Connect(qp, qpn, i % 2 != 0 ? 2 : 1), 0);
      for (const uint8_t opcode :
           {ROCI_ABI_WR_SEND, ROCI_ABI_WR_RDMA_WRITE, ROCI_ABI_WR_RDMA_READ}) {
        if (type == IBV_QPT_UD && opcode != ROCI_ABI_WR_SEND) continue;
        roci_abi_send_wqe wqe{};
        wqe.opcode = opcode;
        wqe.flags = ROCI_ABI_SEND_SIGNALED;
        wqe.num_sge = 1;
        // No valid key: a hit would corrupt the victim.
        wqe.rkey = scene.victim.rkey ^ 1;
        wqe.remote_va = scene.victim.remote_va;
        if (type == IBV_QPT_UD) {
          wqe.u.ud.address_handle = near.MakeAh(i % 2 != 0 ? 2 : 1);
          wqe.u.ud.remote_qpn = qpn;
          wqe.u.ud.remote_qkey = 0x1234;
        }
        near.Post(qp, wqe, {near.region.Sge(512)});
        usleep(300);
      }
      while (near.cq.Poll()) {
      }
    }
  };
}

// The smallest packets at full rate.
void FloodOfPackets(Scene& scene) {
  QpOptions options{.type = IBV_QPT_UC, .wr = 256};
  RigPair pair(options);
  while (scene.Goes()) {
    for (int i = 0; i < 64; ++i) {
      pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE),
                     {pair.near.region.Sge(1)});
    }
    while (pair.near.cq.Poll()) {
    }
    if (pair.near.cq.header()->overflowed != 0) break;
    usleep(50);
  }
}

// Datagrams to groups that all programs have joined.
void FloodOfMulticast(Scene& scene) {
  RigPair pair({.type = IBV_QPT_UD});
  roci_abi_create_ah_request create{};
  create.pd = pair.near.pd;
  const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 2, 3};
  std::memcpy(create.attr.dgid, gid, sizeof(gid));
  create.attr.is_global = 1;
  create.attr.port = 1;
  create.attr.sgid_index = 1;
  roci_abi_handle_response ah;
  ASSERT_EQ(pair.near.Call(ROCI_ABI_CREATE_AH, create, ah), 0);
  for (uint32_t i = 0; scene.Goes(); ++i) {
    roci_abi_send_wqe wqe = pair.ValidWqe(ROCI_ABI_WR_SEND);
    wqe.u.ud.address_handle = ah.handle;
    wqe.u.ud.remote_qpn = 0xFFFFFF;
    pair.near.Post(pair.near_qp, wqe, {pair.near.region.Sge(64)});
    usleep(20);
    while (pair.near.cq.Poll()) {
    }
  }
}

// To unused addresses: each is resolved for a while.
void PeersThatAreNot(Scene& scene) {
  std::vector<std::unique_ptr<Rig>> rigs;
  while (scene.Goes()) {
    auto& rig = rigs.emplace_back(std::make_unique<Rig>());
    roci_abi_create_ah_request request{};
    request.pd = rig->pd;
    request.attr.is_global = 1;
    request.attr.port = 1;
    request.attr.sgid_index = 1;
    const uint8_t gid[16] = {0, 0, 0,    0,    0,  0,  0, 0,
                             0, 0, 0xFF, 0xFF, 10, 99, 0, static_cast<uint8_t>(scene.Random() | 8)};
    std::memcpy(request.attr.dgid, gid, sizeof(gid));
    rig->Send(ROCI_ABI_CREATE_AH, request);
    if (rigs.size() > 100) rigs.erase(rigs.begin(), rigs.begin() + 50);
  }
}

}  // namespace

void AddNetworkAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"Network", name, std::move(run), in_sample});
  };
  add("RawPacketsRefused", RawPacketsRefused, true);
  add("QueuePairTypes", QueuePairTypes);
  add("FlowRulesRefused", FlowRulesRefused, true);
  add("RssWithoutRights", RssWithoutRights);
  add("ControlledKeysRefused", ControlledKeysRefused, true);
  add("ManagementDatagrams", ManagementDatagrams, true);
  add("AtTheVictimByRc", AtTheVictim(IBV_QPT_RC));
  add("AtTheVictimByUc", AtTheVictim(IBV_QPT_UC));
  add("AtTheVictimByUd", AtTheVictim(IBV_QPT_UD));
  add("FloodOfPackets", FloodOfPackets, true);
  add("FloodOfMulticast", FloodOfMulticast);
  add("PeersThatAreNot", PeersThatAreNot, true);
}

}  // namespace roci::testing::hostile
