// Reads the symbol versions of libibverbs from its dynamic section.
#include "verbs_provider/generations/symbol_versions.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "verbs_provider/abi/generations.h"

namespace roci::provider {
namespace {

struct Versions {
  const char* strings = nullptr;
  const unsigned char* first = nullptr;  // Elf64_Verdef
  uint64_t count = 0;
};

// The C library relocates some addresses of the dynamic section.
template <class T>
const T* Pointer(const link_map& map, Elf64_Addr address) {
  return reinterpret_cast<const T*>(address < map.l_addr ? map.l_addr + address : address);
}

Versions Find(const link_map& map) {
  Versions versions;
  for (const Elf64_Dyn* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) {
      versions.strings = Pointer<char>(map, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_VERDEF) {
      versions.first = Pointer<unsigned char>(map, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_VERDEFNUM) {
      versions.count = entry->d_un.d_val;
    }
  }
  return versions;
}

}  // namespace

int NewestPublicVersion() {
  void* library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return 0;
  const Versions versions = Find(*map);
  int newest = 0;
  const unsigned char* at = versions.first;
  for (uint64_t i = 0; i < versions.count && at != nullptr && versions.strings != nullptr; ++i) {
    Elf64_Verdef definition;
    memcpy(&definition, at, sizeof(definition));
    Elf64_Verdaux name_at;
    memcpy(&name_at, at + definition.vd_aux, sizeof(name_at));
    const char* name = versions.strings + name_at.vda_name;
    constexpr size_t kPrefix = sizeof(abi::kPublicVersion) - 1;
    if (strncmp(name, abi::kPublicVersion, kPrefix) == 0 && atoi(name + kPrefix) > newest) {
      newest = atoi(name + kPrefix);
    }
    at += definition.vd_next;
  }
  dlclose(library);
  return newest;
}

}  // namespace roci::provider
