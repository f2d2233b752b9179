/* `roci run` preloads this library where it may not create a mount namespace. It loads the plugin
 * of the libibverbs in each process before libibverbs looks for devices, because the plugin answers
 * some calls of that look (intercept/intercept.h). It needs no libibverbs itself, so that programs
 * without one, or with one that has no plugin, run as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct nl_sock;

/* Of libnl, which libibverbs and librdmacm call first when they look for devices. */
__attribute__((visibility("default"))) struct nl_sock* nl_socket_alloc(void);

/* The private ABI numbers of the plugins. */
static const char* const kNumbers[] = {ROCI_PRIVATE_ABIS};

/* Loads the plugin NUMBER, which lies beside this library. */
static void Load(const char* number) {
  Dl_info self;
  if (dladdr(kNumbers, &self) == 0) return;
  const char* slash = strrchr(self.dli_fname, '/');
  const int folder = slash == NULL ? 0 : (int)(slash + 1 - self.dli_fname);
  char path[PATH_MAX];
  const int length =
      snprintf(path, sizeof(path), "%.*slibroci-rdmav%s.so", folder, self.dli_fname, number);
  if (length > 0 && (size_t)length < sizeof(path)) dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* Loads the plugin if this process has a libibverbs for which there is one. */
static void LoadForLibibverbs(void) {
  void* library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) return;
  for (size_t i = 0; i < sizeof(kNumbers) / sizeof(kNumbers[0]); ++i) {
    char name[64];
    snprintf(name, sizeof(name), "verbs_register_driver_%s", kNumbers[i]);
    if (dlsym(library, name) != NULL) Load(kNumbers[i]);
  }
  dlclose(library);
}

__attribute__((constructor)) static void Begin(void) { LoadForLibibverbs(); }

struct nl_sock* nl_socket_alloc(void) {
  LoadForLibibverbs();
  /* The caller may have loaded libnl without RTLD_GLOBAL. */
  void* libnl = dlopen("libnl-3.so.200", RTLD_LAZY | RTLD_NOLOAD);
  if (libnl == NULL) return NULL;
  struct nl_sock* (*original)(void) = NULL;
  *(void**)&original = dlsym(libnl, "nl_socket_alloc");
  dlclose(libnl);
  return original == NULL ? NULL : original();
}
