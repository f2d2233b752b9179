#include "control/device/xrc_domains.h"

#include <cerrno>

#include "control/device/foreign_fds.h"
#include "control/loop/errno_status.h"

namespace roci::control {

absl::StatusOr<std::shared_ptr<XrcDomain>> XrcDomains::Open(dataplane::DeviceClient& device,
                                                            uint32_t lcore_index,
                                                            XrcDomainFile file, uint32_t flags) {
  if (file == nullptr) return std::make_shared<XrcDomain>(device, lcore_index, nullptr);
  const ForeignFile& inode = (*file)[0];
  if (inode.inode == 0) return StatusFromErrno(EBADF, "the file of the XRC domain is not open");
  std::erase_if(by_file_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<XrcDomain>& known = by_file_[{inode.device, inode.inode}];
  if (std::shared_ptr<XrcDomain> domain = known.lock()) {
    if (flags & ROCI_ABI_XRCD_EXCLUSIVE) {
      return absl::InvalidArgumentError("the file already has an XRC domain");
    }
    return domain;
  }
  if (!(flags & ROCI_ABI_XRCD_CREATE)) return StatusFromErrno(EAGAIN, "the file has no XRC domain");
  auto domain = std::make_shared<XrcDomain>(device, lcore_index, std::move(file));
  known = domain;
  return domain;
}

}  // namespace roci::control
