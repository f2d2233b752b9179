// Replaces entries of a library's global offset table.
#include "verbs_provider/intercept/got_patch.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace roci::provider {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr uint32_t kGlobalData = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr uint32_t kGlobalData = R_AARCH64_GLOB_DAT;
#else
#error "add the names of this architecture's relocations"
#endif

struct Library {
  uintptr_t base = 0;
  uintptr_t code_begin = 0;  // bounds of its loaded segments
  uintptr_t code_end = 0;
  uintptr_t relro_begin = 0;  // whole pages, read-only since relocation
  uintptr_t relro_end = 0;
  const char* strings = nullptr;
  const Elf64_Sym* symbols = nullptr;
  const Elf64_Rela* relocations[2] = {};  // [0]: DT_JMPREL, [1]: DT_RELA
  size_t relocation_counts[2] = {};
};

struct Search {
  const char* soname;
  Library library;
};

bool IsNamed(const char* path, const char* soname) {
  if (path == nullptr) return false;
  const char* slash = std::strrchr(path, '/');
  const char* name = slash == nullptr ? path : slash + 1;
  const size_t length = std::strlen(soname);
  return std::strncmp(name, soname, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

void ReadSegments(const dl_phdr_info& info, Library& library) {
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  library.base = info.dlpi_addr;
  library.code_begin = UINTPTR_MAX;
  for (size_t i = 0; i < info.dlpi_phnum; ++i) {
    const Elf64_Phdr& segment = info.dlpi_phdr[i];
    const uintptr_t begin = info.dlpi_addr + segment.p_vaddr;
    const uintptr_t end = begin + segment.p_memsz;
    if (segment.p_type == PT_LOAD) {
      if (begin < library.code_begin) library.code_begin = begin;
      if (end > library.code_end) library.code_end = end;
    } else if (segment.p_type == PT_GNU_RELRO) {
      // Rounded as the dynamic loader does.
      library.relro_begin = begin & ~(page - 1);
      library.relro_end = end & ~(page - 1);
    }
  }
}

// The dynamic section's addresses are absolute with glibc and relative with other loaders.
template <class T>
const T* Pointer(const Library& library, Elf64_Addr address) {
  return reinterpret_cast<const T*>(address < library.base ? library.base + address : address);
}

bool ReadDynamic(const dl_phdr_info& info, Library& library) {
  const Elf64_Dyn* entry = nullptr;
  for (size_t i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) {
      entry = reinterpret_cast<const Elf64_Dyn*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    }
  }
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    const Elf64_Addr value = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_STRTAB:
        library.strings = Pointer<char>(library, value);
        break;
      case DT_SYMTAB:
        library.symbols = Pointer<Elf64_Sym>(library, value);
        break;
      case DT_JMPREL:
        library.relocations[0] = Pointer<Elf64_Rela>(library, value);
        break;
      case DT_PLTRELSZ:
        library.relocation_counts[0] = value / sizeof(Elf64_Rela);
        break;
      case DT_RELA:
        library.relocations[1] = Pointer<Elf64_Rela>(library, value);
        break;
      case DT_RELASZ:
        library.relocation_counts[1] = value / sizeof(Elf64_Rela);
        break;
      default:
        break;
    }
  }
  return library.strings != nullptr && library.symbols != nullptr;
}

int Visit(dl_phdr_info* info, size_t, void* argument) {
  auto* search = static_cast<Search*>(argument);
  if (!IsNamed(info->dlpi_name, search->soname)) return 0;
  ReadSegments(*info, search->library);
  return ReadDynamic(*info, search->library) ? 1 : 0;
}

bool ProtectRelro(const Library& library, int protection) {
  const size_t length = library.relro_end - library.relro_begin;
  return length == 0 ||
         ::mprotect(reinterpret_cast<void*>(library.relro_begin), length, protection) == 0;
}

// The function that a slot calls. With lazy binding, a slot that has not been called points into
// the library's PLT, which would overwrite the replacement: then dlsym finds the function.
void* Original(const Library& library, void* current, const char* symbol, void* handle) {
  const auto address = reinterpret_cast<uintptr_t>(current);
  const bool unbound = address >= library.code_begin && address < library.code_end;
  return unbound || current == nullptr ? ::dlsym(handle, symbol) : current;
}

void Patch(const Library& library, const Elf64_Rela& relocation, SlotPatch& patch, void* handle) {
  auto* slot = reinterpret_cast<void**>(library.base + relocation.r_offset);
  void* original = Original(library, __atomic_load_n(slot, __ATOMIC_RELAXED), patch.symbol, handle);
  if (original == nullptr || original == patch.replacement) return;
  __atomic_store_n(patch.original, original, __ATOMIC_RELEASE);
  __atomic_store_n(slot, patch.replacement, __ATOMIC_RELEASE);
  patch.found = true;
}

void PatchAll(const Library& library, SlotPatch* patches, size_t count, void* handle) {
  for (size_t table = 0; table < 2; ++table) {
    for (size_t i = 0; i < library.relocation_counts[table]; ++i) {
      const Elf64_Rela& relocation = library.relocations[table][i];
      const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info));
      if (type != kJumpSlot && type != kGlobalData) continue;
      const Elf64_Sym& symbol = library.symbols[ELF64_R_SYM(relocation.r_info)];
      for (size_t p = 0; p < count; ++p) {
        if (std::strcmp(library.strings + symbol.st_name, patches[p].symbol) == 0) {
          Patch(library, relocation, patches[p], handle);
        }
      }
    }
  }
}

}  // namespace

bool PatchLibrary(const char* soname, SlotPatch* patches, size_t count) {
  Search search{soname, {}};
  if (::dl_iterate_phdr(Visit, &search) == 0) return false;
  const Library& library = search.library;
  // The handle is never closed: the patched library must stay loaded.
  void* handle = ::dlopen(soname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (handle == nullptr || !ProtectRelro(library, PROT_READ | PROT_WRITE)) return false;
  PatchAll(library, patches, count, handle);
  ProtectRelro(library, PROT_READ);
  return true;
}

}  // namespace roci::provider
