// PSNs in the texts of findings.
#pragma once

#include <string>

#include "absl/strings/str_format.h"
#include "roce/types.h"

namespace roci::tools::judge {

inline std::string PsnText(roce::Psn psn) { return absl::StrFormat("PSN 0x%06x", psn.value()); }

}  // namespace roci::tools::judge
