// Reads program headers and the dynamic section of ELF files.
#include "tools/run/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "control/loop/unique_fd.h"

namespace roci::tools {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "name the machine of ELF files"
#endif
constexpr size_t kMaxHeaders = 256;
constexpr size_t kMaxInterpreter = 4096;

class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {
    struct stat st;
    if (::fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) size_ = static_cast<uint64_t>(st.st_size);
  }

  // Whether the file has these bytes, so that nothing larger than it is allocated.
  bool Has(uint64_t offset, uint64_t size) const {
    return offset <= size_ && size <= size_ - offset;
  }

  // Reads exactly `size` bytes; false at the end of the file.
  bool Read(uint64_t offset, void* data, size_t size) const {
    size_t done = 0;
    while (done < size && Has(offset, size)) {
      const ssize_t length = ::pread(fd_, static_cast<char*>(data) + done, size - done,
                                     static_cast<off_t>(offset + done));
      if (length < 0 && errno == EINTR) continue;
      if (length <= 0) return false;
      done += static_cast<size_t>(length);
    }
    return done == size;
  }

 private:
  int fd_;
  uint64_t size_ = 0;
};

// The part of the file that is loaded at `address` holds `*offset` of it. False: none does.
bool OffsetOf(const std::vector<Elf64_Phdr>& headers, uint64_t address, uint64_t* offset) {
  for (const Elf64_Phdr& header : headers) {
    if (header.p_type == PT_LOAD && address >= header.p_vaddr &&
        address - header.p_vaddr < header.p_filesz) {
      *offset = header.p_offset + (address - header.p_vaddr);
      return true;
    }
  }
  return false;
}

bool ReadInterpreter(const Reader& reader, const Elf64_Phdr& header, std::string* interpreter) {
  if (header.p_filesz > kMaxInterpreter) return false;
  interpreter->resize(header.p_filesz);
  if (!reader.Read(header.p_offset, interpreter->data(), interpreter->size())) return false;
  interpreter->resize(std::strlen(interpreter->c_str()));
  return true;
}

bool ReadStrings(const Reader& reader, const std::vector<Elf64_Phdr>& headers,
                 const Elf64_Phdr& dynamic, std::string* strings) {
  if (!reader.Has(dynamic.p_offset, dynamic.p_filesz)) return false;
  std::vector<Elf64_Dyn> entries(dynamic.p_filesz / sizeof(Elf64_Dyn));
  if (!reader.Read(dynamic.p_offset, entries.data(), entries.size() * sizeof(Elf64_Dyn))) {
    return false;
  }
  uint64_t address = 0;
  uint64_t size = 0;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) address = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) size = entry.d_un.d_val;
  }
  uint64_t offset = 0;
  if (size == 0) return true;
  if (!OffsetOf(headers, address, &offset) || !reader.Has(offset, size)) return false;
  strings->resize(size);
  return reader.Read(offset, strings->data(), size);
}

}  // namespace

int ElfFile::GreatestNumberAfter(absl::string_view prefix) const {
  int greatest = 0;
  size_t begin = 0;
  while (begin < strings.size()) {
    const size_t end = std::min(strings.find('\0', begin), strings.size());
    const absl::string_view word = absl::string_view(strings).substr(begin, end - begin);
    int number = 0;
    if (word.substr(0, prefix.size()) == prefix &&
        absl::SimpleAtoi(word.substr(prefix.size()), &number)) {
      greatest = std::max(greatest, number);
    }
    begin = end + 1;
  }
  return greatest;
}

absl::StatusOr<ElfFile> ReadElf(const std::string& path) {
  const control::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const absl::Status damaged =
      absl::InvalidArgumentError(absl::StrCat(path, " is a damaged ELF file"));
  const Reader reader(fd.get());
  Elf64_Ehdr head = {};
  if (!reader.Read(0, &head, EI_NIDENT) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no ELF file"));
  }
  ElfFile file;
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB) return file;
  if (!reader.Read(0, &head, sizeof(head))) return damaged;
  file.is_native = head.e_machine == kMachine;
  if (head.e_phnum > kMaxHeaders || head.e_phentsize != sizeof(Elf64_Phdr)) return damaged;
  std::vector<Elf64_Phdr> headers(head.e_phnum);
  if (!reader.Read(head.e_phoff, headers.data(), headers.size() * sizeof(Elf64_Phdr))) {
    return damaged;
  }
  for (const Elf64_Phdr& header : headers) {
    const bool fine =
        header.p_type == PT_INTERP    ? ReadInterpreter(reader, header, &file.interpreter)
        : header.p_type == PT_DYNAMIC ? ReadStrings(reader, headers, header, &file.strings)
                                      : true;
    if (!fine) return damaged;
  }
  return file;
}

bool FileContains(const std::string& path, absl::string_view text) {
  constexpr size_t kBlock = size_t{1} << 20;
  constexpr uint64_t kLimit = uint64_t{1} << 30;
  const control::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return false;
  std::vector<char> block(kBlock + text.size());
  size_t kept = 0;  // the end of the block before, which the text may begin in
  for (uint64_t offset = 0; offset < kLimit;) {
    const ssize_t length =
        ::pread(fd.get(), block.data() + kept, kBlock, static_cast<off_t>(offset));
    if (length <= 0) return false;
    const size_t filled = kept + static_cast<size_t>(length);
    if (::memmem(block.data(), filled, text.data(), text.size()) != nullptr) return true;
    kept = std::min(filled, text.size() - 1);
    std::memmove(block.data(), block.data() + filled - kept, kept);
    offset += static_cast<uint64_t>(length);
  }
  return false;
}

}  // namespace roci::tools
