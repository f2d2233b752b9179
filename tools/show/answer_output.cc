#include "tools/show/answer_output.h"

#include <cstdio>

namespace roci::tools {

int PrintFailure(const absl::Status& status) {
  std::fprintf(stderr, "roci: %s\n", std::string(status.message()).c_str());
  return 1;
}

int PrintAnswer(const absl::StatusOr<nlohmann::json>& answer, bool json,
                absl::FunctionRef<std::string(const nlohmann::json&)> format) {
  if (!answer.ok()) return PrintFailure(answer.status());
  const std::string text = json ? answer->dump(2) + "\n" : format(*answer);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace roci::tools
