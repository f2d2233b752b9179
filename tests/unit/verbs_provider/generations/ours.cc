// Prints the layouts that the plugin for rdma-core ROCI_RELEASE uses (ROCI_LAYOUT).
#include "tests/unit/verbs_provider/generations/layout_table.h"
#include "verbs_provider/generations/layouts.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

#include "verbs_provider/generations/operation_table.inc"

void PrintOperations(){
#define SERVED(name, function) ROCI_OFFSET(OperationTable, name)
#define OTHER(name) ROCI_OFFSET(OperationTable, name)
#include "verbs_provider/generations/operations.inc"
    ROCI_SIZE(OperationTable)}

size_t QueuePairFlags() {
  if (ROCI_RELEASE >= 45) return offsetof(verbs_qp, tail.flags_of_45);
  if (ROCI_RELEASE >= 44) return offsetof(verbs_qp, tail.flags_of_44);
  return offsetof(verbs_qp, tail.flags_of_36);
}

}  // namespace
}  // namespace roci::provider

int main() {
  PrintCommonStructures();
  roci::provider::PrintOperations();
  std::printf("verbs_context.context %zu\n", roci::provider::ContextOffset(ROCI_LAYOUT));
  std::printf("verbs_qp.comp_mask %zu\n", roci::provider::QueuePairFlags());
}
