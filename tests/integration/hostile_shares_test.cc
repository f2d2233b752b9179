// One ordinary user takes all that it can of a device's tables of peers and multicast groups. Other
// ordinary users still find theirs.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "control/config/device_limits.h"
#include "control/device/users.h"
#include "tests/integration/attacker.h"
#include "tests/integration/hostile/cm_speaker.h"
#include "tests/integration/other_users.h"
#include "tests/integration/raw_session.h"
#include "tools/show/manage_client.h"

namespace roci::testing {
namespace {

using hostile::CmAddress;
using hostile::CmSpeaker;

constexpr uid_t kOtherUser = kNobody - 1;
constexpr uint32_t kUd = 4;
// More than half of what a device has of anything here.
constexpr uint32_t kFarTooMany = 5000;

class HostileSharesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "cannot become another user";
    LetOtherUsersIn();
  }
  // Multicast groups that roci0 reports to its network.
  static uint64_t ReportedGroups() {
    const auto devices = tools::AskDaemon("", {{"command", "show"}, {"what", "devices"}});
    EXPECT_TRUE(devices.ok()) << devices.status();
    for (const nlohmann::json& device : *devices) {
      if (device.value("name", "") == "roci0") return device.value("reported_groups", uint64_t{0});
    }
    ADD_FAILURE() << "no roci0";
    return 0;
  }
  // Objects of a program are freed shortly after its end.
  static bool AwaitReportedGroups(uint64_t count) {
    for (int tries = 0; tries < 200 && ReportedGroups() != count; ++tries) usleep(50'000);
    return ReportedGroups() == count;
  }
};

// An address in fe80::/64, which every device has, that nobody has.
sockaddr_in6 Absent(uint32_t number) {
  sockaddr_in6 out{};
  out.sin6_family = AF_INET6;
  const uint8_t prefix[] = {0xFE, 0x80};
  std::memcpy(out.sin6_addr.s6_addr, prefix, sizeof(prefix));
  out.sin6_addr.s6_addr[10] = 0xBA;
  out.sin6_addr.s6_addr[11] = 0xD0;
  for (int i = 0; i < 4; ++i) {
    out.sin6_addr.s6_addr[12 + i] = static_cast<uint8_t>(number >> (24 - 8 * i));
  }
  return out;
}

int ResolveAbsent(CmSpeaker& speaker, uint32_t id, uint32_t number, uint32_t timeout_ms = 60'000) {
  rdma_ucm_resolve_ip resolve{};
  resolve.dst_addr = Absent(number);
  resolve.id = id;
  resolve.timeout_ms = timeout_ms;
  return speaker.Call(RDMA_USER_CM_CMD_RESOLVE_IP, resolve);
}

// Resolves the address of roci1; the errno of the command or of its event.
int ResolveKnown(CmSpeaker& speaker, uint32_t id) {
  rdma_ucm_resolve_ip resolve{};
  resolve.dst_addr = CmAddress(2, 4000);
  resolve.id = id;
  resolve.timeout_ms = 2000;
  const int error = speaker.Call(RDMA_USER_CM_CMD_RESOLVE_IP, resolve);
  if (error != 0) return error;
  rdma_ucm_event_resp event{};
  for (int tries = 0; tries < 3000 && event.id != id; ++tries) {
    if (!speaker.TakeEvent(&event)) usleep(1000);
  }
  return event.id == id ? -event.status : ETIME;
}

// Resolves ever more addresses of absent peers. Says the number and the first error; the result for
// a peer that is in the cache; the result for a peer for which the user waits already.
void ResolveManyAbsent(int line) {
  CmSpeaker speaker;
  if (ResolveKnown(speaker, speaker.Create()) != 0) _exit(3);
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < kFarTooMany; ++i) ids.push_back(speaker.Create());
  int error = 0;
  uint32_t made = 0;
  while (made < kFarTooMany - 2 && (error = ResolveAbsent(speaker, ids[made], made)) == 0) ++made;
  Line::Send(line, made);
  Line::Send(line, error);
  Line::Send(line, ResolveKnown(speaker, ids[kFarTooMany - 2]));
  Line::Send(line, ResolveAbsent(speaker, ids[kFarTooMany - 1], made - 1));
  Line::Receive(line);
}

// Says the errno of an address handle to entry `index` of roci1's GID table, which no program has
// used yet.
void ReachUnknownPeer(int line, uint8_t index) {
  RawSession session;
  if (session.Hello() != 0) _exit(3);
  roci_abi_create_ah_request request{};
  request.pd = session.AllocPd();
  request.attr.is_global = 1;
  request.attr.port = 1;
  request.attr.sgid_index = index;
  std::ifstream entry("/sys/class/infiniband/roci1/ports/1/gids/" + std::to_string(index));
  std::string gid;
  if (!std::getline(entry, gid) || inet_pton(AF_INET6, gid.c_str(), request.attr.dgid) != 1) {
    _exit(3);
  }
  roci_abi_handle_response response;
  Line::Send(line, session.Call(ROCI_ABI_CREATE_AH, request, response));
}

TEST_F(HostileSharesTest, AbsentPeersLeaveAddressResolutionToOthers) {
  Attacker attacker(ResolveManyAbsent);
  EXPECT_GE(attacker.Hear(), control::DeviceLimits().max_unresolved_peers / 2);
  EXPECT_EQ(attacker.Hear(), ENOMEM) << "no limit";
  EXPECT_EQ(attacker.Hear(), 0) << "a known peer";
  EXPECT_EQ(attacker.Hear(), 0) << "the same absent peer";
  Attacker other([](int line) { ReachUnknownPeer(line, 2); }, kOtherUser);
  EXPECT_EQ(other.Hear(), 0);
}

// Asks for address handles of ever more absent peers, without waiting. Says the number and the
// first error.
void AskForManyAbsent(int line) {
  RawSession session;
  if (session.Hello("roci0", -1, ROCI_ABI_FEATURE_PATH_WAITS) != 0) _exit(3);
  roci_abi_create_ah_request request{};
  request.pd = session.AllocPd();
  request.attr.is_global = 1;
  request.attr.port = 1;
  int error = EINPROGRESS;
  uint32_t made = 0;
  for (; made < kFarTooMany && error == EINPROGRESS; ++made) {
    const sockaddr_in6 absent = Absent(made);
    std::memcpy(request.attr.dgid, &absent.sin6_addr, sizeof(request.attr.dgid));
    roci_abi_handle_response response;
    error = session.Call(ROCI_ABI_CREATE_AH, request, response);
  }
  Line::Send(line, made);
  Line::Send(line, error);
  Line::Receive(line);
}

TEST_F(HostileSharesTest, RequestsThatWaitLeaveAddressResolutionToOthers) {
  Attacker attacker(AskForManyAbsent);
  EXPECT_GE(attacker.Hear(), control::DeviceLimits().max_unresolved_peers / 2);
  EXPECT_EQ(attacker.Hear(), ENOMEM) << "no limit";
  Attacker other([](int line) { ReachUnknownPeer(line, 0); }, kOtherUser);
  EXPECT_EQ(other.Hear(), 0);
}

// Users that do `attack` until they are refused with `error`, and keep what they have made: at most
// `most` each.
std::vector<std::unique_ptr<Attacker>> UsersThatAreRefused(uint32_t count, void (*attack)(int),
                                                           int error, int64_t most = INT64_MAX) {
  std::vector<std::unique_ptr<Attacker>> attackers;
  for (uint32_t i = 0; i < count; ++i) {
    attackers.push_back(std::make_unique<Attacker>(attack, kNobody - i));
    const int64_t made = attackers.back()->Hear();
    EXPECT_TRUE(made >= 0 && made <= most) << made;
    EXPECT_EQ(attackers.back()->Hear(), error);
  }
  return attackers;
}

// Creates identifiers until it is refused. Says their number and the errno.
void CreateManyIdentifiers(int line) {
  CmSpeaker speaker;
  int64_t made = 0;
  while (speaker.Create() != 0) ++made;
  Line::Send(line, made);
  Line::Send(line, speaker.answer.head.error);
  Line::Receive(line);
}

// As of all that users share.
TEST_F(HostileSharesTest, ManyUsersLeaveIdentifiersToRoot) {
  constexpr uint32_t kAttackers = 5;
  constexpr int kNeeded = 1000;
  const auto attackers = UsersThatAreRefused(kAttackers, CreateManyIdentifiers, ENOMEM);
  CmSpeaker speaker;
  int made = 0;
  while (made < kNeeded && speaker.Create() != 0) ++made;
  EXPECT_EQ(made, kNeeded) << "errno " << speaker.answer.head.error;
}

// Binds identifiers to ports that the daemon chooses, and to ports by their numbers, until it is
// refused. Says the number and the errno.
void TakeManyPorts(int line) {
  CmSpeaker speaker;
  int64_t made = 0;
  int error = 0;
  while (error == 0) {
    const uint32_t id = speaker.Create();
    if (id == 0) break;
    const auto port = static_cast<uint16_t>(control::SharedQuotas::kFirstChosenPort + made);
    error = made % 2 == 0 ? speaker.Bind(id, 0) : speaker.Bind(id, port);
    if (made % 2 != 0 && error == EADDRNOTAVAIL) error = speaker.Bind(id, 0);  // somebody has it
    made += error == 0;
  }
  Line::Send(line, made);
  Line::Send(line, error);
  Line::Receive(line);
}

TEST_F(HostileSharesTest, ManyUsersLeavePortsToRoot) {
  constexpr uint32_t kAttackers = 3;
  constexpr int kNeeded = 1000;
  const auto attackers = UsersThatAreRefused(kAttackers, TakeManyPorts, EADDRNOTAVAIL,
                                             int64_t{control::SharedQuotas::kChosenPorts / 2});
  CmSpeaker speaker;
  int made = 0;
  while (made < kNeeded && speaker.Bind(speaker.Create(), 0) == 0) ++made;
  EXPECT_EQ(made, kNeeded) << "errno " << speaker.answer.head.error;
}

// Lets attempts to resolve an address fail at once, and fetches no event, until it is refused.
// Returns the number of attempts.
int64_t FillChannel(CmSpeaker& speaker) {
  std::array<uint32_t, 16> ids;
  for (uint32_t& id : ids) id = speaker.Create();
  int64_t made = 0;
  for (;;) {
    const int error = ResolveAbsent(speaker, ids[static_cast<size_t>(made) % ids.size()], 1, 0);
    if (error == EINVAL) {
      usleep(50);  // the identifier's last attempt has not failed yet
      continue;
    }
    if (error != 0) return made;
    ++made;
  }
}

// Fills ever more channels with events. Says the number of events.
void LetManyEventsWait(int line) {
  constexpr int64_t kTooMany = control::SharedQuotas::kMaxConnectionEvents;
  std::vector<std::unique_ptr<CmSpeaker>> speakers;
  int64_t made = 0;
  int64_t of_channel = 0;
  do {
    speakers.push_back(std::make_unique<CmSpeaker>());
    of_channel = FillChannel(*speakers.back());
    made += of_channel;
  } while (of_channel > 0 && made < kTooMany);
  Line::Send(line, made);
  Line::Receive(line);
}

TEST_F(HostileSharesTest, EventsThatNobodyFetchesAreLimitedPerUser) {
  constexpr int64_t kPart = control::SharedQuotas::kMaxConnectionEvents / 2;
  Attacker attacker(LetManyEventsWait);
  const int64_t made = attacker.Hear();
  EXPECT_GE(made, kPart);
  EXPECT_LE(made, kPart + 100) << "the last ones that had not failed yet";
  Attacker other(
      [](int line) {
        CmSpeaker speaker;
        Line::Send(line, ResolveKnown(speaker, speaker.Create()));
      },
      kOtherUser);
  EXPECT_EQ(other.Hear(), 0);
}

// An identifier for datagrams that has an address of roci0.
uint32_t DatagramId(CmSpeaker& speaker) {
  const uint32_t id = speaker.Create(RDMA_PS_UDP);
  rdma_ucm_bind_ip bind{};
  bind.addr = CmAddress(1, 0);
  bind.id = id;
  return id != 0 && speaker.Call(RDMA_USER_CM_CMD_BIND_IP, bind) == 0 ? id : 0;
}

// Group 239.1.x.y.
int JoinGroup(CmSpeaker& speaker, uint32_t id, uint32_t number) {
  sockaddr_in group{};
  group.sin_family = AF_INET;
  group.sin_addr.s_addr = htonl(0xEF010000u + number);
  rdma_ucm_join_ip_mcast join{};
  std::memcpy(&join.addr, &group, sizeof(group));
  join.uid = 1;
  join.id = id;
  const int error = speaker.Call(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join);
  if (error == 0) speaker.TakeEvent();
  return error;
}

// Joins ever more groups. Says the number and the first error.
void JoinManyGroups(int line) {
  constexpr uint32_t kMostOfOneId = 64;
  CmSpeaker speaker;
  int error = 0;
  uint32_t id = 0;
  uint32_t made = 0;
  while (made < kFarTooMany) {
    if (made % kMostOfOneId == 0) id = DatagramId(speaker);
    error = JoinGroup(speaker, id, made);
    if (error != 0) break;
    ++made;
  }
  Line::Send(line, made);
  Line::Send(line, error);
  Line::Receive(line);
}

// Joins one group and attaches a queue pair to another one. Says the errnos.
void UseTwoGroups(int line) {
  CmSpeaker speaker;
  Line::Send(line, JoinGroup(speaker, DatagramId(speaker), 0xFFF0));
  RawSession session;
  if (session.Hello() != 0) _exit(3);
  roci_abi_create_qp_response qp;
  const uint32_t pd = session.AllocPd();
  if (session.CreateQp(RawSession::QpRequest(pd, session.CreateCq(16), kUd), qp) != 0) _exit(3);
  roci_abi_multicast_request attach{};
  attach.qp = qp.handle;
  const uint8_t gid[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 0xFF, 0xF1};
  std::memcpy(attach.gid, gid, sizeof(gid));
  roci_abi_plain_response response;
  Line::Send(line, session.Call(ROCI_ABI_ATTACH_MULTICAST, attach, response));
  Line::Receive(line);
}

TEST_F(HostileSharesTest, ManyGroupsLeaveMulticastToOthers) {
  const uint64_t before = ReportedGroups();
  for (int times = 0; times < 2; ++times) {
    {
      Attacker attacker(JoinManyGroups);
      EXPECT_EQ(attacker.Hear(), control::DeviceLimits().max_multicast_joins / 2);
      EXPECT_EQ(attacker.Hear(), ENOMEM) << "no limit";
      const uint64_t taken = ReportedGroups();
      Attacker other(UseTwoGroups, kOtherUser);
      EXPECT_EQ(other.Hear(), 0) << "rdma_join_multicast";
      EXPECT_EQ(other.Hear(), 0) << "ibv_attach_mcast";
      EXPECT_EQ(ReportedGroups(), taken + 2) << "a switch that snoops would not forward them";
    }
    EXPECT_TRUE(AwaitReportedGroups(before));
  }
}

}  // namespace
}  // namespace roci::testing
