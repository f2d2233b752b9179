// Session commands for contexts that several processes share: a program passes its command
// descriptor to another one, or a child inherits it.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "control/loop/errno_status.h"
#include "control/session/session.h"

namespace roci::control {

absl::Status Session::NameContext(const Request& request, const FdsPointer&, Reply&) {
  context_fd_ = request.As<roci_abi_name_context_request>().fd;
  return absl::OkStatus();
}

absl::Status Session::Attach(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& attach = request.As<roci_abi_attach_request>();
  Session* other = findings_.context != 0 ? services_.find_session(findings_.context) : nullptr;
  if (other == nullptr) return StatusFromErrno(ENODEV, "no session has this context open");
  app_features_ = attach.features;
  const absl::Status status = OpenDevice(*other->device_, attach.minor, other, reply);
  if (!status.ok()) return status;
  auto& response = reply.As<roci_abi_attach_response>();
  const std::string& name = device_->name();
  std::memcpy(response.device, name.data(), std::min(name.size(), sizeof(response.device) - 1));
  return absl::OkStatus();
}

absl::Status Session::JoinGroup(Session& other) {
  if (other.group_ == nullptr) other.group_ = std::make_shared<ContextGroup>(&other);
  const uint32_t base = other.group_->Join(this);
  if (base == 0) return absl::ResourceExhaustedError("too many processes share the context");
  group_ = other.group_;
  constexpr uint32_t kLast = ContextGroup::kRange - 1;
  ForEachOwnTable([&](auto& table) { table.UseRange(base + 1, kLast); });
  shard_->ShareKeysOf(*other.shard_);
  return absl::OkStatus();
}

namespace {

// Drops the keys of some records, and removes the records. False: none is left.
template <class Record, class KeyOf>
bool DropSome(dataplane::ShardClient& shard, dataplane::DropKeys::Kind kind,
              HandleTable<Record>& table, KeyOf key_of) {
  std::array<uint32_t, dataplane::DropKeys::kMost> keys;
  size_t count = 0;
  for (auto it = table.begin(); it != table.end() && count < keys.size(); ++it) {
    keys[count++] = key_of(it->first, it->second);
  }
  if (count == 0) return false;
  shard.Do(dataplane::DropKeys{kind, std::span(keys).first(count)});
  return table.RemoveSome(count);
}

}  // namespace

// The keys stay valid for the other sessions, except those of this program's memory.
bool Session::DropSomeKeys() {
  using Kind = dataplane::DropKeys::Kind;
  const auto handle_itself = [](uint32_t handle, const auto&) { return handle; };
  return DropSome(*shard_, Kind::kWindows, mws_, handle_itself) ||
         DropSome(*shard_, Kind::kLists, lists_, handle_itself) ||
         DropSome(*shard_, Kind::kRegions, mrs_,
                  [](uint32_t, const MrRecord& record) { return record.key; });
}

Session* Session::AnothersHandle(uint32_t handle) const {
  Session* owner = group_ != nullptr ? group_->OwnerOf(handle) : nullptr;
  return owner != this ? owner : nullptr;
}

// Whether the request destroys an object of another session of the context. Such a request succeeds
// without effect: a child that destroys the objects that it inherited must not affect its parent.
bool Session::DestroysAnothers(const Request& request) const {
  switch (request.head.command) {
    case ROCI_ABI_DEALLOC_PD:
    case ROCI_ABI_DEREG_MR:
    case ROCI_ABI_FREE_DM:
    case ROCI_ABI_CLOSE_XRCD:
    case ROCI_ABI_DESTROY_FLOW:
    case ROCI_ABI_DESTROY_COUNTERS:
    case ROCI_ABI_DESTROY_QUEUE_TABLE:
      return AnothersHandle(request.As<roci_abi_handle_request>().handle) != nullptr;
    case ROCI_ABI_DEALLOC_MW:  // all sessions have handles of the same range
    case ROCI_ABI_FREE_LIST_MR:
      return group_ != nullptr;
    default:
      return false;
  }
}

PdRecord* Session::FindPd(uint32_t handle) {
  if (PdRecord* own = pds_.Find(handle); own != nullptr) return own;
  Session* owner = AnothersHandle(handle);
  const PdRecord* original = owner != nullptr ? owner->pds_.Find(handle) : nullptr;
  if (original == nullptr) return nullptr;
  pds_.AddAs(handle, PdRecord{.share = {}, .ref_count = original->ref_count.Share()});
  return pds_.Find(handle);
}

DmRecord* Session::FindDm(uint32_t handle) {
  if (DmRecord* own = dms_.Find(handle); own != nullptr) return own;
  Session* owner = AnothersHandle(handle);
  const DmRecord* original = owner != nullptr ? owner->dms_.Find(handle) : nullptr;
  if (original == nullptr) return nullptr;
  dms_.AddAs(handle, DmRecord{.share = {},
                              .descriptor = {},
                              .fd = original->fd,
                              .mapping = original->mapping,
                              .length = original->length,
                              .ref_count = original->ref_count.Share()});
  return dms_.Find(handle);
}

absl::Status Session::ImportPd(const Request& request, const FdsPointer&, Reply&) {
  const PdRecord* pd = FindPd(request.As<roci_abi_handle_request>().handle);
  return pd != nullptr ? absl::OkStatus() : absl::NotFoundError("no such protection domain");
}

absl::Status Session::ImportMr(const Request& request, const FdsPointer&, Reply& reply) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  Session* owner = AnothersHandle(handle);
  const MrRecord* mr = (owner != nullptr ? owner : this)->mrs_.Find(handle);
  if (mr == nullptr) return absl::NotFoundError("no such memory region");
  auto& response = reply.As<roci_abi_import_mr_response>();
  response.lkey = mr->key;
  response.rkey = mr->key;
  response.length = mr->length;
  return absl::OkStatus();
}

absl::Status Session::ImportDm(const Request& request, const FdsPointer&, Reply& reply) {
  const DmRecord* dm = FindDm(request.As<roci_abi_handle_request>().handle);
  if (dm == nullptr) return absl::NotFoundError("no such device memory");
  auto& response = reply.As<roci_abi_import_dm_response>();
  response.length = dm->length;
  response.memory_size = dm->mapping->length();
  reply.fds = {dm->fd->get()};
  return absl::OkStatus();
}

}  // namespace roci::control
