#include "tests/source_paths.h"

namespace roci {

std::string SourceDir() { return ROCI_SOURCE_DIR; }

std::string VectorDir() { return SourceDir() + "/tests/vectors"; }

}  // namespace roci
