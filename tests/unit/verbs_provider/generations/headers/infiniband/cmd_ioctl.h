// Replaces libibverbs' private cmd_ioctl.h, which does not compile as C++ (designators out of
// order). It has what driver.h needs of it: inline functions of newer versions write a command.
#pragma once

#include <stdint.h>

struct ibv_command_buffer {
  uint8_t fallback_ioctl_only;
};
#define fill_attr_in_ptr(command, attribute, pointer) \
  static_cast<void>((command)), static_cast<void>((attribute)), static_cast<void>((pointer))
