// Attacks on the connection manager: commands in wrong states, identifiers of other programs, data
// that is too long, events that are not read, connections without limit.
#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/cm_speaker.h"
#include "tests/integration/hostile/endless_read.h"

namespace roci::testing::hostile {
namespace {

constexpr uint32_t kCommands = RDMA_USER_CM_CMD_MIGRATE_ID + 8;  // and some unassigned numbers

template <class Command>
void PutId(roci_abi_cm_request& request, uint32_t id) {
  std::memcpy(request.data + offsetof(Command, id), &id, sizeof(id));
}

// A request of command `number` about `id`, otherwise random or zero.
roci_abi_cm_request About(uint32_t number, uint32_t id, Scene* scene) {
  roci_abi_cm_request request{};
  request.head = {ROCI_ABI_CM_COMMAND, sizeof(request), 1, 0};
  request.command = number;
  request.out_size = ROCI_ABI_CM_ANSWERS_MAX;
  request.in_size = 320;
  for (size_t i = 0; scene != nullptr && i < 320; ++i) {
    request.data[i] = static_cast<uint8_t>(scene->Random());
  }
  switch (number) {
    case RDMA_USER_CM_CMD_BIND_IP:
      PutId<rdma_ucm_bind_ip>(request, id);
      break;
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      PutId<rdma_ucm_resolve_ip>(request, id);
      break;
    case RDMA_USER_CM_CMD_DESTROY_ID:
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
      PutId<rdma_ucm_destroy_id>(request, id);
      break;
    case RDMA_USER_CM_CMD_CONNECT:
      PutId<rdma_ucm_connect>(request, id);
      break;
    case RDMA_USER_CM_CMD_ACCEPT:
      PutId<rdma_ucm_accept>(request, id);
      break;
    case RDMA_USER_CM_CMD_QUERY:
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
      PutId<rdma_ucm_query>(request, id);
      break;
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      PutId<rdma_ucm_init_qp_attr>(request, id);
      break;
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
      PutId<rdma_ucm_join_ip_mcast>(request, id);
      break;
    case RDMA_USER_CM_CMD_JOIN_MCAST:
      PutId<rdma_ucm_join_mcast>(request, id);
      break;
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      PutId<rdma_ucm_migrate_id>(request, id);
      break;
    case RDMA_USER_CM_CMD_SET_OPTION:
      PutId<rdma_ucm_set_option>(request, id);
      break;
    default:
      std::memcpy(request.data, &id, sizeof(id));
      break;
  }
  return request;
}

// An identifier in one of its states; `step` selects the state.
uint32_t InState(CmSpeaker& speaker, uint32_t step) {
  const uint32_t id = speaker.Create(step == 5 ? RDMA_PS_UDP : RDMA_PS_TCP);
  if (step == 6) speaker.Bind(id, 0);
  if (step == 7) speaker.Listen(id);
  if (step >= 1 && step < 6) speaker.Resolve(id, 2, 4000);
  if (step >= 2 && step < 6) speaker.ResolveRoute(id);
  if (step >= 3 && step < 6) speaker.Connect(id);
  return id;
}

void WrongStates(Scene& scene) {
  for (uint32_t step = 0; step < 8; ++step) {
    for (uint32_t number = 0; number < kCommands; ++number) {
      CmSpeaker speaker;
      const uint32_t id = InState(speaker, step);
      ASSERT_NE(id, 0u);
      EXPECT_NE(speaker.Ask(About(number, id, nullptr)), -1) << number << " in state " << step;
      if (!scene.is_long && !scene.Goes()) return;
    }
  }
}

void RandomCommands(Scene& scene) {
  while (scene.Goes()) {
    CmSpeaker speaker;
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < 8; ++i) ids.push_back(InState(speaker, i));
    for (int i = 0; i < 100; ++i) {
      auto request = About(scene.Below(kCommands), ids[scene.Below(8)], &scene);
      if (scene.Below(4) == 0) request.in_size = scene.Below(ROCI_ABI_CM_DATA_MAX + 10);
      if (speaker.Ask(request) < 0) break;
    }
  }
}

// An identifier of another channel of the same user.
void IdentifiersOfOthers(Scene&) {
  CmSpeaker owner;
  CmSpeaker thief;
  const uint32_t id = owner.Create();
  ASSERT_NE(id, 0u);
  for (uint32_t number = 1; number < kCommands; ++number) {
    if (number == RDMA_USER_CM_CMD_CREATE_ID || number == RDMA_USER_CM_CMD_GET_EVENT) continue;
    EXPECT_GT(thief.Ask(About(number, id, nullptr)), 0) << number;
  }
  EXPECT_EQ(owner.Bind(id, 0), 0);
}

// Every possible number, including root's identifiers.
void IdentifiersOfNobody(Scene& scene) {
  CmSpeaker speaker;
  for (uint32_t i = 0; i < 2000 && (scene.is_long || scene.Goes()); ++i) {
    const uint32_t id = i < std::size(kLimits32) ? kLimits32[i] : scene.Below(65536);
    EXPECT_GT(speaker.Destroy(id), 0) << id;
    EXPECT_GT(speaker.Listen(id), 0) << id;
  }
}

void ChannelsOfOthers(Scene& scene) {
  CmSpeaker speaker;
  rdma_ucm_migrate_id command{};
  for (uint32_t i = 0; i < 500 && (scene.is_long || scene.Goes()); ++i) {
    command.id = scene.Below(64);
    command.fd = i < std::size(kLimits32) ? kLimits32[i] : i;
    EXPECT_GT(speaker.Call(RDMA_USER_CM_CMD_MIGRATE_ID, command), 0);
  }
}

void MigratesUnderEvents(Scene& scene) {
  auto from = std::make_unique<CmSpeaker>();
  auto to = std::make_unique<CmSpeaker>();
  for (int i = 0; scene.Goes(); ++i) {
    const uint32_t id = from->Create();
    rdma_ucm_resolve_ip resolve{};
    resolve.dst_addr = CmAddress(2, 4000);
    resolve.id = id;
    resolve.timeout_ms = 100;
    EXPECT_EQ(from->Call(RDMA_USER_CM_CMD_RESOLVE_IP, resolve), 0);
    rdma_ucm_migrate_id command{};
    command.id = id;
    command.fd = from->number();
    EXPECT_EQ(to->Call(RDMA_USER_CM_CMD_MIGRATE_ID, command), 0);
    EXPECT_TRUE(to->TakeEvent());
    std::swap(from, to);
    if (i % 10 == 0) to = std::make_unique<CmSpeaker>();
  }
}

void PrivateDataLengths(Scene& scene) {
  CmSpeaker speaker;
  for (uint32_t length = 0; length < 256; ++length) {
    const uint32_t id = InState(speaker, 2);
    speaker.Connect(id, static_cast<uint8_t>(length));
    rdma_ucm_reject reject{};
    reject.id = id;
    reject.private_data_len = static_cast<uint8_t>(length);
    speaker.Call(RDMA_USER_CM_CMD_REJECT, reject);
    speaker.Destroy(id);
    if (!scene.is_long && !scene.Goes()) return;
  }
}

void Sizes(Scene&) {
  for (const uint32_t size : kLimits32) {
    for (const size_t field :
         {offsetof(roci_abi_cm_request, in_size), offsetof(roci_abi_cm_request, extra_size),
          offsetof(roci_abi_cm_request, out_size)}) {
      for (uint32_t number = 0; number < kCommands; ++number) {
        CmSpeaker speaker;
        auto request = About(number, speaker.Create(), nullptr);
        std::memcpy(reinterpret_cast<std::byte*>(&request) + field, &size, sizeof(size));
        EXPECT_NE(speaker.Ask(request), -1) << number << " with " << size;
      }
    }
  }
}

void SocketAddresses(Scene& scene) {
  CmSpeaker speaker;
  while (scene.Goes()) {
    const uint32_t id = speaker.Create();
    ASSERT_NE(id, 0u);
    rdma_ucm_resolve_addr command{};
    command.id = id;
    command.timeout_ms = 1;
    command.src_size = static_cast<uint16_t>(kLimits32[scene.Below(std::size(kLimits32))]);
    command.dst_size = static_cast<uint16_t>(kLimits32[scene.Below(std::size(kLimits32))]);
    auto* bytes = reinterpret_cast<uint8_t*>(&command.src_addr);
    for (size_t i = 0; i < sizeof(command.src_addr) * 2; ++i) {
      bytes[i] = static_cast<uint8_t>(scene.Random());
    }
    const uint16_t families[] = {AF_INET, AF_INET6, 27 /* AF_IB */, 0, 0xFFFF};
    std::memcpy(bytes, &families[scene.Below(5)], 2);
    std::memcpy(&command.dst_addr, &families[scene.Below(5)], 2);
    EXPECT_NE(speaker.Call(RDMA_USER_CM_CMD_RESOLVE_ADDR, command), -1);
    speaker.Destroy(id);
  }
}

void Options(Scene& scene) {
  CmSpeaker speaker;
  const uint32_t id = speaker.Create();
  for (uint32_t i = 0; i < 2000 && (scene.is_long || scene.Goes()); ++i) {
    rdma_ucm_set_option option{};
    option.id = id;
    option.level = i % 3;
    option.optname = i / 3 % 6;
    option.optlen = kLimits32[i % std::size(kLimits32)];
    auto request = CmSpeaker::Make(RDMA_USER_CM_CMD_SET_OPTION, option);
    request.extra_size = scene.Below(ROCI_ABI_CM_DATA_MAX);
    EXPECT_GE(speaker.Ask(request), 0);
  }
}

void WrongOpening(Scene&) {
  for (uint32_t i = 0; i < 32; ++i) {
    CmSpeaker speaker(/*opens=*/false);
    roci_abi_cm_open_request request{};
    request.head = {i % 3, sizeof(request), 1, 0};
    request.magic = i % 2 != 0 ? ROCI_ABI_MAGIC : i;
    request.major = static_cast<uint16_t>(ROCI_ABI_MAJOR + 1 + i);
    speaker.SendBytes(std::as_bytes(std::span(&request, 1)));
    const bool is_other_version = request.head.command == ROCI_ABI_CM_OPEN && i % 2 != 0;
    EXPECT_EQ(speaker.Receive(), is_other_version ? EPROTONOSUPPORT : -2);
  }
  CmSpeaker before_open(/*opens=*/false);
  EXPECT_EQ(before_open.Ask(About(RDMA_USER_CM_CMD_CREATE_ID, 0, nullptr)), -2);
}

void WrongMessages(Scene&) {
  std::array<std::byte, 8192> bytes{};
  for (const size_t size : {size_t{1}, size_t{15}, size_t{16}, size_t{23}, size_t{25}, size_t{799},
                            size_t{801}, size_t{8192}}) {
    CmSpeaker speaker;
    speaker.SendBytes(std::span(bytes).first(size));
    EXPECT_EQ(speaker.Receive(), -2) << size;
  }
}

// Connection requests without a listener or without an answer.
void ConnectsToNobody(Scene& scene) {
  CmSpeaker speaker;
  while (scene.Goes()) {
    for (int i = 0; i < 20; ++i) {
      const uint32_t id = speaker.Create();
      if (id == 0 || speaker.Resolve(id, 2, static_cast<uint16_t>(5000 + i)) != 0) break;
      speaker.ResolveRoute(id);
      EXPECT_EQ(speaker.Connect(id), 0);
    }
    while (speaker.TakeEvent()) {
    }
  }
}

void ConnectsUnanswered(Scene& scene) {
  CmSpeaker listener;
  const uint32_t listens = listener.Create();
  ASSERT_EQ(listener.Bind(listens, 4100), 0);
  ASSERT_EQ(listener.Listen(listens, 16), 0);
  std::vector<std::unique_ptr<CmSpeaker>> speakers;
  while (scene.Goes()) {
    speakers.push_back(std::make_unique<CmSpeaker>());
    for (int i = 0; i < 20; ++i) {
      const uint32_t id = speakers.back()->Create();
      if (id == 0 || speakers.back()->Resolve(id, 2, 4100) != 0) break;
      speakers.back()->ResolveRoute(id);
      speakers.back()->Connect(id);
    }
    if (speakers.size() > 8) speakers.erase(speakers.begin());
  }
}

// Both ends of a connection call operations out of order.
void BothEndsWrong(Scene& scene) {
  CmSpeaker listener;
  CmSpeaker speaker;
  const uint32_t listens = listener.Create();
  ASSERT_EQ(listener.Bind(listens, 4200), 0);
  ASSERT_EQ(listener.Listen(listens, 64), 0);
  while (scene.Goes()) {
    const uint32_t id = speaker.Create();
    if (speaker.Resolve(id, 2, 4200) != 0 || speaker.ResolveRoute(id) != 0) break;
    speaker.Connect(id);
    rdma_ucm_event_resp event{};
    for (int tries = 0; tries < 100 && !listener.TakeEvent(&event); ++tries) usleep(200);
    for (int i = 0; i < 12; ++i) {
      const uint32_t numbers[] = {RDMA_USER_CM_CMD_ACCEPT,       RDMA_USER_CM_CMD_REJECT,
                                  RDMA_USER_CM_CMD_DISCONNECT,   RDMA_USER_CM_CMD_NOTIFY,
                                  RDMA_USER_CM_CMD_INIT_QP_ATTR, RDMA_USER_CM_CMD_CONNECT};
      const uint32_t number = numbers[scene.Below(std::size(numbers))];
      CmSpeaker& end = scene.Below(2) != 0 ? listener : speaker;
      EXPECT_GE(end.Ask(About(number, &end == &listener ? event.id : id, &scene)), 0);
    }
    listener.Destroy(event.id);
    speaker.Destroy(id);
  }
}

// More events than a channel holds.
void EventsNobodyTakes(Scene& scene) {
  CmSpeaker speaker;
  size_t made = 0;
  while (made < 20'000 && (scene.is_long || scene.Goes())) {
    const uint32_t id = speaker.Create();
    if (id == 0) break;
    rdma_ucm_resolve_ip resolve{};
    resolve.dst_addr = CmAddress(2, 4000);
    resolve.id = id;
    if (speaker.Call(RDMA_USER_CM_CMD_RESOLVE_IP, resolve) != 0) break;
    ++made;
  }
  EXPECT_GT(made, 0u);
}

void AnswersNobodyReads(Scene& scene) {
  CmSpeaker speaker;
  fcntl(speaker.fd(), F_SETFL, O_NONBLOCK);
  const auto request = About(RDMA_USER_CM_CMD_GET_EVENT, 0, nullptr);
  while (scene.Goes()) {
    for (int i = 0; i < 100; ++i) speaker.SendBytes(std::as_bytes(std::span(&request, 1)));
  }
}

// As long as it is read, the daemon cannot read from it.
void SignalReadWithoutEnd(Scene&) {
  EndlessRead endless;
  CmSpeaker speaker;
  const uint32_t id = speaker.Create();
  rdma_ucm_resolve_ip command{};
  command.dst_addr = CmAddress(2, 4000);
  command.id = id;
  command.timeout_ms = 2000;
  ASSERT_EQ(speaker.Call(RDMA_USER_CM_CMD_RESOLVE_IP, command), 0);
  ASSERT_TRUE(EndlessRead::CanBegin(speaker.signal()));
  endless.Begin(speaker.signal(), 1);
  EXPECT_TRUE(speaker.TakeEvent());
  EXPECT_EQ(speaker.Destroy(id), 0);
  EXPECT_FALSE(endless.has_ended());
}

// The program may fill, drain and close its end of the event socket.
void SignalMeddledWith(Scene& scene) {
  CmSpeaker speaker;
  fcntl(speaker.signal(), F_SETFL, O_NONBLOCK);
  while (scene.Goes()) {
    std::array<char, 4096> bytes{};
    for (int i = 0; i < 100; ++i) {
      [[maybe_unused]] const ssize_t n = write(speaker.signal(), bytes.data(), bytes.size());
    }
    [[maybe_unused]] ssize_t n = read(speaker.signal(), bytes.data(), bytes.size());
    fcntl(speaker.signal(), F_SETFL, 0);
    shutdown(speaker.signal(), SHUT_WR);
    const uint32_t id = speaker.Create();
    EXPECT_EQ(speaker.Resolve(id, 2, 4000), 0);
    EXPECT_EQ(speaker.ResolveRoute(id), 0);
    EXPECT_EQ(speaker.Destroy(id), 0);
    fcntl(speaker.signal(), F_SETFL, O_NONBLOCK);
  }
}

void PortsOfOthers(Scene&) {
  CmSpeaker speaker;
  CmSpeaker other;
  const uint32_t id = speaker.Create();
  EXPECT_EQ(speaker.Bind(id, 80), EACCES) << "a privileged port";
  EXPECT_EQ(speaker.Bind(id, 4300), 0);
  EXPECT_EQ(speaker.Listen(id), 0);
  EXPECT_NE(other.Bind(other.Create(), 4300), 0) << "a port with a listener";
}

void Multicast(Scene& scene) {
  CmSpeaker speaker;
  const uint32_t id = speaker.Create(RDMA_PS_UDP);
  rdma_ucm_bind_ip bind{};
  bind.addr = CmAddress(1, 0);
  bind.id = id;
  ASSERT_EQ(speaker.Call(RDMA_USER_CM_CMD_BIND_IP, bind), 0);
  while (scene.Goes()) {
    rdma_ucm_join_mcast join{};
    join.uid = 1;
    join.id = id;
    join.addr_size = static_cast<uint16_t>(scene.Below(200));
    join.join_flags = static_cast<uint16_t>(scene.Random());
    auto* bytes = reinterpret_cast<uint8_t*>(&join.addr);
    for (size_t i = 0; i < 28; ++i) bytes[i] = static_cast<uint8_t>(scene.Random());
    const uint16_t families[] = {AF_INET, AF_INET6, 27, 9};
    std::memcpy(bytes, &families[scene.Below(4)], 2);
    bytes[4] |= 0xE0;
    EXPECT_GE(speaker.Call(RDMA_USER_CM_CMD_JOIN_MCAST, join), 0);
    rdma_ucm_destroy_id leave{};
    leave.id = scene.Below(2) != 0 ? scene.Random() : scene.Below(100);
    EXPECT_GE(speaker.Call(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), 0);
    while (speaker.TakeEvent()) {
    }
  }
}

void FloodOfChannels(Scene& scene) {
  while (scene.Goes()) {
    CmSpeaker speaker;
    const uint32_t id = speaker.Create();
    if (id != 0 && scene.Below(2) != 0) speaker.Listen(id);
  }
}

}  // namespace

void AddConnectionManagerAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"ConnectionManager", name, std::move(run), in_sample});
  };
  add("WrongStates", WrongStates, true);
  add("RandomCommands", RandomCommands, true);
  add("IdentifiersOfOthers", IdentifiersOfOthers, true);
  add("IdentifiersOfNobody", IdentifiersOfNobody);
  add("ChannelsOfOthers", ChannelsOfOthers);
  add("MigratesUnderEvents", MigratesUnderEvents);
  add("PrivateDataLengths", PrivateDataLengths, true);
  add("Sizes", Sizes);
  add("SocketAddresses", SocketAddresses, true);
  add("Options", Options);
  add("WrongOpening", WrongOpening);
  add("WrongMessages", WrongMessages, true);
  add("ConnectsToNobody", ConnectsToNobody);
  add("ConnectsUnanswered", ConnectsUnanswered, true);
  add("BothEndsWrong", BothEndsWrong, true);
  add("EventsNobodyTakes", EventsNobodyTakes);
  add("AnswersNobodyReads", AnswersNobodyReads);
  add("SignalMeddledWith", SignalMeddledWith, true);
  add("SignalReadWithoutEnd", SignalReadWithoutEnd, true);
  add("PortsOfOthers", PortsOfOthers, true);
  add("Multicast", Multicast);
  add("FloodOfChannels", FloodOfChannels);
}

}  // namespace roci::testing::hostile
