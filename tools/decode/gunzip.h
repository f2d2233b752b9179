// Reads files that may be compressed with gzip (Wireshark writes such captures).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace roci::tools {

// Not thread-safe. Input without a gzip header is passed through.
class Gunzip {
 public:
  // As CaptureReader::Read.
  using Source = std::function<size_t(std::byte* p, size_t n)>;
  explicit Gunzip(Source source);
  ~Gunzip();
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  size_t Read(std::byte* p, size_t n);
  // Reason of an early end of the input; empty: none.
  const std::string& error() const { return error_; }

 private:
  struct Inflater;

  void Open();
  size_t Inflate(std::byte* p, size_t n);
  // Gets more to inflate; false at the input's end.
  bool FillInput();
  // Whether another compressed stream follows the one that has ended.
  bool BeginNextStream();

  Source source_;
  std::string error_;
  bool is_open_ = false;
  size_t head_bytes_ = 0;  // bytes of input_ read to detect gzip, to be returned first
  size_t head_at_ = 0;
  std::array<std::byte, 4096> input_;
  std::unique_ptr<Inflater> inflater_;  // null: not compressed
};

}  // namespace roci::tools
