// Malformed messages: too short, too long, wrong versions, wrong order; answers that are not read;
// floods.
#include <fcntl.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/messages.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::testing::hostile {
namespace {

constexpr size_t kLongest = 65536;

std::string DaemonsFile(const char* name) {
  return abi::RuntimeDir(nullptr, abi::RuntimeDirUse::kConnect) + "/" + name;
}

// -1: refused.
int ConnectTo(const char* name, int type) {
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", DaemonsFile(name).c_str());
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// The daemon has closed the connection or reports an error; never success.
void ExpectRefused(RawSession& session, const char* what, size_t i) {
  std::array<std::byte, 4096> answer;
  const ssize_t size = session.ReceiveBytes(answer, 5000);
  EXPECT_GE(size, 0) << what << " " << i << ": no answer";
  if (size < static_cast<ssize_t>(sizeof(roci_abi_response))) return;
  roci_abi_response head;
  std::memcpy(&head, answer.data(), sizeof(head));
  EXPECT_GT(head.error, 0) << what << " " << i;
}

void Halves(Scene&) {
  for (size_t size = 1; size < sizeof(roci_abi_hello_request); size += 3) {
    RawSession session;
    roci_abi_hello_request hello{};
    hello.head = {ROCI_ABI_HELLO, sizeof(hello), 1, 0};
    hello.magic = ROCI_ABI_MAGIC;
    hello.major = ROCI_ABI_MAJOR;
    std::snprintf(hello.device, sizeof(hello.device), "roci0");
    session.SendBytes(std::as_bytes(std::span(&hello, 1)).first(size));
    ExpectRefused(session, "size", size);
  }
}

void Empty(Scene&) {
  for (int i = 0; i < 32; ++i) {
    RawSession session;
    const bool is_open = i % 2 != 0 && session.Hello() == 0;
    EXPECT_EQ(is_open, i % 2 != 0);
    session.CloseFds();
    session.SendBytes({});
    ExpectRefused(session, "empty", 0);
  }
}

void TooLong(Scene&) {
  const std::vector<std::byte> bytes(kLongest);
  for (const size_t size : {size_t{17}, size_t{785}, size_t{1000}, size_t{4096}, kLongest}) {
    RawSession session;
    session.SendBytes(std::span(bytes).first(size));
    ExpectRefused(session, "size", size);
  }
}

// Each message, too long and too short.
void WrongSizes(Scene&) {
  for (const MessageKind& kind : MessageKinds()) {
    Speaker speaker;
    for (const int step : {-8, -1, 1, 8}) {
      std::vector<std::byte> message = speaker.Valid(kind);
      message.resize(message.size() + static_cast<size_t>(step));
      EXPECT_NE(speaker.Ask(message), 0) << kind.name << " " << step;
      message = speaker.Valid(kind);
      const auto said = static_cast<uint32_t>(kind.size + static_cast<size_t>(step));
      std::memcpy(message.data() + offsetof(roci_abi_request, size), &said, sizeof(said));
      EXPECT_NE(speaker.Ask(message), 0) << kind.name << " says " << said;
      if (speaker.Ask(speaker.Valid(MessageKinds()[0])) < 0) break;  // closed
    }
  }
}

void UnknownCommands(Scene&) {
  RawSession session;
  ASSERT_EQ(session.Hello(), 0);
  const uint32_t commands[] = {0, ROCI_ABI_COMMAND_COUNT, ROCI_ABI_COMMAND_COUNT + 1, 0x7FFFFFFF,
                               ~0u};
  for (const uint32_t command : commands) {
    roci_abi_plain_response response;
    session.CloseFds();
    ASSERT_TRUE(session.Send(command, roci_abi_plain_request{}));
    EXPECT_GT(session.Receive(response), 0) << command;
  }
}

void WrongVersions(Scene&) {
  for (uint32_t i = 0; i < 64; ++i) {
    RawSession session;
    roci_abi_hello_request hello{};
    hello.magic = i % 2 != 0 ? ROCI_ABI_MAGIC : ROCI_ABI_MAGIC ^ 1u << i % 32;
    hello.major = static_cast<uint16_t>(i % 2 != 0 ? ROCI_ABI_MAJOR + 1 + i * 999 : ROCI_ABI_MAJOR);
    hello.minor = static_cast<uint16_t>(~i);
    hello.features = ~uint64_t{0};
    std::snprintf(hello.device, sizeof(hello.device), "roci0");
    session.Send(ROCI_ABI_HELLO, hello);
    ExpectRefused(session, "version", i);
  }
}

void DeviceNames(Scene& scene) {
  for (int i = 0; i < 64; ++i) {
    RawSession session;
    roci_abi_hello_request hello{};
    hello.magic = ROCI_ABI_MAGIC;
    hello.major = ROCI_ABI_MAJOR;
    std::memset(hello.device, i % 4 != 0 ? 'r' : '%', sizeof(hello.device));
    if (i % 3 == 0) std::snprintf(hello.device, sizeof(hello.device), "../../roci0\n%%s%%n");
    if (i % 5 == 0) hello.device[scene.Below(sizeof(hello.device))] = '\0';
    session.Send(ROCI_ABI_HELLO, hello);
    ExpectRefused(session, "device", static_cast<size_t>(i));
  }
}

// Everything before HELLO, and HELLO twice.
void WrongOrder(Scene&) {
  Speaker speaker;
  for (const MessageKind& kind : MessageKinds()) {
    RawSession session;
    const std::vector<std::byte> message = speaker.Valid(kind);
    session.SendBytes(message);
    ExpectRefused(session, kind.name, 0);
  }
  EXPECT_NE(speaker.rig.Hello(), 0);
}

// Endless requests whose answers are not read.
void AnswersNobodyReads(Scene& scene) {
  std::vector<std::unique_ptr<Speaker>> speakers;
  for (int i = 0; i < 4; ++i) speakers.push_back(std::make_unique<Speaker>());
  for (const auto& speaker : speakers) fcntl(speaker->rig.fd(), F_SETFL, O_NONBLOCK);
  const MessageKind& kind = MessageKinds()[0];
  const std::vector<std::byte> message = speakers[0]->Valid(kind);
  while (scene.Goes()) {
    for (const auto& speaker : speakers) {
      for (int i = 0; i < 500; ++i) speaker->rig.SendBytes(message);
    }
  }
}

// One session that sends as fast as possible.
void FloodOfRequests(Scene& scene) {
  Speaker speaker;
  fcntl(speaker.rig.fd(), F_SETFL, O_NONBLOCK);
  std::array<std::byte, 4096> answer;
  while (scene.Goes()) {
    for (int i = 0; i < 8; ++i) {
      speaker.rig.SendBytes(speaker.Valid(MessageKinds()[scene.Below(2) != 0 ? 0 : 14]));
    }
    speaker.rig.CloseFds();
    while (speaker.rig.ReceiveBytes(answer, 0) > 0) {
    }
  }
}

void FloodOfConnections(Scene& scene) {
  while (scene.Goes()) {
    std::vector<std::unique_ptr<RawSession>> sessions;
    for (int i = 0; i < 40; ++i) sessions.push_back(std::make_unique<RawSession>());
  }
}

void FloodOfSessions(Scene& scene) {
  while (scene.Goes()) {
    RawSession session;
    session.Hello(scene.Below(2) != 0 ? "roci0" : "roci1");
    if (scene.Below(2) != 0) session.AllocPd();
  }
}

// The maximum number of silent connections.
void SilentConnections(Scene& scene) {
  std::vector<int> fds;
  while (fds.size() < 2000 && scene.Goes()) {
    const int fd = ConnectTo(fds.size() % 2 != 0 ? "rocid.sock" : ROCI_ABI_CM_SOCKET_NAME,
                             SOCK_SEQPACKET | SOCK_NONBLOCK);
    if (fd < 0) break;
    fds.push_back(fd);
  }
  usleep(100'000);
  EXPECT_GT(fds.size(), 100u);
}

void HalfClosed(Scene&) {
  for (int i = 0; i < 16; ++i) {
    Speaker speaker;
    const std::vector<std::byte> message = speaker.Valid(MessageKinds()[0]);
    speaker.rig.SendBytes(message);
    shutdown(speaker.rig.fd(), i % 3 == 0 ? SHUT_RD : i % 3 == 1 ? SHUT_WR : SHUT_RDWR);
    speaker.rig.SendBytes(message);
    usleep(500);
  }
}

// Control messages of other kinds beside a request.
void Credentials(Scene&) {
  Speaker speaker;
  const std::vector<std::byte> message = speaker.Valid(MessageKinds()[0]);
  for (int i = 0; i < 32; ++i) {
    iovec part{const_cast<std::byte*>(message.data()), message.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_CREDENTIALS;
    rights->cmsg_len = CMSG_LEN(sizeof(ucred));
    const ucred own{getpid(), getuid(), getgid()};
    std::memcpy(CMSG_DATA(rights), &own, sizeof(own));
    EXPECT_GT(sendmsg(speaker.rig.fd(), &header, MSG_NOSIGNAL), 0);
    std::array<std::byte, 4096> answer;
    EXPECT_GT(speaker.rig.ReceiveBytes(answer), 0);
  }
}

// Many concurrent requests: the answers arrive in order.
void Pipelined(Scene&) {
  Speaker speaker;
  std::vector<std::byte> message = speaker.Valid(MessageKinds()[0]);
  for (uint32_t serial = 0; serial < 64; ++serial) {
    std::memcpy(message.data() + offsetof(roci_abi_request, serial), &serial, sizeof(serial));
    ASSERT_TRUE(speaker.rig.SendBytes(message));
    if (serial % 8 != 7) continue;
    for (uint32_t i = serial - 7; i <= serial; ++i) {
      std::array<std::byte, 4096> answer;
      ASSERT_GT(speaker.rig.ReceiveBytes(answer), 0);
      roci_abi_response head;
      std::memcpy(&head, answer.data(), sizeof(head));
      EXPECT_EQ(head.serial, i);
    }
  }
}

void RandomBytes(Scene& scene) {
  while (scene.Goes()) {
    Speaker speaker;
    for (int i = 0; i < 200 && scene.Goes(); ++i) {
      const MessageKind& kind =
          MessageKinds()[scene.Below(static_cast<uint32_t>(MessageKinds().size()))];
      std::vector<std::byte> message = speaker.Valid(kind);
      for (uint32_t n = scene.Below(8); n > 0 && message.size() > 16; --n) {
        message[16 + scene.Below(static_cast<uint32_t>(message.size() - 16))] =
            static_cast<std::byte>(scene.Random());
      }
      if (speaker.Ask(message, {}, 200) < 0) break;
    }
  }
}

void ManagementSocket(Scene&) {
  ASSERT_EQ(access(DaemonsFile("manage.sock").c_str(), F_OK), 0);
  EXPECT_EQ(ConnectTo("manage.sock", SOCK_STREAM), -1);
  EXPECT_NE(unlink(DaemonsFile("rocid.sock").c_str()), 0);
}

}  // namespace

void AddMessageAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"Messages", name, std::move(run), in_sample});
  };
  add("Halves", Halves, true);
  add("Empty", Empty, true);
  add("TooLong", TooLong, true);
  add("WrongSizes", WrongSizes, true);
  add("UnknownCommands", UnknownCommands);
  add("WrongVersions", WrongVersions, true);
  add("DeviceNames", DeviceNames);
  add("WrongOrder", WrongOrder, true);
  add("AnswersNobodyReads", AnswersNobodyReads, true);
  add("FloodOfRequests", FloodOfRequests, true);
  add("FloodOfConnections", FloodOfConnections, true);
  add("FloodOfSessions", FloodOfSessions, true);
  add("SilentConnections", SilentConnections);
  add("HalfClosed", HalfClosed);
  add("Credentials", Credentials);
  add("Pipelined", Pipelined);
  add("RandomBytes", RandomBytes, true);
  add("ManagementSocket", ManagementSocket);
}

}  // namespace roci::testing::hostile
