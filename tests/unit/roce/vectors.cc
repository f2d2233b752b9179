#include "tests/unit/roce/vectors.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "tests/source_paths.h"

namespace roci::roce {
namespace {

[[noreturn]] void Die(const std::string& path, const char* what) {
  std::cerr << path << ": " << what << std::endl;
  std::exit(1);
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) Die(path, "cannot open");
  return {std::istreambuf_iterator<char>(in), {}};
}

uint32_t Le32(const std::string& data, size_t at) {
  uint32_t v;
  std::memcpy(&v, data.data() + at, sizeof(v));
  return v;
}

Frame ToFrame(const char* data, size_t length) {
  const auto* p = reinterpret_cast<const std::byte*>(data);
  return Frame(p, p + length);
}

}  // namespace

std::vector<NamedFrame> ReadPcap(const std::string& path) {
  const std::string data = ReadFile(path);
  if (data.size() < 24 || Le32(data, 0) != 0xA1B2C3D4 || Le32(data, 20) != 1) {
    Die(path, "not a little-endian Ethernet pcap");
  }
  std::vector<NamedFrame> frames;
  for (size_t at = 24; at < data.size();) {
    if (data.size() - at < 16 || data.size() - at - 16 < Le32(data, at + 8)) Die(path, "cut off");
    const uint32_t length = Le32(data, at + 8);
    frames.push_back(
        {std::filesystem::path(path).filename().string() + ":" + std::to_string(frames.size()),
         ToFrame(data.data() + at + 16, length)});
    at += 16 + length;
  }
  return frames;
}

std::vector<KnownAnswer> ReadKnownAnswers() {
  const std::string path = VectorDir() + "/known-answers.txt";
  std::istringstream in(ReadFile(path));
  std::vector<KnownAnswer> answers;
  std::string title, detail, hex;
  while (std::getline(in, title) && std::getline(in, detail) && std::getline(in, hex)) {
    KnownAnswer answer;
    answer.title = title.substr(2);
    answer.kind = detail.substr(2, detail.find(' ', 2) - 2);
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
      answer.bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
    }
    answers.push_back(std::move(answer));
  }
  if (answers.empty()) Die(path, "no frames");
  return answers;
}

const std::vector<NamedFrame>& AllCapturedFrames() {
  static const std::vector<NamedFrame> all = [] {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(VectorDir())) {
      if (entry.path().extension() == ".pcap") paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    std::vector<NamedFrame> frames;
    for (const std::string& path : paths) {
      std::vector<NamedFrame> more = ReadPcap(path);
      std::move(more.begin(), more.end(), std::back_inserter(frames));
    }
    return frames;
  }();
  return all;
}

bool LooksLikeRoceV2OverIpv4(const Frame& f) {
  return f.size() >= 58 && f[12] == std::byte{0x08} && f[13] == std::byte{0x00} &&
         f[23] == std::byte{17} && f[36] == std::byte{0x12} && f[37] == std::byte{0xB7};
}

}  // namespace roci::roce
