// No timers: Advance() and HandleCnp() compute the effect of the time that has passed.
#include "roce/dcqcn.h"

#include <algorithm>

namespace roci::roce {
namespace {

// Most periods that are computed one by one. After more of them alpha is 0 and the rate is the line
// rate.
constexpr uint64_t kMostPeriods = 4096;

// Expirations until `now` of a periodic timer whose next expiration is `next`.
uint64_t Elapsed(TimeNs next, uint32_t period_ns, TimeNs now) {
  return now < next ? 0 : (now - next) / period_ns + 1;
}

uint8_t CountUp(uint8_t steps) { return steps == UINT8_MAX ? steps : ++steps; }

}  // namespace

void Dcqcn::Reset() {
  next_cnp_ = next_cut_ = next_decay_ = next_step_ = next_send_ = 0;
  rest_ = 0;
  rate_kbps_ = target_kbps_ = port_ != nullptr ? port_->parameters.line_rate_kbps : 0;
  alpha_ = kAlphaOne;
  bytes_ = 0;
  timer_steps_ = byte_steps_ = 0;
}

bool Dcqcn::TakeNotification(TimeNs now) {
  if (now < next_cnp_ || now < port_->next_cnp) return false;
  next_cnp_ = now + port_->parameters.cnp_interval_ns;
  port_->next_cnp = now + port_->parameters.cnp_port_interval_ns;
  return true;
}

// Equation 1 of the paper. After a release alpha is kAlphaOne, so the first CNP halves the rate.
void Dcqcn::HandleCnp(TimeNs now) {
  const CongestionParameters& p = port_->parameters;
  if (!Advance(now)) next_send_ = now;
  if (now < next_cut_) return;
  next_cut_ = now + p.cut_interval_ns;
  target_kbps_ = rate_kbps_;
  const uint64_t cut = uint64_t{rate_kbps_} * alpha_ / (2 * kAlphaOne);
  rate_kbps_ = std::max(rate_kbps_ - static_cast<uint32_t>(cut), p.min_rate_kbps);
  alpha_ += (kAlphaOne - alpha_) / p.alpha_divisor;
  next_decay_ = now + p.alpha_period_ns;
  next_step_ = now + p.increase_period_ns;
  timer_steps_ = byte_steps_ = 0;
  bytes_ = 0;
}

// Equation 2 of the paper, rounded so that alpha reaches 0.
void Dcqcn::DecayAlpha(TimeNs now) {
  const CongestionParameters& p = port_->parameters;
  const uint64_t periods = Elapsed(next_decay_, p.alpha_period_ns, now);
  if (periods == 0) return;
  next_decay_ += periods * p.alpha_period_ns;
  if (periods > kMostPeriods) alpha_ = 0;
  for (uint64_t i = 0; i < periods && alpha_ != 0; ++i) {
    alpha_ -= (alpha_ + p.alpha_divisor - 1) / p.alpha_divisor;
  }
}

bool Dcqcn::Advance(TimeNs now) {
  const CongestionParameters& p = port_->parameters;
  if (!throttled()) {
    Release();
    return false;
  }
  DecayAlpha(now);
  const uint64_t periods = Elapsed(next_step_, p.increase_period_ns, now);
  next_step_ += periods * p.increase_period_ns;
  if (periods > kMostPeriods) rate_kbps_ = target_kbps_ = p.line_rate_kbps;
  for (uint64_t i = 0; i < periods && throttled(); ++i) {
    timer_steps_ = CountUp(timer_steps_);
    Increase();
  }
  if (!throttled()) Release();
  return throttled();
}

void Dcqcn::Release() {
  rate_kbps_ = target_kbps_ = port_->parameters.line_rate_kbps;
  alpha_ = kAlphaOne;
}

// One recovery step: fast recovery halves the distance to the target; later steps raise the target
// (additive increase), and raise it faster once both timer and byte counter have passed fast
// recovery (hyper increase).
void Dcqcn::Increase() {
  const CongestionParameters& p = port_->parameters;
  const uint32_t most = std::max(timer_steps_, byte_steps_);
  const uint32_t least = std::min(timer_steps_, byte_steps_);
  uint64_t target = target_kbps_;
  if (least > p.fast_recovery_steps) {
    target += uint64_t{p.hyper_kbps} * (least - p.fast_recovery_steps);
  } else if (most >= p.fast_recovery_steps) {
    target += p.additive_kbps;
  }
  target_kbps_ = static_cast<uint32_t>(std::min<uint64_t>(target, p.line_rate_kbps));
  rate_kbps_ += (target_kbps_ - rate_kbps_ + 1) / 2;
}

void Dcqcn::Charge(TimeNs now, uint32_t bytes) {
  const CongestionParameters& p = port_->parameters;
  const uint64_t credit_ns = p.burst_bytes * kNsPerByteOf1Kbps / rate_kbps_;
  next_send_ = std::max(next_send_, now - std::min<TimeNs>(credit_ns, now));
  const uint64_t cost = bytes * kNsPerByteOf1Kbps + rest_;
  next_send_ += cost / rate_kbps_;
  rest_ = static_cast<uint32_t>(cost % rate_kbps_);
  bytes_ += bytes;
  if (bytes_ < p.increase_bytes) return;
  bytes_ -= p.increase_bytes;
  byte_steps_ = CountUp(byte_steps_);
  Increase();
}

}  // namespace roci::roce
