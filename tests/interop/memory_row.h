// One row of memory_table.cc's table: an operation on a kind of memory at a time of its
// registration, and what program and device then see of the memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/interop/memory_device.h"
#include "tests/interop/memory_region.h"

namespace interop {

/// What the program does in common to all rows.
struct Settings {
  DeviceName device;
  std::string folder = "/tmp";  ///< on a file system with O_DIRECT
};

/// What an operation works on, and what it leaves to be checked.
struct Subject {
  const Settings& settings;
  Region& region;
  uint8_t* at;                          ///< where the program has the part now
  size_t check_length;                  ///< of the part's beginning
  std::string skipped = {};             ///< why the operation cannot be tried
  std::string remark = {};              ///< in fixed words, for the row
  Pattern brought = Pattern::kBrought;  ///< what "arrived" means

  void Remark(const std::string& words) { remark += (remark.empty() ? "" : ", ") + words; }
};

/// An operation of the table. Act() answers with an errno, or 0.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Before the memory is registered.
  virtual void Prepare(Subject&) {}
  virtual int Act(Subject& subject) = 0;
  /// After all checks.
  virtual void Finish(Subject&) {}
};

struct NamedOperation {
  std::string name;
  std::unique_ptr<Operation> operation;
  bool (*suits)(const std::string& kind) = nullptr;  ///< null: all kinds
  bool device_first = false;                         ///< the device READs before the program looks
};

/// An operation that is one function.
template <class F>
std::unique_ptr<Operation> Once(F act) {
  class Function : public Operation {
   public:
    explicit Function(F act) : act_(act) {}
    int Act(Subject& subject) override { return act_(subject); }

   private:
    F act_;
  };
  return std::make_unique<Function>(act);
}

/// Calls that change mappings (memory_mappings.cc), processes that share or copy the memory
/// (memory_processes.cc), and what the kernel does with the memory (memory_kernel.cc).
void AddMappings(std::vector<NamedOperation>& operations);
void AddProcesses(std::vector<NamedOperation>& operations);
void AddKernel(std::vector<NamedOperation>& operations);
/// A child that looks, writes, and looks again when all is checked. By the library, whose handlers
/// run (pthread_atfork), or by the bare system call.
enum class ForkCall : uint8_t { kLibrary, kBare };
std::unique_ptr<Operation> MakeFork(ForkCall call);
/// Reads a file into a buffer that io_uring holds since before the registration.
std::unique_ptr<Operation> MakeFixedBuffer();
/// Gives `advice` to the part, then forks as the row "fork" does.
std::unique_ptr<Operation> AdviseAndFork(int advice);

enum class Moment : uint8_t { kBefore, kRegistered, kTraffic, kAfter };
constexpr const char* kMoments[] = {"before", "registered", "traffic", "after"};

/// The columns of a row, in order.
struct Result {
  std::string error = "-";   ///< the operation's errno
  std::string sees = "-";    ///< the program, right after the operation
  std::string reads = "-";   ///< an RDMA READ after the program wrote a new pattern
  std::string writes = "-";  ///< whether the program sees what the device WRITEs
  std::string remark = "-";
};

Result RunRow(const Settings& settings, NamedOperation& named, const std::string& kind,
              Moment moment, uint8_t* stack);

/// Rows by name that go their own way.
struct SpecialRow {
  const char* name;
  const char* kind;
  Result (*run)(const Settings& settings);
};
const std::vector<SpecialRow>& SpecialRows();

}  // namespace interop
