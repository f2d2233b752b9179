// Several sessions send random commands, valid and invalid ones, and disconnect at random. The
// daemon must answer every command, survive, and have no objects left at the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "tests/integration/raw_session.h"
#include "tools/show/manage_client.h"

namespace roci::testing {
namespace {

class Storm {
 public:
  explicit Storm(uint32_t seed) : random_(seed) {}

  // False: the session is over.
  bool Step(RawSession& session) {
    session.CloseFds();
    switch (Below(20)) {
      case 0:
        session.Hello(Below(8) == 0 ? "nobody" : Below(2) == 0 ? "roci0" : "roci1");
        return true;
      case 1:
        Note(session.AllocPd());
        return true;
      case 2:
        Note(session.CreateChannel());
        return true;
      case 3:
      case 4:
        Note(session.CreateCq(1 + Below(300), Below(3) == 0 ? Handle() : ~0u));
        return true;
      case 5:
      case 6: {
        auto request = RawSession::QpRequest(Handle(), Handle(), 2 + Below(4));
        request.max_send_wr = Below(100);
        request.max_inline = Below(1200);
        request.user_handle = Random();
        roci_abi_create_qp_response response;
        if (session.CreateQp(request, response) == 0) Note(response.handle);
        return true;
      }
      case 7:
      case 8:
      case 9:
        session.Modify(Handle(), Random() & 0x1FFFFF, Attr());
        return true;
      case 10:
        Region(session);
        return true;
      case 11: {
        roci_abi_create_ah_request request{};
        request.pd = Handle();
        request.attr = Attr().ah;
        roci_abi_handle_response response;
        session.Call(ROCI_ABI_CREATE_AH, request, response);
        return true;
      }
      case 12: {
        roci_abi_resize_cq_request request{};
        request.handle = Handle();
        request.entries = 1 + Below(1000);
        request.consumer = Below(2) == 0 ? 0 : Random();
        roci_abi_resize_cq_response response;
        session.Call(ROCI_ABI_RESIZE_CQ, request, response);
        return true;
      }
      case 13:
        return Garbage(session);
      default:
        session.OnHandle(kDestroyers[Below(std::size(kDestroyers))], Handle());
        return Below(60) != 0;
    }
  }

 private:
  static constexpr uint32_t kDestroyers[] = {ROCI_ABI_DEALLOC_PD,           ROCI_ABI_DEREG_MR,
                                             ROCI_ABI_DESTROY_COMP_CHANNEL, ROCI_ABI_DESTROY_CQ,
                                             ROCI_ABI_DESTROY_QP,           ROCI_ABI_DESTROY_AH};

  uint32_t Random() { return static_cast<uint32_t>(random_()); }
  uint32_t Below(uint32_t limit) { return Random() % limit; }
  void Note(uint32_t handle) { last_handle_ = std::max(last_handle_, handle); }
  uint32_t Handle() { return Below(10) == 0 ? Random() : Below(last_handle_ + 2); }

  roci_abi_qp_attr Attr() {
    roci_abi_qp_attr attr{};
    if (Below(4) == 0) {
      for (auto& byte : std::as_writable_bytes(std::span(&attr, 1))) {
        byte = static_cast<std::byte>(Random());
      }
    }
    attr.state = Below(8);
    attr.path_mtu = 1 + Below(5);
    attr.port = 1;
    attr.ah.is_global = 1;
    attr.ah.port = 1;
    attr.ah.sgid_index = 1;
    // Existing peers only: resolving others would take too long.
    const uint8_t gid[16] = {0, 0, 0,    0,    0,  0,  0, 0,
                             0, 0, 0xFF, 0xFF, 10, 99, 0, static_cast<uint8_t>(1 + Below(2))};
    std::memcpy(attr.ah.dgid, gid, sizeof(gid));
    return attr;
  }

  void Region(RawSession& session) {
    static char memory[65536];
    roci_abi_reg_mr_request request{};
    request.pd = Handle();
    request.access = Random() & 0x1F;
    request.start = reinterpret_cast<uint64_t>(memory) + Below(1000);
    request.length = 1 + Below(60000);
    request.iova = request.start;
    request.extent_count = 1;
    request.extents[0].va = request.start;
    request.extents[0].length = request.length;
    roci_abi_reg_mr_response response;
    if (session.Call(ROCI_ABI_REG_MR, request, response) == 0) Note(response.handle);
  }

  // Random bytes, sometimes behind a valid head, sometimes with descriptors.
  bool Garbage(RawSession& session) {
    std::vector<std::byte> bytes(Below(1000));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(Random());
    if (bytes.size() >= sizeof(roci_abi_request) && Below(2) == 0) {
      const roci_abi_request head{.command = 1 + Below(ROCI_ABI_COMMAND_COUNT),
                                  .size = static_cast<uint32_t>(bytes.size()),
                                  .serial = 1,
                                  .wait = Below(3)};
      std::memcpy(bytes.data(), &head, sizeof(head));
    }
    if (!session.SendBytes(bytes, std::vector<int>(Below(4), 0))) return false;
    std::array<std::byte, 4096> answer;
    return session.ReceiveBytes(answer) > 0;
  }

  std::mt19937 random_;
  uint32_t last_handle_ = 0;
};

TEST(SessionStormTest, DaemonSurvivesAndFreesEverything) {
  const char* given = std::getenv("ROCI_TEST_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 0))
                                         : std::random_device{}();
  std::printf("seed %u (ROCI_TEST_SEED repeats it)\n", seed);
  constexpr int kSteps = 20'000;
  std::vector<std::unique_ptr<RawSession>> sessions(6);
  Storm storm(seed);
  std::mt19937 pick(seed + 1);
  for (int i = 0; i < kSteps && !::testing::Test::HasFailure(); ++i) {
    std::unique_ptr<RawSession>& session = sessions[pick() % sessions.size()];
    if (session == nullptr) {
      session = std::make_unique<RawSession>();
      session->Hello();
    }
    if (!storm.Step(*session)) session.reset();
  }
  sessions.clear();
  const auto show = [] { return tools::AskDaemon("", {{"command", "show"}, {"what", "devices"}}); };
  const auto in_use = [](const nlohmann::json& device) { return device["sessions"] != 0; };
  auto devices = show();
  // Sessions are freed shortly after their sockets close.
  for (int i = 0; i < 3000 && devices.ok() && std::ranges::any_of(*devices, in_use); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    devices = show();
  }
  ASSERT_TRUE(devices.ok()) << devices.status();
  for (const nlohmann::json& device : *devices) {
    EXPECT_EQ(device["sessions"], 0);
    for (const char* kind : {"qps", "cqs", "mrs", "pds", "ahs"}) {
      EXPECT_EQ(device[kind]["used"], 0) << device["name"] << " " << kind;
    }
  }
}

}  // namespace
}  // namespace roci::testing
