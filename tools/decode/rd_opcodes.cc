#include "tools/decode/rd_opcodes.h"

namespace roci::tools {
namespace {

constexpr uint8_t kOperationBits = 0x1F;
constexpr uint8_t kLastSharedWithRc = 0x14;  // FETCH ADD
constexpr uint8_t kResync = 0x15;            // RD only

void Insert(roce::OpcodeInfo& info, uint32_t bytes) {
  for (size_t i = 0; i < roce::kExtHeaderCount; ++i) {
    if (info.Has(static_cast<roce::ExtHeader>(i))) {
      info.ext_offset[i] = static_cast<uint8_t>(info.ext_offset[i] + bytes);
    }
  }
  info.header_bytes = static_cast<uint8_t>(info.header_bytes + bytes);
}

}  // namespace

// The headers of the same RC operation after an RDETH and, in requests, a DETH.
HeaderLayout LayoutOf(roce::Opcode opcode) {
  const roce::OpcodeInfo& own = roce::InfoOf(opcode);
  const auto code = static_cast<uint8_t>(opcode);
  const uint8_t operation = code & kOperationBits;
  const bool is_rd = code >> 5 == static_cast<uint8_t>(roce::Transport::kRd);
  if (!is_rd || operation > kResync) return {own, false, own.name};

  HeaderLayout rd{own, true, "RD_RESYNC"};
  rd.info.is_request = true;
  rd.info.header_bytes = roce::kBthBytes;
  if (operation <= kLastSharedWithRc) {
    rd.info = roce::InfoOf(roce::WithTransport(opcode, roce::Transport::kRc));
    rd.name = std::string("RD") + (rd.info.name + 2);  // without "RC"
  }
  rd.info.opcode = opcode;
  rd.info.known = false;
  rd.info.transport = roce::Transport::kRd;
  Insert(rd.info, Rdeth::kBytes);
  if (rd.info.is_request) {
    constexpr auto kDeth = roce::ExtHeader::kDeth;
    Insert(rd.info, roce::Deth::kBytes);
    rd.info.ext_mask = static_cast<uint16_t>(rd.info.ext_mask | roce::OpcodeInfo::Bit(kDeth));
    rd.info.ext_offset[static_cast<size_t>(kDeth)] = Rdeth::kOffset + Rdeth::kBytes;
  }
  return rd;
}

}  // namespace roci::tools
