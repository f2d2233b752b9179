// The answer to a request of a session, and what helper threads find out for the request.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "control/device/users.h"
#include "control/loop/unique_fd.h"
#include "memory/app_memory.h"
#include "memory/mapped_file.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

// The answer to one request while it is made.
struct Reply {
  static constexpr size_t kMaxBytes = 512;
  static constexpr size_t kMaxFds = 4;

  // Hand() does not allocate.
  Reply() {
    fds.reserve(kMaxFds);
    owned.reserve(kMaxFds);
  }

  alignas(8) std::array<std::byte, kMaxBytes> bytes{};
  std::vector<int> fds;         // sent, in this order; stay open
  std::vector<UniqueFd> owned;  // closed once sent
  bool deferred = false;        // Session::FinishDeferred will send it
  uint32_t wait = 0;            // roci_abi_response::wait

  template <class T>
  T& As() {
    static_assert(sizeof(T) <= kMaxBytes);
    return *reinterpret_cast<T*>(bytes.data());
  }
  // Passes `fd` on and closes it here.
  void Hand(UniqueFd fd) {
    fds.push_back(fd.get());
    owned.push_back(std::move(fd));
  }
};

// A DMA buffer that is mapped, and what is charged for it.
struct MappedDmaBuffer {
  std::shared_ptr<User> user;  // destroyed behind its shares
  AppShare mappings;
  QuotaShare descriptor;
  std::shared_ptr<memory::MappedFile> mapping;  // null: not mapped because of `error`
  int error = ENOMEM;
};

// Results of a request's lookups in the program's process. A helper thread makes the lookups before
// the request is handled, since the process may block calls on it.
struct Findings {
  std::unique_ptr<memory::AppMemory> app;  // HELLO, ATTACH: of the program that connected
  int app_error = ENOMEM;                  // if that is null
  uint32_t context = 0;                    // ATTACH: number of the session that has it; 0: none
  bool may_use_raw_packets = false;        // unless KnownRawPackets() says more
  // REG_MR, REREG_MR: the files behind extents of map_files.
  std::array<UniqueFd, ROCI_ABI_MAX_EXTENTS> mapped;
  std::array<int, ROCI_ABI_MAX_EXTENTS> mapped_errors{};  // errno of those that cannot be opened
  std::unique_ptr<MappedDmaBuffer> dma_buffer;            // REG_DMA_BUFFER_MR; null: quota reached
};

}  // namespace roci::control
