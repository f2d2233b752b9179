// Functions of fake_verbs.cc.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

extern "C" {
ssize_t fake_read(int fd, void* data, size_t size);
ssize_t fake_write(int fd, const void* data, size_t size);
int fake_ioctl(int fd, unsigned long request, void* argument);
int fake_close(int fd);
int fake_open(const char* path, int flags);
int fake_stat(const char* path, struct stat* st);
int fake_fstat(int fd, struct stat* st);
}
