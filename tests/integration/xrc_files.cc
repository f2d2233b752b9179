// Preloaded into programs that open XRC domains: their files have fixed names in /tmp, where
// another user's are in the way. Opens these files in the folder ROCI_TEST_XRC_FOLDER instead.
#include <dlfcn.h>

#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

// Not declared by <fcntl.h>, which may define it as an inline function.
extern "C" int open(const char* path, int flags, ...) {
  using Open = int (*)(const char*, int, ...);
  static const Open next = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "open"));
  va_list arguments;
  va_start(arguments, flags);
  const unsigned mode = va_arg(arguments, unsigned);  // not used by open() where it was not passed
  va_end(arguments);
  constexpr std::string_view kFixed = "/tmp/xrc_domain";
  const char* folder = std::getenv("ROCI_TEST_XRC_FOLDER");
  if (folder != nullptr && std::string_view(path).substr(0, kFixed.size()) == kFixed) {
    const std::string here = folder + std::string(path).substr(sizeof("/tmp") - 1);
    return next(here.c_str(), flags, mode);
  }
  return next(path, flags, mode);
}
