// Owners of libibverbs' objects, and registered memory. Failures to create one are thrown as
// std::system_error with the errno of the call.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace rpcrdma {

[[noreturn]] void ThrowErrno(const std::string& what);

struct VerbsDeleter {
  void operator()(ibv_pd* pd) const { ibv_dealloc_pd(pd); }
  void operator()(ibv_cq* cq) const { ibv_destroy_cq(cq); }
  void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
  void operator()(ibv_mr* mr) const { ibv_dereg_mr(mr); }
  void operator()(ibv_mw* mw) const { ibv_dealloc_mw(mw); }
  void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
  void operator()(rdma_cm_id* id) const {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
};
template <class T>
using Owned = std::unique_ptr<T, VerbsDeleter>;

// Equal slots of memory with one registration. The memory is shared anonymous memory.
class RegisteredSlots {
 public:
  // `access` as for ibv_reg_mr.
  RegisteredSlots(ibv_pd* pd, size_t count, size_t slot_bytes, int access);
  ~RegisteredSlots();
  RegisteredSlots(const RegisteredSlots&) = delete;
  RegisteredSlots& operator=(const RegisteredSlots&) = delete;

  size_t count() const { return count_; }
  size_t slot_bytes() const { return slot_bytes_; }
  std::span<std::byte> Slot(size_t index) const {
    return {memory_ + index * slot_bytes_, slot_bytes_};
  }
  // `bytes` must lie in a slot.
  ibv_sge Sge(std::span<const std::byte> bytes) const;
  ibv_mr* mr() const { return mr_.get(); }

 private:
  const size_t count_;
  const size_t slot_bytes_;
  std::byte* memory_ = nullptr;
  Owned<ibv_mr> mr_;
};

}  // namespace rpcrdma
