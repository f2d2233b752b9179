// Identifiers' own addresses: binding to an address and a port, listening there, and finding the
// listener for a request. Control thread only.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "control/cm/cm_id.h"
#include "control/cm/ip_service.h"
#include "control/cm/port.h"
#include "control/cm/port_table.h"
#include "control/cm/socket_address.h"
#include "memory/split_mix.h"

namespace roci::control::cm {

class Bindings {
 public:
  static constexpr uint32_t kMaxBacklog = 8192;

  // `random`: for the choice of free ports.
  Bindings(const Ports& ports, memory::SplitMix& random) : ports_(ports), random_(random) {}
  Bindings(const Bindings&) = delete;
  Bindings& operator=(const Bindings&) = delete;

  absl::Status Bind(CmId& id, const SocketAddress& address);
  absl::Status Listen(CmId& id, uint32_t backlog);
  // Gives up the port of `id`, if any.
  void Release(CmId& id) { table_.Give(id); }

  // The listener for a request that names the IP addresses of both ends (`header`) and came by VLAN
  // `vlan`. Null: none.
  CmId* FindListener(const Port& port, const IpService& service, const IpHeader& header,
                     uint16_t vlan) const;
  // A listener with an AF_IB address: for requests without IP addresses, and for requests that
  // FindListener finds no listener for. Null: none.
  CmId* FindServiceListener(const Port& port, const IpService& service,
                            const roce::NetAddress& own) const;

 private:
  absl::Status TakePort(CmId& id);

  const Ports& ports_;
  memory::SplitMix& random_;
  PortTable table_;
};

}  // namespace roci::control::cm
