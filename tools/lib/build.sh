# shellcheck shell=bash
# Shared by the shell scripts in tools/: configuring and building. Sourced after common.sh.

# use_cache VARIABLE OPTION UNSET VALUE: a setting of ccache, unless the user has made it (by environment or file).
use_cache() {
  [ -z "${!1:-}" ] && [ "$(ccache --get-config "$2" 2>/dev/null)" = "$3" ] || return 0
  export "$1=$4"
}

# Compiles of the same file are answered from ccache where it is installed, in whatever folder the clone lies.
if command -v ccache >/dev/null; then
  use_cache CCACHE_BASEDIR base_dir '' "$roci_top"
  use_cache CCACHE_NOHASHDIR hash_dir true 1
  use_cache CCACHE_SLOPPINESS sloppiness '' pch_defines,time_macros
fi
compiler() { if command -v ccache >/dev/null; then printf 'ccache %s' "$1"; else printf %s "$1"; fi; }

# What runs Meson and Ninja in `configure`; a script that bounds its steps in time puts its own command here.
run_step=()

# configure FOLDER CXX CC OPTIONS...: a configured folder is configured again only where its meson.build files have changed.
configure() {
  local folder=$1 cxx=$2 cc=$3
  shift 3
  if [ -e "$folder/build.ninja" ]; then
    ${run_step[@]+"${run_step[@]}"} "${ninja[@]}" -C "$folder" build.ninja >&2
    return
  fi
  # An interrupted configuration leaves options behind, for which Meson takes the folder for configured.
  rm -rf "$folder/meson-private" "$folder/meson-info"
  # A precompiled header of clang names the clone in which it was made; ccache would give it to other clones.
  [[ $cxx != clang* ]] || set -- -Db_pch=false "$@"
  say "configuring ${folder#"$roci_top/"} ($cxx)"
  ${run_step[@]+"${run_step[@]}"} env CXX="$(compiler "$cxx")" CC="$(compiler "$cc")" meson setup "$@" "$folder" "$roci_top" >&2
}

# Ninja with as many compilers at a time as there are processors, or ROCI_JOBS.
readonly ninja=(ninja -j "${ROCI_JOBS:-$(nproc)}")
