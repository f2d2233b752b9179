// Runs a fuzzer's entry point on every given file or file of a given folder, and on truncations and
// single-byte changes of each: a replacement for libFuzzer.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<uint8_t> ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// At most this many variants of each kind per file.
constexpr size_t kMaxVariants = 512;

size_t Replay(std::vector<uint8_t> input) {
  size_t runs = 1;
  LLVMFuzzerTestOneInput(input.data(), input.size());
  const size_t step = input.size() / kMaxVariants + 1;
  for (size_t i = 0; i < input.size(); i += step, runs += 3) {
    // A copy of exact size, so that a sanitizer sees reads past the end.
    const std::vector<uint8_t> cut(input.begin(), input.begin() + static_cast<ptrdiff_t>(i));
    LLVMFuzzerTestOneInput(cut.data(), cut.size());
    const uint8_t original = input[i];
    for (const uint8_t changed :
         {static_cast<uint8_t>(~original), static_cast<uint8_t>(original + 1)}) {
      input[i] = changed;
      LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    input[i] = original;
  }
  return runs;
}

}  // namespace

int main(int argc, char** argv) {
  size_t files = 0;
  size_t runs = 0;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> paths;
    if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
        if (entry.is_regular_file()) paths.push_back(entry.path());
      }
      std::sort(paths.begin(), paths.end());
    } else {
      paths.emplace_back(argv[i]);
    }
    files += paths.size();
    for (const auto& path : paths) runs += Replay(ReadFile(path));
  }
  std::printf("%zu files, %zu runs\n", files, runs);
  return files == 0 ? 1 : 0;
}
