// Finds out which libibverbs a program will load, before it runs.
#pragma once

#include <string>
#include <vector>

namespace roci::tools {

/// The file of a command as execvp finds it in $PATH; empty if there is none.
std::string FindInPath(const std::string& name);

struct Program {
  std::string path;  // the ELF file that the kernel executes for the command; empty: none was found
  bool is_native = false;        // its architecture is this machine's
  std::string interpreter;       // the dynamic loader; empty: a static program
  bool gains_privilege = false;  // set-user-ID, set-group-ID or capabilities, for this user

  std::string libibverbs;            // path of the shared library; empty: none
  bool links_libibverbs = false;     // it is loaded with the program, not only if the program asks
  bool contains_libibverbs = false;  // a static libibverbs
  // The generation of `libibverbs` (verbs_provider/abi/generations.h); 0: not known.
  int private_abi = 0;
  int public_version = 0;
};

/// Follows scripts to their interpreters, past env. Asks the program's own dynamic loader for its
/// libraries, in the environment of the caller. Whatever cannot be found out keeps its default.
Program InspectProgram(const std::string& command);

}  // namespace roci::tools
