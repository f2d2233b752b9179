#include "tests/unit/verbs_provider/intercept/fake_paths.h"

const char* const kFakeCmPath = FAKE_CM_PATH;
const char* const kFakeLazyPath = FAKE_LAZY_PATH;
