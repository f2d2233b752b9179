// Replaces the project's declarations of libibverbs' private structures by libibverbs' own, which
// they are compared with (theirs.cc).
#pragma once

#include <infiniband/verbs.h>

// driver.h uses the GNU keyword typeof, which -std=c++20 disables.
#define typeof __typeof__
extern "C" {
#include <infiniband/driver.h>
}
#undef typeof
