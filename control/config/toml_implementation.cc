// toml++ in a static daemon. Others link Debian's shared library.
#define TOML_IMPLEMENTATION
#include "control/config/toml_reader.h"
