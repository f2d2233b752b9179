// Program memory for fuzzers: a mapped memfd.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>

#include "memory/mapped_file.h"
#include "tests/fuzz/fuzz.h"

namespace roci::fuzz {

inline std::shared_ptr<memory::MappedFile> MakeMemoryFile(uint64_t bytes) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  int error = 0;
  auto mapped = memory::MappedFile::Map(fd, 0, bytes, true, &error);
  CHECK(mapped != nullptr);
  close(fd);
  return mapped;
}

}  // namespace roci::fuzz
