#include "control/manage/address_commands.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "control/loop/log.h"
#include "control/manage/manage_protocol.h"
#include "control/manage/manage_request.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

// Why `address` cannot be added to `device`; empty: it can.
std::string FaultOf(const Services& services, const Device& device,
                    const InterfaceAddress& address) {
  if (!IsUsableAddress(address.gid)) return "not a unicast address";
  if (!IsHostAddress(address)) return "a network or broadcast address, not a host's";
  for (const std::unique_ptr<Device>& other : services.devices) {
    const bool on_same_wire = other.get() != &device && !device.config().wire.empty() &&
                              other->config().wire == device.config().wire;
    if (on_same_wire && other->addresses().IsOwn(address.net())) {
      return absl::StrCat("belongs to ", other->name(), " on the same wire");
    }
  }
  return "";
}

std::string InVlanText(const InterfaceAddress& address) {
  return address.vlan == 0 ? "" : absl::StrCat(" in VLAN ", address.vlan);
}

absl::StatusOr<Json> AddAddress(const Services& services, Device& device, const std::string& text,
                                const InterfaceAddress& address) {
  const std::string fault = FaultOf(services, device, address);
  if (!fault.empty()) return RequestRefusal(device.name(), text, fault);
  const absl::StatusOr<uint32_t> index = device.AddAddress(address);
  if (!index.ok()) return RequestRefusal(device.name(), text, index.status().message());
  Log(LogArea::kDaemon, LogLevel::kNotice, "%s: address %s%s added, GID %u", device.name().c_str(),
      text.c_str(), InVlanText(address).c_str(), *index);
  return Json{{"index", *index}};
}

absl::StatusOr<Json> RemoveAddress(Device& device, const std::string& text,
                                   const InterfaceAddress& address) {
  const absl::Status status = device.RemoveAddress(address.net());
  if (!status.ok()) return RequestRefusal(device.name(), text, status.message());
  Log(LogArea::kDaemon, LogLevel::kNotice, "%s: address %s%s removed", device.name().c_str(),
      text.c_str(), InVlanText(address).c_str());
  return Json::object();
}

absl::StatusOr<Json> Run(const Services& services, SysfsPublisher& publisher, const Json& request) {
  const absl::StatusOr<std::string> action = RequestText(request, "action");
  if (!action.ok()) return action.status();
  const absl::StatusOr<std::string> text = RequestText(request, "address");
  if (!text.ok()) return text.status();
  const absl::StatusOr<Device*> device = RequestDevice(services, request);
  if (!device.ok()) return device.status();
  const std::string& name = (*device)->name();
  std::optional<InterfaceAddress> address = ParseInterfaceAddress(*text);
  if (!address)
    return RequestRefusal(name, *text, "not an IPv4 or IPv6 address with a prefix length");
  const absl::StatusOr<uint16_t> vlan = RequestVlan(request);
  if (!vlan.ok()) return vlan.status();
  address->vlan = *vlan;
  const bool adds = *action == "add";
  if (!adds && *action != "remove") return absl::InvalidArgumentError("\"action\": add or remove");
  // ParseInterfaceAddress takes a missing prefix length for /32 or /128: no neighbours.
  if (adds && !absl::StrContains(*text, '/')) {
    return RequestRefusal(name, *text,
                          absl::StrCat("the prefix length is missing, as in ", *text,
                                       address->gid.IsIpv4() ? "/24" : "/64"));
  }
  absl::StatusOr<Json> result = adds ? AddAddress(services, **device, *text, *address)
                                     : RemoveAddress(**device, *text, *address);
  if (!result.ok()) return result;
  const absl::Status shown = publisher.ShowAddresses(**device);
  if (!shown.ok()) {
    Log(LogArea::kDaemon, LogLevel::kWarning, "%s: cannot update the GIDs in sysfs: %s",
        name.c_str(), std::string(shown.message()).c_str());
  }
  return result;
}

}  // namespace

void AddAddressCommand(ManageServer& server, Services& services, SysfsPublisher& publisher) {
  server.AddCommand(kAddressCommand, [&services, &publisher](const Json& request) {
    return Run(services, publisher, request);
  });
}

}  // namespace roci::control
