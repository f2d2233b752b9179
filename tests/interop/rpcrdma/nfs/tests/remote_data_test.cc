// The NFS client and a server of the environment: READ, WRITE and COMMIT, of all sizes and by every
// kind of chunk.
#include <tuple>

#include "tests/interop/rpcrdma/nfs/tests/remote_server.h"

namespace rpcrdma {
namespace {

// Around the words' length, the inline threshold, a path MTU, and the limit.
const std::vector<uint32_t> kSizes = {0,    1,    2,    3,     4,     100,     1023,      3500,
                                      4000, 4096, 4097, 65535, 65536, 300'001, 1'048'575, 1 << 20};
// From here on data needs chunks: 4 KiB less the heads of calls and replies.
constexpr uint32_t kChunkBytes = 4000;

bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// Registration, longest segment, placement of data.
using Way = std::tuple<Registration, size_t, Placement>;

class RemoteData : public testing::TestWithParam<Way> {
 protected:
  RemoteData() : server_(Options()) { server_.nfs().SetPlacement(std::get<2>(GetParam())); }

  static ClientOptions Options() {
    ClientOptions options = ToServer();
    options.registration = std::get<0>(GetParam());
    options.segment_bytes = std::get<1>(GetParam());
    return options;
  }
  bool IsDirect() const { return std::get<2>(GetParam()) == Placement::kDirect; }

  RemoteServer server_;
};

TEST_P(RemoteData, IsReadBackInOneCall) {
  NfsClient& nfs = server_.nfs();
  for (const uint32_t size : kSizes) {
    const std::vector<std::byte> data = Pattern(size, 1);
    const std::string name = "size " + std::to_string(size);
    const RemoteHandle file = server_.MakeFile(name);
    WriteOk written{};
    ASSERT_EQ(nfs.Write(file, 0, data, NFS3_FILE_SYNC, &written), Status::kOk) << size;
    EXPECT_EQ(written.count, size);
    EXPECT_EQ(written.committed, uint32_t{NFS3_FILE_SYNC});
    EXPECT_EQ(nfs.plan().read_chunk, size >= kChunkBytes && IsDirect()) << size;
    EXPECT_EQ(nfs.plan().long_call, size >= kChunkBytes && !IsDirect()) << size;
    ReadResult got;
    ASSERT_EQ(nfs.Read(file, 0, std::max(size, 1u), &got), Status::kOk) << size;
    EXPECT_TRUE(Same(got.data, data)) << size;
    EXPECT_TRUE(got.end) << size;
    EXPECT_EQ(nfs.plan().write_chunk, size >= kChunkBytes && IsDirect()) << size;
    EXPECT_EQ(nfs.plan().reply_chunk, size >= kChunkBytes && !IsDirect()) << size;
    EXPECT_EQ(server_.AttributesOf(file).size, size);
    Keep(server_.path() + "/" + name, data);
  }
  EXPECT_EQ(server_.client().counters().connections, 1u);
  const bool windows = std::get<0>(GetParam()) == Registration::kWindows;
  EXPECT_EQ(server_.client().counters().remote_invalidations > 0, windows)
      << "of keys that the server invalidates by its replies";
}

TEST_P(RemoteData, ReadsOfPartsAndBeyondTheEnd) {
  const std::vector<std::byte> data = Pattern(150'001, 2);
  const RemoteHandle file = server_.MakeFile("parts");
  WriteOk written{};
  ASSERT_EQ(server_.nfs().Write(file, 0, data, NFS3_FILE_SYNC, &written), Status::kOk);
  for (const auto& [offset, count] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 150'000},
                                                  {1, 7},
                                                  {4095, 100'000},
                                                  {140'000, 200'000},
                                                  {150'000, 1},
                                                  {150'001, 5},
                                                  {1'000'000, 70'000}}) {
    ReadResult got;
    ASSERT_EQ(server_.nfs().Read(file, offset, count, &got), Status::kOk) << offset;
    const size_t begin = std::min<size_t>(offset, data.size());
    const size_t bytes = std::min<size_t>(count, data.size() - begin);
    EXPECT_TRUE(Same(got.data, std::span(data).subspan(begin, bytes))) << offset;
    EXPECT_EQ(got.end, begin + bytes == data.size()) << offset;
  }
  EXPECT_EQ(server_.nfs().Remove(server_.folder(), "parts"), Status::kOk);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, RemoteData,
    testing::Values(Way{Registration::kRegions, size_t{1} << 30, Placement::kDirect},
                    Way{Registration::kWindows, size_t{1} << 30, Placement::kDirect},
                    Way{Registration::kRegions, 65'500, Placement::kDirect},
                    Way{Registration::kRegions, size_t{1} << 30, Placement::kInMessage},
                    Way{Registration::kWindows, 65'500, Placement::kInMessage}));

// Without COMMIT the server may have lost the data when its verifier changes; it has not.
TEST(RemoteFile, UnstableWritesAreCommitted) {
  RemoteServer server;
  const std::vector<std::byte> data = Pattern(1'000'000, 3);
  const RemoteHandle file = server.MakeFile("unstable");
  std::string verifier;
  for (size_t offset = 0; offset < data.size(); offset += 100'000) {
    WriteOk written{};
    ASSERT_EQ(server.nfs().Write(file, offset, std::span(data).subspan(offset, 100'000),
                                 NFS3_UNSTABLE, &written),
              Status::kOk);
    EXPECT_EQ(written.count, 100'000u);
    verifier.assign(written.verifier, sizeof written.verifier);
  }
  CommitOk committed{};
  ASSERT_EQ(server.nfs().Commit(file, 0, 0, &committed), Status::kOk);
  EXPECT_EQ(std::string(committed.verifier, sizeof committed.verifier), verifier);
  EXPECT_TRUE(Same(server.ContentOf(file), data));
  Keep(server.path() + "/unstable", data);
}

TEST(RemoteFile, HolesAndOverwrittenParts) {
  RemoteServer server;
  std::vector<std::byte> wanted(400'000);
  const RemoteHandle file = server.MakeFile("parts");
  for (const auto& [offset, bytes] : std::vector<std::pair<size_t, size_t>>{
           {300'000, 100'000}, {0, 5'000}, {100'003, 70'001}, {4'990, 20}, {120'000, 1}}) {
    const std::vector<std::byte> data = Pattern(bytes, static_cast<uint32_t>(offset));
    std::copy(data.begin(), data.end(), wanted.begin() + static_cast<ptrdiff_t>(offset));
    WriteOk written{};
    ASSERT_EQ(server.nfs().Write(file, offset, data, NFS3_DATA_SYNC, &written), Status::kOk);
  }
  EXPECT_TRUE(Same(server.ContentOf(file), wanted));
  Keep(server.path() + "/parts", wanted);
}

// All files that the server's own machine has put into the folder "given", and into those in it.
void FetchAll(RemoteServer& server, const RemoteHandle& folder, const std::string& path,
              size_t* files) {
  for (const RemoteEntry& entry : server.EntriesOf(folder, 8192, true)) {
    ASSERT_TRUE(entry.attributes && entry.handle) << entry.name;
    const std::string below = path + "/" + entry.name;
    if (entry.attributes->type == 2) {
      FetchAll(server, *entry.handle, below, files);
    } else {
      const std::vector<std::byte> content = server.ContentOf(*entry.handle);
      EXPECT_EQ(content.size(), entry.attributes->size) << below;
      Keep(below, content);
      ++*files;
    }
  }
}

TEST(RemoteFile, GivenFilesAreRead) {
  RemoteServer server;
  size_t files = 0;
  FetchAll(server, server.Find(server.root(), "given"), "given", &files);
  EXPECT_GT(files, 5u);
}

}  // namespace
}  // namespace rpcrdma
