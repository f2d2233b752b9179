// XRC domains of a device: named by the inode of a file, shared by the sessions that have opened
// them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "control/device/quota.h"
#include "dataplane/shard/xrc_client.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

class ForeignFiles;
class User;

// The one file that names a domain; null: the domain has no file. The file stays open, so that its
// inode number is not reused.
using XrcDomainFile = std::shared_ptr<ForeignFiles>;

// Destroyed with its last reference. Control thread only.
class XrcDomain {
 public:
  // An XRC receive queue pair; it belongs to the domain and to all sessions that have opened it.
  struct Target {
    std::shared_ptr<User> user;  // charged for the next two
    QuotaShare share;
    RingShare memory;
    dataplane::QueuePair* qp = nullptr;
    dataplane::QueueLayout layout = {};
    uint32_t openings = 0;
    std::optional<roci_abi_ah_attr> address;  // as the program gave it
  };

  XrcDomain(dataplane::DeviceClient& device, uint32_t lcore_index, XrcDomainFile file)
      : file_(std::move(file)), dataplane_(device, lcore_index) {}

  dataplane::XrcClient& dataplane() { return dataplane_; }
  std::map<uint32_t, Target>& targets() { return targets_; }  // by QPN

 private:
  XrcDomainFile file_;
  std::map<uint32_t, Target> targets_;
  dataplane::XrcClient dataplane_;
};

class XrcDomains {
 public:
  // ibv_open_xrcd(3) with the semantics of Linux. A domain without a file is not shared. A new
  // domain lives on that lcore. `flags`: ROCI_ABI_XRCD_*. EAGAIN: the file has no domain, and
  // CREATE is not set; EINVAL: the file has a domain, and EXCLUSIVE is set.
  absl::StatusOr<std::shared_ptr<XrcDomain>> Open(dataplane::DeviceClient& device,
                                                  uint32_t lcore_index, XrcDomainFile file,
                                                  uint32_t flags);

 private:
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<XrcDomain>> by_file_;
};

}  // namespace roci::control
