// The parser of /proc/self/maps, and PROCMAP_QUERY.
#include "verbs_provider/memory/maps_reader.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "verbs_provider/base/held_file.h"
#include "verbs_provider/base/spin_lock.h"

namespace roci::provider {
namespace {

// struct procmap_query and PROCMAP_QUERY of <linux/fs.h>, which Debian's headers do not have yet.
struct MappingQuery {
  uint64_t size;
  uint64_t flags;
  uint64_t address;
  uint64_t begin;
  uint64_t end;
  uint64_t rights;
  uint64_t page_size;
  uint64_t offset;
  uint64_t inode;
  uint32_t device_major;
  uint32_t device_minor;
  uint32_t name_size;
  uint32_t build_id_size;
  uint64_t name;
  uint64_t build_id;
};
static_assert(sizeof(MappingQuery) == 104);
constexpr unsigned long kQueryMapping = _IOWR('f', 17, MappingQuery);
constexpr uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kShared = 8;
constexpr uint64_t kThisOrNext = 16;
constexpr uint32_t kMaxName = 4096;  // the kernel's own limit

// A position in the text. After a failure `ok` stays false.
struct Cursor {
  const char* at;
  const char* end;
  bool ok = true;

  void Skip(char expected) {
    ok = ok && at < end && *at == expected;
    if (ok) ++at;
  }
  char Flag() {
    ok = ok && at < end;
    return ok ? *at++ : '\0';
  }
  uint64_t Number(unsigned base) {
    uint64_t value = 0;
    const char* start = at;
    for (; at < end; ++at) {
      const unsigned digit = Digit(*at);
      if (digit >= base) break;
      value = value * base + digit;
    }
    ok = ok && at != start;
    return value;
  }
  static unsigned Digit(char c) {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
    return 16;
  }
};

void TakePath(const Cursor& cursor, MapsLine* line) {
  const char* at = cursor.at;
  while (at < cursor.end && *at == ' ') ++at;
  const size_t length =
      std::min<size_t>(static_cast<size_t>(cursor.end - at), sizeof line->path - 1);
  std::memcpy(line->path, at, length);
  line->path[length] = '\0';
}

}  // namespace

bool ParseMapsLine(const char* text, size_t length, MapsLine* line) {
  Cursor cursor{text, text + length};
  line->begin = cursor.Number(16);
  cursor.Skip('-');
  line->end = cursor.Number(16);
  cursor.Skip(' ');
  line->readable = cursor.Flag() == 'r';
  line->writable = cursor.Flag() == 'w';
  line->executable = cursor.Flag() == 'x';
  line->shared = cursor.Flag() == 's';
  cursor.Skip(' ');
  line->offset = cursor.Number(16);
  cursor.Skip(' ');
  const uint64_t major_number = cursor.Number(16);
  cursor.Skip(':');
  line->device =
      makedev(static_cast<unsigned>(major_number), static_cast<unsigned>(cursor.Number(16)));
  cursor.Skip(' ');
  line->inode = cursor.Number(10);
  if (!cursor.ok || line->begin >= line->end) return false;
  TakePath(cursor, line);
  return true;
}

namespace {

int OpenMaps() { return open("/proc/self/maps", O_RDONLY | O_CLOEXEC); }

// The descriptor that stays open. It reads the mappings of the process that opened it, so a forked
// child opens its own.
SpinLock g_lock;
HeldFile g_file;
pid_t g_process = 0;

int HeldMaps() {
  g_lock.Lock();
  const pid_t process = getpid();
  int fd = process == g_process ? g_file.fd() : -1;
  if (fd < 0) {
    g_file.Hold(OpenMaps());
    g_process = process;
    fd = g_file.fd();
  }
  g_lock.Unlock();
  return fd;
}

bool CanQuery(int fd) {
  MappingQuery query = {};
  query.size = sizeof(query);
  query.flags = kThisOrNext;
  return ioctl(fd, kQueryMapping, &query) == 0 || errno == ENOENT;
}

// Whether this kernel has PROCMAP_QUERY: 0 unknown, 1 yes, -1 no.
std::atomic<int> g_can_query{0};

}  // namespace

void MapsReader::HoldFile() { HeldMaps(); }

MapsReader::MapsReader(uint64_t from, uint64_t query_flags)
    : query_flags_(query_flags), from_(from) {
  int can_query = g_can_query.load(std::memory_order_relaxed);
  if (from != 0 && can_query >= 0) fd_ = HeldMaps();
  if (fd_ >= 0 && can_query == 0) {
    can_query = CanQuery(fd_) ? 1 : -1;
    g_can_query.store(can_query, std::memory_order_relaxed);
  }
  seeks_ = fd_ >= 0 && can_query > 0;
  if (!seeks_) FallBackToText();
}

MapsReader::~MapsReader() {
  if (owns_fd_ && fd_ >= 0) close(fd_);
}

// Reads from the beginning of the file. A program at its limit of descriptors, or without /proc,
// has the held descriptor only. Readers share that, so its position is not used.
void MapsReader::FallBackToText() {
  seeks_ = false;
  fd_ = OpenMaps();
  owns_fd_ = fd_ >= 0;
  if (!owns_fd_) fd_ = HeldMaps();
  position_ = 0;
}

// Moves the unread bytes to the front and reads more. False at the end of the file, or if one line
// fills the buffer.
bool MapsReader::Fill() {
  if (begin_ > 0) {
    std::memmove(buffer_, buffer_ + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == sizeof buffer_) return false;
  ssize_t got;
  do {
    got = pread(fd_, buffer_ + end_, sizeof buffer_ - end_, position_);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  position_ += got;
  end_ += static_cast<size_t>(got);
  return true;
}

// 0, or an errno: ENOENT at the end.
int MapsReader::Query(MapsLine* line) {
  char name[kMaxName];
  MappingQuery query = {};
  query.size = sizeof(query);
  query.flags = kThisOrNext | query_flags_;
  query.address = from_;
  query.name = reinterpret_cast<uintptr_t>(name);
  query.name_size = sizeof(name);
  if (ioctl(fd_, kQueryMapping, &query) != 0) {
    if (errno != ENAMETOOLONG) return errno;
    query.name = 0;
    query.name_size = 0;
    if (ioctl(fd_, kQueryMapping, &query) != 0) return errno;
  }
  line->begin = query.begin;
  line->end = query.end;
  line->offset = query.offset;
  line->device = makedev(query.device_major, query.device_minor);
  line->inode = query.inode;
  line->readable = (query.rights & kReadable) != 0;
  line->writable = (query.rights & kWritable) != 0;
  line->executable = (query.rights & kExecutable) != 0;
  line->shared = (query.rights & kShared) != 0;
  // name_size counts the NUL; 0: no name.
  const size_t length = std::min<size_t>(query.name_size, sizeof line->path);
  if (length != 0) std::memcpy(line->path, name, length);
  line->path[length == 0 ? 0 : length - 1] = '\0';
  from_ = query.end;
  return 0;
}

bool MapsReader::Next(MapsLine* line) {
  if (fd_ < 0) return false;
  if (seeks_) {
    const int error = Query(line);
    if (error == 0 || error == ENOENT) return error == 0;
    FallBackToText();  // a seccomp filter of the program refuses the call
  }
  while (NextOfText(line)) {
    if (line->end > from_) return true;
  }
  return false;
}

bool MapsReader::NextOfText(MapsLine* line) {
  const char* newline = nullptr;
  while ((newline = static_cast<const char*>(std::memchr(buffer_ + begin_, '\n', end_ - begin_))) ==
         nullptr) {
    if (!Fill()) break;
  }
  if (newline != nullptr) {
    const char* start = buffer_ + begin_;
    begin_ = static_cast<size_t>(newline - buffer_) + 1;
    return ParseMapsLine(start, static_cast<size_t>(newline - start), line);
  }
  if (end_ != sizeof buffer_) return false;
  // A line longer than the buffer: parses its beginning, which has all numbers, and skips the rest.
  const bool parsed = ParseMapsLine(buffer_, end_, line);
  while (parsed && newline == nullptr) {
    begin_ = end_;
    if (!Fill()) return parsed;
    newline = static_cast<const char*>(std::memchr(buffer_, '\n', end_));
  }
  if (newline != nullptr) begin_ = static_cast<size_t>(newline - buffer_) + 1;
  return parsed;
}

}  // namespace roci::provider
