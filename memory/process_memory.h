// Whether this process may access memory by process number.
#pragma once

namespace roci::memory {

// Whether process_vm_readv(2) works at all: a system call filter may refuse it, as in containers.
// Tried once, on this process. Thread-safe; never blocks.
bool ProcessVmWorks();

}  // namespace roci::memory
