// Prints the layouts of libibverbs' own headers, and checks the types of the plugin's functions
// against them. Compiled with headers/ before the project's folders.
#include <type_traits>

#include "tests/unit/verbs_provider/generations/layout_table.h"
#include "verbs_provider/verbs/verbs_ops.h"

using OperationTable = verbs_context_ops;

#define OTHER(name)
#define SERVED(name, function) \
  static_assert(               \
      std::is_same_v<decltype(verbs_context_ops::name), decltype(&roci::provider::function)>);
#include "verbs_provider/generations/operations.inc"
#undef SERVED
#undef OTHER

int main() {
  PrintCommonStructures();
#define SERVED(name, function) ROCI_OFFSET(OperationTable, name)
#define OTHER(name) ROCI_OFFSET(OperationTable, name)
#include "verbs_provider/generations/operations.inc"
  ROCI_SIZE(OperationTable)
  ROCI_OFFSET(verbs_context, context)
  ROCI_OFFSET(verbs_qp, comp_mask)
}
