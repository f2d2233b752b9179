// Stands in for libibverbs' private cmd_ioctl.h: helpers for the kernel's ioctl interface, which
// Rocinante never calls, in C that C++ rejects (designators out of order). driver.h needs no more
// than the names of its structures.
#pragma once

struct ibv_command_buffer;
