#include "tests/integration/dma_buffer.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace roci::testing {
namespace {

// From <drm/drm.h> and <drm/drm_mode.h> (kernel ABI), which some machines lack.
struct DrmVersion {
  int major, minor, patch;
  size_t name_length;
  char* name;
  size_t date_length;
  char* date;
  size_t description_length;
  char* description;
};
struct DrmCreateDumb {
  uint32_t height, width, bits_per_pixel, flags;
  uint32_t handle, pitch;
  uint64_t size;
};
struct DrmPrimeHandle {
  uint32_t handle, flags;
  int32_t fd;
};
constexpr unsigned long kDrmVersion = _IOWR('d', 0x00, DrmVersion);
constexpr unsigned long kDrmPrimeHandleToFd = _IOWR('d', 0x2D, DrmPrimeHandle);
constexpr unsigned long kDrmCreateDumb = _IOWR('d', 0xB2, DrmCreateDumb);

int FromUdmabuf(size_t bytes) {
  const int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
  if (device < 0) return -1;
  const int memory = memfd_create("dma-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  int fd = -1;
  if (ftruncate(memory, static_cast<off_t>(bytes)) == 0 &&
      fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0) {
    udmabuf_create create = {};
    create.memfd = static_cast<uint32_t>(memory);
    create.flags = UDMABUF_FLAGS_CLOEXEC;
    create.size = bytes;
    fd = ioctl(device, UDMABUF_CREATE, &create);
  }
  close(memory);
  close(device);
  return fd;
}

// The driver without hardware; buffers of other drivers may be inaccessible to processors.
int OpenVgem() {
  for (int i = 0; i < 8; ++i) {
    char path[32];
    snprintf(path, sizeof(path), "/dev/dri/card%d", i);
    const int device = open(path, O_RDWR | O_CLOEXEC);
    if (device < 0) continue;
    char name[16] = {};
    DrmVersion version = {};
    version.name = name;
    version.name_length = sizeof(name) - 1;
    if (ioctl(device, kDrmVersion, &version) == 0 && strcmp(name, "vgem") == 0) return device;
    close(device);
  }
  return -1;
}

int FromGraphics(int device, size_t bytes) {
  DrmCreateDumb create = {};
  create.width = 1024;
  create.bits_per_pixel = 32;
  create.height = static_cast<uint32_t>((bytes + 4095) / 4096);
  if (ioctl(device, kDrmCreateDumb, &create) != 0) return -1;
  DrmPrimeHandle handle = {};
  handle.handle = create.handle;
  handle.flags = O_CLOEXEC | O_RDWR;
  return ioctl(device, kDrmPrimeHandleToFd, &handle) == 0 ? handle.fd : -1;
}

}  // namespace

DmaBuffer::DmaBuffer(size_t bytes) : size(bytes) {
  fd = FromUdmabuf(bytes);
  if (fd < 0) {
    device_ = OpenVgem();
    if (device_ >= 0) fd = FromGraphics(device_, bytes);
  }
  if (fd < 0) return;
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) data = static_cast<uint8_t*>(at);
}

DmaBuffer::~DmaBuffer() {
  if (data != nullptr) munmap(data, size);
  if (fd >= 0) close(fd);
  if (device_ >= 0) close(device_);
}

}  // namespace roci::testing
