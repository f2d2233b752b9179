// Replaces the daemon in tests of device discovery: keeps the sysfs-like tree, and a socket that
// accepts and closes connections, until standard input ends. Prints "ready" once.
//
// Usage: tree_server RUNTIME_DIR [--rdma-cm]
// Lines on standard input, each answered by "ok" or "failed: why":
//   count NAME VALUE   sets a port counter of roci0
//   gid N              gives roci0 N GIDs
//   down | up          port state of roci0
//   add NAME | remove NAME
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "control/loop/unique_fd.h"
#include "control/sysfs/sysfs_tree.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace {

using roci::control::CounterGroup;
using roci::control::DeviceDescription;
using roci::control::GidDescription;
using roci::control::SysfsPortState;
using roci::control::SysfsTree;

DeviceDescription Describe(const std::string& name, uint8_t number) {
  DeviceDescription device;
  device.name = name;
  device.node_guid = 0x0200'00ff'fe00'0000u + number;
  device.sys_image_guid = device.node_guid;
  device.node_description = "test device " + name;
  device.mac.bytes = {2, 0, 0, 0, 0, number};
  device.netdev = "rocinet" + std::to_string(number);
  device.state = SysfsPortState::kActive;
  return device;
}

std::vector<GidDescription> Gids(size_t count) {
  std::vector<GidDescription> gids(count);
  for (size_t i = 0; i < count; ++i) {
    gids[i].gid.bytes = {0xfe, 0x80};
    gids[i].gid.bytes[15] = static_cast<uint8_t>(i + 1);
  }
  return gids;
}

absl::Status Obey(SysfsTree& tree, const std::string& line) {
  std::istringstream words(line);
  std::string verb, name;
  uint64_t value = 0;
  words >> verb;
  if (verb == "count") {
    words >> name >> value;
    return tree.SetCounters("roci0", CounterGroup::kPort, {{name, value}});
  }
  if (verb == "gid") {
    words >> value;
    return tree.SetGids("roci0", Gids(value));
  }
  if (verb == "down") return tree.SetPort("roci0", {SysfsPortState::kDown, 100'000, 1500});
  if (verb == "up") return tree.SetPort("roci0", {SysfsPortState::kActive, 100'000, 1500});
  words >> name;
  if (verb == "add") return tree.AddDevice(Describe(name, 9)).status();
  if (verb == "remove") return tree.RemoveDevice(name);
  return absl::InvalidArgumentError("unknown verb " + verb);
}

roci::control::UniqueFd Listen(const std::string& path) {
  roci::control::UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  unlink(path.c_str());
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0666) != 0 || listen(fd.get(), 64) != 0) {
    std::perror(path.c_str());
    fd.Reset();
  }
  return fd;
}

void Answer(const absl::Status& status) {
  std::cout << (status.ok() ? "ok" : "failed: " + std::string(status.message())) << std::endl;
}

int Serve(const std::string& runtime_dir, bool rdma_cm) {
  mkdir(runtime_dir.c_str(), 0755);
  const std::string socket_path = roci::abi::SocketPath(runtime_dir);
  auto tree = SysfsTree::Create({.root = roci::abi::SysfsPath(runtime_dir),
                                 .socket_path = socket_path,
                                 .advertise_rdma_cm = rdma_cm});
  if (!tree.ok()) {
    Answer(tree.status());
    return 1;
  }
  for (uint8_t i = 0; i < 2; ++i) {
    DeviceDescription device = Describe("roci" + std::to_string(i), i);
    device.gids = Gids(2);
    const auto added = (*tree)->AddDevice(device);
    if (!added.ok()) Answer(added.status());
  }
  const roci::control::UniqueFd listener = Listen(socket_path);
  std::cout << "ready" << std::endl;
  std::string input;
  for (;;) {
    pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {listener.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) return 1;
    if (fds[1].revents != 0) close(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fds[0].revents == 0) continue;
    char chunk[256];
    const ssize_t length = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (length <= 0) break;
    input.append(chunk, static_cast<size_t>(length));
    for (size_t end; (end = input.find('\n')) != std::string::npos; input.erase(0, end + 1)) {
      Answer(Obey(**tree, input.substr(0, end)));
    }
  }
  unlink(socket_path.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tree_server RUNTIME_DIR [--rdma-cm]\n");
    return 2;
  }
  return Serve(argv[1], argc > 2 && std::strcmp(argv[2], "--rdma-cm") == 0);
}
