// Compares a program's libibverbs with the plugins.
#include "tools/run/check_program.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "verbs_provider/abi/generations.h"

namespace roci::tools {
namespace {

// The plugins are made for glibc.
bool UsesMusl(const Program& program) { return absl::StrContains(program.interpreter, "/ld-musl"); }

bool HasPlugin(const Program& program, const Plugins& plugins) {
  return !UsesMusl(program) && plugins.Has(program.private_abi) &&
         abi::FindGeneration(program.private_abi, program.public_version) != nullptr;
}

std::string TextOf(const Program& program) {
  return program.private_abi == 0 ? "which takes no providers"
                                  : absl::StrCat("private ABI ", program.private_abi, ", ",
                                                 abi::kPublicVersion, program.public_version);
}

// Which libibverbs the plugins are for.
std::string Served(const Plugins& plugins) {
  std::string releases;
  for (const abi::LibibverbsGeneration& generation : abi::kGenerations) {
    if (!plugins.Has(generation.private_abi)) continue;
    absl::StrAppend(&releases, releases.empty() ? "" : ", ", generation.releases);
  }
  return absl::StrCat("the plugins in ", plugins.Folder(), " have the private ABIs ",
                      absl::StrJoin(plugins.private_abis, ", "), " (rdma-core ", releases, ")");
}

}  // namespace

absl::Status CheckProgram(const Program& program, const Plugins& plugins) {
  if (program.contains_libibverbs) {
    return absl::FailedPreconditionError(
        absl::StrCat(program.path,
                     " is statically linked with libibverbs, which then cannot load a provider of "
                     "devices: link it with the shared library, libibverbs.so.1"));
  }
  if (!program.links_libibverbs || HasPlugin(program, plugins)) return absl::OkStatus();
  if (UsesMusl(program)) {
    return absl::FailedPreconditionError(absl::StrCat(
        program.path, " uses the C library musl; the plugins need glibc, so build it for glibc"));
  }
  return absl::FailedPreconditionError(absl::StrCat("there is no plugin for ", program.libibverbs,
                                                    " (", TextOf(program), "), which ",
                                                    program.path, " loads: ", Served(plugins)));
}

std::string WarningFor(const Program& program, const Plugins& plugins) {
  if (program.libibverbs.empty() || HasPlugin(program, plugins)) return "";
  return absl::StrCat("programs that load ", program.libibverbs, " (", TextOf(program),
                      ") find no devices: ", Served(plugins));
}

bool CanPreload(const Program& program) {
  return program.path.empty() || (program.is_native && !UsesMusl(program));
}

}  // namespace roci::tools
