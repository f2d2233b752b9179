# shellcheck shell=bash
# Shared by the shell scripts in tools/: configuring and building. Sourced after common.sh.

# Compiles of the same file are answered from ccache where it is installed.
compiler() { if command -v ccache >/dev/null; then printf 'ccache %s' "$1"; else printf %s "$1"; fi; }

# configure FOLDER CXX CC OPTIONS...: a folder that is configured already is left to Ninja, which reconfigures when needed.
configure() {
  local folder=$1 cxx=$2 cc=$3
  shift 3
  [ ! -e "$folder/build.ninja" ] || return 0
  say "configuring ${folder#"$roci_top/"} ($cxx)"
  CXX=$(compiler "$cxx") CC=$(compiler "$cc") meson setup "$@" "$folder" "$roci_top" >&2
}

# Ninja with as many compilers at a time as there are processors, or ROCI_JOBS.
readonly ninja=(ninja -j "${ROCI_JOBS:-$(nproc)}")
