// Congestion control of one queue pair (DCQCN: Zhu et al., "Congestion Control for Large-Scale RDMA
// Deployments", SIGCOMM 2015). ECN marks on received packets cause CNPs to the peer, at a bounded
// rate; CNPs from the peer lower the sending rate. Pure; integers only.
#pragma once

#include <cstdint>

#include "roce/work.h"

namespace roci::roce {

// Parameters of a port. Rates in kbit/s.
struct CongestionParameters {
  uint32_t line_rate_kbps = 100'000'000;
  uint32_t min_rate_kbps = 10'000;  // CNPs lower no queue pair below this
  // CNPs sent: at most one per interval, for each queue pair and for the port.
  uint32_t cnp_interval_ns = 50'000;
  uint32_t cnp_port_interval_ns = 1'000;
  uint8_t cnp_dscp = 48;
  uint8_t cnp_priority = 6;  // of the VLAN tag
  // CNPs received: the rate is cut at most once per interval, by half of alpha.
  uint32_t cut_interval_ns = 4'000;
  uint32_t alpha_divisor = 256;  // alpha moves by 1/alpha_divisor (the paper's g)
  uint32_t alpha_period_ns = 55'000;
  // A recovery step follows each period, and each `increase_bytes` sent.
  uint32_t increase_period_ns = 100'000;
  uint32_t increase_bytes = 10'000'000;
  uint32_t fast_recovery_steps = 5;
  uint32_t additive_kbps = 10'000;
  uint32_t hyper_kbps = 100'000;
  uint32_t burst_bytes = 32'768;  // what a throttled queue pair may send at once after a pause
};

// State that all queue pairs of a port on one lcore share.
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
  // An ECN mark was received. True: send a CNP.
  bool TakeNotification(TimeNs now);

  // ---- Reaction point
  void HandleCnp(TimeNs now);
  // Applies the recovery steps due at `now`. False: no longer throttled.
  bool Advance(TimeNs now);
  bool throttled() const { return rate_kbps_ < port_->parameters.line_rate_kbps; }
  uint32_t rate_kbps() const { return rate_kbps_; }
  uint32_t target_kbps() const { return target_kbps_; }
  // Scaled by kAlphaOne.
  uint32_t alpha() const { return alpha_; }

  // ---- Pacing while throttled
  bool MayGo(TimeNs now) const { return next_send_ <= now; }
  TimeNs next_send() const { return next_send_; }
  // A frame of `bytes` is sent.
  void Charge(TimeNs now, uint32_t bytes);

  static constexpr uint32_t kAlphaOne = 1 << 16;

 private:
  void Increase();
  void Release();
  void DecayAlpha(TimeNs now);

  CongestionPort* port_;
  TimeNs next_cnp_;    // earliest time of the next CNP
  TimeNs next_cut_;    // earliest time of the next cut
  TimeNs next_decay_;  // of alpha
  TimeNs next_step_;   // of recovery
  TimeNs next_send_;   // earliest time of the next frame
  uint32_t rest_;      // remainder of the division that gave next_send_
  uint32_t rate_kbps_;
  uint32_t target_kbps_;
  uint32_t alpha_;
  uint32_t bytes_;       // sent since the last step by bytes
  uint8_t timer_steps_;  // since the last cut; saturates
  uint8_t byte_steps_;
};
static_assert(sizeof(Dcqcn) <= 72, "there is one for every queue pair");

}  // namespace roci::roce
