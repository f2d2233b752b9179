// Fuzzes the NFS service: whatever a call says, it is answered, refused or dropped, and nothing
// outside of the export changes.
//
// Input: a byte that selects a procedure of NFS, or MOUNT, or a message as it stands; then the
// arguments. In the arguments, 24 letters R stand for the handle of the root, 24 letters F for that
// of a file.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/interop/rpcrdma/nfs/nfs_service.h"
#include "tests/interop/rpcrdma/nfs/xdr_message.h"

namespace rpcrdma {
namespace {

namespace fs = std::filesystem;

void Require(bool holds) {
  if (!holds) std::abort();
}

constexpr uint8_t
    kMount = 100,
    kRaw = 200;  // first bytes from which on the input is a call of MOUNT, or a whole message
constexpr int kRunsPerFolder = 500;

class Fixture {
 public:
  Fixture() {
    folder_ = (fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path().string()) +
              "/roci-nfs-fuzz.XXXXXX";
    Require(mkdtemp(folder_.data()) != nullptr);
    fs::create_directories(folder_ + "/export/folder");
    fs::create_directories(folder_ + "/outside");
    std::ofstream(folder_ + "/outside/secret") << "secret";
    std::ofstream(folder_ + "/export/file") << "content";
    fs::create_symlink("../outside/secret", folder_ + "/export/link");
    fs::create_directory_symlink(folder_ + "/outside", folder_ + "/export/away");
    service_ = std::make_unique<NfsService>(folder_ + "/export", SipKey{});
    ExportedFolder exported(folder_ + "/export", SipKey{});
    root_ = exported.RootHandle();
    Node root, file;
    Require(exported.Open(root_, &root) == Status::kOk &&
            exported.OpenEntry(root, "file", &file) == Status::kOk);
    file_ = MakeHandle(SipKey{}, file.id());
  }
  ~Fixture() { fs::remove_all(folder_); }

  void Run(std::span<const uint8_t> input) {
    const std::vector<std::byte> call = CallOf(input);
    const RpcReply reply = service_->Answer(call);
    Require(reply.drop || (reply.message.size() >= 20 && reply.message.size() % 4 == 0));
    Require(reply.bulk_offset <= reply.message.size() &&
            reply.bulk_length <= reply.message.size() - reply.bulk_offset);
    Require(reply.message.size() <= kMaxIoBytes + 4096);
    std::string secret;
    std::getline(std::ifstream(folder_ + "/outside/secret"), secret);
    Require(secret == "secret" &&
            std::distance(fs::directory_iterator(folder_ + "/outside"), {}) == 1);
  }

 private:
  std::vector<std::byte> CallOf(std::span<const uint8_t> input) const {
    std::string text(input.begin() + 1, input.end());
    Replace(std::string(kHandleBytes, 'R'), root_, &text);
    Replace(std::string(kHandleBytes, 'F'), file_, &text);
    const bool mount = input[0] >= kMount;
    Reply call;
    if (input[0] < kRaw) {
      const uint32_t program = mount ? MountProcedures::kProgram : NfsProcedures::kProgram;
      const uint32_t procedure = mount ? input[0] - kMount : input[0];
      for (const uint32_t word : {1u, 0u, 2u, program, 3u, procedure, 0u, 0u, 0u, 0u})
        call.PutWord(word);
    }
    std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(),
                call.Extend(text.size()));
    return call.Take().message;
  }

  static void Replace(const std::string& what, const FileHandle& handle, std::string* text) {
    for (size_t at; (at = text->find(what)) != text->npos;)
      text->replace(at, what.size(), handle.data(), handle.size());
  }

  std::string folder_;
  std::unique_ptr<NfsService> service_;
  FileHandle root_, file_;
};

}  // namespace
}  // namespace rpcrdma

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::unique_ptr<rpcrdma::Fixture> fixture;
  static int runs = 0;
  if (size == 0) return 0;
  if (runs++ % rpcrdma::kRunsPerFolder == 0) fixture.reset();
  if (!fixture) fixture = std::make_unique<rpcrdma::Fixture>();
  fixture->Run({data, size});
  return 0;
}
