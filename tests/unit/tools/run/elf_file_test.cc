// ELF files as `roci run` reads them: made-up, damaged and real ones.
#include "tools/run/elf_file.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

namespace roci::tools {
namespace {

constexpr char kInterpreter[] = "/lib/ld-made-up.so";
constexpr char kStrings[] =
    "\0libibverbs.so.1\0verbs_register_driver_65\0IBVERBS_1.9\0IBVERBS_1.18\0IBVERBS_1.x";

// A file with an interpreter, one loaded segment, and a dynamic section with strings.
struct MadeUp {
  Elf64_Ehdr head = {};
  Elf64_Phdr headers[3] = {};
  Elf64_Dyn dynamic[3] = {};
  char interpreter[sizeof(kInterpreter)];
  char strings[sizeof(kStrings)];

  MadeUp() {
    constexpr uint64_t kAddress = 0x400000;
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
#if defined(__x86_64__)
    head.e_machine = EM_X86_64;
#else
    head.e_machine = EM_AARCH64;
#endif
    head.e_phoff = offsetof(MadeUp, headers);
    head.e_phentsize = sizeof(Elf64_Phdr);
    head.e_phnum = 3;
    headers[0].p_type = PT_INTERP;
    headers[0].p_offset = offsetof(MadeUp, interpreter);
    headers[0].p_filesz = sizeof(interpreter);
    headers[1].p_type = PT_LOAD;
    headers[1].p_vaddr = kAddress;
    headers[1].p_filesz = sizeof(MadeUp);
    headers[2].p_type = PT_DYNAMIC;
    headers[2].p_offset = offsetof(MadeUp, dynamic);
    headers[2].p_filesz = sizeof(dynamic);
    dynamic[0].d_tag = DT_STRTAB;
    dynamic[0].d_un.d_ptr = kAddress + offsetof(MadeUp, strings);
    dynamic[1].d_tag = DT_STRSZ;
    dynamic[1].d_un.d_val = sizeof(strings);
    std::memcpy(interpreter, kInterpreter, sizeof(interpreter));
    std::memcpy(strings, kStrings, sizeof(strings));
  }
};

class ElfFileTest : public testing::Test {
 protected:
  void TearDown() override { close(fd_); }

  absl::StatusOr<ElfFile> Read(const void* data, size_t size) {
    if (ftruncate(fd_, 0) != 0 || pwrite(fd_, data, size, 0) != static_cast<ssize_t>(size)) {
      return absl::InternalError("cannot write the file");
    }
    return ReadElf(path_);
  }
  absl::StatusOr<ElfFile> Read(const MadeUp& file) { return Read(&file, sizeof(file)); }

  int fd_ = memfd_create("elf_file_test", MFD_CLOEXEC);
  std::string path_ = "/proc/self/fd/" + std::to_string(fd_);
};

TEST_F(ElfFileTest, HasInterpreterAndStrings) {
  const auto file = Read(MadeUp());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->is_native);
  EXPECT_EQ(file->interpreter, kInterpreter);
  EXPECT_EQ(file->GreatestNumberAfter("verbs_register_driver_"), 65);
  EXPECT_EQ(file->GreatestNumberAfter("IBVERBS_1."), 18);
  EXPECT_EQ(file->GreatestNumberAfter("IBVERBS_2."), 0);
}

TEST_F(ElfFileTest, OtherArchitecturesAreNotNative) {
  MadeUp file;
  file.head.e_machine = EM_RISCV;
  EXPECT_FALSE(Read(file)->is_native);
  file.head.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_FALSE(Read(file)->is_native);
}

TEST_F(ElfFileTest, RefusesOtherFiles) {
  EXPECT_FALSE(Read("", 0).ok());
  EXPECT_FALSE(Read("#!/bin/sh\n", 10).ok());
  EXPECT_FALSE(ReadElf("/tmp").ok());
  EXPECT_FALSE(ReadElf("/tmp/none/such").ok());
}

TEST_F(ElfFileTest, RefusesEveryTruncation) {
  const MadeUp file;
  for (size_t size = 0; size < offsetof(MadeUp, strings) + sizeof(file.strings); ++size) {
    EXPECT_FALSE(Read(&file, size).ok()) << size;
  }
}

TEST_F(ElfFileTest, RefusesSizesBeyondItsLimits) {
  MadeUp file;
  file.headers[0].p_filesz = uint64_t{1} << 40;
  EXPECT_FALSE(Read(file).ok());
  file = MadeUp();
  file.headers[2].p_filesz = ~uint64_t{0};
  EXPECT_FALSE(Read(file).ok());
  file = MadeUp();
  file.dynamic[1].d_un.d_val = ~uint64_t{0};
  EXPECT_FALSE(Read(file).ok());
  file = MadeUp();
  file.dynamic[0].d_un.d_ptr = ~uint64_t{0};
  EXPECT_FALSE(Read(file).ok());
  file = MadeUp();
  file.head.e_phnum = 60000;
  EXPECT_FALSE(Read(file).ok());
}

TEST_F(ElfFileTest, SurvivesRandomBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    MadeUp file;
    auto* bytes = reinterpret_cast<unsigned char*>(&file);
    for (int changes = 0; changes < 4; ++changes) {
      bytes[EI_NIDENT + random() % (sizeof(file) - EI_NIDENT)] =
          static_cast<unsigned char>(random());
    }
    const auto read = Read(file);
    if (read.ok()) {
      EXPECT_LE(read->strings.size(), sizeof(file));
    }
  }
}

TEST_F(ElfFileTest, ReadsThisProgram) {
  const auto file = ReadElf("/proc/self/exe");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->is_native);
  EXPECT_NE(file->interpreter.find("/ld-"), std::string::npos);
}

TEST_F(ElfFileTest, FindsTextAcrossBlocks) {
  constexpr size_t kBlock = size_t{1} << 20;
  for (const size_t offset : {size_t{0}, kBlock - 3, kBlock, 2 * kBlock - 1}) {
    std::string text(3 * kBlock, 'a');
    text.replace(offset, 6, "needle");
    Read(text.data(), text.size()).IgnoreError();
    EXPECT_TRUE(FileContains(path_, "needle")) << offset;
    EXPECT_FALSE(FileContains(path_, "needles")) << offset;
  }
  EXPECT_FALSE(FileContains("/tmp/none/such", "a"));
}

}  // namespace
}  // namespace roci::tools
