// Many senders to one port of a switch that marks packets (ECN) while its queue is long. Runs the
// transport core with congestion control in simulated time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "roce/dcqcn.h"
#include "roce/frame.h"
#include "roce/qp.h"
#include "tests/sim/arena.h"
#include "tests/sim/random.h"
#include "tests/sim/sim_host.h"

namespace roci::sim {

struct IncastConfig {
  uint32_t senders = 8;
  uint32_t rate_kbps = 10'000'000;  // of each sender's link and of the port
  uint64_t delay_ns = 1'000;        // of each hop
  uint64_t start_within_ns = 100'000;
  roce::PathMtu mtu = roce::PathMtu::k1024;
  uint8_t timeout = 9;  // of the queue pairs: 2 ms
  bool congestion_control = true;
  roce::CongestionParameters congestion;
  // The switch marks no packet while its queue is shorter than `mark_from_bytes`, and all packets
  // above `mark_all_bytes`. In between, the probability grows from 0 to `mark_permille`.
  uint64_t mark_from_bytes = 40'000;
  uint64_t mark_all_bytes = 200'000;
  uint32_t mark_permille = 50;
  uint64_t buffer_bytes = 300'000;  // the switch drops frames that do not fit
  // 0: lossy. Otherwise the switch pauses all senders when its queue exceeds this, and resumes them
  // at half of it (IEEE 802.1Qbb).
  uint64_t pause_from_bytes = 0;
  uint64_t seed = 1;
};

class Incast {
 public:
  explicit Incast(const IncastConfig& config);

  void RunUntil(roce::TimeNs end);

  // Payload bytes that the receiver has accepted from a sender, without duplicates.
  uint64_t received_bytes(uint32_t sender) const { return ends_[sender]->received_bytes; }
  // The rate that the sender's congestion control allows; the line rate if it is off.
  uint32_t allowed_kbps(uint32_t sender) const;
  const SimHost& sender(uint32_t index) const { return ends_[index]->near.host; }
  const SimHost& receiver(uint32_t index) const { return ends_[index]->far.host; }
  uint64_t queued_bytes() const { return queued_bytes_; }
  uint64_t longest_queue_bytes() const { return longest_queue_bytes_; }
  uint64_t lost() const { return lost_; }
  uint64_t marked() const { return marked_; }
  uint64_t pauses() const { return pauses_; }

 private:
  using Frame = std::vector<std::byte>;
  struct Node {
    Node(Arena* arena, const roce::QpConfig& config, roce::CongestionPort* port);
    roce::Dcqcn congestion;
    SimHost host;
    std::vector<roce::SendRecord> records;
    std::vector<roce::ResponderResource> resources;
    roce::Qp<SimHost> qp;
    roce::FrameTemplate frame;
  };
  // A sender, and the receiver's queue pair for it.
  struct End {
    End(Arena* near_arena, Arena* far_arena, const roce::QpConfig& near_config,
        const roce::QpConfig& far_config, roce::CongestionPort* near_port,
        roce::CongestionPort* far_port)
        : near(near_arena, near_config, near_port), far(far_arena, far_config, far_port) {}
    Node near;
    Node far;
    bool started = false;
    size_t completed = 0;           // number of completions of near.host
    roce::TimeNs link_free_at = 0;  // when the sender's link can take the next frame
    uint64_t received_bytes = 0;
  };
  enum class What : uint8_t {
    kStart,
    kLinkFree,
    kAtSwitch,
    kPortFree,
    kAtReceiver,
    kAtSender,
    kPause,
    kResume
  };
  struct Event {
    What what;
    uint32_t end;
    Frame frame;
  };

  void Connect(Node& node, uint32_t number, bool is_near);
  void At(roce::TimeNs time, What what, uint32_t end, Frame frame = {});
  void Handle(Event event);
  void HandleTimeouts();
  void Work(End& end);
  void Pump(uint32_t index);
  bool Poll(Node& node, Frame& out);
  void Enqueue(uint32_t index, Frame frame);
  void ServePort();
  void Receive(uint32_t index, const Frame& frame);
  void Answer(uint32_t index, const Frame& frame);
  bool IsMarked();
  uint64_t TransmissionNs(size_t bytes) const;

  const IncastConfig config_;
  Random random_;
  Arena near_arena_;
  Arena far_arena_;
  std::vector<std::unique_ptr<roce::CongestionPort>> ports_;
  std::vector<std::unique_ptr<End>> ends_;
  std::map<std::pair<roce::TimeNs, uint64_t>, Event> events_;
  uint64_t sequence_ = 0;
  roce::TimeNs now_ = 1;
  std::deque<std::pair<uint32_t, Frame>> queue_;
  uint64_t queued_bytes_ = 0;
  uint64_t longest_queue_bytes_ = 0;
  bool port_busy_ = false;
  bool asked_to_pause_ = false;
  bool paused_ = false;
  uint64_t lost_ = 0;
  uint64_t marked_ = 0;
  uint64_t pauses_ = 0;
  roce::Packet packet_;
  Frame buffer_;
};

}  // namespace roci::sim
