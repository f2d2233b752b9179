// Random connection and link parameters for simulations of connected queue pairs.
#pragma once

#include <cstdint>

#include "tests/sim/link.h"
#include "tests/sim/pair.h"
#include "tests/sim/random.h"

namespace roci::sim {

inline Connection RandomConnection(Random& random) {
  Connection connection;
  connection.mtu = static_cast<roce::PathMtu>(random.Between(1, 5));
  connection.limits.window_packets = static_cast<uint32_t>(random.Between(2, 128));
  connection.limits.ack_every_packets =
      static_cast<uint16_t>(random.Between(1, connection.limits.window_packets));
  connection.timeout = static_cast<uint8_t>(random.Between(8, 12));
  connection.min_rnr_timer = static_cast<uint8_t>(random.Between(1, 8));
  connection.max_rd_atomic = static_cast<uint8_t>(random.Between(1, 16));
  connection.records = 1U << random.Between(0, 6);
  connection.ipv6 = random.Chance(500);
  for (roce::Psn& psn : connection.first_psn) {
    psn = random.Chance(400) ? roce::Psn(0xFFFFFF) - static_cast<uint32_t>(random.Below(40))
                             : roce::Psn(static_cast<uint32_t>(random.Next()));
  }
  return connection;
}

inline LinkFaults RandomFaults(Random& random) {
  LinkFaults faults;
  faults.delay_ns = random.Between(200, 5000);
  if (random.Chance(150)) return faults;  // a perfect cable
  const auto some = [&](uint32_t most) {
    return random.Chance(500) ? static_cast<uint32_t>(random.Below(most)) : 0;
  };
  faults.loss = some(120);
  faults.duplicate = some(200);
  faults.corrupt = some(100);
  faults.reorder = some(200);
  faults.reorder_delay_ns = random.Between(500, 200000);
  faults.jitter_ns = random.Chance(500) ? random.Below(20000) : 0;
  return faults;
}

}  // namespace roci::sim
