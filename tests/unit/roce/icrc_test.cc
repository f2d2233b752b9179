// Every CRC kernel that this processor can run, compared with the CRC bit by bit and with a
// straightforward ICRC.
#include "roce/icrc.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/roce/rng.h"
#include "tests/unit/roce/vectors.h"

namespace roci::roce {
namespace {

// The CRC by its definition, one bit at a time.
CrcState BitwiseUpdate(CrcState state, const std::byte* data, size_t length) {
  for (size_t i = 0; i < length; ++i) {
    state ^= std::to_integer<uint32_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return state;
}

// The ICRC as the specification defines it, computed over a copy with ones in the masked fields.
CrcState ReferenceMasked(const std::byte* network, size_t length, bool is_ipv6) {
  std::vector<std::byte> copy(8 + length, std::byte{0xFF});
  std::copy_n(network, length, copy.begin() + 8);
  const auto mask = [&copy](size_t at, unsigned bits = 0xFF) {
    copy[8 + at] |= static_cast<std::byte>(bits);
  };
  size_t udp = 20;
  if (is_ipv6) {
    udp = 40;
    mask(0, 0x0F);
    for (const size_t at : {1, 2, 3, 7}) mask(at);
  } else {
    for (const size_t at : {1, 8, 10, 11}) mask(at);
  }
  mask(udp + 6);
  mask(udp + 7);
  mask(udp + 8 + 4);
  return BitwiseUpdate(kCrcInit, copy.data(), copy.size());
}

std::vector<std::byte> RandomBytes(size_t n, Rng& random) {
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// A page between two inaccessible pages: an access outside of it crashes the test.
class GuardedPage {
 public:
  static constexpr size_t kBytes = 8192;
  GuardedPage() {
    base_ = static_cast<std::byte*>(
        mmap(nullptr, kBytes + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(begin(), kBytes, PROT_READ | PROT_WRITE) != 0) abort();
  }
  ~GuardedPage() { munmap(base_, kBytes + 2 * kGuard); }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;
  std::byte* begin() { return base_ + kGuard; }
  std::byte* end() { return begin() + kBytes; }

 private:
  static constexpr size_t kGuard = 65536;
  std::byte* base_;
};

class CrcKernelTest : public testing::TestWithParam<const CrcKernel*> {
 protected:
  const CrcKernel& kernel() { return *GetParam(); }
  Rng random_{20240611};
};

TEST_P(CrcKernelTest, UpdateAgreesWithTheDefinition) {
  const std::vector<std::byte> data = RandomBytes(8192, random_);
  for (size_t length = 0; length <= 600; ++length) {
    for (int round = 0; round < 8; ++round) {
      const size_t at = random_() % 128;
      const CrcState start = round == 0 ? kCrcInit : random_();
      ASSERT_EQ(kernel().update(start, data.data() + at, length),
                BitwiseUpdate(start, data.data() + at, length))
          << "length " << length << " alignment " << at % 64;
    }
  }
  for (const size_t length : {1023, 1024, 1500, 4095, 4096, 4097, 8000}) {
    for (const size_t at : {0, 1, 63, 64}) {
      ASSERT_EQ(kernel().update(kCrcInit, data.data() + at, length),
                BitwiseUpdate(kCrcInit, data.data() + at, length))
          << length;
    }
  }
}

TEST_P(CrcKernelTest, CopyUpdateCopiesExactlyAndAgreesWithTheDefinition) {
  const std::vector<std::byte> data = RandomBytes(8192, random_);
  for (size_t i = 0; i < 3000; ++i) {
    const size_t length = i <= 600 ? i : random_() % 4097;
    const size_t from = random_() % 128;
    const size_t to = 64 + random_() % 128;
    const CrcState start = random_();
    std::vector<std::byte> out(to + length + 128, std::byte{0x5A});
    ASSERT_EQ(kernel().copy_update(start, out.data() + to, data.data() + from, length),
              BitwiseUpdate(start, data.data() + from, length))
        << length;
    std::vector<std::byte> expected(out.size(), std::byte{0x5A});
    std::copy_n(data.begin() + static_cast<ptrdiff_t>(from), length,
                expected.begin() + static_cast<ptrdiff_t>(to));
    ASSERT_EQ(out, expected) << length;
  }
}

TEST_P(CrcKernelTest, StateCarriesOverArbitrarySplits) {
  const std::vector<std::byte> data = RandomBytes(4096, random_);
  std::vector<std::byte> out(data.size());
  for (int round = 0; round < 300; ++round) {
    CrcState state = kCrcInit;
    const size_t total = random_() % (data.size() + 1);
    for (size_t at = 0; at < total;) {
      const size_t most = round % 2 == 0 ? 9 : 700;
      const size_t n = std::min<size_t>(total - at, random_() % most);
      state = random_() % 2 == 0
                  ? kernel().update(state, data.data() + at, n)
                  : kernel().copy_update(state, out.data() + at, data.data() + at, n);
      at += n;
    }
    ASSERT_EQ(state, BitwiseUpdate(kCrcInit, data.data(), total)) << round;
  }
}

TEST_P(CrcKernelTest, MaskedAgreesWithTheDefinition) {
  for (const bool is_ipv6 : {false, true}) {
    for (size_t i = 0; i < 2000; ++i) {
      const size_t least = is_ipv6 ? 60 : 40;
      const size_t length = i < 700 ? least + i : least + random_() % 4200;
      const size_t at = 64 + random_() % 64;
      const std::vector<std::byte> data = RandomBytes(at + length, random_);
      ASSERT_EQ(kernel().masked(data.data() + at, length, is_ipv6),
                ReferenceMasked(data.data() + at, length, is_ipv6))
          << "length " << length << (is_ipv6 ? " IPv6" : " IPv4");
    }
  }
}

TEST_P(CrcKernelTest, MaskedCopyAgreesWithTheDefinition) {
  for (const bool is_ipv6 : {false, true}) {
    for (size_t header = is_ipv6 ? 60 : 40; header <= 120; header += 4) {
      for (size_t i = 0; i < 340; ++i) {
        const size_t length = i <= 330 ? i : random_() % 4097;
        const size_t pad = -length & 3;
        const std::vector<std::byte> payload = RandomBytes(length, random_);
        const size_t at = 16 + random_() % 64;
        std::vector<std::byte> frame = RandomBytes(at + header + length + pad + 64, random_);
        std::vector<std::byte> expected = frame;
        std::ranges::copy(payload, expected.begin() + static_cast<ptrdiff_t>(at + header));
        std::fill_n(expected.begin() + static_cast<ptrdiff_t>(at + header + length), pad,
                    std::byte{0});
        const CrcState state =
            kernel().masked_copy(frame.data() + at, header, is_ipv6, payload.data(), length, pad);
        ASSERT_EQ(frame, expected) << "header " << header << " payload " << length;
        ASSERT_EQ(state, ReferenceMasked(expected.data() + at, header + length + pad, is_ipv6))
            << "header " << header << " payload " << length;
      }
    }
  }
}

TEST_P(CrcKernelTest, StaysInsideItsBuffers) {
  GuardedPage source, target;
  for (size_t length = 0; length <= 300; ++length) {
    const size_t pad = -length & 3;
    kernel().update(1, source.begin(), length);
    kernel().update(1, source.end() - length, length);
    kernel().copy_update(1, target.begin(), source.end() - length, length);
    kernel().copy_update(1, target.end() - length, source.begin(), length);
    kernel().masked(source.begin(), 60 + length, true);
    kernel().masked(source.end() - 40 - length, 40 + length, false);
    kernel().masked_copy(target.begin(), 56, false, source.end() - length, length, pad);
    kernel().masked_copy(target.end() - 76 - length - pad, 76, true, source.begin(), length, pad);
  }
}

TEST_P(CrcKernelTest, KnownAnswers) {
  size_t checked = 0;
  for (const KnownAnswer& answer : ReadKnownAnswers()) {
    if (answer.kind == "roce1") continue;  // RoCEv1: another header with other masks
    const std::byte* network = answer.bytes.data() + 14;
    const size_t covered = answer.bytes.size() - 14 - 4;
    const CrcState state = kernel().masked(network, covered, answer.kind == "v6");
    EXPECT_EQ(state, LoadIcrcState(network + covered)) << answer.title;
    std::byte stored[4];
    StoreIcrc(stored, state);
    EXPECT_TRUE(std::equal(stored, stored + 4, network + covered)) << answer.title;
    ++checked;
  }
  EXPECT_GE(checked, 9u);
}

INSTANTIATE_TEST_SUITE_P(Kernels, CrcKernelTest,
                         testing::ValuesIn(AvailableCrcKernels().begin(),
                                           AvailableCrcKernels().end()),
                         [](const auto& param) {
                           std::string name = param.param->name;
                           std::erase_if(name, [](char c) { return c == '-'; });
                           return name;
                         });

#if defined(__x86_64__)
// Linux lists the features that the processor has and whose registers it keeps.
std::set<std::string> FeaturesByLinux() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line) && !line.starts_with("flags")) {
  }
  std::istringstream words(line);
  std::set<std::string> features;
  for (std::string word; words >> word;) features.insert(word);
  return features;
}

TEST(CrcKernels, AreThoseThatTheProcessorRuns) {
  const std::set<std::string> features = FeaturesByLinux();
  if (features.empty()) GTEST_SKIP() << "/proc/cpuinfo does not list features";
  const auto has = [&features](std::initializer_list<const char*> wanted) {
    return std::ranges::all_of(wanted, [&](const char* name) { return features.contains(name); });
  };
  std::vector<std::string> expected = {"slicing-by-16"};
  if (has({"pclmulqdq", "sse4_1"})) expected.emplace_back("pclmulqdq");
  if (has({"vpclmulqdq", "avx2", "pclmulqdq"})) expected.emplace_back("avx2-vpclmulqdq");
  if (has({"vpclmulqdq", "pclmulqdq", "bmi2", "avx512f", "avx512bw", "avx512vl", "avx512dq",
           "avx512vbmi"})) {
    expected.emplace_back("avx512-vpclmulqdq");
  }
  std::vector<std::string> available;
  for (const CrcKernel* kernel : AvailableCrcKernels()) available.emplace_back(kernel->name);
  EXPECT_EQ(available, expected);
}
#endif

TEST(CrcKernels, TheBestOneIsActive) {
  ASSERT_FALSE(AvailableCrcKernels().empty());
  EXPECT_EQ(&ActiveCrcKernel(), AvailableCrcKernels().back());
}

}  // namespace
}  // namespace roci::roce
