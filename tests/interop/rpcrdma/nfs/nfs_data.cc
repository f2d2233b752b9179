// Procedures on the data of files: READ, WRITE, COMMIT.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "tests/interop/rpcrdma/nfs/attributes.h"
#include "tests/interop/rpcrdma/nfs/nfs_conversions.h"
#include "tests/interop/rpcrdma/nfs/nfs_procedures.h"

namespace rpcrdma {
namespace {

// XDR bytes of a ReadHead with attributes.
constexpr size_t kReadHeadBytes = 4 + 84 + 3 * 4;
constexpr uint64_t kMaxOffset = std::numeric_limits<int64_t>::max();

// Reads until `count` bytes or the end of the file. Returns the number of bytes, or -1 (errno).
ssize_t ReadAll(int file, std::byte* to, size_t count, uint64_t offset) {
  size_t done = 0;
  while (done < count) {
    const ssize_t got = pread(file, to + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

Status WriteAll(int file, std::span<const std::byte> data, uint64_t offset, int flags) {
  while (!data.empty()) {
    const iovec part{const_cast<std::byte*>(data.data()), data.size()};
    const ssize_t put = pwritev2(file, &part, 1, static_cast<off_t>(offset), flags);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return StatusOf(errno);
    data = data.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return Status::kOk;
}

Status WriteBytes(const Node& node, const WriteHead& head, std::span<const std::byte> data) {
  if (head.stable > NFS3_FILE_SYNC || head.count != head.length) return Status::kInvalid;
  if (head.offset > kMaxOffset - head.length) return Status::kTooBig;
  Descriptor file;
  const Status status = OpenData(node, O_WRONLY, &file);
  if (status != Status::kOk) return status;
  constexpr int kFlags[] = {0, RWF_DSYNC, RWF_SYNC};
  return WriteAll(file.get(), data, head.offset, kFlags[head.stable]);
}

}  // namespace

// Reads the data into the reply, behind `place`, where the result's head comes. The reply ends
// behind the data's padding.
Status NfsProcedures::ReadBytes(const ReadArguments& arguments, const Node& node, size_t place,
                                Reply* out) {
  Descriptor file;
  if (const Status status = OpenData(node, O_RDONLY, &file); status != Status::kOk) return status;
  const uint64_t size = node.attributes.stx_size;
  const uint64_t left = size > arguments.offset ? size - arguments.offset : 0;
  const auto count = static_cast<size_t>(std::min<uint64_t>({arguments.count, kMaxIoBytes, left}));
  std::byte* data = out->Extend(kReadHeadBytes + Padded(count)) + kReadHeadBytes;
  const ssize_t got = ReadAll(file.get(), data, count, arguments.offset);
  const PostAttributes attributes = Post(node);
  if (got < 0 || !attributes.follow) return got < 0 ? StatusOf(errno) : Status::kIo;
  const auto length = static_cast<uint32_t>(got);
  std::memset(data + length, 0, Padded(count) - length);
  out->Truncate(place + kReadHeadBytes + Padded(length));
  const bool end = arguments.offset + length >= attributes.PostAttributes_u.attributes.size;
  out->PutAt(place, xdr_ReadHead, ReadHead{attributes, length, end, length});
  out->SetBulk(place + kReadHeadBytes, length);
  return Status::kOk;
}

bool NfsProcedures::Read(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_ReadArguments);
  if (!arguments) return false;
  Node node;
  const size_t begin = out->size();
  Status status = folder_->Open(BytesOf(arguments->file), &node);
  out->PutStatus(Status::kOk);
  if (status == Status::kOk) status = ReadBytes(*arguments, node, out->size(), out);
  if (status != Status::kOk) {
    out->Truncate(begin);
    out->PutStatus(status);
    out->Put(xdr_PostAttributes, Post(node));
  }
  return true;
}

bool NfsProcedures::Write(Arguments* in, Reply* out) {
  const auto head = in->Take(xdr_WriteHead);
  if (!head || head->length > in->Rest().size()) return false;
  Node node;
  Status status = folder_->Open(BytesOf(head->file), &node);
  if (status == Status::kOk) status = WriteBytes(node, *head, in->Rest().first(head->length));
  out->PutStatus(status);
  if (status != Status::kOk) {
    out->Put(xdr_WccData, Wcc(node));
    return true;
  }
  WriteOk result{Wcc(node), head->count, head->stable, {}};
  std::copy(verifier_.begin(), verifier_.end(), result.verifier);
  out->Put(xdr_WriteOk, result);
  return true;
}

bool NfsProcedures::Commit(Arguments* in, Reply* out) {
  const auto arguments = in->Take(xdr_CommitArguments);
  if (!arguments) return false;
  Node node;
  Descriptor file;
  Status status = folder_->Open(BytesOf(arguments->file), &node);
  if (status == Status::kOk) status = OpenData(node, O_RDONLY, &file);
  if (status == Status::kOk && fsync(file.get()) != 0) status = StatusOf(errno);
  out->PutStatus(status);
  if (status != Status::kOk) {
    out->Put(xdr_WccData, Wcc(node));
    return true;
  }
  CommitOk result{Wcc(node), {}};
  std::copy(verifier_.begin(), verifier_.end(), result.verifier);
  out->Put(xdr_CommitOk, result);
  return true;
}

}  // namespace rpcrdma
