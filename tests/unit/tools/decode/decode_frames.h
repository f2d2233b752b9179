// Frames for the tests of `roci decode`, encoded by the dataplane's encoder, and their dissection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "roce/frame.h"
#include "tools/decode/dissect.h"

namespace roci::tools {

using Bytes = std::vector<std::byte>;

roce::Path TestPath(bool is_ipv6);
// No VLAN tag unless `path` has one; the payload is 0x5A again and again.
Bytes Encode(const roce::Path& path, roce::Opcode opcode, uint32_t payload_length);
// Puts the right ICRC under what was changed in an untagged frame.
void FixIcrc(Bytes& frame, bool is_ipv6);

Bytes ToBytes(std::initializer_list<int> values);
Bytes Join(std::initializer_list<Bytes> parts);

// Of frames that were captured completely.
std::optional<DecodedFrame> DissectWhole(const Bytes& frame, uint32_t link_type = 1);
FrameKind KindOf(const Bytes& frame, uint32_t link_type = 1);

}  // namespace roci::tools
