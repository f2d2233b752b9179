// A library that makes system calls as libibverbs and librdmacm do, for the tests of interception.
// Built with eager binding and read-only tables, and with lazy binding.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" {

ssize_t fake_read(int fd, void* data, size_t size) { return read(fd, data, size); }
ssize_t fake_write(int fd, const void* data, size_t size) { return write(fd, data, size); }
int fake_ioctl(int fd, unsigned long request, void* argument) {
  return ioctl(fd, request, argument);
}
int fake_close(int fd) { return close(fd); }
int fake_open(const char* path, int flags) { return open(path, flags); }
int fake_stat(const char* path, struct stat* st) { return stat(path, st); }
int fake_fstat(int fd, struct stat* st) { return fstat(fd, st); }

// A reference by a GLOB_DAT relocation.
using Closer = int (*)(int);
Closer fake_close_pointer() { return &close; }
}
