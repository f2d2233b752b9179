// AccountOf() for static daemons, without libsubid: reads /etc/subuid only, not NSS.
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "control/device/subordinate_ids.h"

namespace roci::control {
namespace {

// The user ID of an account's name, or of its number as text.
std::optional<uid_t> UidOf(const std::string& account) {
  uid_t uid = 0;
  if (absl::SimpleAtoi(account, &uid)) return uid;
  passwd entry = {};
  passwd* found = nullptr;
  std::array<char, 16384> strings;
  if (getpwnam_r(account.c_str(), &entry, strings.data(), strings.size(), &found) != 0 ||
      found == nullptr) {
    return std::nullopt;
  }
  return found->pw_uid;
}

// The owner of the range in a line "ACCOUNT:FIRST:COUNT", if `uid` is in the range.
std::optional<uid_t> OwnerByLine(const std::string& line, uid_t uid) {
  const std::vector<std::string> fields = absl::StrSplit(line, ':');
  uint64_t first = 0;
  uint64_t count = 0;
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &first) ||
      !absl::SimpleAtoi(fields[2], &count) || uid < first || uid - first >= count) {
    return std::nullopt;
  }
  return UidOf(fields[0]);
}

}  // namespace

uid_t AccountOf(uid_t uid) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/etc/subuid", "re"),
                                                             &std::fclose);
  std::optional<uid_t> lowest;
  char* line = nullptr;
  size_t size = 0;
  while (file != nullptr && getline(&line, &size, file.get()) > 0) {
    const std::optional<uid_t> owner =
        OwnerByLine(std::string(absl::StripAsciiWhitespace(line)), uid);
    if (owner && (!lowest || *owner < *lowest)) lowest = owner;
  }
  std::free(line);
  return lowest.value_or(uid);
}

}  // namespace roci::control
