// Reads files that may be compressed with gzip, as Wireshark writes them, as if they were not.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace roci::tools {

// Not thread-safe. What does not begin like gzip is handed on as it comes.
class Gunzip {
 public:
  // As CaptureReader::Read.
  using Source = std::function<size_t(std::byte* p, size_t n)>;
  explicit Gunzip(Source source);
  ~Gunzip();
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  size_t Read(std::byte* p, size_t n);
  // Why the input ended where it did; empty if that was its end.
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
  size_t head_bytes_ = 0;  // of input_: read to look at, to be handed on first
  size_t head_at_ = 0;
  std::array<std::byte, 4096> input_;
  std::unique_ptr<Inflater> inflater_;  // null: not compressed
};

}  // namespace roci::tools
