// Opens files of the exported folder.
#include "tests/interop/rpcrdma/nfs/exported_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

namespace rpcrdma {
namespace {

constexpr size_t kSearchLimit = 1 << 20;  // entries
constexpr int kRetries = 100;             // openat2() fails with EAGAIN while somebody renames

Descriptor OpenBeneath(int folder, const char* path) {
  open_how how{};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  for (int i = 0; i < kRetries; ++i) {
    Descriptor opened(static_cast<int>(syscall(SYS_openat2, folder, path, &how, sizeof how)));
    if (opened || errno != EAGAIN) return opened;
  }
  return Descriptor();
}

bool StatDescriptor(int descriptor, struct statx* attributes) {
  return statx(descriptor, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, attributes) == 0;
}

Descriptor OpenRoot(const std::string& path) {
  Descriptor root(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) throw std::system_error(errno, std::generic_category(), path);
  return root;
}

struct statx StatRoot(const Descriptor& root) {
  struct statx attributes {};
  if (!StatDescriptor(root.get(), &attributes))
    throw std::system_error(errno, std::generic_category(), "statx");
  return attributes;
}

uint64_t DeviceOf(const struct statx& attributes) {
  return makedev(attributes.stx_dev_major, attributes.stx_dev_minor);
}

using Listing = std::unique_ptr<DIR, int (*)(DIR*)>;

Listing List(const Node& folder) {
  Descriptor entries;
  if (OpenEntries(folder, &entries) != Status::kOk) return Listing(nullptr, closedir);
  Listing listing(fdopendir(entries.get()), closedir);
  if (listing) entries.Release();
  return listing;
}

bool IsDots(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

}  // namespace

FileId IdOf(const struct statx& attributes) {
  FileId id{attributes.stx_ino, 0};
  if ((attributes.stx_mask & STATX_BTIME) != 0) {
    id.generation = static_cast<uint64_t>(attributes.stx_btime.tv_sec) * 1'000'000'000 +
                    attributes.stx_btime.tv_nsec;
  }
  return id;
}

ExportedFolder::ExportedFolder(const std::string& path, const SipKey& key)
    : key_(key),
      root_(OpenRoot(path)),
      root_id_(IdOf(StatRoot(root_))),
      file_system_(DeviceOf(StatRoot(root_))),
      names_(root_id_) {}

Status ExportedFolder::Open(std::span<const char> handle, Node* node) {
  const auto id = ReadHandle(key_, handle);
  return id ? OpenId(*id, node) : Status::kBadHandle;
}

Status ExportedFolder::OpenFolder(std::span<const char> handle, Node* node) {
  const Status status = Open(handle, node);
  return status == Status::kOk && !node->IsFolder() ? Status::kNotFolder : status;
}

Status ExportedFolder::OpenId(const FileId& id, Node* node) {
  // The names are hints: a file that has moved, or that is known from before a restart, is searched
  // for once.
  for (const bool searched : {false, true}) {
    const auto path = names_.PathOf(id);
    if (path && OpenPath(*path, id, node)) return Status::kOk;
    if (searched || !Search(id)) break;
  }
  *node = Node{};  // no attributes of another file
  return Status::kStale;
}

bool ExportedFolder::OpenPath(const std::string& path, const FileId& id, Node* node) const {
  node->descriptor = OpenBeneath(root_.get(), path.c_str());
  return node->descriptor && StatDescriptor(node->descriptor.get(), &node->attributes) &&
         node->id() == id;
}

bool ExportedFolder::Search(const FileId& id) {
  std::vector<std::string> folders{"."};
  size_t left = kSearchLimit;
  for (size_t next = 0; next < folders.size() && left > 0; ++next) {
    if (SearchFolder(std::string(folders[next]), id, &folders, &left)) return true;
  }
  return false;
}

bool ExportedFolder::SearchFolder(const std::string& path, const FileId& id,
                                  std::vector<std::string>* folders, size_t* left) {
  Node folder;
  folder.descriptor = OpenBeneath(root_.get(), path.c_str());
  if (!folder.descriptor || Stat(&folder) != Status::kOk || !folder.IsFolder()) return false;
  const Listing listing = List(folder);
  while (listing && *left > 0) {
    const dirent* entry = readdir(listing.get());
    if (entry == nullptr) break;
    --*left;
    const bool may_be_folder = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
    if (IsDots(entry->d_name) || (entry->d_ino != id.inode && !may_be_folder)) continue;
    struct statx attributes {};
    if (StatEntry(folder, entry->d_name, &attributes) != Status::kOk) continue;
    const bool found = IdOf(attributes) == id, is_folder = S_ISDIR(attributes.stx_mode);
    if (found || is_folder) names_.Remember(IdOf(attributes), folder.id(), entry->d_name);
    if (found) return true;
    const std::string below = path == "." ? entry->d_name : path + "/" + entry->d_name;
    if (is_folder && below.size() < PATH_MAX) folders->push_back(below);
  }
  return false;
}

Status ExportedFolder::OpenEntry(const Node& folder, const std::string& name, Node* node) {
  if (name == "." || name == "..") {
    return OpenId(name == "." ? folder.id() : ParentOf(folder.id()), node);
  }
  if (const Status status = CheckName(name); status != Status::kOk) return status;
  node->descriptor = OpenBeneath(folder.descriptor.get(), name.c_str());
  if (!node->descriptor) return StatusOf(errno);
  if (const Status status = Stat(node); status != Status::kOk) return status;
  names_.Remember(node->id(), folder.id(), name);
  return Status::kOk;
}

Status ExportedFolder::StatEntry(const Node& folder, const std::string& name,
                                 struct statx* attributes) const {
  if (statx(folder.descriptor.get(), name.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
            STATX_BASIC_STATS | STATX_BTIME, attributes) != 0) {
    return StatusOf(errno);
  }
  return (attributes->stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0 ? Status::kAccess : Status::kOk;
}

FileHandle ExportedFolder::HandleOf(const FileId& file, const FileId& folder,
                                    const std::string& name) {
  if (name != "." && name != "..") names_.Remember(file, folder, name);
  return MakeHandle(key_, file);
}

FileId ExportedFolder::ParentOf(const FileId& folder) const {
  const auto place = names_.Find(folder);
  return place ? place->folder : root_id_;
}

Status Stat(Node* node) {
  return StatDescriptor(node->descriptor.get(), &node->attributes) ? Status::kOk : StatusOf(errno);
}

Status OpenData(const Node& node, int flags, Descriptor* data) {
  if (node.IsFolder()) return Status::kIsFolder;
  if (!node.IsRegular()) return Status::kInvalid;
  *data = Descriptor(open(node.descriptor.ProcPath().c_str(), flags | O_CLOEXEC | O_NOCTTY));
  return *data ? Status::kOk : StatusOf(errno);
}

Status OpenEntries(const Node& folder, Descriptor* entries) {
  *entries = Descriptor(openat(folder.descriptor.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return *entries ? Status::kOk : StatusOf(errno);
}

Status CheckName(std::string_view name) {
  if (name.empty() || name.find('/') != name.npos || name.find('\0') != name.npos)
    return Status::kAccess;
  return name.size() > NAME_MAX ? Status::kNameTooLong : Status::kOk;
}

}  // namespace rpcrdma
