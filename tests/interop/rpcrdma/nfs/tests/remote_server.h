// An NFS server that the environment names, and a client of it, for tests:
//   NFS_SERVER   its address, and NFS_PORT the port for RPC over RDMA
//   NFS_SOURCE   own address; empty: the routes choose
//   NFS_HANDLE   the exported folder's handle, in hexadecimal; or
//   NFS_MOUNT    ADDRESS PORT PATH, to ask for the handle by MOUNT over TCP
//   NFS_KEEP     a folder of this machine: each file that a test leaves on the server is also
//                written there, below the same path, so that whoever runs the tests can compare
//                both
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/interop/rpcrdma/nfs/nfs_client.h"

namespace rpcrdma {

inline constexpr size_t kMostBytes = 1 << 20;
inline constexpr int kCallLimit_ms = 120'000;

// The settings of a client for the server of the environment.
ClientOptions ToServer();
RemoteHandle ExportedRoot();

// Bytes that differ for each seed and position.
std::vector<std::byte> Pattern(size_t bytes, uint32_t seed);
// Writes a file below NFS_KEEP.
void Keep(const std::string& path, std::span<const std::byte> content);

SetAttributes WithMode(uint32_t mode);
CreateHow Unchecked();

// A client, and a folder on the server with the name of the test.
class RemoteServer {
 public:
  explicit RemoteServer(const ClientOptions& options = ToServer());

  Client& client() { return client_; }
  NfsClient& nfs() { return nfs_; }
  const RemoteHandle& root() const { return root_; }
  const RemoteHandle& folder() const { return folder_; }
  // The folder's path below the exported one.
  const std::string& path() const { return path_; }

  // Each fails the test if the server refuses.
  RemoteHandle Find(const RemoteHandle& folder, const std::string& name);
  RemoteHandle MakeFile(const std::string& name);
  RemoteHandle MakeFolder(const RemoteHandle& parent, const std::string& name);
  Attributes AttributesOf(const RemoteHandle& file);
  // In calls of at most kMostBytes, until the file ends.
  std::vector<std::byte> ContentOf(const RemoteHandle& file);
  // All entries but "." and "..", from parts of at most `bytes` bytes.
  std::vector<RemoteEntry> EntriesOf(const RemoteHandle& folder, uint32_t bytes, bool plus);

 private:
  Client client_;
  NfsClient nfs_;
  RemoteHandle root_;
  std::string path_;
  RemoteHandle folder_;
};

}  // namespace rpcrdma
