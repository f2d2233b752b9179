// The NFS client and a server of the environment: 16 jobs on one connection write and read back
// blocks, for NFS_ROUNDS rounds, also while the connection is lost and made again.
#include <cstdlib>
#include <random>

#include "tests/interop/rpcrdma/nfs/tests/remote_server.h"

namespace rpcrdma {
namespace {

constexpr uint32_t kJobs = 16, kMostBlockBytes = 128 << 10, kBlocks = 8;

// A file whose blocks are written and read back in turn, in random places and lengths.
class Job {
 public:
  Job(RemoteServer* server, uint32_t number, uint32_t rounds)
      : client_(&server->client()),
        nfs_(client_, kMostBlockBytes, kCallLimit_ms),
        path_(server->path() + "/job " + std::to_string(number)),
        file_(server->MakeFile("job " + std::to_string(number))),
        content_(size_t{kBlocks} * kMostBlockBytes),
        random_(number),
        left_(rounds) {}

  // Goes on with the calls as far as possible. False: all rounds are done.
  bool Step() {
    if (nfs_.request().status() == CallStatus::kPending) return true;
    if (phase_ == Phase::kWriting) EndWriting();
    if (phase_ == Phase::kReading) EndReading();
    if (phase_ == Phase::kIdle && left_ == 0) return false;
    if (phase_ == Phase::kIdle) Choose();
    phase_ == Phase::kWritten ? BeginReading() : BeginWriting();
    return true;
  }
  void Keep() const { rpcrdma::Keep(path_, std::span(content_).first(size_)); }
  // What went wrong, or "".
  const std::string& wrong() const { return wrong_; }

 private:
  enum class Phase { kIdle, kChosen, kWriting, kWritten, kReading };

  template <class T>
  void Note(const char* what, T value) {
    wrong_ += "transmission " + std::to_string(nfs_.request().transmissions()) + ", offset " +
              std::to_string(offset_) + ", " + std::to_string(data_.size()) + " bytes: " + what +
              " " + std::to_string(static_cast<int64_t>(value)) + "\n";
  }
  void Choose() {
    offset_ = random_() % (content_.size() - kMostBlockBytes);
    data_ = Pattern(random_() % kMostBlockBytes, static_cast<uint32_t>(random_()));
    phase_ = Phase::kChosen;
  }
  void BeginWriting() {
    nfs_.PrepareWrite(file_, offset_, data_, NFS3_UNSTABLE);
    if (client_->Send(nfs_.request()) == SendResult::kSent) phase_ = Phase::kWriting;
  }
  // A server that ends answers calls by "try later".
  void EndWriting() {
    WriteOk result{};
    const Status status = nfs_.FinishWrite(&result);
    phase_ = status == Status::kTryLater ? Phase::kChosen : Phase::kWritten;
    if (status == Status::kTryLater) return;
    if (status != Status::kOk) Note("WRITE is answered by status", status);
    if (status == Status::kOk && result.count != data_.size()) Note("bytes written", result.count);
    std::copy(data_.begin(), data_.end(), content_.begin() + static_cast<ptrdiff_t>(offset_));
    size_ = std::max(size_, offset_ + data_.size());
  }
  void BeginReading() {
    nfs_.PrepareRead(file_, offset_, static_cast<uint32_t>(data_.size()));
    if (client_->Send(nfs_.request()) == SendResult::kSent) phase_ = Phase::kReading;
  }
  void EndReading() {
    ReadResult got;
    const Status status = nfs_.FinishRead(&got);
    phase_ = status == Status::kTryLater ? Phase::kWritten : Phase::kIdle;
    if (status == Status::kTryLater) return;
    if (status != Status::kOk) Note("READ is answered by status", status);
    const auto ends = std::mismatch(got.data.begin(), got.data.end(), data_.begin(), data_.end());
    if (status == Status::kOk && (ends.first != got.data.end() || ends.second != data_.end()))
      Note("READ differs at byte", ends.first - got.data.begin());
    --left_;
  }

  Client* const client_;
  NfsClient nfs_;
  const std::string path_;
  const RemoteHandle file_;
  std::vector<std::byte> content_;  // as the server should have it
  size_t size_ = 0;
  std::mt19937 random_;
  uint32_t left_;
  Phase phase_ = Phase::kIdle;
  size_t offset_ = 0;
  std::vector<std::byte> data_;  // of the present round
  std::string wrong_;
};

TEST(RemoteLoad, BlocksAreReadBack) {
  const char* rounds = std::getenv("NFS_ROUNDS");
  RemoteServer server;
  std::vector<std::unique_ptr<Job>> jobs;
  for (uint32_t i = 0; i < kJobs; ++i) {
    jobs.push_back(std::make_unique<Job>(
        &server, i, rounds == nullptr ? 10 : static_cast<uint32_t>(std::atoi(rounds))));
  }
  std::printf("load begins\n");
  std::fflush(stdout);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const auto& job : jobs) goes_on |= job->Step();
    if (goes_on) server.client().Progress(1000);
  }
  for (const auto& job : jobs) {
    EXPECT_EQ(job->wrong(), "");
    job->Keep();
  }
  const ClientCounters& counters = server.client().counters();
  EXPECT_EQ(counters.bad_replies + counters.remote_errors, 0u);
  std::printf("%llu calls, %llu resent, %llu connections\n",
              static_cast<unsigned long long>(counters.replies),
              static_cast<unsigned long long>(counters.resent),
              static_cast<unsigned long long>(counters.connections));
}

}  // namespace
}  // namespace rpcrdma
