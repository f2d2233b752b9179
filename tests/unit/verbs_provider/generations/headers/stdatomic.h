// Replaces C's <stdatomic.h>, which C++20 does not have: declares the one type that libibverbs'
// driver.h uses. driver.h is included inside extern "C", where templates are not allowed.
#pragma once

extern "C++" {
#include <atomic>
}

using std::atomic_int;
