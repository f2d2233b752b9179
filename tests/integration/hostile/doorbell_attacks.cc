// Attacks with the doorbell page and the eventfd that wakes an lcore: valid and invalid doorbells,
// without pause.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/rig.h"

namespace roci::testing::hostile {
namespace {

auto Ringing(const std::function<void(Rig&, Scene&)>& ring) {
  return [=](Scene& scene) {
    Rig rig;
    std::vector<MappedQp> qps;
    for (int i = 0; i < 8; ++i) qps.push_back(rig.MakeQp());
    while (scene.Goes()) ring(rig, scene);
  };
}

void Everything(Rig& rig, Scene&) {
  for (uint64_t& word : rig.doorbells()->level0) word = ~uint64_t{0};
  for (uint64_t& word : rig.doorbells()->level1) word = ~uint64_t{0};
  rig.doorbells()->level2 = ~uint64_t{0};
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(rig.wake_fd, &one, sizeof(one));
}
void UpperLevelsOnly(Rig& rig, Scene& scene) {
  rig.doorbells()->level2 = scene.Random64();
  for (uint64_t& word : rig.doorbells()->level1) word = scene.Random64();
}
void AnyBytes(Rig& rig, Scene& scene) {
  auto* words = rig.doorbells_memory.At<uint64_t>(0);
  for (int i = 0; i < 100; ++i) {
    words[scene.Below(static_cast<uint32_t>(rig.doorbells_memory.size() / 8))] = scene.Random64();
  }
}
void DaemonsFields(Rig& rig, Scene& scene) {
  rig.doorbells()->sleeping = scene.Random();
  rig.doorbells()->rounds = scene.Random();
  rig.Ring(scene.Below(16));
}
void Holes(Rig& rig, Scene& scene) {
  rig.Ring(scene.Below(65536));
  madvise(rig.doorbells_memory.data(), rig.doorbells_memory.size(), MADV_REMOVE);
}
void TagDoorbells(Rig& rig, Scene& scene) { rig.Ring(65535 - scene.Below(4096)); }

void WakesWithoutEnd(Rig& rig, Scene&) {
  const uint64_t one = 1;
  for (int i = 0; i < 1000; ++i) {
    [[maybe_unused]] const ssize_t written = write(rig.wake_fd, &one, sizeof(one));
  }
}
// Full and blocking: a write or read without a check would block.
void WakeMadeToBlock(Rig& rig, Scene& scene) {
  const uint64_t most = ~uint64_t{0} - 1;
  uint64_t value;
  fcntl(rig.wake_fd, F_SETFL, O_NONBLOCK);
  if (scene.Below(2) != 0) {
    [[maybe_unused]] const ssize_t written = write(rig.wake_fd, &most, sizeof(most));
  } else {
    [[maybe_unused]] const ssize_t got = read(rig.wake_fd, &value, sizeof(value));
  }
  fcntl(rig.wake_fd, F_SETFL, 0);
  usleep(100);
}

void TwoThreads(Scene& scene) {
  Rig rig;
  std::vector<MappedQp> qps;
  for (int i = 0; i < 64; ++i) qps.push_back(rig.MakeQp());
  std::atomic<bool> goes = true;
  std::thread other([&] {
    while (goes) {
      for (uint64_t& word : rig.doorbells()->level1) word = ~uint64_t{0};
      rig.doorbells()->level2 = ~uint64_t{0};
    }
  });
  while (scene.Goes()) {
    for (uint64_t& word : rig.doorbells()->level0) word = ~uint64_t{0};
  }
  goes = false;
  other.join();
}

// Doorbells of many sessions at once.
void ManyPages(Scene& scene) {
  std::vector<std::unique_ptr<Rig>> rigs;
  for (int i = 0; i < 32; ++i) rigs.push_back(std::make_unique<Rig>());
  while (scene.Goes()) {
    for (auto& rig : rigs) Everything(*rig, scene);
  }
}

void IsSealed(Scene&) {
  RawSession session;
  ASSERT_EQ(session.Hello(), 0);
  EXPECT_NE(ftruncate(session.fds()[0], 0), 0);
  EXPECT_NE(fcntl(session.fds()[0], F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
}

}  // namespace

void AddDoorbellAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"Doorbells", name, std::move(run), in_sample});
  };
  add("Everything", Ringing(Everything), true);
  add("UpperLevelsOnly", Ringing(UpperLevelsOnly));
  add("AnyBytes", Ringing(AnyBytes), true);
  add("DaemonsFields", Ringing(DaemonsFields));
  add("Holes", Ringing(Holes));
  add("TagDoorbells", Ringing(TagDoorbells));
  add("WakesWithoutEnd", Ringing(WakesWithoutEnd));
  add("WakeMadeToBlock", Ringing(WakeMadeToBlock), true);
  add("TwoThreads", TwoThreads);
  add("ManyPages", ManyPages);
  add("IsSealed", IsSealed);
}

}  // namespace roci::testing::hostile
