/* A program that is linked with libibverbs: prints the libraries in it of which the name has
 * "libibverbs" or "libroci". OPENS_LIBIBVERBS: loads libibverbs while it runs, and looks for
 * devices as libibverbs does. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef OPENS_LIBIBVERBS
static void Use(void) {
  if (dlopen("libnl-3.so.200", RTLD_NOW) == NULL) return;
  void* library = dlopen("libibverbs.so.1", RTLD_NOW);
  void (*look)(void) = NULL;
  if (library != NULL) *(void**)&look = dlsym(library, "fake_look_for_devices");
  if (look != NULL) look();
}
#else
const char* ibv_get_sysfs_path(void);
static void Use(void) { ibv_get_sysfs_path(); }
#endif

int main(void) {
  Use();
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[4352];
  char last[4352] = "";
  while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
    const char* name = strrchr(line, '/');
    if (name == NULL || (strstr(name, "libibverbs") == NULL && strstr(name, "libroci") == NULL)) {
      continue;
    }
    if (strcmp(name, last) != 0) printf("%s", name + 1);
    strcpy(last, name);
  }
  return 0;
}
