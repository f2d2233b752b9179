// With virtual time: knows when the programs of an lcore have seen everything that it has told
// them, and have posted what they do about it. Until then the time stands still.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/on_shard.h"

namespace roci::dataplane {

class VerbsContext;

// A program that polls with one thread looks at all the completion queues that it waits for in
// turn. So after as many empty polls as it has completion queues, and one that had begun before,
// it has seen each completion that it looks for; after as many again it has used what it saw, since
// it polls once more when it has posted what there was to post. Its plugin counts empty polls in
// the doorbell page behind all earlier posts, and the lcore reads that count before it looks for
// posts: what a program has posted before it became quiet is seen.
//
// A program that does not poll (it sleeps, computes, or has an older plugin) counts as quiet once
// nothing of it has moved for some time. That is a guess, and counted.
//
// On the shard.
class ProgramWatch {
 public:
  explicit ProgramWatch(uint64_t quiet_ns) : quiet_ns_(quiet_ns) {}

  // Makes room for one more context.
  void MakeRoom(size_t contexts) { programs_.reserve(contexts); }
  void Add(const VerbsContext& context) noexcept;
  void Remove(const VerbsContext& context);

  // The program has got a completion.
  void NoteCompletion(const VerbsContext& context);
  // Any program may have got an answer or an event.
  void NoteAnswers();

  // Whether all programs with queue pairs are quiet. `real_ns`: CLOCK_MONOTONIC.
  bool AreQuiet(const OnShard& shard, std::span<VerbsContext* const> contexts, uint64_t real_ns);
  // How many programs have been taken for quiet because of the time since the last call.
  uint64_t TakeGuesses();

 private:
  struct Program {
    uint64_t number;        // see VerbsContext::program
    const void* only;       // the context, if it has no number
    uint32_t contexts = 0;  // open ones
    bool is_quiet = false;
    bool is_guess = false;     // quiet because of the time
    bool must_begin = true;    // `begin_polls` is to be read
    bool has_rung = false;     // it has posted since it was quiet
    uint32_t begin_polls = 0;  // empty polls when it was last told something
    uint32_t last_polls = 0;
    uint64_t moved_ns = 0;  // real time when it last moved
    // Of all its contexts, while they are looked at.
    uint32_t polls = 0;
    uint32_t completion_queues = 0;
    bool has_queue_pairs = false;
    bool rings = false;
  };
  Program* Find(const VerbsContext& context);
  void ReadAll(const OnShard& shard, std::span<VerbsContext* const> contexts);
  bool BecomesQuiet(Program& program, uint64_t real_ns) const;

  const uint64_t quiet_ns_;
  std::vector<Program> programs_;
};

}  // namespace roci::dataplane
