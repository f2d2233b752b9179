// Operations on a completion queue ring that are not on the hot path.
#include "verbs_provider/rings/completion_ring.h"

#include "verbs_provider/abi/fence.h"

namespace roci::provider {

void CompletionRing::RequestNotification(bool solicited_only) {
  const std::atomic_ref<uint32_t> arm(shared->arm);
  if (solicited_only) {
    uint32_t none = ROCI_ABI_CQ_ARM_NONE;
    arm.compare_exchange_strong(none, ROCI_ABI_CQ_ARM_SOLICITED, std::memory_order_seq_cst);
  } else {
    arm.exchange(ROCI_ABI_CQ_ARM_ANY, std::memory_order_seq_cst);
  }
  // The program polls a last time after this.
  abi::FenceAfterExchange();
}

}  // namespace roci::provider
