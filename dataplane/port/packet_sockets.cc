#include "dataplane/port/packet_sockets.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "dataplane/base/frame_pool.h"
#include "roce/headers.h"

namespace roci::dataplane {
namespace {

// The kernel counts a frame of 64 KiB as some 70 KiB. CAP_NET_ADMIN is needed above
// net.core.rmem_max.
constexpr int kReceiveBufferBytes = 16 << 20;
constexpr int kSendBufferBytes = 4 << 20;

absl::Status SocketError(const std::string& what) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("packet socket: ", what));
}

template <class T>
bool Set(int fd, int level, int option, const T& value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

void SetBuffer(int fd, int forced, int bounded, int bytes) {
  if (!Set(fd, SOL_SOCKET, forced, bytes)) Set(fd, SOL_SOCKET, bounded, bytes);
}

// Drops frames longer than a frame buffer unless they are of RoCE: long frames of the kernel's TCP,
// which only other ports of the kernel understand. They would fill the socket.
bool AttachFilter(int fd) {
  constexpr uint32_t kRoom = kFrameBufferBytes - kFrameOffset;
  constexpr uint32_t kIpv4At = roce::EthernetHeader::kBytes;
  constexpr uint32_t kIpv6UdpAt = kIpv4At + roce::Ipv6Header::kBytes;
  constexpr uint8_t kAccept = 14, kDrop = 15;  // places in the program
  const auto to = [](uint8_t from, uint8_t target) {
    return static_cast<uint8_t>(target - from - 1);
  };
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),                                                  // 0
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kRoom, 0, to(1, kAccept)),                          // 1
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kIpv4At - 2),                                        // 2
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, roce::kEtherTypeIpv6, to(3, 10), 0),                // 3
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, roce::kEtherTypeIpv4, 0, to(4, kDrop)),             // 4
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIpv4At + 9),                                        // 5
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, roce::kIpProtocolUdp, 0, to(6, kDrop)),             // 6
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, kIpv4At),                                           // 7
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, kIpv4At + 2),                                        // 8
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, roce::kRoceUdpPort, to(9, kAccept), to(9, kDrop)),  // 9
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIpv4At + 6),                                        // 10
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, roce::kIpProtocolUdp, 0, to(11, kDrop)),            // 11
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kIpv6UdpAt + 2),                                     // 12
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, roce::kRoceUdpPort, to(13, kAccept),
               to(13, kDrop)),                // 13
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),  // 14
      BPF_STMT(BPF_RET | BPF_K, 0),           // 15
  };
  const sock_fprog filter{std::size(program), program};
  return Set(fd, SOL_SOCKET, SO_ATTACH_FILTER, filter);
}

// The kernel distributes the flows of a device over the sockets of a group. Without a `group` it
// makes one.
bool JoinGroup(int fd, std::optional<int>& group) {
  // PACKET_FANOUT_FLAG_IGNORE_OUTGOING, as a group does not heed PACKET_IGNORE_OUTGOING.
  constexpr int kIgnoreOutgoing = 0x4000;
  int type = PACKET_FANOUT_HASH | kIgnoreOutgoing;
  if (!group.has_value()) type |= PACKET_FANOUT_FLAG_UNIQUEID;
  if (!Set(fd, SOL_PACKET, PACKET_FANOUT, group.value_or(0) | type << 16)) return false;
  int answer = 0;
  socklen_t bytes = sizeof(answer);
  if (getsockopt(fd, SOL_PACKET, PACKET_FANOUT, &answer, &bytes) != 0) return false;
  group = answer & 0xFFFF;
  return true;
}

// Everything is set before the socket receives from the device.
absl::StatusOr<Fd> OpenSocket(uint32_t network_device) {
  Fd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SocketError("needs CAP_NET_RAW");
  constexpr int kOn = 1;
  if (!Set(fd.get(), SOL_PACKET, PACKET_VNET_HDR, kOn)) return SocketError("PACKET_VNET_HDR");
  if (!Set(fd.get(), SOL_PACKET, PACKET_AUXDATA, kOn)) return SocketError("PACKET_AUXDATA");
  if (!Set(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, kOn)) {
    return SocketError("PACKET_IGNORE_OUTGOING");
  }
  // Without PACKET_QDISC_BYPASS, with which the kernel drops the GSO frames that it has to divide.
  if (!AttachFilter(fd.get())) return SocketError("SO_ATTACH_FILTER");
  SetBuffer(fd.get(), SO_RCVBUFFORCE, SO_RCVBUF, kReceiveBufferBytes);
  SetBuffer(fd.get(), SO_SNDBUFFORCE, SO_SNDBUF, kSendBufferBytes);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(network_device);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return SocketError("bind");
  }
  return fd;
}

bool ReadMac(int fd, const std::string& interface, roce::Mac& mac) {
  ifreq request{};
  interface.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  if (ioctl(fd, SIOCGIFHWADDR, &request) != 0) return false;
  std::memcpy(mac.bytes.data(), request.ifr_hwaddr.sa_data, mac.bytes.size());
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PacketSockets>> PacketSockets::Open(const Config& config,
                                                                   rte_mempool* pool) {
  std::unique_ptr<PacketSockets> sockets(new PacketSockets);
  sockets->network_device_ = if_nametoindex(config.interface.c_str());
  if (sockets->network_device_ == 0) {
    return absl::NotFoundError(
        absl::StrCat("there is no network interface \"", config.interface, "\""));
  }
  std::optional<int> group;
  for (uint32_t i = 0; i < config.queues; ++i) {
    absl::StatusOr<Fd> fd = OpenSocket(sockets->network_device_);
    if (!fd.ok()) return fd.status();
    if (config.queues > 1 && !JoinGroup(fd->get(), group)) return SocketError("PACKET_FANOUT");
    sockets->queues_.push_back(std::make_unique<Queue>(*std::move(fd), pool, config.joins));
  }
  if (!ReadMac(sockets->queues_[0]->socket.get(), config.interface, sockets->mac_)) {
    return SocketError("the network device's address");
  }
  return sockets;
}

bool PacketSockets::AreSupported(const std::string& release) {
  int major = 0, minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) return false;
  return major > 6 || (major == 6 && minor >= 2);
}

bool PacketSockets::AreSupported() {
  utsname name{};
  return uname(&name) == 0 && AreSupported(std::string(name.release));
}

std::vector<int> PacketSockets::descriptors() const {
  std::vector<int> descriptors;
  for (const auto& queue : queues_) descriptors.push_back(queue->socket.get());
  return descriptors;
}

PortLosses PacketSockets::losses() const {
  PortLosses sum;
  for (const auto& queue : queues_) {
    sum.rx_errors += queue->receiver.errors();
    sum.rx_no_buffer += queue->receiver.without_buffer();
    sum.tx_errors += queue->sender.errors();
  }
  return sum;
}

}  // namespace roci::dataplane
