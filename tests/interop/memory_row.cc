#include "tests/interop/memory_row.h"

#include <algorithm>
#include <optional>

#include "tests/interop/memory_checks.h"

namespace interop {
namespace {

// Leaves the region registered, if that succeeds.
void RunMoment(const MemoryDevice& device, Operation& operation, Moment moment, Subject& subject,
               Checks& checks, Result& result) {
  int refusal = 0;
  if (moment != Moment::kBefore) refusal = checks.Register();
  if (refusal == 0) {
    std::optional<Traffic> traffic;
    if (moment == Moment::kTraffic) {
      traffic.emplace(device, checks.Start(), subject.region.writable);
    }
    if (moment == Moment::kAfter) checks.Deregister();
    result.error = NameOf(operation.Act(subject));
    if (traffic.has_value() && !traffic->Stop().empty()) subject.Remark("traffic failed");
    if (!checks.registered()) refusal = checks.Register();
  }
  if (refusal != 0) subject.Remark("ibv_reg_mr " + NameOf(refusal));
}

}  // namespace

Result RunRow(const Settings& settings, NamedOperation& named, const std::string& kind,
              Moment moment, uint8_t* stack) {
  Result result;
  Region region = MakeRegion(kind, settings.folder, stack);
  if (region.data == nullptr) {
    result.remark = "skipped: no such memory";
    return result;
  }
  Subject subject = {.settings = settings,
                     .region = region,
                     .at = region.data + region.part,
                     .check_length = std::min(region.part_length, size_t{kMaxTransfer})};
  const MemoryDevice device(settings.device);
  if (device.context == nullptr) {
    result.remark = "no device";
    return result;
  }
  Checks checks(device, subject);
  named.operation->Prepare(subject);
  if (subject.skipped.empty()) {
    RunMoment(device, *named.operation, moment, subject, checks, result);
  }
  if (!subject.skipped.empty()) {
    result.remark = "skipped: " + subject.skipped;
    return result;
  }
  if (named.device_first && checks.registered()) checks.DeviceLooksFirst();
  checks.Run(result);
  named.operation->Finish(subject);
  if (!subject.remark.empty()) result.remark = subject.remark;
  return result;
}

}  // namespace interop
