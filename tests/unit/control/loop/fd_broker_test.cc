#include "control/loop/fd_broker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/send_fds.h"

namespace roci::control {
namespace {

void SendClose(int broker, int fd) {
  BrokerRequest request{};
  request.command = BrokerCommand::kClose;
  ASSERT_EQ(testing::SendFdsWith(broker, request, {&fd, 1}), static_cast<ssize_t>(sizeof(request)));
}

// Whether `fd` becomes readable within 60 s.
bool AwaitInput(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return poll(&wait, 1, 60'000) == 1;
}

TEST(FdBroker, EndsWithItsDaemonAlsoWhileAClosingThreadWaitsForWork) {
  mallopt(M_PERTURB, 0x5a);  // inherited: memory that is used after it was freed differs
  absl::StatusOr<FdBroker> broker = StartFdBroker();
  mallopt(M_PERTURB, 0);
  ASSERT_TRUE(broker.ok()) << broker.status();
  const UniqueFd ended(static_cast<int>(syscall(SYS_pidfd_open, broker->pid, 0)));
  ASSERT_TRUE(ended.valid());
  UniqueFd& socket = broker->socket;
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  SendClose(socket.get(), file.get());
  ASSERT_TRUE(AwaitInput(socket.get()));
  BrokerResponse response;
  ASSERT_GT(recv(socket.get(), &response, sizeof(response), 0), 0);
  EXPECT_EQ(response.answer, BrokerAnswer::kClosed);

  socket.Reset();
  const bool has_ended = AwaitInput(ended.get());
  EXPECT_TRUE(has_ended);
  if (!has_ended) kill(broker->pid, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(broker->pid, &status, 0), broker->pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace roci::control
