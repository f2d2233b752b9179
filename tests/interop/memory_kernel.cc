// Operations on registered memory by the kernel: page faults that a thread of the program serves
// (userfaultfd), fixed buffers of io_uring, direct I/O.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "tests/interop/memory_row.h"
#include "tests/interop/memory_uring.h"

namespace interop {
namespace {

// Serves missing pages of a subject's part until the process ends.
void ServeFaults(int fd, uintptr_t start, size_t part) {
  alignas(kPage) static std::array<uint8_t, kPage> page;
  for (;;) {
    uffd_msg message = {};
    if (read(fd, &message, sizeof(message)) != sizeof(message)) return;
    if (message.event != UFFD_EVENT_PAGEFAULT) continue;
    const uintptr_t place = message.arg.pagefault.address & ~(kPage - 1);
    Fill(Pattern::kBrought, page.data(), part + (place - start), kPage);
    uffdio_copy copy = {};
    copy.dst = place;
    copy.src = reinterpret_cast<uintptr_t>(page.data());
    copy.len = kPage;
    ioctl(fd, UFFDIO_COPY, &copy);
  }
}

int OpenUserfaultfd(Subject& subject) {
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  uffdio_api api = {};
  api.api = UFFD_API;
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) {
    subject.skipped = "no userfaultfd";
    return -1;
  }
  return fd;
}

int ServeMissingPages(Subject& subject) {
  const int fd = OpenUserfaultfd(subject);
  if (fd < 0) return 0;
  uffdio_register range = {};
  range.range = {reinterpret_cast<uintptr_t>(subject.at), subject.region.part_length};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (ioctl(fd, UFFDIO_REGISTER, &range) != 0) return errno;
  const std::string& kind = subject.region.kind;
  const bool shared = kind == "memfd" || kind == "SysV" || kind == "shared anonymous";
  if (madvise(subject.at, subject.region.part_length, shared ? MADV_REMOVE : MADV_DONTNEED) != 0) {
    return errno;
  }
  std::thread(ServeFaults, fd, range.range.start, subject.region.part).detach();
  return 0;
}

// ServeFaults() cannot serve the huge pages of hugetlb.
bool HasSmallPages(const std::string& kind) { return kind != "hugetlb"; }

// Opens an unlinked file, with `flags`, that contains the bytes for the part. -1 on failure.
int MakeSource(const Subject& subject, int flags) {
  std::string name = subject.settings.folder + "/source.XXXXXX";
  const int writer = mkstemp(name.data());
  if (writer < 0) return -1;
  std::vector<uint8_t> bytes(subject.check_length);
  Fill(Pattern::kBrought, bytes.data(), subject.region.part, bytes.size());
  const bool written = write(writer, bytes.data(), bytes.size()) >= 0;
  close(writer);
  const int reader = written ? open(name.c_str(), O_RDONLY | O_CLOEXEC | flags) : -1;
  unlink(name.c_str());
  return reader;
}

// Excludes files: which pages of files io_uring accepts depends on the kernel version.
bool IsNoFile(const std::string& kind) {
  return kind != "shared file" && kind != "private file" && kind != ".data" && kind != "SysV";
}

// A buffer that is registered with io_uring before it is registered with the device.
class FixedBuffer : public Operation {
 public:
  void Prepare(Subject& subject) override {
    if (!ring_.Open()) {
      subject.skipped = "no io_uring";
      return;
    }
    refusal_ = ring_.RegisterBuffer(subject.at, subject.check_length);
  }
  int Act(Subject& subject) override {
    if (refusal_ != 0) return refusal_;
    const int fd = MakeSource(subject, 0);
    const int error = ring_.ReadFixed(fd, subject.at, subject.check_length, 0);
    close(fd);
    return error;
  }

 private:
  Uring ring_;
  int refusal_ = 0;
};

int ReadDirectly(Subject& subject) {
  const int fd = MakeSource(subject, O_DIRECT);
  if (fd < 0) return errno;
  const ssize_t got = pread(fd, subject.at, subject.check_length, 0);
  const int error = got == static_cast<ssize_t>(subject.check_length) ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

std::unique_ptr<Operation> MakeFixedBuffer() { return std::make_unique<FixedBuffer>(); }

void AddKernel(std::vector<NamedOperation>& operations) {
  operations.push_back({"userfaultfd", Once(ServeMissingPages), HasSmallPages});
  operations.push_back({"userfaultfd, device first", Once(ServeMissingPages), HasSmallPages, true});
  operations.push_back({"io_uring fixed buffer", MakeFixedBuffer(), IsNoFile});
  operations.push_back({"O_DIRECT read", Once(ReadDirectly)});
}

}  // namespace interop
