// Converts queue pair attributes between the session protocol and the transport. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "roce/qp_attributes.h"
#include "verbs_provider/abi/send_opcodes.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

// Whether the queue pair type is supported; other types fail with EOPNOTSUPP.
constexpr bool IsOfferedQpType(uint32_t type) {
  constexpr uint32_t kOffered =
      abi::kSendingQpTypes | 1u << static_cast<uint32_t>(roce::QpType::kXrcRecv);
  return type < 32 && (kOffered >> type & 1) != 0;
}

// `mask` without the attributes that an XRC queue pair accepts but ignores: requester attributes of
// an XRC receive queue pair, responder attributes of an XRC send queue pair. Programs set both, as
// for RC, and Linux allows it.
uint32_t KnownAttributesOf(roce::QpType type, uint32_t mask);

// Attributes not in `mask` keep their defaults. InvalidArgument: a value is out of its range.
// Unimplemented: an attribute is not supported.
absl::Status AttributesFromAbi(const roci_abi_qp_attr& attr, uint32_t mask,
                               roce::QpAttributes& out);
// Fills in everything except capabilities and addresses.
void AttributesToAbi(const roce::QpAttributes& attributes, roci_abi_qp_attr& out);

absl::Status StatusOfModify(roce::ModifyResult result);

}  // namespace roci::control
