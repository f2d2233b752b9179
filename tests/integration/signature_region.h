// Signature regions for tests: their parts, and an independent computation of the expected bytes in
// memory and on the wire.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/integration/verbs_endpoint.h"
#include "verbs_provider/include/infiniband/rocidv.h"

namespace roci::testing {

inline constexpr unsigned kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
inline constexpr uint32_t kChecks =
    ROCIDV_SIG_CHECK_GUARD | ROCIDV_SIG_CHECK_APP_TAG | ROCIDV_SIG_CHECK_REF_TAG;
inline constexpr size_t kBuffer = 64 * 1024;

using Bytes = std::vector<uint8_t>;

inline uint16_t Crc(const uint8_t* data, size_t bytes, uint16_t seed) {
  uint32_t crc = seed;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= uint32_t{data[i]} << 8;
    for (int bit = 0; bit < 8; ++bit) crc = ((crc & 0x8000) != 0 ? crc << 1 ^ 0x8BB7 : crc << 1);
    crc &= 0xFFFF;
  }
  return static_cast<uint16_t>(crc);
}

inline uint16_t Checksum(const uint8_t* data, size_t bytes, uint16_t seed) {
  uint32_t sum = seed;
  for (size_t i = 0; i < bytes; i += 2) sum += uint32_t{data[i]} << 8 | data[i + 1];
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

inline rocidv_sig_domain T10(uint8_t guard = ROCIDV_SIG_CRC) {
  rocidv_sig_domain domain = {};
  domain.type = ROCIDV_SIG_T10_DIF;
  domain.guard = guard;
  domain.app_tag = 0xA5C3;
  domain.app_tag_check_mask = 0xFFFF;
  domain.ref_tag = 0x01020304;
  domain.flags = ROCIDV_SIG_REF_REMAP;
  return domain;
}

// The eight bytes of block `number`.
inline Bytes Protection(const rocidv_sig_domain& domain, const uint8_t* data, uint32_t block_size,
                        uint32_t number) {
  const uint16_t guard = domain.guard == ROCIDV_SIG_CRC ? Crc(data, block_size, domain.seed)
                                                        : Checksum(data, block_size, domain.seed);
  const uint32_t tag = domain.ref_tag + ((domain.flags & ROCIDV_SIG_REF_REMAP) != 0 ? number : 0);
  return {static_cast<uint8_t>(guard >> 8),
          static_cast<uint8_t>(guard),
          static_cast<uint8_t>(domain.app_tag >> 8),
          static_cast<uint8_t>(domain.app_tag),
          static_cast<uint8_t>(tag >> 24),
          static_cast<uint8_t>(tag >> 16),
          static_cast<uint8_t>(tag >> 8),
          static_cast<uint8_t>(tag)};
}

// Data with protection information behind each block.
inline Bytes Image(const rocidv_sig_domain& domain, const Bytes& data, uint32_t block_size) {
  if (domain.type == ROCIDV_SIG_NONE) return data;
  Bytes out;
  for (size_t at = 0, i = 0; at < data.size(); at += block_size, ++i) {
    out.insert(out.end(), data.begin() + at, data.begin() + at + block_size);
    const Bytes one = Protection(domain, &data[at], block_size, static_cast<uint32_t>(i));
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

inline Bytes PatternBytes(uint32_t seed, size_t bytes) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = PatternByte(seed, i);
  return data;
}

inline constexpr rocidv_sig_domain kNone = {};

// A region and its memory, at one end of the pair.
class SignatureRegion {
 public:
  SignatureRegion(Endpoint& end, OpenDevice& device, const rocidv_sig_attr& attr, uint32_t blocks,
                  bool is_separate, unsigned access = kAll)
      : end_(end), attr_(attr), blocks_(blocks) {
    const bool has_memory = attr.memory.type != ROCIDV_SIG_NONE;
    is_separate_ = has_memory && is_separate;
    const size_t stride = attr.block_size + (has_memory && !is_separate ? 8 : 0);
    bytes_ = stride * blocks;
    buffer_ = std::make_unique<Buffer>(device, kBuffer, 7, IBV_ACCESS_LOCAL_WRITE);
    protection_.resize(size_t{blocks} * 8);
    // Less than a page: the daemon reaches it by system calls.
    protection_mr_ =
        ibv_reg_mr(device.pd, protection_.data(), protection_.size(), IBV_ACCESS_LOCAL_WRITE);
    EXPECT_NE(protection_mr_, nullptr);
    mr = rocidv_alloc_mr_integrity(device.pd, 3, is_separate_ ? 2 : 0);
    EXPECT_NE(mr, nullptr) << strerror(errno);
    Register(access);
  }
  ~SignatureRegion() {
    EXPECT_EQ(rocidv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dereg_mr(protection_mr_), 0);
  }
  SignatureRegion(const SignatureRegion&) = delete;
  SignatureRegion& operator=(const SignatureRegion&) = delete;

  void Register(unsigned access = kAll) {
    // Runs that end within blocks and within protection information.
    const ibv_sge data[] = {buffer_->Sge(0, 301), buffer_->Sge(301, 100),
                            buffer_->Sge(401, bytes_ - 401)};
    const uint64_t at = reinterpret_cast<uintptr_t>(protection_.data());
    const ibv_sge protection[] = {
        {at, 3, protection_mr_->lkey},
        {at + 3, static_cast<uint32_t>(protection_.size() - 3), protection_mr_->lkey}};
    ASSERT_EQ(rocidv_map_mr_sg_integrity(mr, data, 3, protection, is_separate_ ? 2 : 0, &attr_, 0),
              0);
    ASSERT_EQ(rocidv_post_reg_mr(end_.qp, mr, access, 77, IBV_SEND_SIGNALED), 0);
    const ibv_wc wc = end_.Wait();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(wc.opcode, IBV_WC_DRIVER1);
  }
  void Fill(const Bytes& data) {
    Bytes image = is_separate_ ? data : Image(attr_.memory, data, attr_.block_size);
    ASSERT_EQ(image.size(), bytes_);
    memcpy(buffer_->data(), image.data(), image.size());
    for (uint32_t i = 0; i < blocks_ && is_separate_; ++i) {
      const Bytes one =
          Protection(attr_.memory, &data[size_t{i} * attr_.block_size], attr_.block_size, i);
      memcpy(&protection_[size_t{i} * 8], one.data(), 8);
    }
  }
  // A byte of the protection information in memory.
  uint8_t& Stored(uint32_t block, uint32_t byte) {
    return is_separate_
               ? protection_[size_t{block} * 8 + byte]
               : buffer_->data()[size_t{block} * (attr_.block_size + 8) + attr_.block_size + byte];
  }
  void Expect(const Bytes& data) {
    const Bytes image = is_separate_ ? data : Image(attr_.memory, data, attr_.block_size);
    EXPECT_EQ(Bytes(buffer_->data(), buffer_->data() + bytes_), image);
    for (uint32_t i = 0; i < blocks_ && is_separate_; ++i) {
      EXPECT_EQ(Bytes(&protection_[size_t{i} * 8], &protection_[size_t{i} * 8] + 8),
                Protection(attr_.memory, &data[size_t{i} * attr_.block_size], attr_.block_size, i))
          << i;
    }
    EXPECT_EQ(buffer_->data()[bytes_], PatternByte(7, bytes_));
  }
  rocidv_sig_error TakeError() {
    rocidv_sig_error error = {};
    EXPECT_EQ(rocidv_check_mr_status(mr, &error), 0);
    return error;
  }
  void ExpectNoError() { EXPECT_EQ(TakeError().type, unsigned{ROCIDV_SIG_OK}); }
  void ExpectError(uint32_t type, uint32_t difference, uint64_t offset) {
    const rocidv_sig_error error = TakeError();
    EXPECT_EQ(error.type, type);
    EXPECT_EQ(error.expected ^ error.actual, difference);
    EXPECT_EQ(error.offset, offset);
    EXPECT_EQ(error.key, mr->rkey);
    ExpectNoError();
  }
  ibv_sge Sge() const { return {0, static_cast<uint32_t>(mr->length), mr->lkey}; }

  rocidv_mr* mr = nullptr;

 private:
  Endpoint& end_;
  rocidv_sig_attr attr_;
  uint32_t blocks_;
  bool is_separate_;
  size_t bytes_;
  std::unique_ptr<Buffer> buffer_;
  Bytes protection_;
  ibv_mr* protection_mr_ = nullptr;
};

}  // namespace roci::testing
