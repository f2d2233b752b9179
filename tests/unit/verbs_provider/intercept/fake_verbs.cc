// A library that calls the system as libibverbs does, for interception to be tried on. Built twice:
// bound eagerly with read-only tables, and lazily.
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

// A reference through the data part of the table.
using Closer = int (*)(int);
Closer fake_close_pointer() { return &close; }
}
