// One row of memory_table.cc's table: an operation on a kind of memory at a time of its
// registration, and what program and device then see of the memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/interop/memory_device.h"
#include "tests/interop/memory_region.h"

namespace interop {

/// Settings common to all rows.
struct Settings {
  DeviceName device;
  std::string folder = "/tmp";  ///< on a file system with O_DIRECT
};

/// The memory that an operation works on, and what must be checked afterwards.
struct Subject {
  const Settings& settings;
  Region& region;
  uint8_t* at;                          ///< the program's current address of the part
  size_t check_length;                  ///< bytes to check, from the start of the part
  std::string skipped = {};             ///< why the operation cannot be tried
  std::string remark = {};              ///< in fixed words, for the row
  Pattern brought = Pattern::kBrought;  ///< the pattern that "arrived" means

  void Remark(const std::string& words) { remark += (remark.empty() ? "" : ", ") + words; }
};

/// An operation of the table. Act() returns an errno, or 0.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Called before the memory is registered.
  virtual void Prepare(Subject&) {}
  virtual int Act(Subject& subject) = 0;
  /// Called after all checks.
  virtual void Finish(Subject&) {}
};

struct NamedOperation {
  std::string name;
  std::unique_ptr<Operation> operation;
  bool (*suits)(const std::string& kind) = nullptr;  ///< null: all kinds
  bool device_first = false;                         ///< the device READs before the program looks
};

/// An operation made of one function.
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
/// Forks a child that reads the memory, writes it, and reads it again after all checks. kLibrary
/// calls fork(), which runs the handlers of pthread_atfork. kBare makes the system call.
enum class ForkCall : uint8_t { kLibrary, kBare };
std::unique_ptr<Operation> MakeFork(ForkCall call);
/// Reads a file into a buffer that was registered with io_uring before the device registered it.
std::unique_ptr<Operation> MakeFixedBuffer();
/// Calls madvise(`advice`) for the part, then forks like the row "fork".
std::unique_ptr<Operation> AdviseAndFork(int advice);

enum class Moment : uint8_t { kBefore, kRegistered, kTraffic, kAfter };
constexpr const char* kMoments[] = {"before", "registered", "traffic", "after"};

/// The columns of a row, in order.
struct Result {
  std::string error = "-";   ///< the operation's errno
  std::string sees = "-";    ///< what the program sees right after the operation
  std::string reads = "-";   ///< result of an RDMA READ after the program wrote a new pattern
  std::string writes = "-";  ///< whether the program sees what the device WRITEs
  std::string remark = "-";
};

Result RunRow(const Settings& settings, NamedOperation& named, const std::string& kind,
              Moment moment, uint8_t* stack);

/// Rows with code of their own, by name.
struct SpecialRow {
  const char* name;
  const char* kind;
  Result (*run)(const Settings& settings);
};
const std::vector<SpecialRow>& SpecialRows();

}  // namespace interop
