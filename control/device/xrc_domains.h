// XRC domains of a device: found by the inode of a file, shared by the sessions that have them
// open.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "control/device/quota.h"
#include "dataplane/shard/xrc_domain.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

class ForeignFiles;
class User;

// The one file that names a domain; null: nothing does. It stays open, so that the inode is not
// another file's meanwhile.
using XrcDomainFile = std::shared_ptr<ForeignFiles>;

// Gone with its last user. Control thread only.
class XrcDomain {
 public:
  // A receiving queue pair, which belongs to the domain and to everybody who has it open.
  struct Target {
    std::shared_ptr<User> user;  // whose shares the next are
    QuotaShare share;
    RingShare memory;
    dataplane::QueuePair* qp = nullptr;
    uint32_t openings = 0;
    std::optional<roci_abi_ah_attr> address;  // as the app gave it
  };

  XrcDomain(dataplane::Device& device, dataplane::Lcore& lcore, XrcDomainFile file)
      : file_(std::move(file)), dataplane_(device, lcore) {}

  dataplane::XrcDomain& dataplane() { return dataplane_; }
  std::map<uint32_t, Target>& targets() { return targets_; }  // by QPN

 private:
  XrcDomainFile file_;
  std::map<uint32_t, Target> targets_;
  dataplane::XrcDomain dataplane_;
};

class XrcDomains {
 public:
  // ibv_open_xrcd(3) as Linux has it. A domain without a file is nobody else's. `lcore` is where a
  // new one will live. `flags`: ROCI_ABI_XRCD_*. EAGAIN: there is none for the file and none is to
  // be made; EINVAL: there is one, and it was to be new.
  absl::StatusOr<std::shared_ptr<XrcDomain>> Open(dataplane::Device& device,
                                                  dataplane::Lcore& lcore, XrcDomainFile file,
                                                  uint32_t flags);

 private:
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<XrcDomain>> by_file_;
};

}  // namespace roci::control
