// Stands in for C's <stdatomic.h>, which C++20 does not have: the one type that libibverbs'
// driver.h names. driver.h is included inside extern "C", where templates may not stand.
#pragma once

extern "C++" {
#include <atomic>
}

using std::atomic_int;
