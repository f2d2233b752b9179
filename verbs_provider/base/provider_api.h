// libibverbs' public and provider headers, in the one way in which C++ can include them.
#pragma once

#include <infiniband/verbs.h>

// driver.h is C: it needs the GNU keyword, which -std=c++20 hides.
#define typeof __typeof__
extern "C" {
#include <infiniband/driver.h>
}
#undef typeof
