// Publishes the devices in the emulated sysfs tree, and updates counters and port states: four
// times a second while there are sessions or traffic, otherwise once a second for the links of
// Ethernet ports and never for wires.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "control/session/session_server.h"
#include "control/sysfs/sysfs_tree.h"

namespace roci::control {

// Control thread only.
class SysfsPublisher {
 public:
  // Publishes all devices. The destructor removes them.
  static absl::StatusOr<std::unique_ptr<SysfsPublisher>> Create(const Services& services,
                                                                const SessionServer& server,
                                                                const std::string& runtime_dir);

  // Adds an unpublished device to the tree, or removes a published one.
  absl::Status Publish(Device& device) { return Add(device); }
  absl::Status Withdraw(const Device& device);

  // Updates the tree after a change of the addresses of `device`, and sends programs
  // IBV_EVENT_GID_CHANGE. No effect if the device is not published.
  absl::Status ShowAddresses(const Device& device);

  // Checks every link. For a changed link, updates the tree and sends programs
  // IBV_EVENT_PORT_ACTIVE or IBV_EVENT_PORT_ERR.
  void ShowLinks();

  // N of the device's uverbsN; nothing: the device is not published.
  std::optional<int> UverbsNumber(const Device& device) const;

  // The state of the link as it is shown, from what the dataplane knew last.
  static SysfsTree::Port PortOf(const Device& device);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const;
  void HandleTimeout(roce::TimeNs now);

 private:
  struct Shown {
    Device* device;
    SysfsTree::Port port;
    dataplane::DeviceSnapshot last;
    int uverbs;
  };

  SysfsPublisher(const SessionServer& server, std::unique_ptr<SysfsTree> tree)
      : server_(server), tree_(std::move(tree)) {}
  absl::Status Add(Device& device);
  // True if something has changed.
  bool Refresh(Shown& shown);
  void ShowLink(Shown& shown);
  void TellPrograms(const Device& device, uint32_t event) const;
  uint64_t SlowPathFrames() const;

  const SessionServer& server_;
  std::unique_ptr<SysfsTree> tree_;
  std::vector<Shown> shown_;
  roce::TimeNs last_refresh_ = 0;
  uint64_t slow_path_frames_ = 0;  // at the last refresh
  bool busy_ = true;               // something had changed at the last refresh
  bool has_ethdev_ = false;
};

}  // namespace roci::control
