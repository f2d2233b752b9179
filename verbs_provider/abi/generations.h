// The generations of libibverbs for which there are plugins. A generation is known by its private
// ABI number, which is in the name of a plugin, and by the newest IBVERBS_1.N among its symbol
// versions: releases have changed the layout of private structures without a new number.
#pragma once

namespace roci::abi {

struct LibibverbsGeneration {
  int private_abi;
  int public_version;    // N of IBVERBS_1.N
  int layout;            // of private structures: the first release with it; 34: 36
  const char* releases;  // of rdma-core
};

inline constexpr LibibverbsGeneration kGenerations[] = {
    {34, 14, 34, "36 to 56"},  {57, 14, 34, "57 and 58"}, {59, 15, 59, "59 to 61"},
    {59, 16, 62, "62 and 63"}, {64, 17, 64, "64"},        {65, 18, 65, "65"},
};

/// Null if there is no plugin for such a libibverbs.
constexpr const LibibverbsGeneration* FindGeneration(int private_abi, int public_version) {
  for (const LibibverbsGeneration& generation : kGenerations) {
    if (generation.private_abi == private_abi && generation.public_version == public_version) {
      return &generation;
    }
  }
  return nullptr;
}

/// In libibverbs: the names of the function that registers a provider, of which a number is the
/// rest, and of public symbol versions.
inline constexpr char kRegisterFunction[] = "verbs_register_driver_";
inline constexpr char kPublicVersion[] = "IBVERBS_1.";

}  // namespace roci::abi
