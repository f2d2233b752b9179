// Reads what `roci run` asks of ELF files. Files are foreign input: every size is checked.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roci::tools {

struct ElfFile {
  bool is_native = false;   // of this machine's architecture and word size
  std::string interpreter;  // the dynamic loader; empty: none is needed
  std::string strings;      // of the dynamic section: names of symbols, versions and libraries

  /// The greatest number that follows `prefix` at the start of one of `strings`; 0 if there is
  /// none.
  int GreatestNumberAfter(absl::string_view prefix) const;
};

/// InvalidArgument if `path` is no ELF file or is damaged, or the error of opening or reading it.
absl::StatusOr<ElfFile> ReadElf(const std::string& path);

/// Whether the file has the text in its first gigabyte. False, too, if it cannot be read.
bool FileContains(const std::string& path, absl::string_view text);

}  // namespace roci::tools
