// Congestion control of one queue pair: marks on received packets become notifications to the peer
// at a bounded rate, notifications from the peer lower the rate at which we send (DCQCN: Zhu et
// al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015). Pure; integers only.
#pragma once

#include <cstdint>

#include "roce/work.h"

namespace roci::roce {

// One set for a port. Rates in kbit/s.
struct CongestionParameters {
  uint32_t line_rate_kbps = 100'000'000;
  uint32_t min_rate_kbps = 10'000;  // no notification brings a queue pair below this
  // Notifications sent: one per queue pair and one per port so often.
  uint32_t cnp_interval_ns = 50'000;
  uint32_t cnp_port_interval_ns = 1'000;
  uint8_t cnp_dscp = 48;
  uint8_t cnp_priority = 6;  // in the tag, on a VLAN
  // Notifications received: the rate is cut once so often, by half of alpha.
  uint32_t cut_interval_ns = 4'000;
  uint32_t alpha_divisor = 256;  // alpha moves by 1/alpha_divisor (the paper's g)
  uint32_t alpha_period_ns = 55'000;
  // Recovery has a step after each period and after so many bytes.
  uint32_t increase_period_ns = 100'000;
  uint32_t increase_bytes = 10'000'000;
  uint32_t fast_recovery_steps = 5;
  uint32_t additive_kbps = 10'000;
  uint32_t hyper_kbps = 100'000;
  uint32_t burst_bytes = 32'768;  // what a throttled queue pair may send at once after a pause
};

// What the queue pairs of a port that one thread drives have in common.
struct CongestionPort {
  CongestionParameters parameters;
  TimeNs next_cnp = 0;
};

class Dcqcn {
 public:
  // `port` outlives this object; null: a queue pair without congestion control.
  explicit Dcqcn(CongestionPort* port = nullptr) : port_(port) { Reset(); }
  Dcqcn(const Dcqcn&) = default;
  Dcqcn& operator=(const Dcqcn&) = default;

  void Reset();

  // ---- Notification point
  // A mark was received: true if a notification is to be sent for it.
  bool TakeNotification(TimeNs now);

  // ---- Reaction point
  void HandleCnp(TimeNs now);
  // Makes what has recovered by `now` count. False: nothing is held back any more.
  bool Advance(TimeNs now);
  bool throttled() const { return rate_kbps_ < port_->parameters.line_rate_kbps; }
  uint32_t rate_kbps() const { return rate_kbps_; }
  uint32_t target_kbps() const { return target_kbps_; }
  // Of kAlphaOne.
  uint32_t alpha() const { return alpha_; }

  // ---- Pacing while throttled
  bool MayGo(TimeNs now) const { return next_send_ <= now; }
  TimeNs next_send() const { return next_send_; }
  // A frame of `bytes` goes.
  void Charge(TimeNs now, uint32_t bytes);

  static constexpr uint32_t kAlphaOne = 1 << 16;

 private:
  void Increase();
  void Release();
  void DecayAlpha(TimeNs now);

  CongestionPort* port_;
  TimeNs next_cnp_;    // no notification before
  TimeNs next_cut_;    // no cut before
  TimeNs next_decay_;  // of alpha
  TimeNs next_step_;   // of recovery
  TimeNs next_send_;   // what went so far is paid for then
  uint32_t rest_;      // of the division that gave next_send_
  uint32_t rate_kbps_;
  uint32_t target_kbps_;
  uint32_t alpha_;
  uint32_t bytes_;       // sent since the last step by bytes
  uint8_t timer_steps_;  // since the last cut; they stop at their end
  uint8_t byte_steps_;
};
static_assert(sizeof(Dcqcn) <= 72, "there is one for every queue pair");

}  // namespace roci::roce
