// Every 32-bit word of every message at the limits of integers, with the rest valid.
#include <array>
#include <cstring>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/messages.h"

namespace roci::testing::hostile {
namespace {

constexpr size_t kWordsPerMessage = 64;

// Commands that resolve a peer's address, which may take seconds.
bool IsAddress(const MessageKind& kind, size_t word) {
  return kind.command == ROCI_ABI_CREATE_AH && word >= 6 && word < 10;
}

void TryWord(std::unique_ptr<Speaker>& speaker, const MessageKind& kind, size_t word,
             uint32_t value) {
  std::vector<std::byte> message = speaker->Valid(kind);
  std::memcpy(message.data() + word * 4, &value, sizeof(value));
  const int error = speaker->Ask(message);
  EXPECT_NE(error, -1) << kind.name << ": no answer with word " << word << " = " << value;
  // Recreates objects that the message destroyed.
  const bool destroys = kind.size == sizeof(roci_abi_handle_request);
  if (error < 0 || (error == 0 && destroys)) speaker = std::make_unique<Speaker>();
}

auto EachWord(const MessageKind& kind) {
  return [kind](Scene& scene) {
    auto speaker = std::make_unique<Speaker>();
    const size_t words = std::min(kind.size / 4, kWordsPerMessage);
    size_t asked = 0;
    for (size_t word = 4; word < words; ++word) {
      if (IsAddress(kind, word)) continue;
      for (const uint32_t value : kLimits32) {
        TryWord(speaker, kind, word, value);
        if (++asked % 500 == 0) speaker = std::make_unique<Speaker>();
      }
      if (!scene.is_long && !scene.Goes()) break;
    }
  };
}

// Pairs of neighbouring words: 64-bit fields.
auto EachLong(const MessageKind& kind) {
  return [kind](Scene& scene) {
    auto speaker = std::make_unique<Speaker>();
    for (size_t word = 4; word + 1 < std::min(kind.size / 4, kWordsPerMessage); word += 2) {
      if (IsAddress(kind, word)) continue;
      for (const uint64_t value : kLimits64) {
        std::vector<std::byte> message = speaker->Valid(kind);
        std::memcpy(message.data() + word * 4, &value, sizeof(value));
        const int error = speaker->Ask(message);
        EXPECT_NE(error, -1) << kind.name << ": no answer with long " << word << " = " << value;
        if (error < 0) speaker = std::make_unique<Speaker>();
      }
      if (!scene.is_long && !scene.Goes()) break;
    }
  };
}

// Attributes of a queue pair in every transition.
void AttributesOfQueuePairs(Scene& scene) {
  Rig rig;
  while (scene.Goes()) {
    const uint32_t types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    MappedQp qp = rig.MakeQp({.type = types[scene.Below(3)]});
    EXPECT_EQ(rig.Connect(qp, scene.Random() & 0xFFFFFF, 2), 0);
    for (int i = 0; i < 50; ++i) {
      roci_abi_qp_attr attr{};
      auto* words = reinterpret_cast<uint32_t*>(&attr);
      for (size_t word = 0; word < sizeof(attr) / 4; ++word) {
        words[word] = kLimits32[scene.Below(std::size(kLimits32))];
      }
      attr.state = scene.Below(8);
      rig.Modify(qp.info.handle, scene.Random() & ~static_cast<uint32_t>(IBV_QP_AV), attr);
    }
    rig.OnHandle(ROCI_ABI_DESTROY_QP, qp.info.handle);
  }
}

}  // namespace

void AddNumberAttacks(Attacks& out) {
  for (const MessageKind& kind : MessageKinds()) {
    if (kind.size == sizeof(roci_abi_plain_request)) continue;
    const bool in_sample = kind.command == ROCI_ABI_CREATE_QP || kind.command == ROCI_ABI_REG_MR ||
                           kind.command == ROCI_ABI_CREATE_CQ;
    out.push_back({"Numbers", std::string("WordsOf_") + kind.name, EachWord(kind), in_sample});
  }
  for (const MessageKind& kind : MessageKinds()) {
    switch (kind.command) {
      case ROCI_ABI_REG_MR:
      case ROCI_ABI_REREG_MR:
      case ROCI_ABI_UNSHARE_RANGE:
      case ROCI_ABI_ALLOC_DM:
      case ROCI_ABI_REG_DM_MR:
      case ROCI_ABI_REG_DMA_BUFFER_MR:
        out.push_back({"Numbers", std::string("LongsOf_") + kind.name, EachLong(kind),
                       kind.command == ROCI_ABI_REG_MR});
        break;
      default:
        break;
    }
  }
  out.push_back({"Numbers", "AttributesOfQueuePairs", AttributesOfQueuePairs, true});
}

}  // namespace roci::testing::hostile
