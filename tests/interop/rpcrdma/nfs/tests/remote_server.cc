// What tests of the NFS client have in common.
#include "tests/interop/rpcrdma/nfs/tests/remote_server.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/interop/rpcrdma/nfs/mount_client.h"

namespace rpcrdma {
namespace {

std::string Setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string NameOfTest() {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(info->test_suite_name()) + "." + info->name();
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

}  // namespace

ClientOptions ToServer() {
  ClientOptions options;
  options.address = Setting("NFS_SERVER");
  options.port = static_cast<uint16_t>(std::stoi(Setting("NFS_PORT")));
  options.source = Setting("NFS_SOURCE");
  return options;
}

RemoteHandle ExportedRoot() {
  const std::string digits = Setting("NFS_HANDLE");
  if (digits.empty()) {
    std::istringstream mount(Setting("NFS_MOUNT"));
    std::string address, path;
    uint16_t port = 0;
    mount >> address >> port >> path;
    return MountByTcp(address, port, path);
  }
  RemoteHandle handle;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    handle.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return handle;
}

std::vector<std::byte> Pattern(size_t bytes, uint32_t seed) {
  std::vector<std::byte> pattern(bytes);
  uint64_t state = (uint64_t{seed} << 32) + bytes;
  for (std::byte& each : pattern) {
    state = state * 6364136223846793005 + 1442695040888963407;
    each = static_cast<std::byte>(state >> 56);
  }
  return pattern;
}

void Keep(const std::string& path, std::span<const std::byte> content) {
  const std::filesystem::path file = std::filesystem::path(Setting("NFS_KEEP")) / path;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(content.data()),
            static_cast<std::streamsize>(content.size()));
  ASSERT_TRUE(out.flush()) << file;
}

SetAttributes WithMode(uint32_t mode) {
  SetAttributes attributes{};
  attributes.mode.set = TRUE;
  attributes.mode.SetNumber_u.value = mode;
  return attributes;
}

CreateHow Unchecked() {
  CreateHow how{};
  how.mode = NFS3_UNCHECKED;
  how.CreateHow_u.attributes = WithMode(0644);
  return how;
}

RemoteServer::RemoteServer(const ClientOptions& options)
    : client_(options),
      nfs_(&client_, kMostBytes, kCallLimit_ms),
      root_(ExportedRoot()),
      path_(NameOfTest()),
      folder_(MakeFolder(root_, path_)) {}

RemoteHandle RemoteServer::Find(const RemoteHandle& folder, const std::string& name) {
  RemoteHandle found;
  EXPECT_EQ(nfs_.Lookup(folder, name, &found), Status::kOk) << name;
  return found;
}

RemoteHandle RemoteServer::MakeFile(const std::string& name) {
  RemoteHandle made;
  EXPECT_EQ(nfs_.Create(folder_, name, Unchecked(), &made), Status::kOk) << name;
  return made;
}

RemoteHandle RemoteServer::MakeFolder(const RemoteHandle& parent, const std::string& name) {
  RemoteHandle made;
  EXPECT_EQ(nfs_.Mkdir(parent, name, WithMode(0755), &made), Status::kOk) << name;
  return made;
}

Attributes RemoteServer::AttributesOf(const RemoteHandle& file) {
  Attributes attributes{};
  EXPECT_EQ(nfs_.Getattr(file, &attributes), Status::kOk);
  return attributes;
}

std::vector<std::byte> RemoteServer::ContentOf(const RemoteHandle& file) {
  std::vector<std::byte> content;
  ReadResult part;
  do {
    const Status status = nfs_.Read(file, content.size(), kMostBytes, &part);
    EXPECT_EQ(status, Status::kOk);
    if (status != Status::kOk || (part.data.empty() && !part.end)) break;
    content.insert(content.end(), part.data.begin(), part.data.end());
  } while (!part.end);
  return content;
}

std::vector<RemoteEntry> RemoteServer::EntriesOf(const RemoteHandle& folder, uint32_t bytes,
                                                 bool plus) {
  std::vector<RemoteEntry> entries;
  RemoteListing listing;
  uint64_t cookie = 0;
  do {
    const Status status = plus ? nfs_.Readdirplus(folder, cookie, bytes, &listing)
                               : nfs_.Readdir(folder, cookie, bytes, &listing);
    EXPECT_EQ(status, Status::kOk);
    if (status != Status::kOk || (listing.entries.empty() && !listing.end)) break;
    if (!listing.entries.empty()) cookie = listing.entries.back().cookie;
    std::move(listing.entries.begin(), listing.entries.end(), std::back_inserter(entries));
  } while (!listing.end);
  std::erase_if(entries,
                [](const RemoteEntry& entry) { return entry.name == "." || entry.name == ".."; });
  return entries;
}

}  // namespace rpcrdma
