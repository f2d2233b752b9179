// Handles, keys and numbers that do not belong to the session: of another session, of another user,
// stale, and unassigned.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/messages.h"

namespace roci::testing::hostile {
namespace {

// Index of the first handle's word in a message, after the head (and an address of the program).
size_t HandleWord(const MessageKind& kind) {
  switch (kind.command) {
    case ROCI_ABI_CREATE_QP:
    case ROCI_ABI_CREATE_RSS_QP:
    case ROCI_ABI_CREATE_SRQ:
    case ROCI_ABI_CREATE_TAG_SRQ:
    case ROCI_ABI_OPEN_QP:
      return 6;
    case ROCI_ABI_CREATE_CQ:
      return 7;  // channel
    default:
      return 4;
  }
}

// These have no handle, or one that is not checked.
bool HasHandle(const MessageKind& kind) {
  switch (kind.command) {
    case ROCI_ABI_QUERY_DEVICE:
    case ROCI_ABI_QUERY_PORT:
    case ROCI_ABI_ALLOC_PD:
    case ROCI_ABI_CREATE_COMP_CHANNEL:
    case ROCI_ABI_CREATE_COUNTERS:
    case ROCI_ABI_UNSHARE_RANGE:
    case ROCI_ABI_ALLOC_DM:
    case ROCI_ABI_OPEN_XRCD:
    case ROCI_ABI_NAME_CONTEXT:
    case ROCI_ABI_CREATE_QUEUE_TABLE:
      return false;
    default:
      return true;
  }
}

int AskWith(Speaker& speaker, const MessageKind& kind, uint32_t handle) {
  std::vector<std::byte> message = speaker.Valid(kind);
  std::memcpy(message.data() + HandleWord(kind) * 4, &handle, sizeof(handle));
  return speaker.Ask(message);
}

// Unassigned handles.
auto Handles(const std::function<uint32_t(uint32_t own, Scene&)>& other) {
  return [=](Scene& scene) {
    Speaker speaker;
    for (const MessageKind& kind : MessageKinds()) {
      if (!HasHandle(kind)) continue;
      const std::vector<std::byte> message = speaker.Valid(kind);
      uint32_t own = 0;
      std::memcpy(&own, message.data() + HandleWord(kind) * 4, sizeof(own));
      const uint32_t asked = other(own, scene);
      const bool means_none = asked == kNone && kind.command == ROCI_ABI_RETURN_EVENTS;
      if (own == kNone || means_none) continue;
      const int error = AskWith(speaker, kind, asked);
      EXPECT_GT(error, 0) << kind.name;
      if (error < 0) return;
    }
  };
}

// Handles of another session of the same user, for each object: the object must stay unchanged.
void OfAnotherSession(Scene&) {
  Speaker owner;
  Speaker thief;
  for (const MessageKind& kind : MessageKinds()) {
    if (!HasHandle(kind)) continue;
    std::vector<std::byte> of_owner = owner.Valid(kind);
    const std::vector<std::byte> of_thief = thief.Valid(kind);
    uint32_t theirs = 0, own = 0;
    std::memcpy(&theirs, of_owner.data() + HandleWord(kind) * 4, sizeof(theirs));
    std::memcpy(&own, of_thief.data() + HandleWord(kind) * 4, sizeof(own));
    if (theirs == own) continue;  // small numbers, the same in each
    EXPECT_GT(AskWith(thief, kind, theirs), 0) << kind.name;
  }
  // Commands that query come before commands that destroy.
  for (const uint32_t command :
       {ROCI_ABI_QUERY_QP, ROCI_ABI_QUERY_SRQ, ROCI_ABI_IMPORT_PD, ROCI_ABI_IMPORT_MR,
        ROCI_ABI_IMPORT_DM, ROCI_ABI_CHECK_SIGNATURE_MR, ROCI_ABI_DESTROY_QP, ROCI_ABI_DESTROY_SRQ,
        ROCI_ABI_DESTROY_CQ, ROCI_ABI_DESTROY_AH, ROCI_ABI_DEALLOC_MW, ROCI_ABI_FREE_LIST_MR,
        ROCI_ABI_DEREG_MR, ROCI_ABI_FREE_DM, ROCI_ABI_CLOSE_XRCD, ROCI_ABI_DESTROY_COMP_CHANNEL}) {
    const auto kind = std::ranges::find(MessageKinds(), command, &MessageKind::command);
    EXPECT_EQ(owner.Ask(owner.Valid(*kind)), 0) << kind->name;
  }
}

// Destroyed handles, which may have been reused.
void Stale(Scene& scene) {
  while (scene.Goes()) {
    Rig rig;
    std::vector<uint32_t> cqs;
    for (int i = 0; i < 64; ++i) {
      cqs.push_back(rig.MakeCq(4).handle);
      EXPECT_EQ(rig.OnHandle(ROCI_ABI_DESTROY_CQ, cqs.back()), 0);
    }
    for (const uint32_t cq : cqs) {
      EXPECT_NE(rig.OnHandle(ROCI_ABI_DESTROY_CQ, cq), 0);
      roci_abi_create_qp_response response;
      EXPECT_NE(rig.CreateQp(RawSession::QpRequest(rig.pd, cq), response), 0);
    }
    MappedQp qp = rig.MakeQp();
    EXPECT_EQ(rig.OnHandle(ROCI_ABI_DESTROY_QP, qp.info.handle), 0);
    for (int i = 0; i < 8; ++i) rig.Ring(qp.info.handle);
    EXPECT_NE(rig.OnHandle(ROCI_ABI_DESTROY_QP, qp.info.handle), 0);
    EXPECT_NE(rig.OnHandle(ROCI_ABI_DEREG_MR, rig.region.handle + 1), 0);
  }
}

// A region's key after deregistration, used by requests posted before.
void StaleKeys(Scene& scene) {
  RigPair pair;
  while (scene.Goes()) {
    const Region region = pair.near.MakeRegion(4 * kPage);
    for (int i = 0; i < 8; ++i) {
      pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {region.Sge(8192)});
      const bool ends = i == 4;
      if (ends) pair.near.OnHandle(ROCI_ABI_DEREG_MR, region.handle);
    }
    usleep(200);
    pair.Reconnect();
  }
}

// Keys of other sessions and of root, used by the attacker's queue pair. (RDMA READ would put the
// data into the attacker's memory.)
void KeysOfOthers(Scene& scene) {
  RigPair pair;
  Rig third("roci0");
  std::memset(third.region.data, 0x5A, kPage);
  for (uint32_t i = 0; scene.Goes(); ++i) {
    std::memset(pair.near.region.data, 0, kPage);
    roci_abi_send_wqe wqe = pair.ValidWqe(ROCI_ABI_WR_RDMA_READ);
    wqe.rkey = i % 2 != 0 ? third.region.key : scene.victim.rkey.load();
    wqe.remote_va = i % 2 != 0 ? third.region.va() : scene.victim.remote_va.load();
    pair.near.Post(pair.near_qp, wqe, {pair.near.region.Sge(64)});
    roci_abi_cqe cqe{};
    cqe.status = IBV_WC_GENERAL_ERR;  // after a timeout
    for (const auto end = Clock::now() + Milliseconds(20); Clock::now() < end;) {
      if (pair.near.cq.Poll(&cqe)) break;
    }
    EXPECT_NE(cqe.status, IBV_WC_SUCCESS) << "a key of another session";
    for (size_t at = 0; at < 64; ++at) ASSERT_EQ(pair.near.region.data[at], std::byte{0});
    pair.Reconnect();
  }
}

// Local keys of another session are invalid here.
void LocalKeysOfOthers(Scene& scene) {
  RigPair pair;
  Rig third("roci0");
  std::memset(third.region.data, 0x5A, kPage);
  while (scene.Goes()) {
    std::memset(pair.far.region.data, 0, 64);
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {third.region.Sge(64)});
    usleep(500);
    EXPECT_NE(pair.far.region.data[0], std::byte{0x5A});
    pair.Reconnect();
  }
}

// Other objects with a protection domain, used with a different domain.
void OtherProtectionDomain(Scene& scene) {
  RigPair pair;
  const uint32_t own = pair.near.pd;
  pair.near.pd = pair.near.AllocPd();
  const Region elsewhere = pair.near.MakeRegion(kPage);
  pair.near.pd = own;
  std::memset(elsewhere.data, 0x5A, kPage);
  while (scene.Goes()) {
    pair.far.region.data[0] = std::byte{0};
    pair.near.Post(pair.near_qp, pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE), {elsewhere.Sge(64)});
    usleep(500);
    EXPECT_NE(pair.far.region.data[0], std::byte{0x5A});
    pair.Reconnect();
  }
}

// Attaching to another process's context needs its file descriptor, even for the same user.
void ContextsByName(Scene&) {
  Rig owner;
  const int file = open("/dev/full", O_RDONLY | O_CLOEXEC);
  roci_abi_plain_response plain;
  for (const int fd : {file, -1, 0, 1 << 30, -(1 << 30)}) {
    roci_abi_name_context_request request{};
    request.fd = fd;
    EXPECT_EQ(owner.Call(ROCI_ABI_NAME_CONTEXT, request, plain), 0);
  }
  const int same_inode = open("/dev/full", O_RDONLY | O_CLOEXEC);
  RawSession session;
  roci_abi_attach_request attach{};
  attach.magic = ROCI_ABI_MAGIC;
  attach.major = ROCI_ABI_MAJOR;
  roci_abi_attach_response attached;
  EXPECT_NE(session.Call(ROCI_ABI_ATTACH, attach, attached, {same_inode}), 0);
}

// Repeated attachments, each with objects in the others' domains, ending in any order.
void ContextShared(Scene& scene) {
  while (scene.Goes()) {
    auto owner = std::make_unique<Speaker>();
    const int file = open("/dev/full", O_RDONLY | O_CLOEXEC);
    roci_abi_name_context_request name{};
    name.fd = file;
    roci_abi_plain_response plain;
    ASSERT_EQ(owner->rig.Call(ROCI_ABI_NAME_CONTEXT, name, plain), 0);
    std::vector<std::unique_ptr<RawSession>> others;
    for (int i = 0; i < 12; ++i) {
      others.push_back(std::make_unique<RawSession>());
      roci_abi_attach_request attach{};
      attach.magic = ROCI_ABI_MAGIC;
      attach.major = ROCI_ABI_MAJOR;
      roci_abi_attach_response attached;
      if (others.back()->Call(ROCI_ABI_ATTACH, attach, attached, {file}) != 0) break;
      EXPECT_EQ(others.back()->OnHandle(ROCI_ABI_IMPORT_PD, owner->rig.pd), 0);
      for (const MessageKind& kind : MessageKinds()) {
        const std::vector<std::byte> message = owner->Valid(kind);
        others.back()->CloseFds();
        others.back()->SendBytes(message);
        std::array<std::byte, 4096> answer;
        if (others.back()->ReceiveBytes(answer, 2000) <= 0) break;
      }
      if (i == 5) owner = std::make_unique<Speaker>();
      if (i == 5) break;
    }
    std::shuffle(others.begin(), others.end(), scene.random);
    for (auto& other : others) other.reset();
    close(file);
  }
}

}  // namespace

void AddHandleAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"Handles", name, std::move(run), in_sample});
  };
  add("Largest", Handles([](uint32_t, Scene&) { return ~1u; }), true);
  add("BeyondTables", Handles([](uint32_t own, Scene&) { return own + (1u << 24); }));
  add("HighBit", Handles([](uint32_t own, Scene&) { return own | 1u << 31; }));
  add("Random", Handles([](uint32_t own, Scene& scene) { return own ^ (scene.Random() | 1); }));
  add("OfAnotherSession", OfAnotherSession, true);
  add("Stale", Stale, true);
  add("StaleKeys", StaleKeys, true);
  add("KeysOfOthers", KeysOfOthers, true);
  add("LocalKeysOfOthers", LocalKeysOfOthers);
  add("OtherProtectionDomain", OtherProtectionDomain);
  add("ContextsByName", ContextsByName);
  add("ContextShared", ContextShared, true);
}

}  // namespace roci::testing::hostile
