# shellcheck shell=bash
# Shared by the shell scripts in tools/: configuring and building. Sourced after common.sh.

# use_cache VARIABLE OPTION UNSET VALUE: a setting of ccache, unless the user has made it (by environment or file).
use_cache() {
  [ -z "${!1:-}" ] && [ "$(ccache --get-config "$2" 2>/dev/null)" = "$3" ] || return 0
  export "$1=$4"
}

# Uses ccache if it is installed; its results are shared by all clones, in any folder.
if command -v ccache >/dev/null; then
  use_cache CCACHE_BASEDIR base_dir '' "$roci_top"
  use_cache CCACHE_NOHASHDIR hash_dir true 1
  use_cache CCACHE_SLOPPINESS sloppiness '' pch_defines,time_macros
fi
compiler() { if command -v ccache >/dev/null; then printf 'ccache %s' "$1"; else printf %s "$1"; fi; }

# Command prefix of Meson and Ninja in `configure`; a script with time limits sets its own.
run_step=()

# configure FOLDER CXX CC OPTIONS...: configures the folder, or again if a meson.build file has changed.
configure() {
  local folder=$1 cxx=$2 cc=$3
  shift 3
  if [ -e "$folder/build.ninja" ]; then
    ${run_step[@]+"${run_step[@]}"} "${ninja[@]}" -C "$folder" build.ninja >&2
    return
  fi
  # An interrupted configuration leaves files by which Meson considers the folder configured.
  rm -rf "$folder/meson-private" "$folder/meson-info"
  # A precompiled header of clang contains the path of its clone; ccache would share it with other clones.
  [[ $cxx != clang* ]] || set -- -Db_pch=false "$@"
  say "configuring ${folder#"$roci_top/"} ($cxx)"
  ${run_step[@]+"${run_step[@]}"} env CXX="$(compiler "$cxx")" CC="$(compiler "$cc")" meson setup "$@" "$folder" "$roci_top" >&2
}

# Ninja with one compiler per processor, or ROCI_JOBS.
readonly ninja=(ninja -j "${ROCI_JOBS:-$(nproc)}")
