// A port of our own on a network device of the kernel: packet sockets that exchange runs of frames
// with the kernel as one (udp_gso.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/base/prefetch.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/port/packet_receiver.h"
#include "dataplane/port/packet_sender.h"
#include "dataplane/types/port_state.h"
#include "roce/types.h"

struct rte_mbuf;
struct rte_mempool;

namespace roci::dataplane {

class PacketSockets {
 public:
  struct Config {
    std::string interface;
    uint32_t queues = 1;  // the kernel distributes flows over them
    bool joins = true;    // whether sent frames may be joined
  };
  // Control thread. NotFound: there is no such network device; PermissionDenied: needs CAP_NET_RAW.
  static absl::StatusOr<std::unique_ptr<PacketSockets>> Open(const Config& config,
                                                             rte_mempool* pool);
  // Whether the kernel delivers GSO frames to packet sockets (Linux 6.2). `release`: of uname(2).
  static bool AreSupported(const std::string& release);
  static bool AreSupported();

  // ---- Control thread
  uint32_t network_device() const { return network_device_; }  // its index
  const roce::Mac& mac() const { return mac_; }
  std::vector<int> descriptors() const;  // the sockets, by queue; readable while frames wait
  PortLosses losses() const;             // without those of full sockets; see PortSockets

  // ---- Lcores: for each queue one that receives and one that sends; see PacketReceiver and
  // PacketSender
  uint32_t Receive(uint32_t queue, rte_mbuf** frames, uint32_t count) {
    return queues_[queue]->receiver.Receive(frames, count);
  }
  bool Pending(uint32_t queue) const { return queues_[queue]->receiver.Pending(); }
  uint32_t Send(uint32_t queue, rte_mbuf** frames, uint32_t count) {
    return queues_[queue]->sender.Send(frames, count);
  }

 private:
  // One lcore may receive while another one sends.
  struct Queue {
    Queue(Fd fd, rte_mempool* pool, bool joins)
        : socket(std::move(fd)), receiver(socket.get(), pool), sender(socket.get(), joins) {}
    Fd socket;
    alignas(kCacheLineBytes) PacketReceiver receiver;
    alignas(kCacheLineBytes) PacketSender sender;
  };

  PacketSockets() = default;

  uint32_t network_device_ = 0;
  roce::Mac mac_;
  std::vector<std::unique_ptr<Queue>> queues_;
};

}  // namespace roci::dataplane
