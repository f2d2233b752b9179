// Where the source tree lies, for tests that read its files. One source file knows, so that the
// compiler cache answers for all others in whatever folder a clone lies.
#pragma once

#include <string>

namespace roci {

std::string SourceDir();  // the top
std::string VectorDir();  // tests/vectors

}  // namespace roci
