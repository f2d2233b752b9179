// The RDMA connection manager of librdmacm's identifiers over all devices of the daemon: joins
// identifiers and their parts with the engine of each device, which handles the messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/cm/address_resolution.h"
#include "control/cm/bindings.h"
#include "control/cm/channel.h"
#include "control/cm/identifiers.h"
#include "control/cm/memberships.h"
#include "control/cm/port.h"
#include "control/device/services.h"
#include "memory/split_mix.h"

namespace roci::control::cm {

// Control thread only. Every command has the results of Linux's; see rdma_cm(7) and
// <rdma/rdma_user_cm.h>.
class Manager {
 public:
  explicit Manager(Services& services);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  const Ports& ports() const { return ports_; }
  const Identifiers& ids() const { return ids_; }
  Bindings& bindings() { return bindings_; }
  AddressResolution& resolution() { return resolution_; }
  Memberships& memberships() { return memberships_; }

  absl::StatusOr<uint32_t> Create(Channel& channel, const rdma_ucm_create_id& command);
  // Returns the number of events that the program has fetched and must acknowledge.
  uint32_t Destroy(CmId& id);
  // Destroys some identifiers of a channel that has ended, and its events. False: none is left.
  bool DestroySome(Channel& channel);
  // Moves `id` and its waiting events to channel `to`. Returns the number of fetched events.
  uint32_t Migrate(CmId& id, Channel& to);
  // The device is unplugged: ends what identifiers have on it, and sends them DEVICE_REMOVAL. Like
  // Linux's, they can then only be destroyed.
  void RemoveDevice(const Device& device);
  // Removes and counts the oldest event of `channel`, which must have one.
  rdma_ucm_event_resp TakeEvent(Channel& channel);

  // manager_connect.cc
  absl::Status Connect(CmId& id, const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece);
  absl::Status Accept(CmId& id, uint64_t uid, const rdma_ucm_conn_param& param,
                      const rdma_ucm_ece& ece);
  absl::Status Reject(CmId& id, uint8_t reason, std::span<const std::byte> private_data);
  absl::Status Disconnect(CmId& id);
  absl::Status Notify(CmId& id, uint32_t event);

 private:
  // Ends and gives up all that `id` has, but not the identifier.
  void ReleaseAll(CmId& id);
  // manager_events.cc
  void ReceivePacket(Port& port, const roce::Packet& packet);
  // Sends the engine's messages and handles its events.
  void Flush(Port& port);
  void HandleEvent(Port& port, const Event& event);
  // manager_requests.cc
  void HandleRequest(Port& port, const Event& event);

  void HandleTimeout(roce::TimeNs now);
  roce::TimeNs NextTimeout() const;

  memory::SplitMix random_;
  Ports ports_;
  Identifiers ids_{random_};
  Bindings bindings_{ports_, random_};
  AddressResolution resolution_{ports_, ids_, bindings_};
  Memberships memberships_{ids_};
};

}  // namespace roci::control::cm
