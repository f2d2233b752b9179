#include "control/sysfs/hardware_counters.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "roce/counters.h"
#include "roce/drop_reason.h"

namespace roci::control {
namespace {

// The name of mlx5 for packets with a wrong ICRC, which monitoring programs look for.
constexpr std::string_view kWrongIcrc = "rx_icrc_encapsulated";

std::string DropCounterName(size_t reason) {
  return absl::StrCat("rx_drop_", std::string(roce::kDropReasonNames[reason]));
}

uint64_t Qp(const dataplane::DeviceSnapshot& snapshot, roce::QpCounter counter) {
  return snapshot.qp[static_cast<size_t>(counter)];
}

// Those of rdma_rxe that are measured.
std::vector<CounterValue> StandardValues(const dataplane::DeviceSnapshot& s) {
  using roce::QpCounter;
  return {
      {"sent_pkts", s.tx_roce_packets},
      {"rcvd_pkts", s.rx_roce_packets},
      {"duplicate_request", Qp(s, QpCounter::kDuplicateRequest)},
      {"out_of_seq_request", Qp(s, QpCounter::kOutOfSequence)},
      {"rcvd_rnr_err", Qp(s, QpCounter::kRnrNaksReceived)},
      {"send_rnr_err", Qp(s, QpCounter::kRnrNaksSent)},
      {"rcvd_seq_err", Qp(s, QpCounter::kPacketSequenceErrors)},
      {"retry_exceeded_err", Qp(s, QpCounter::kRetryExceeded)},
      {"send_err", s.tx_dropped + s.tx_above_mtu + s.tx_link_down},
      {"rdma_recvs", Qp(s, QpCounter::kRxSendRequests)},
  };
}

}  // namespace

std::vector<std::string> HardwareCounterNames() {
  std::vector<std::string> names;
  for (const std::string_view name : roce::kQpCounterNames) names.emplace_back(name);
  for (size_t i = 1; i < roce::kDropReasonCount; ++i) names.push_back(DropCounterName(i));
  names.emplace_back(kWrongIcrc);
  return names;
}

std::vector<CounterValue> HardwareCounters(const dataplane::DeviceSnapshot& s) {
  static const std::vector<std::string> names = HardwareCounterNames();
  std::vector<CounterValue> values;
  for (const std::string_view name : StandardHardwareCounters()) values.push_back({name, 0});
  const auto put = [&values](std::string_view name, uint64_t value) {
    const auto known = std::find_if(values.begin(), values.end(),
                                    [name](const CounterValue& v) { return v.name == name; });
    if (known == values.end()) {
      values.push_back({name, value});
    } else {
      known->value = value;
    }
  };
  for (const CounterValue& value : StandardValues(s)) put(value.name, value.value);
  for (size_t i = 0; i < roce::kQpCounterCount; ++i) put(names[i], s.qp[i]);
  for (size_t i = 1; i < roce::kDropReasonCount; ++i) {
    put(names[roce::kQpCounterCount + i - 1], s.drops[i]);
  }
  put(kWrongIcrc, s.drops[static_cast<size_t>(roce::DropReason::kIcrc)]);
  return values;
}

}  // namespace roci::control
