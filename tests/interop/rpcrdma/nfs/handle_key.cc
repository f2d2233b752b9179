// Keys of file handles.
#include "tests/interop/rpcrdma/nfs/handle_key.h"

#include <fcntl.h>
#include <sys/random.h>

#include <cerrno>
#include <system_error>

#include "tests/interop/rpcrdma/nfs/descriptor.h"

namespace rpcrdma {
namespace {

void Require(bool done, const std::string& what) {
  if (!done) throw std::system_error(errno, std::generic_category(), what);
}

constexpr auto kKeyBytes = static_cast<ssize_t>(sizeof(SipKey));

}  // namespace

SipKey RandomKey() {
  SipKey key;
  Require(getrandom(key.data(), key.size(), 0) == kKeyBytes, "getrandom");
  return key;
}

SipKey KeyIn(const std::string& path) {
  const Descriptor made(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  SipKey key;
  if (made) {
    key = RandomKey();
    Require(write(made.get(), key.data(), key.size()) == kKeyBytes && fsync(made.get()) == 0, path);
    return key;
  }
  const Descriptor kept(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Require(static_cast<bool>(kept), path);
  errno = EINVAL;  // for a file that is too short
  Require(read(kept.get(), key.data(), key.size()) == kKeyBytes, path);
  return key;
}

}  // namespace rpcrdma
