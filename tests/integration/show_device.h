// Reads a device's entry of `roci show devices` from the daemon under test.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tools/show/manage_client.h"

namespace roci::testing {

// Null: no device `name`.
inline nlohmann::json ShowDevice(const std::string& name) {
  const auto devices = tools::AskDaemon("", {{"command", "show"}, {"what", "devices"}});
  EXPECT_TRUE(devices.ok()) << devices.status();
  for (const nlohmann::json& device : *devices) {
    if (device["name"] == name) return device;
  }
  return {};
}

}  // namespace roci::testing
