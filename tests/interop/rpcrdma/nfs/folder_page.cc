// Lists a folder in the order of cookies.
#include "tests/interop/rpcrdma/nfs/folder_page.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>

namespace rpcrdma {
namespace {

constexpr uint64_t kSelfCookie = 1, kParentCookie = 2;

// Other names have cookies from 4 to 2^62, which programs with signed cookies take, too.
uint64_t CookieOf(const std::string& name, const SipKey& key) {
  if (name == ".") return kSelfCookie;
  if (name == "..") return kParentCookie;
  return (SipHash(key, std::as_bytes(std::span(name))) >> 2) | 4;
}

bool Earlier(const FolderEntry& one, const FolderEntry& other) { return one.cookie < other.cookie; }

// Keeps the `limit` earliest entries, as a heap with the last of them on top.
void Keep(FolderEntry entry, size_t limit, FolderPage* page) {
  auto& kept = page->entries;
  if (kept.size() == limit) {
    page->end = false;
    if (limit == 0 || !Earlier(entry, kept.front())) return;
    std::pop_heap(kept.begin(), kept.end(), Earlier);
    kept.pop_back();
  }
  kept.push_back(std::move(entry));
  std::push_heap(kept.begin(), kept.end(), Earlier);
}

}  // namespace

Status ReadPage(const Node& folder, uint64_t parent_inode, const SipKey& key, uint64_t after,
                size_t limit, FolderPage* page) {
  Descriptor entries;
  if (const Status status = OpenEntries(folder, &entries); status != Status::kOk) return status;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(entries.get()), closedir);
  if (!listing) return StatusOf(errno);
  entries.Release();
  page->end = true;
  errno = 0;
  while (const dirent* entry = readdir(listing.get())) {
    FolderEntry found{0, entry->d_ino, entry->d_name};
    found.cookie = CookieOf(found.name, key);
    // (In the root, the kernel's ".." lies outside of the export.)
    if (found.cookie == kParentCookie) found.inode = parent_inode;
    if (found.cookie > after) Keep(std::move(found), limit, page);
  }
  if (errno != 0) return StatusOf(errno);
  std::sort_heap(page->entries.begin(), page->entries.end(), Earlier);
  return Status::kOk;
}

}  // namespace rpcrdma
