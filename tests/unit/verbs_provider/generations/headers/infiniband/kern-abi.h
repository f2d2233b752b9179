// Replaces libibverbs' private kern-abi.h, whose assertions assume that an empty structure has size
// 0 (in C++ it is 1). driver.h needs only the kernel's structures from it.
#pragma once

#include <rdma/ib_user_verbs.h>
