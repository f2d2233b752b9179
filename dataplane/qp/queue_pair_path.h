// The path of a queue pair: the headers of what it sends, and what received packets must match.
#pragma once

#include <cstdint>

#include "roce/drop_reason.h"
#include "roce/frame.h"
#include "roce/packet.h"
#include "roce/qp_attributes.h"
#include "roce/types.h"

namespace roci::dataplane {

// On the shard.
class QueuePairPath {
 public:
  // `answers_marks`: the queue pair reduces its rate when the network marks its packets (ECN).
  void Use(const roce::Path& path, bool answers_marks);
  // UD: uses the source of `packet`, which queue pair `local` of the port with address `mac` has
  // received, as destination of CNPs.
  void UseSourceOf(const roce::Packet& packet, const roce::Mac& mac, roce::Qpn local);
  // Compares P_Key, addresses and VLAN of a received packet with the path. UD: only the P_Key.
  // kNone: they match.
  roce::DropReason Check(const roce::Packet& packet, roce::QpType type) const;

  const roce::FrameTemplate& frame() const { return frame_; }  // UD: of notifications
  const roce::Gid& local_gid() const { return local_gid_; }
  const roce::Gid& remote_gid() const { return remote_gid_; }
  uint16_t vlan() const { return vlan_; }  // 0: none

 private:
  roce::FrameTemplate frame_;
  roce::Gid local_gid_;
  roce::Gid remote_gid_;
  uint16_t pkey_ = roce::kDefaultPkey;
  uint16_t vlan_ = 0;
};

}  // namespace roci::dataplane
