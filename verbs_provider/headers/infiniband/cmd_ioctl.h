// Replaces libibverbs' private cmd_ioctl.h, which does not compile as C++ (designators out of
// order). It has helpers for the kernel's ioctl interface, which Rocinante does not call. driver.h
// needs only the names of its structures.
#pragma once

struct ibv_command_buffer;
