// Path of the source tree, for tests that read its files. Only one source file contains it, so that
// clones in different folders share the compiler cache for all others.
#pragma once

#include <string>

namespace roci {

std::string SourceDir();  // the top
std::string VectorDir();  // tests/vectors

}  // namespace roci
