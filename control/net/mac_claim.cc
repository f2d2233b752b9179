#include "control/net/mac_claim.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/net/ip_text.h"

namespace roci::control {

absl::StatusOr<UniqueFd> ClaimMac(const std::string& interface, const roce::Mac& mac) {
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return StatusFromErrno(errno, "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract: not in a file system.
  const std::string name = absl::StrCat("rocinante/", interface, "/", MacText(mac));
  const size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::copy_n(name.begin(), length, address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) return fd;
  if (errno != EADDRINUSE) return StatusFromErrno(errno, "bind");
  return absl::AlreadyExistsError(absl::StrCat("another daemon or device also uses MAC ",
                                               MacText(mac), " on ", interface,
                                               ": connections may be rejected"));
}

}  // namespace roci::control
