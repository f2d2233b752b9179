// describe-commands: prints the command lines of rocid and roci as JSON. packages/pages.py makes
// man pages and completions of it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "control/options.h"
#include "tools/commands.h"

namespace {

using Json = nlohmann::ordered_json;

// `type` as --help prints it: "TEXT:{in,out}", "INT:INT in [1 - 3600]"; empty for a flag.
Json Describe(const CLI::Option& option) {
  Json names = Json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  Json excludes = Json::array();
  for (const CLI::Option* other : option.get_excludes()) {
    excludes.push_back(other->get_name());
  }
  const bool takes_value = option.get_expected_max() > 0 && option.get_type_size_max() > 0;
  return {{"names", names},
          {"positional", option.get_positional() ? option.get_name(true) : ""},
          {"required", option.get_required()},
          {"repeatable", option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll},
          {"type", takes_value ? option.get_type_name() : ""},
          {"default", takes_value ? option.get_default_str() : ""},
          {"excludes", excludes},
          {"help", option.get_description()}};
}

// `help`: the text of --help.
Json Describe(const CLI::App& app) {
  Json options = Json::array();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) options.push_back(Describe(*option));
  }
  Json commands = Json::array();
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) commands.push_back(Describe(*command));
  }
  std::string parents;
  for (const CLI::App* parent = app.get_parent(); parent != nullptr;
       parent = parent->get_parent()) {
    parents = parent->get_name() + (parents.empty() ? "" : " ") + parents;
  }
  return {{"name", app.get_name()},    {"about", app.get_description()},
          {"help", app.help(parents)}, {"runs_program", app.get_prefix_command()},
          {"options", options},        {"commands", commands},
          {"footer", app.get_footer()}};
}

}  // namespace

int main() {
  CLI::App roci;
  roci::tools::CommandContext context;
  roci::tools::DeclareCommands(roci, context);
  CLI::App rocid;
  roci::control::Options options;
  roci::control::DeclareOptions(rocid, options);
  const Json all = {{"version", ROCI_VERSION}, {"programs", {Describe(rocid), Describe(roci)}}};
  std::puts(all.dump(1).c_str());
  return 0;
}
