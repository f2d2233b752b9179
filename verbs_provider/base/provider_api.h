// Includes libibverbs' public and provider headers in a way that compiles as C++.
#pragma once

#include <infiniband/verbs.h>

// driver.h uses the GNU keyword typeof, which -std=c++20 disables.
#define typeof __typeof__
extern "C" {
#include <infiniband/driver.h>
}
#undef typeof
