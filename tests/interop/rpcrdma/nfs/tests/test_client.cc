// Calls for tests.
#include "tests/interop/rpcrdma/nfs/tests/test_client.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace rpcrdma {
namespace {

constexpr size_t kReplyHeadBytes = 24;
constexpr size_t kAcceptWord = 5;

uint32_t WordOf(const std::vector<std::byte>& message, size_t index) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i)
    word = word << 8 | std::to_integer<uint32_t>(message.at(4 * index + i));
  return word;
}

SipKey KeyOf(int number) {
  SipKey key{};
  key[0] = static_cast<std::byte>(number);
  return key;
}

}  // namespace

Answered::Answered(RpcReply reply)
    : reply_(std::move(reply)),
      accept_(WordOf(reply_.message, kAcceptWord)),
      results_(std::span(reply_.message).subspan(kReplyHeadBytes)) {}

Status Answered::TakeStatus() {
  const auto word = results_.Take(xdr_u_int);
  EXPECT_TRUE(word);
  return static_cast<Status>(*word);
}

std::string_view Answered::bulk() const {
  return {reinterpret_cast<const char*>(reply_.message.data()) + reply_.bulk_offset,
          reply_.bulk_length};
}

std::vector<std::byte> Words(std::initializer_list<uint32_t> words) {
  Reply out;
  for (const uint32_t word : words) out.PutWord(word);
  return out.Take().message;
}

std::vector<std::byte> HeadOf(const CallHead& head) {
  return Words({head.xid, head.direction, head.rpc_version, head.program, head.version,
                head.procedure, 0, 0, 0, 0});
}

TestClient::TestClient() {
  folder_ = std::filesystem::temp_directory_path() / "roci-nfs.XXXXXX";
  EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  std::filesystem::create_directories(PathOf(""));
  std::filesystem::create_directories(Outside(""));
  Restart();
}

TestClient::~TestClient() { std::filesystem::remove_all(folder_); }

void TestClient::Restart(bool same_key) {
  service_.reset();
  service_ = std::make_unique<NfsService>(PathOf(""), KeyOf(same_key ? 1 : 2));
}

FileHandle TestClient::Root() { return ExportedFolder(PathOf(""), KeyOf(1)).RootHandle(); }

Status TestClient::Lookup(FileHandle folder, std::string_view name, FileHandle* found) {
  Answered answered = Call(Nfs::kLookup, xdr_Entry, ToEntry(folder, name));
  const Status status = answered.TakeStatus();
  if (status != Status::kOk) return status;
  const auto ok = answered.results().Take(xdr_LookupOk);
  EXPECT_TRUE(ok && ok->object.Handle_len == kHandleBytes && ok->attributes.follow &&
              ok->folder.follow);
  std::copy_n(ok->object.Handle_val, kHandleBytes, found->begin());
  return status;
}

FileHandle TestClient::At(const std::string& path) {
  FileHandle at = Root();
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '/');)
    EXPECT_EQ(Lookup(at, name, &at), Status::kOk) << path;
  return at;
}

Attributes TestClient::Getattr(FileHandle file) {
  Answered answered = Call(Nfs::kGetattr, xdr_Handle, ToHandle(file));
  EXPECT_EQ(answered.TakeStatus(), Status::kOk);
  const auto attributes = answered.results().Take(xdr_Attributes);
  EXPECT_TRUE(attributes);
  return *attributes;
}

Status TestClient::Write(FileHandle file, uint64_t offset, std::string_view data, uint32_t stable) {
  const auto length = static_cast<u_int>(data.size());
  Answered answered = Call(Nfs::kWrite, xdr_WriteHead,
                           WriteHead{ToHandle(file), offset, length, stable, length}, data);
  const Status status = answered.TakeStatus();
  if (status == Status::kOk) {
    const auto ok = answered.results().Take(xdr_WriteOk);
    EXPECT_TRUE(ok && ok->count == length && ok->committed >= stable && ok->wcc.before.follow &&
                ok->wcc.after.follow);
  }
  return status;
}

std::string TestClient::Read(FileHandle file, uint64_t offset, uint32_t count, bool* end) {
  Answered answered =
      Call(Nfs::kRead, xdr_ReadArguments, ReadArguments{ToHandle(file), offset, count});
  EXPECT_EQ(answered.TakeStatus(), Status::kOk);
  const auto head = answered.results().Take(xdr_ReadHead);
  EXPECT_TRUE(head && head->count == head->length && head->attributes.follow);
  EXPECT_EQ(answered.results().Rest().size(), Padded(head->length));
  EXPECT_EQ(answered.bulk().size(), head->length);
  if (end != nullptr) *end = head->end_of_file != 0;
  return std::string(answered.bulk());
}

Status TestClient::Create(FileHandle folder, std::string_view name, FileHandle* made) {
  CreateArguments arguments{ToEntry(folder, name), {}};
  Answered answered = Call(Nfs::kCreate, xdr_CreateArguments, arguments);
  const Status status = answered.TakeStatus();
  if (status != Status::kOk) return status;
  const auto ok = answered.results().Take(xdr_CreateOk);
  EXPECT_TRUE(ok && ok->object.follow && ok->attributes.follow && ok->folder.before.follow &&
              ok->folder.after.follow);
  std::copy_n(ok->object.PostHandle_u.handle.Handle_val, kHandleBytes, made->begin());
  return status;
}

Handle ToHandle(const FileHandle& handle) {
  return {kHandleBytes, const_cast<char*>(handle.data())};
}

Entry ToEntry(const FileHandle& folder, std::string_view name) {
  return {ToHandle(folder), {static_cast<u_int>(name.size()), const_cast<char*>(name.data())}};
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

void Put(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  EXPECT_TRUE(file.flush()) << path;
}

}  // namespace rpcrdma
