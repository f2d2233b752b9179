#include "control/config/personality.h"

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "control/config/builtin_personalities.h"
#include "control/config/named_value.h"
#include "control/config/nearest_name.h"
#include "control/config/status_names.h"
#include "control/config/toml_reader.h"

namespace roci::control {
namespace {

struct LimitKey {
  const char* name;
  uint32_t DeviceLimits::*member;
  uint32_t least;  // 0: an adapter may have none
};

// The keys of [limits], by the names of ibv_query_device(3) where it has one.
constexpr LimitKey kLimitKeys[] = {
    {"max_qp", &DeviceLimits::max_qp, 1},
    {"max_qp_wr", &DeviceLimits::max_qp_wr, 1},
    {"max_sge", &DeviceLimits::max_sge, 1},
    {"max_sge_rd", &DeviceLimits::max_sge_rd, 1},
    {"max_inline", &DeviceLimits::max_inline, 0},
    {"max_cq", &DeviceLimits::max_cq, 1},
    {"max_cqe", &DeviceLimits::max_cqe, 1},
    {"max_mr", &DeviceLimits::max_mr, 1},
    {"max_mw", &DeviceLimits::max_mw, 0},
    {"max_pd", &DeviceLimits::max_pd, 1},
    {"max_ah", &DeviceLimits::max_ah, 1},
    {"max_qp_rd_atom", &DeviceLimits::max_rd_atomic, 0},
    {"max_srq", &DeviceLimits::max_srq, 0},
    {"max_srq_wr", &DeviceLimits::max_srq_wr, 1},
    {"max_srq_sge", &DeviceLimits::max_srq_sge, 1},
    {"max_mcast_grp", &DeviceLimits::max_multicast_groups, 0},
    {"max_mcast_qp_attach", &DeviceLimits::max_multicast_members, 0},
    {"max_total_mcast_qp_attach", &DeviceLimits::max_multicast_memberships, 0},
    {"max_dm_bytes", &DeviceLimits::max_dm_bytes, 0},
};

// Limits without a key, which a personality does not lower itself.
constexpr uint32_t DeviceLimits::*kMasks[] = {&DeviceLimits::qp_types, &DeviceLimits::features,
                                              &DeviceLimits::capabilities};

constexpr Named<Feature> kFeatures[] = {{"atomics", Feature::kAtomics},
                                        {"cq_moderation", Feature::kCqModeration},
                                        {"flows", Feature::kFlows},
                                        {"flush", Feature::kFlush},
                                        {"on_demand_paging", Feature::kOnDemandPaging},
                                        {"packet_pacing", Feature::kPacketPacing},
                                        {"rss", Feature::kRss},
                                        {"tag_matching", Feature::kTagMatching},
                                        {"timestamps", Feature::kTimestamps}};

// Calls that providers lack, by their names without "ibv_".
constexpr Named<Feature> kCalls[] = {{"alloc_mw", Feature::kAllocMw},
                                     {"alloc_null_mr", Feature::kAllocNullMr},
                                     {"create_counters", Feature::kCreateCounters},
                                     {"reg_dmabuf_mr", Feature::kRegDmabufMr},
                                     {"rereg_mr", Feature::kReregMr},
                                     {"resize_cq", Feature::kResizeCq}};
constexpr uint32_t kCallBits = [] {
  uint32_t bits = 0;
  for (const Named<Feature>& call : kCalls) bits |= static_cast<uint32_t>(call.value);
  return bits;
}();

constexpr uint32_t kXrcTypes = 1u << 9 | 1u << 10;
constexpr uint32_t kRawPacketType = 1u << 8;
constexpr Named<uint32_t> kQpTypes[] = {{"rc", 1u << 2},
                                        {"uc", 1u << 3},
                                        {"ud", 1u << 4},
                                        {"raw_packet", kRawPacketType},
                                        {"xrc", kXrcTypes}};

template <class Value, size_t kCount>
std::string_view Nearest(const Named<Value> (&table)[kCount], std::string_view wrong) {
  std::vector<std::string_view> names;
  for (const Named<Value>& entry : table) names.push_back(entry.name);
  return NearestName(wrong, names);
}

// Reads an array of names into the union of their bits; an absent key leaves `out` unchanged.
template <class Value, size_t kCount>
void ReadBits(TomlReader& reader, const char* key, const char* expected,
              const Named<Value> (&table)[kCount], uint32_t& out) {
  uint32_t bits = 0;
  const bool found = reader.ParsedEach(key, expected, [&](const std::string& text) {
    Value value{};
    if (Lookup(table, text, value)) {
      bits |= static_cast<uint32_t>(value);
    } else {
      reader.Fault(key, absl::StrCat("there is no ", text, "; the nearest is ",
                                     std::string(Nearest(table, text))));
    }
    return true;
  });
  if (found) out = bits;
}

constexpr size_t kMaxFileBytes = 1 << 20;
// fw_ver of ibv_query_device(3) and the files of sysfs have room for that.
constexpr size_t kMaxTextBytes = 63;

void ReadText(TomlReader& reader, const char* key, bool may_be_empty, std::string& out) {
  reader.Parsed(key, "a printable text of at most 63 bytes", [&](const std::string& text) {
    out = text;
    return text.size() <= kMaxTextBytes && (may_be_empty || !text.empty()) &&
           std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  });
}

void Note(Personality& personality, const char* attribute, uint32_t adapter, uint32_t device) {
  if (adapter == device) return;
  personality.differences.push_back(
      {.attribute = attribute, .adapter = absl::StrCat(adapter), .device = absl::StrCat(device)});
}

void ReadIdentity(TomlReader& reader, Personality& out) {
  DeviceIdentity& identity = out.identity;
  reader.Number("vendor_id", 0, 0xFF'FFFF, identity.vendor_id);
  reader.Number("vendor_part_id", 0, UINT32_MAX, identity.vendor_part_id);
  reader.Number("hw_ver", 0, UINT32_MAX, identity.hw_ver);
  ReadText(reader, "firmware", false, identity.firmware_version);
  ReadText(reader, "hca_type", true, identity.hca_type);
  ReadText(reader, "board_id", true, identity.board_id);
  uint32_t delay = 0;
  if (reader.Number("local_ca_ack_delay", 0, 31, delay)) {
    // A promise to peers: the daemon cannot promise less than its own.
    identity.ack_delay = std::max(delay, kAckDelay);
    Note(out, "local_ca_ack_delay", delay, identity.ack_delay);
  }
}

void ReadLimitKeys(TomlReader& reader, Personality& out) {
  for (const LimitKey& key : kLimitKeys) {
    uint32_t adapter = 0;
    if (!reader.Number(key.name, key.least, UINT32_MAX, adapter)) continue;
    uint32_t& device = out.limits.*key.member;
    device = std::min(device, adapter);
    Note(out, key.name, adapter, device);
  }
}

void ReadCapabilities(TomlReader& reader, Personality& out) {
  DeviceLimits& limits = out.limits;
  uint32_t missing_calls = 0;
  ReadBits(reader, "features", "the name of a feature", kFeatures, limits.features);
  ReadBits(reader, "missing_calls", "the name of a call", kCalls, missing_calls);
  limits.features = (limits.features | kCallBits) & ~missing_calls;
  ReadBits(reader, "qp_types", "a type of queue pair", kQpTypes, limits.qp_types);
  uint32_t flags = 0;
  if (reader.Number("device_cap_flags", 0, UINT32_MAX, flags)) {
    limits.capabilities = flags;
    const uint32_t lacking = flags & ~kKnownCapabilities;
    if (lacking != 0) {
      out.differences.push_back({.attribute = "device_cap_flags",
                                 .adapter = absl::StrFormat("0x%08x", flags),
                                 .device = absl::StrFormat("0x%08x", flags & kKnownCapabilities)});
    }
  }
  // One answer to one question: types and flags speak of the same.
  if (!limits.HasCapabilities(kCapXrc)) limits.qp_types &= ~kXrcTypes;
  if ((limits.qp_types & kXrcTypes) == 0) limits.capabilities &= ~kCapXrc;
  if ((limits.qp_types & kRawPacketType) == 0) {
    limits.features &=
        ~static_cast<uint32_t>(Feature::kRss) & ~static_cast<uint32_t>(Feature::kFlows);
    limits.capabilities &= ~static_cast<uint32_t>(kCapRawIpChecksum);
  }
  limits.max_sge_rd = std::min(limits.max_sge_rd, limits.max_sge);
  if (!limits.HasCapabilities(kCapMemoryWindow)) limits.max_mw = 0;
  if (limits.max_srq == 0) limits.features &= ~static_cast<uint32_t>(Feature::kTagMatching);
}

void ReadVendorErrors(TomlReader& reader, Personality& out) {
  for (const Named<roce::CompletionStatus>& status : kStatusNames) {
    reader.Number(absl::string_view(status.name.data(), status.name.size()), 1, UINT32_MAX,
                  out.vendor_errors[static_cast<size_t>(status.value)]);
  }
}

}  // namespace

std::vector<std::string_view> PersonalityNames() {
  std::vector<std::string_view> names;
  for (const BuiltinPersonality& builtin : kBuiltinPersonalities) names.push_back(builtin.name);
  return names;
}

absl::StatusOr<Personality> ParsePersonality(std::string_view text, const std::string& file) {
  Personality out;
  const auto read = [&](const toml::table& table, TomlFaults& faults) {
    TomlReader reader(table, "", faults);
    ReadIdentity(reader, out);
    reader.Table("limits", [&](TomlReader& limits) { ReadLimitKeys(limits, out); });
    ReadCapabilities(reader, out);
    reader.Table("vendor_errors", [&](TomlReader& errors) { ReadVendorErrors(errors, out); });
    reader.Bool("lenient_posts", out.has_lenient_posts);
    reader.RefuseOthers();
  };
  const absl::Status status = ParseToml(absl::string_view(text.data(), text.size()), file, read);
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<Personality> LoadPersonality(const std::string& name) {
  absl::StatusOr<Personality> found = absl::InvalidArgumentError("");
  if (name.find('/') != std::string::npos) {
    // The daemon would wait for a writer of a FIFO.
    std::error_code error;
    const std::filesystem::file_status file = std::filesystem::status(name, error);
    if (std::filesystem::exists(file) && !std::filesystem::is_regular_file(file)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": not a regular file"));
    }
    const absl::StatusOr<std::string> text = ReadTextFile(name, kMaxFileBytes, "a personality");
    if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
    found = ParsePersonality(*text, name);
  } else {
    const auto* builtin = std::ranges::find(kBuiltinPersonalities, name, &BuiltinPersonality::name);
    if (builtin == std::end(kBuiltinPersonalities)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no personality ", name, "; the nearest is ",
          std::string(NearestName(name, PersonalityNames())), " (a file needs a path with a /)"));
    }
    found = ParsePersonality(builtin->text, name);
  }
  if (found.ok()) found->name = name;
  return found;
}

DeviceLimits Smaller(DeviceLimits limits, const Personality& personality) {
  for (const LimitKey& key : kLimitKeys) {
    limits.*key.member = std::min(limits.*key.member, personality.limits.*key.member);
  }
  for (uint32_t DeviceLimits::*mask : kMasks) limits.*mask &= personality.limits.*mask;
  return limits;
}

}  // namespace roci::control
