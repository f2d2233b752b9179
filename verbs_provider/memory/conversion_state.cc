#include "verbs_provider/memory/conversion_state.h"

namespace roci::provider {

pthread_mutex_t g_conversion_lock = PTHREAD_MUTEX_INITIALIZER;
constinit ConversionState g_conversion = {.initialized = false,
                                          .hook = {},
                                          .device = -1,
                                          .file = -1,
                                          .file_device = 0,
                                          .file_inode = 0,
                                          .ability = ConvertAbility::kUnknown,
                                          .restore_failed = false,
                                          .last_id = 0,
                                          .registration_count = 0,
                                          .registrations = {}};

}  // namespace roci::provider
