// An RDMA device as either end uses it: attributes, protection domain, completion channel.
#pragma once

#include "tests/interop/rpcrdma/verbs_objects.h"

namespace rpcrdma {

class VerbsDevice {
 public:
  // Throws std::system_error. Reading the completion channel does not block.
  explicit VerbsDevice(ibv_context* context);

  ibv_context* context() const { return context_; }
  const ibv_device_attr& attr() const { return attr_; }
  ibv_pd* pd() const { return pd_.get(); }
  ibv_comp_channel* channel() const { return channel_.get(); }
  // True if SENDs with invalidate may be posted and received: with memory management extensions,
  // or windows of type 2 (IBTA vol 1, 11.2.1.2).
  bool OffersSendWithInvalidate() const;
  bool OffersWindows2B() const;

 private:
  ibv_context* const context_;
  ibv_device_attr attr_ = {};
  Owned<ibv_pd> pd_;
  Owned<ibv_comp_channel> channel_;
};

}  // namespace rpcrdma
