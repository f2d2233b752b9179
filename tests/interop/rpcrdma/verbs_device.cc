#include "tests/interop/rpcrdma/verbs_device.h"

#include <fcntl.h>

#include <cerrno>

namespace rpcrdma {

VerbsDevice::VerbsDevice(ibv_context* context)
    : context_(context), pd_(ibv_alloc_pd(context)), channel_(ibv_create_comp_channel(context)) {
  if (pd_ == nullptr || channel_ == nullptr) ThrowErrno("ibv_alloc_pd or ibv_create_comp_channel");
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) ThrowErrno("O_NONBLOCK");
  const int error = ibv_query_device(context, &attr_);
  if (error == 0) return;
  errno = error;
  ThrowErrno("ibv_query_device");
}

bool VerbsDevice::OffersSendWithInvalidate() const {
  constexpr unsigned kEnough =
      IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return (attr_.device_cap_flags & kEnough) != 0;
}

bool VerbsDevice::OffersWindows2B() const {
  return (attr_.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
}

}  // namespace rpcrdma
