// Attributes of a queue pair between the shape that programs use and the transport's. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "roce/qp_attributes.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

// Types of queue pairs that exist here; others answer EOPNOTSUPP.
bool IsOfferedQpType(uint32_t type);

// The half of an XRC connection takes, and does not look at, attributes that the other half has:
// programs treat both as they do RC, and Linux lets them.
uint32_t KnownAttributesOf(roce::QpType type, uint32_t mask);

// InvalidArgument if a value that `mask` names does not fit its type; Unimplemented for attributes
// that this device does not have. What `mask` does not name is left at its default.
absl::Status AttributesFromAbi(const roci_abi_qp_attr& attr, uint32_t mask,
                               roce::QpAttributes& out);
// Everything but capabilities and addresses.
void AttributesToAbi(const roce::QpAttributes& attributes, roci_abi_qp_attr& out);

absl::Status StatusOfModify(roce::ModifyResult result);

}  // namespace roci::control
