#include "tools/decode/gunzip.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

namespace roci::tools {
namespace {

constexpr size_t kMagicBytes = 2;
constexpr std::byte kMagic[kMagicBytes] = {std::byte{0x1F}, std::byte{0x8B}};  // RFC 1952, 2.3.1

}  // namespace

struct Gunzip::Inflater {
  z_stream stream{};
  bool has_ended = false;
  ~Inflater() { inflateEnd(&stream); }
};

Gunzip::Gunzip(Source source) : source_(std::move(source)) {}
Gunzip::~Gunzip() = default;

void Gunzip::Open() {
  is_open_ = true;
  head_bytes_ = source_(input_.data(), kMagicBytes);
  if (head_bytes_ < kMagicBytes || !std::equal(kMagic, kMagic + kMagicBytes, input_.begin())) {
    return;
  }
  inflater_ = std::make_unique<Inflater>();
  constexpr int kGzipOnly = 16;
  if (inflateInit2(&inflater_->stream, kGzipOnly + MAX_WBITS) != Z_OK) {
    error_ = "no memory to read gzip";
    return;
  }
  inflater_->stream.next_in = reinterpret_cast<Bytef*>(input_.data());
  inflater_->stream.avail_in = kMagicBytes;
}

size_t Gunzip::Read(std::byte* p, size_t n) {
  if (!is_open_) Open();
  if (inflater_) return error_.empty() ? Inflate(p, n) : 0;
  const size_t head = std::min(n, head_bytes_ - head_at_);
  std::copy_n(input_.begin() + static_cast<ptrdiff_t>(head_at_), head, p);
  head_at_ += head;
  return head == n ? n : head + source_(p + head, n - head);
}

bool Gunzip::FillInput() {
  z_stream& stream = inflater_->stream;
  if (stream.avail_in != 0) return true;
  stream.next_in = reinterpret_cast<Bytef*>(input_.data());
  stream.avail_in = static_cast<uInt>(source_(input_.data(), input_.size()));
  return stream.avail_in != 0;
}

// Streams may follow each other (RFC 1952, 2.2); other bytes after a stream are ignored.
bool Gunzip::BeginNextStream() {
  if (!FillInput()) return false;
  z_stream& stream = inflater_->stream;
  if (*stream.next_in != std::to_integer<Bytef>(kMagic[0])) return false;
  inflater_->has_ended = false;
  return inflateReset(&stream) == Z_OK;
}

size_t Gunzip::Inflate(std::byte* p, size_t n) {
  z_stream& stream = inflater_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(p);
  stream.avail_out = static_cast<uInt>(n);
  while (stream.avail_out != 0) {
    if (inflater_->has_ended && !BeginNextStream()) break;
    if (!FillInput()) {
      error_ = "the gzip file ends too early";
      break;
    }
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END) {
      error_ = "the gzip file is damaged";
      break;
    }
    inflater_->has_ended = result == Z_STREAM_END;
  }
  return n - stream.avail_out;
}

}  // namespace roci::tools
