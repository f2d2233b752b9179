// Attributes of files.
#include "tests/interop/rpcrdma/nfs/attributes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <limits>

namespace rpcrdma {
namespace {

// ftype3
enum FileType : uint32_t {
  kRegular = 1,
  kFolder,
  kBlockDevice,
  kCharacterDevice,
  kLink,
  kSocket,
  kPipe
};

uint32_t TypeOf(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return kFolder;
    case S_IFBLK:
      return kBlockDevice;
    case S_IFCHR:
      return kCharacterDevice;
    case S_IFLNK:
      return kLink;
    case S_IFSOCK:
      return kSocket;
    case S_IFIFO:
      return kPipe;
    default:
      return kRegular;
  }
}

timespec TimeToSet(const SetTime& time) {
  switch (time.how) {
    case NFS3_SERVER_TIME:
      return {0, UTIME_NOW};
    case NFS3_CLIENT_TIME:
      return {time.SetTime_u.value.seconds, static_cast<long>(time.SetTime_u.value.nanoseconds)};
    default:
      return {0, UTIME_OMIT};
  }
}

bool IsTime(const SetTime& time) {
  return time.how != NFS3_CLIENT_TIME || time.SetTime_u.value.nanoseconds < 1'000'000'000;
}

Status SetTimes(const Node& node, const timespec& accessed, const timespec& modified) {
  const timespec times[] = {accessed, modified};
  return utimensat(node.descriptor.get(), "", times, AT_EMPTY_PATH) == 0 ? Status::kOk
                                                                         : StatusOf(errno);
}

Status SetOwner(const Node& node, const SetNumber& owner, const SetNumber& group) {
  constexpr auto kKeep = std::numeric_limits<uint32_t>::max();
  const uint32_t user = owner.set ? owner.SetNumber_u.value : kKeep;
  const uint32_t users = group.set ? group.SetNumber_u.value : kKeep;
  if (user == kKeep && users == kKeep) return Status::kOk;
  return fchownat(node.descriptor.get(), "", user, users, AT_EMPTY_PATH) == 0 ? Status::kOk
                                                                              : StatusOf(errno);
}

Status SetMode(const Node& node, const SetNumber& mode) {
  // A symbolic link has none of its own in Linux, and its path in /proc leads nowhere else.
  if (!mode.set || S_ISLNK(node.attributes.stx_mode)) return Status::kOk;
  return chmod(node.descriptor.ProcPath().c_str(), mode.SetNumber_u.value & 07777) == 0
             ? Status::kOk
             : StatusOf(errno);
}

// The times that keep a verifier: positive and in whole seconds, which every file system keeps.
struct VerifierTimes {
  timespec accessed, modified;
};

VerifierTimes TimesOf(const Verifier& verifier) {
  uint32_t words[2];
  std::memcpy(words, verifier, sizeof words);
  constexpr uint32_t kPositive = 0x7fffffff;
  return {{words[0] & kPositive, 0}, {words[1] & kPositive, 0}};
}

}  // namespace

Time TimeOf(const struct statx_timestamp& from) {
  return {static_cast<uint32_t>(from.tv_sec), from.tv_nsec};
}

Attributes AttributesOf(const struct statx& from, uint64_t file_system) {
  Attributes to{};
  to.type = TypeOf(from.stx_mode);
  to.mode = from.stx_mode & 07777;
  to.links = from.stx_nlink;
  to.owner = from.stx_uid;
  to.group = from.stx_gid;
  to.size = from.stx_size;
  to.used = from.stx_blocks * 512;
  to.device_major = from.stx_rdev_major;
  to.device_minor = from.stx_rdev_minor;
  to.file_system = file_system;
  to.file_id = from.stx_ino;
  to.accessed = TimeOf(from.stx_atime);
  to.modified = TimeOf(from.stx_mtime);
  to.changed = TimeOf(from.stx_ctime);
  return to;
}

PostAttributes Present(const Attributes& attributes) {
  PostAttributes post{};
  post.follow = TRUE;
  post.PostAttributes_u.attributes = attributes;
  return post;
}

PostAttributes PostOf(const Node& node, uint64_t file_system) {
  struct statx now {};
  if (!node.descriptor ||
      statx(node.descriptor.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &now) != 0) {
    return PostAttributes{};
  }
  return Present(AttributesOf(now, file_system));
}

WccData WccOf(const Node& node, uint64_t file_system) {
  WccData wcc{};
  if (!node.descriptor) return wcc;
  wcc.before.follow = TRUE;
  wcc.before.PreAttributes_u.attributes = {node.attributes.stx_size,
                                           TimeOf(node.attributes.stx_mtime),
                                           TimeOf(node.attributes.stx_ctime)};
  wcc.after = PostOf(node, file_system);
  return wcc;
}

Status SetSizeOf(const Node& node, uint64_t size) {
  if (node.IsFolder()) return Status::kIsFolder;
  if (!node.IsRegular()) return Status::kInvalid;
  if (size > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) return Status::kTooBig;
  return truncate(node.descriptor.ProcPath().c_str(), static_cast<off_t>(size)) == 0
             ? Status::kOk
             : StatusOf(errno);
}

Status Apply(const Node& node, const SetAttributes& attributes) {
  if (!IsTime(attributes.accessed) || !IsTime(attributes.modified)) return Status::kInvalid;
  Status status = Status::kOk;
  if (attributes.size.set) status = SetSizeOf(node, attributes.size.SetSize_u.value);
  // The mode after the owner, because a change of the owner clears the set-user-ID bit.
  if (status == Status::kOk) status = SetOwner(node, attributes.owner, attributes.group);
  if (status == Status::kOk) status = SetMode(node, attributes.mode);
  const timespec accessed = TimeToSet(attributes.accessed),
                 modified = TimeToSet(attributes.modified);
  if (status != Status::kOk || (accessed.tv_nsec == UTIME_OMIT && modified.tv_nsec == UTIME_OMIT))
    return status;
  return SetTimes(node, accessed, modified);
}

Status StoreVerifier(const Node& node, const Verifier& verifier) {
  const VerifierTimes times = TimesOf(verifier);
  return SetTimes(node, times.accessed, times.modified);
}

bool HasVerifier(const Node& node, const Verifier& verifier) {
  const VerifierTimes times = TimesOf(verifier);
  return node.IsRegular() && node.attributes.stx_size == 0 &&
         node.attributes.stx_atime.tv_sec == times.accessed.tv_sec &&
         node.attributes.stx_mtime.tv_sec == times.modified.tv_sec;
}

}  // namespace rpcrdma
