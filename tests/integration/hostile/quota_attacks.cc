// Takes everything that a user may have, twice: the second time the amounts must be the same. The
// victim continues to make its own calls.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/cm_speaker.h"
#include "tests/integration/hostile/messages.h"

namespace roci::testing::hostile {
namespace {

// Every resource here is limited.
constexpr size_t kFarTooMany = 200'000;

// Creates one more; returns the errno.
using MakeOne = std::function<int(size_t)>;

// Returns the number created.
size_t UntilRefused(const MakeOne& make, const char* what) {
  int error = 0;
  size_t made = 0;
  const auto end = Clock::now() + Milliseconds(25'000);
  while (made < kFarTooMany && Clock::now() < end && (error = make(made)) == 0) ++made;
  const bool is_refusal = error == ENOMEM || error == EAGAIN || error == ENFILE ||
                          error == EMFILE || error == EUSERS || error == ENOSPC ||
                          error == EDQUOT || error == EADDRNOTAVAIL || error == EADDRINUSE;
  EXPECT_TRUE(is_refusal) << what << ": error " << error << " after " << made;
  EXPECT_GT(made, 0u) << what;
  std::printf("%s: %zu\n", what, made);
  usleep(100'000);  // the victim runs in this state
  return made;
}

// `fill` uses up the resource that it counts, and releases everything.
auto Twice(const std::function<size_t(Scene&)>& fill) {
  return [=](Scene& scene) {
    const size_t first = fill(scene);
    // Sessions are freed shortly after their sockets close.
    size_t second = 0;
    for (int tries = 0; tries < 40 && second < first; ++tries) {
      usleep(50'000);
      second = fill(scene);
    }
    EXPECT_EQ(second, first) << "the second time";
  };
}

// Objects of one session, all created by the same message.
auto Objects(uint32_t command) {
  return Twice([=](Scene&) {
    Speaker speaker;
    for (const MessageKind& kind : MessageKinds()) {
      if (kind.command != command) continue;
      const std::vector<std::byte> message = speaker.Valid(kind);
      return UntilRefused([&](size_t) { return speaker.Ask(message, {}, 10'000); }, kind.name);
    }
    return size_t{0};
  });
}

size_t Sessions(Scene&) {
  std::vector<std::unique_ptr<RawSession>> sessions;
  return UntilRefused(
      [&](size_t) {
        sessions.push_back(std::make_unique<RawSession>());
        // A connection that is refused gets an answer to no request.
        std::array<std::byte, 4096> answer;
        if (sessions.back()->ReceiveBytes(answer, 0) > 0) return EAGAIN;
        roci_abi_hello_request hello{};
        hello.magic = ROCI_ABI_MAGIC;
        hello.major = ROCI_ABI_MAJOR;
        std::snprintf(hello.device, sizeof(hello.device), "roci0");
        if (!sessions.back()->Send(ROCI_ABI_HELLO, hello)) return EAGAIN;
        if (sessions.back()->ReceiveBytes(answer, 10'000) <= 0) return EAGAIN;
        roci_abi_response head;
        std::memcpy(&head, answer.data(), sizeof(head));
        sessions.back()->CloseFds();
        return head.error;
      },
      "sessions");
}

// Files that the daemon maps separately.
size_t Mappings(Scene&) {
  Rig rig;
  static std::byte memory[kPage];
  std::vector<int> fds;
  size_t mapped = 0;
  // If no more can be mapped, process_vm_readv is used: the limit of regions ends it.
  const size_t made = UntilRefused(
      [&](size_t) {
        const int fd = memfd_create("quota", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0 || ftruncate(fd, kPage) != 0) return errno;
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
        Region region;
        const int error = rig.Register(memory, kPage, region, kAllAccess, fd);
        close(fd);
        mapped += error == 0;
        return error;
      },
      "mappings");
  return made;
}

// Sparse files of a TiB.
size_t Bytes(Scene&) {
  constexpr uint64_t kLength = uint64_t{1} << 40;
  Rig rig;
  void* at = mmap(nullptr, kLength, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(at, MAP_FAILED);
  size_t made = 0;
  for (; made < 200; ++made) {
    const int fd = memfd_create("quota", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    Region region;
    const bool is_made =
        ftruncate(fd, kLength) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
        rig.Register(static_cast<std::byte*>(at), kLength, region, kAllAccess, fd) == 0;
    close(fd);
    if (!is_made) break;
  }
  munmap(at, kLength);
  return made;
}

// Queues of maximum size.
size_t RingMemory(Scene&) {
  std::vector<std::unique_ptr<Rig>> rigs;
  rigs.push_back(std::make_unique<Rig>());
  return UntilRefused(
      [&](size_t) {
        roci_abi_create_cq_request request{};
        request.entries = 1 << 20;
        request.channel = kNone;
        roci_abi_create_cq_response response;
        return rigs.back()->Call(ROCI_ABI_CREATE_CQ, request, response);
      },
      "ring memory");
}

size_t DeviceMemory(Scene&) {
  Rig rig;
  return UntilRefused(
      [&](size_t) {
        roci_abi_alloc_dm_request request{};
        request.length = 65536;
        roci_abi_alloc_dm_response response;
        return rig.Call(ROCI_ABI_ALLOC_DM, request, response);
      },
      "device memory");
}

// One queue pair in the maximum number of groups.
size_t Groups(Scene&) {
  Rig rig;
  std::vector<MappedQp> qps;
  return UntilRefused(
      [&](size_t i) {
        if (i % 64 == 0) {
          qps.push_back(rig.MakeQp({.type = IBV_QPT_UD, .wr = 1}));
          EXPECT_EQ(rig.Connect(qps.back(), 0, 2), 0);
        }
        roci_abi_multicast_request request{};
        request.qp = qps.back().info.handle;
        request.gid[0] = 0xFF;
        request.gid[1] = 0x0E;
        const auto number = static_cast<uint32_t>(i);
        std::memcpy(request.gid + 12, &number, sizeof(number));
        roci_abi_plain_response response;
        return rig.Call(ROCI_ABI_ATTACH_MULTICAST, request, response);
      },
      "multicast groups");
}

// All places of one group, which other programs want to join.
size_t MembersOfOneGroup(Scene&) {
  Rig rig;
  return UntilRefused(
      [&](size_t) {
        const MappedQp qp = rig.MakeQp({.type = IBV_QPT_UD, .wr = 1});
        roci_abi_multicast_request request{};
        request.qp = qp.info.handle;
        std::memcpy(request.gid, kVictimsGroup, sizeof(request.gid));
        roci_abi_plain_response response;
        return rig.Call(ROCI_ABI_ATTACH_MULTICAST, request, response);
      },
      "members of a multicast group");
}

size_t WorkQueues(Scene&) {
  Rig rig;
  return UntilRefused(
      [&](size_t) {
        auto request = RawSession::QpRequest(rig.pd, rig.cq.handle, IBV_QPT_RAW_PACKET);
        request.flags = ROCI_ABI_QP_WORK_QUEUE;
        request.max_send_wr = 0;
        roci_abi_create_qp_response response;
        return rig.CreateQp(request, response);
      },
      "work queues");
}

size_t DomainsOfFiles(Scene&) {
  Rig rig;
  return UntilRefused(
      [&](size_t) {
        roci_abi_open_xrcd_request request{};
        request.has_file = 1;
        request.flags = ROCI_ABI_XRCD_CREATE;
        roci_abi_handle_response response;
        const int fd = memfd_create("domain", MFD_CLOEXEC);
        const int error = rig.Call(ROCI_ABI_OPEN_XRCD, request, response, {fd});
        close(fd);
        return error;
      },
      "XRC domains of files");
}

size_t Channels(Scene&) {
  std::vector<std::unique_ptr<CmSpeaker>> channels;
  return UntilRefused(
      [&](size_t) {
        channels.push_back(std::make_unique<CmSpeaker>());
        return channels.back()->signal() >= 0 ? 0 : EAGAIN;
      },
      "event channels");
}

size_t Identifiers(Scene&) {
  CmSpeaker speaker;
  return UntilRefused([&](size_t) { return speaker.Create() != 0 ? 0 : speaker.answer.head.error; },
                      "identifiers");
}

size_t Listeners(Scene&) {
  CmSpeaker speaker;
  return UntilRefused(
      [&](size_t) {
        const uint32_t id = speaker.Create();
        return id != 0 ? speaker.Listen(id) : speaker.answer.head.error;
      },
      "listeners");
}

size_t Memberships(Scene&) {
  CmSpeaker speaker;
  uint32_t id = 0;
  return UntilRefused(
      [&](size_t i) {
        if (i % 60 == 0) {
          id = speaker.Create(RDMA_PS_UDP);
          if (id == 0) return speaker.answer.head.error;
          rdma_ucm_bind_ip bind{};
          bind.addr = CmAddress(1, 0);
          bind.id = id;
          const int error = speaker.Call(RDMA_USER_CM_CMD_BIND_IP, bind);
          if (error != 0) return error;
        }
        rdma_ucm_join_ip_mcast join{};
        join.uid = 1;
        join.id = id;
        sockaddr_in group{};
        group.sin_family = AF_INET;
        group.sin_addr.s_addr = htonl(0xEF000000u + static_cast<uint32_t>(i));
        std::memcpy(&join.addr, &group, sizeof(group));
        const int error = speaker.Call(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join);
        while (speaker.TakeEvent()) {
        }
        return error;
      },
      "memberships");
}

// One domain with the maximum number of receivers and shared queues, which ends at once: each queue
// is removed from each receiver.
void XrcDomainOfMany(Scene& scene) {
  static Speaker speaker;
  auto create = RawSession::QpRequest(speaker.xrcd, speaker.rig.cq.handle, IBV_QPT_XRC_RECV);
  roci_abi_create_srq_request request{};
  request.pd = speaker.rig.pd;
  request.type = ROCI_ABI_SRQ_XRC;
  request.xrcd = speaker.xrcd;
  request.cq = speaker.rig.cq.handle;
  request.max_wr = request.max_sge = 1;
  const size_t most = scene.is_long ? kFarTooMany : 500;
  size_t made = 0;
  roci_abi_create_qp_response qp;
  while (made < most && speaker.rig.CreateQp(create, qp) == 0) ++made;
  EXPECT_GT(made, 100u);
  std::printf("receivers: %zu\n", made);
  roci_abi_create_srq_response srq;
  for (made = 0; made < most && speaker.rig.Call(ROCI_ABI_CREATE_SRQ, request, srq) == 0;) ++made;
  EXPECT_GT(made, 100u);
  std::printf("shared queues: %zu\n", made);
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

// Endless handles for one receiver.
void OpenedAgain(Scene&) {
  Speaker speaker;
  auto create = RawSession::QpRequest(speaker.xrcd, speaker.rig.cq.handle, IBV_QPT_XRC_RECV);
  roci_abi_create_qp_response qp;
  ASSERT_EQ(speaker.rig.CreateQp(create, qp), 0);
  roci_abi_open_qp_request request{};
  request.xrcd = speaker.xrcd;
  request.qpn = qp.qpn;
  request.qp_type = IBV_QPT_XRC_RECV;
  UntilRefused(
      [&](size_t) {
        roci_abi_open_qp_response response;
        return speaker.rig.Call(ROCI_ABI_OPEN_QP, request, response);
      },
      "openings");
}

// Everything at once, and the process exits without cleanup.
void AllAtOnce(Scene&) {
  static std::vector<std::unique_ptr<Speaker>> speakers;
  for (int i = 0; i < 8; ++i) speakers.push_back(std::make_unique<Speaker>());
  for (const MessageKind& kind : MessageKinds()) {
    if (kind.size == sizeof(roci_abi_handle_request) || kind.command == ROCI_ABI_DETACH_MULTICAST) {
      continue;
    }
    for (auto& speaker : speakers) {
      for (int i = 0; i < 300; ++i) {
        if (speaker->Ask(speaker->Valid(kind), {}, 10'000) != 0) break;
      }
    }
  }
  std::fflush(nullptr);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

void AddQuotaAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"Quotas", name, std::move(run), in_sample});
  };
  add("Sessions", Twice(Sessions), true);
  add("ProtectionDomains", Objects(ROCI_ABI_ALLOC_PD));
  add("Regions", Objects(ROCI_ABI_REG_MR));
  add("NullRegions", Objects(ROCI_ABI_ALLOC_NULL_MR));
  add("DeviceMemoryRegions", Objects(ROCI_ABI_REG_DM_MR));
  add("ListRegions", Objects(ROCI_ABI_ALLOC_LIST_MR));
  add("SignatureRegions", Objects(ROCI_ABI_ALLOC_SIGNATURE_MR));
  add("Windows", Objects(ROCI_ABI_ALLOC_MW));
  add("CompletionQueues", Objects(ROCI_ABI_CREATE_CQ), true);
  add("QueuePairs", Objects(ROCI_ABI_CREATE_QP));
  add("SharedQueues", Objects(ROCI_ABI_CREATE_SRQ), true);
  add("TagQueues", Objects(ROCI_ABI_CREATE_TAG_SRQ));
  add("AddressHandles", Objects(ROCI_ABI_CREATE_AH));
  add("XrcDomains", Objects(ROCI_ABI_OPEN_XRCD), true);
  add("CompletionChannels", Objects(ROCI_ABI_CREATE_COMP_CHANNEL));
  add("Counters", Objects(ROCI_ABI_CREATE_COUNTERS));
  add("Mappings", Twice(Mappings));
  add("Bytes", Twice(Bytes), true);
  add("RingMemory", Twice(RingMemory), true);
  add("DeviceMemory", Twice(DeviceMemory), true);
  add("Groups", Twice(Groups), true);
  add("MembersOfOneGroup", Twice(MembersOfOneGroup), true);
  add("WorkQueues", Twice(WorkQueues));
  add("DomainsOfFiles", Twice(DomainsOfFiles));
  add("EventChannels", Twice(Channels));
  add("Identifiers", Twice(Identifiers));
  add("Listeners", Twice(Listeners));
  add("Memberships", Twice(Memberships));
  add("XrcDomainOfMany", XrcDomainOfMany, true);
  add("OpenedAgain", OpenedAgain);
  add("AllAtOnce", AllAtOnce, true);
}

}  // namespace roci::testing::hostile
