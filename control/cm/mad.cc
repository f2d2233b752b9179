#include "control/cm/mad.h"

#include <cstring>
#include <tuple>
#include <type_traits>

#include "roce/headers.h"

namespace roci::control::cm {
namespace {

using roce::LoadBe;
using roce::StoreBe;

// Common MAD header (IBTA vol 1, 13.4.2).
constexpr size_t kHeaderBytes = 24;
constexpr uint8_t kBaseVersion = 1;
constexpr uint8_t kClassCommunication = 7;
constexpr uint8_t kClassVersion = 2;
constexpr uint8_t kMethodSend = 3;
constexpr size_t kTransactionOffset = 8;
constexpr size_t kAttributeOffset = 16;
constexpr size_t kModifierOffset = 20;

// A number or an array in a message: the position of its most significant bit, counted from the end
// of the common header, and its width in bits. A number occupies at most 8 bytes.
template <class Member>
struct Item {
  uint16_t byte;
  uint8_t bit;
  uint16_t width;
  Member member;
};
template <class Member>
constexpr Item<Member> At(int byte, int bit, int width, Member member) {
  return {static_cast<uint16_t>(byte), static_cast<uint8_t>(bit), static_cast<uint16_t>(width),
          member};
}

// The fields of the primary and the alternate path in REQ (12.6.5).
constexpr auto PathItems(int at) {
  return std::tuple{At(at + 0, 0, 16, &PathFields::local_lid),
                    At(at + 2, 0, 16, &PathFields::remote_lid),
                    At(at + 4, 0, 128, &PathFields::local_gid),
                    At(at + 20, 0, 128, &PathFields::remote_gid),
                    At(at + 36, 0, 20, &PathFields::flow_label),
                    At(at + 39, 2, 6, &PathFields::packet_rate),
                    At(at + 40, 0, 8, &PathFields::traffic_class),
                    At(at + 41, 0, 8, &PathFields::hop_limit),
                    At(at + 42, 0, 4, &PathFields::sl),
                    At(at + 42, 4, 1, &PathFields::subnet_local),
                    At(at + 43, 0, 5, &PathFields::local_ack_timeout)};
}
constexpr auto kPrimaryPath = PathItems(52);
constexpr auto kAlternatePath = PathItems(96);
// LAP has the same fields at slightly different positions (12.8.1).
constexpr auto kLapPath = std::tuple{At(20, 0, 16, &PathFields::local_lid),
                                     At(22, 0, 16, &PathFields::remote_lid),
                                     At(24, 0, 128, &PathFields::local_gid),
                                     At(40, 0, 128, &PathFields::remote_gid),
                                     At(56, 0, 20, &PathFields::flow_label),
                                     At(59, 0, 8, &PathFields::traffic_class),
                                     At(60, 0, 8, &PathFields::hop_limit),
                                     At(61, 2, 6, &PathFields::packet_rate),
                                     At(62, 0, 4, &PathFields::sl),
                                     At(62, 4, 1, &PathFields::subnet_local),
                                     At(63, 0, 5, &PathFields::local_ack_timeout)};

// One table for each message; clauses 12.6.5 to 12.6.12, 12.8.1, 12.8.2, 12.11.
template <class T>
struct Layout;
template <>
struct Layout<Req> {
  static constexpr auto kItems = std::tuple{At(0, 0, 32, &Req::local_id),
                                            At(5, 0, 24, &Req::vendor_id),
                                            At(8, 0, 64, &Req::service_id),
                                            At(16, 0, 64, &Req::local_ca_guid),
                                            At(28, 0, 32, &Req::local_qkey),
                                            At(32, 0, 24, &Req::local_qpn),
                                            At(35, 0, 8, &Req::responder_resources),
                                            At(36, 0, 24, &Req::local_eecn),
                                            At(39, 0, 8, &Req::initiator_depth),
                                            At(40, 0, 24, &Req::remote_eecn),
                                            At(43, 0, 5, &Req::remote_response_timeout),
                                            At(43, 5, 2, &Req::transport_service),
                                            At(43, 7, 1, &Req::flow_control),
                                            At(44, 0, 24, &Req::starting_psn),
                                            At(47, 0, 5, &Req::local_response_timeout),
                                            At(47, 5, 3, &Req::retry_count),
                                            At(48, 0, 16, &Req::pkey),
                                            At(50, 0, 4, &Req::path_mtu),
                                            At(50, 4, 1, &Req::rdc_exists),
                                            At(50, 5, 3, &Req::rnr_retry_count),
                                            At(51, 0, 4, &Req::max_cm_retries),
                                            At(51, 4, 1, &Req::srq),
                                            At(51, 5, 3, &Req::extended_transport),
                                            At(140, 0, 736, &Req::private_data)};
};
template <>
struct Layout<Mra> {
  static constexpr auto kItems = std::tuple{
      At(0, 0, 32, &Mra::local_id), At(4, 0, 32, &Mra::remote_id), At(8, 0, 2, &Mra::about),
      At(9, 0, 5, &Mra::service_timeout), At(10, 0, 1776, &Mra::private_data)};
};
template <>
struct Layout<Rej> {
  static constexpr auto kItems = std::tuple{
      At(0, 0, 32, &Rej::local_id),       At(4, 0, 32, &Rej::remote_id), At(8, 0, 2, &Rej::about),
      At(9, 0, 7, &Rej::info_length),     At(10, 0, 16, &Rej::reason),   At(12, 0, 576, &Rej::info),
      At(84, 0, 1184, &Rej::private_data)};
};
template <>
struct Layout<Rep> {
  static constexpr auto kItems =
      std::tuple{At(0, 0, 32, &Rep::local_id),          At(4, 0, 32, &Rep::remote_id),
                 At(8, 0, 32, &Rep::local_qkey),        At(12, 0, 24, &Rep::local_qpn),
                 At(15, 0, 8, &Rep::vendor_high),       At(16, 0, 24, &Rep::local_eecn),
                 At(19, 0, 8, &Rep::vendor_middle),     At(20, 0, 24, &Rep::starting_psn),
                 At(23, 0, 8, &Rep::vendor_low),        At(24, 0, 8, &Rep::responder_resources),
                 At(25, 0, 8, &Rep::initiator_depth),   At(26, 0, 5, &Rep::target_ack_delay),
                 At(26, 5, 2, &Rep::failover_accepted), At(26, 7, 1, &Rep::flow_control),
                 At(27, 0, 3, &Rep::rnr_retry_count),   At(27, 3, 1, &Rep::srq),
                 At(28, 0, 64, &Rep::local_ca_guid),    At(36, 0, 1568, &Rep::private_data)};
};
template <>
struct Layout<Rtu> {
  static constexpr auto kItems =
      std::tuple{At(0, 0, 32, &Rtu::local_id), At(4, 0, 32, &Rtu::remote_id),
                 At(8, 0, 1792, &Rtu::private_data)};
};
template <>
struct Layout<Dreq> {
  static constexpr auto kItems =
      std::tuple{At(0, 0, 32, &Dreq::local_id), At(4, 0, 32, &Dreq::remote_id),
                 At(8, 0, 24, &Dreq::remote_qpn), At(12, 0, 1760, &Dreq::private_data)};
};
template <>
struct Layout<Drep> {
  static constexpr auto kItems =
      std::tuple{At(0, 0, 32, &Drep::local_id), At(4, 0, 32, &Drep::remote_id),
                 At(8, 0, 1792, &Drep::private_data)};
};
template <>
struct Layout<SidrReq> {
  static constexpr auto kItems =
      std::tuple{At(0, 0, 32, &SidrReq::request_id), At(4, 0, 16, &SidrReq::pkey),
                 At(8, 0, 64, &SidrReq::service_id), At(16, 0, 1728, &SidrReq::private_data)};
};
template <>
struct Layout<SidrRep> {
  static constexpr auto kItems =
      std::tuple{At(0, 0, 32, &SidrRep::request_id),  At(4, 0, 8, &SidrRep::status),
                 At(5, 0, 8, &SidrRep::info_length),  At(6, 0, 16, &SidrRep::vendor_high),
                 At(8, 0, 24, &SidrRep::qpn),         At(11, 0, 8, &SidrRep::vendor_low),
                 At(12, 0, 64, &SidrRep::service_id), At(20, 0, 32, &SidrRep::qkey),
                 At(24, 0, 576, &SidrRep::info),      At(96, 0, 1088, &SidrRep::private_data)};
};
template <>
struct Layout<Lap> {
  static constexpr auto kItems = std::tuple{
      At(0, 0, 32, &Lap::local_id), At(4, 0, 32, &Lap::remote_id), At(12, 0, 24, &Lap::remote_qpn),
      At(15, 0, 5, &Lap::remote_response_timeout), At(64, 0, 1344, &Lap::private_data)};
};
template <>
struct Layout<Apr> {
  static constexpr auto kItems =
      std::tuple{At(0, 0, 32, &Apr::local_id),   At(4, 0, 32, &Apr::remote_id),
                 At(8, 0, 8, &Apr::info_length), At(9, 0, 8, &Apr::status),
                 At(12, 0, 576, &Apr::info),     At(84, 0, 1184, &Apr::private_data)};
};

template <class T>
std::byte* ArrayOf(T& value) {
  if constexpr (requires { value.bytes; }) {
    return reinterpret_cast<std::byte*>(value.bytes.data());
  } else {
    return value.data();
  }
}

// Numbers are read and written byte by byte: few are aligned.
template <class T>
T LoadBits(const std::byte* p, uint32_t bit, uint32_t width) {
  uint64_t value = 0;
  const uint32_t bytes = (bit + width + 7) / 8;
  for (uint32_t i = 0; i < bytes; ++i) value = value << 8 | std::to_integer<uint64_t>(p[i]);
  value >>= bytes * 8 - bit - width;
  return static_cast<T>(width == 64 ? value : value & ((uint64_t{1} << width) - 1));
}

void StoreBits(std::byte* p, uint32_t bit, uint32_t width, uint64_t value) {
  if (width < 64) value &= (uint64_t{1} << width) - 1;
  const uint32_t bytes = (bit + width + 7) / 8;
  value <<= bytes * 8 - bit - width;
  for (uint32_t i = bytes; i-- > 0; value >>= 8) p[i] |= static_cast<std::byte>(value & 0xFF);
}

template <class T, class Items>
void Load(const std::byte* data, const Items& items, T& out) {
  const auto one = [&](const auto& item) {
    auto& value = out.*item.member;
    if constexpr (std::is_integral_v<std::remove_reference_t<decltype(value)>>) {
      value = LoadBits<std::remove_reference_t<decltype(value)>>(data + item.byte, item.bit,
                                                                 item.width);
    } else {
      std::memcpy(ArrayOf(value), data + item.byte, item.width / 8);
    }
  };
  std::apply([&](const auto&... item) { (one(item), ...); }, items);
}

template <class T, class Items>
void Store(const T& in, const Items& items, std::byte* data) {
  const auto one = [&](const auto& item) {
    auto value = in.*item.member;
    if constexpr (std::is_integral_v<decltype(value)>) {
      StoreBits(data + item.byte, item.bit, item.width, value);
    } else {
      std::memcpy(data + item.byte, ArrayOf(value), item.width / 8);
    }
  };
  std::apply([&](const auto&... item) { (one(item), ...); }, items);
}

template <class T>
void LoadBody(const std::byte* data, T& out) {
  Load(data, Layout<T>::kItems, out);
  if constexpr (std::is_same_v<T, Req>) {
    Load(data, kPrimaryPath, out.primary);
    Load(data, kAlternatePath, out.alternate);
  }
  if constexpr (std::is_same_v<T, Lap>) Load(data, kLapPath, out.alternate);
}

template <class T>
void StoreBody(const T& in, std::byte* data) {
  Store(in, Layout<T>::kItems, data);
  if constexpr (std::is_same_v<T, Req>) {
    Store(in.primary, kPrimaryPath, data);
    Store(in.alternate, kAlternatePath, data);
  }
  if constexpr (std::is_same_v<T, Lap>) Store(in.alternate, kLapPath, data);
}

template <class T>
constexpr bool kHasModifier = requires(const T& body) {
  body.ece_options;
};

template <size_t kIndex = 0>
void LoadAny(uint16_t attribute, const std::byte* mad, Body& out) {
  using T = std::variant_alternative_t<kIndex, Body>;
  if (static_cast<uint16_t>(T::kType) == attribute) {
    T& body = out.emplace<T>();
    LoadBody(mad + kHeaderBytes, body);
    if constexpr (kHasModifier<T>) body.ece_options = LoadBe<uint32_t>(mad + kModifierOffset);
    return;
  }
  if constexpr (kIndex + 1 < std::variant_size_v<Body>) {
    LoadAny<kIndex + 1>(attribute, mad, out);
  }
}

}  // namespace

MadReason ParseMad(std::span<const std::byte> payload, Message& out) {
  if (payload.size() != kMadBytes) return MadReason::kLength;
  const std::byte* mad = payload.data();
  if (LoadBe<uint8_t>(mad) != kBaseVersion) return MadReason::kBaseVersion;
  if (LoadBe<uint8_t>(mad + 1) != kClassCommunication) return MadReason::kManagementClass;
  if (LoadBe<uint8_t>(mad + 2) != kClassVersion) return MadReason::kClassVersion;
  if (LoadBe<uint8_t>(mad + 3) != kMethodSend) return MadReason::kMethod;
  const auto attribute = LoadBe<uint16_t>(mad + kAttributeOffset);
  if (attribute < kFirstMessage || attribute > kLastMessage) return MadReason::kAttribute;
  out.transaction = LoadBe<uint64_t>(mad + kTransactionOffset);
  LoadAny(attribute, mad, out.body);
  return MadReason::kNone;
}

MadBytes BuildMad(const Message& message) {
  MadBytes mad{};
  StoreBe<uint8_t>(mad.data(), kBaseVersion);
  StoreBe<uint8_t>(mad.data() + 1, kClassCommunication);
  StoreBe<uint8_t>(mad.data() + 2, kClassVersion);
  StoreBe<uint8_t>(mad.data() + 3, kMethodSend);
  StoreBe<uint64_t>(mad.data() + kTransactionOffset, message.transaction);
  StoreBe<uint16_t>(mad.data() + kAttributeOffset, static_cast<uint16_t>(message.type()));
  const auto store = [&mad](const auto& body) {
    StoreBody(body, mad.data() + kHeaderBytes);
    if constexpr (kHasModifier<std::decay_t<decltype(body)>>) {
      StoreBe<uint32_t>(mad.data() + kModifierOffset, body.ece_options);
    }
  };
  std::visit(store, message.body);
  return mad;
}

}  // namespace roci::control::cm
