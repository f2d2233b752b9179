#!/usr/bin/env bash
# Usage: make_system.sh RELEASE/KIND
#
# Makes an archive of a minimal Debian system with mmdebstrap, from the mirror of the machine's apt configuration, and prints its
# path: ${ROCI_CACHE_DIR:-${XDG_CACHE_HOME:-~/.cache}/rocinante}/systems/RELEASE/KIND.tar. KIND is "minimal" (essential packages and apt),
# "programs" (also RDMA programs), "ci" (also what the recipes of docs/ci.md need), or "arm64" (libraries and RDMA programs of that
# architecture, unpacked only, to build for it). Made again after a month, or if this script has changed; without the mirror, an old
# archive is used.
#
# Exit status 77 if the system is not available.
set -euo pipefail
. "$(dirname "$0")/../../tools/lib/common.sh"
. "$(dirname "$0")/../../tools/lib/archives.sh"

readonly programs=(ibverbs-utils ibverbs-providers rdmacm-utils perftest python3-pyverbs iproute2)  # pyverbs' tests call iproute2
readonly ci=(ca-certificates cargo curl libibverbs-dev librdmacm-dev)
readonly release=${1%/*} kind=${1#*/}
readonly store=${ROCI_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/rocinante}/systems/$release
readonly archive=$store/$kind.tar

unavailable() { say "$*"; exit 77; }

# Apt's settings for the network, as options of mmdebstrap, one per line.
network_options() {
  apt-config dump | sed -n 's/^\(Acquire::https\?::Proxy\(-Auto-Detect\)\? ".\+";\)$/--aptopt=\1/p'
}

# has_release URI
has_release() {
  local folder status=0
  folder=$(mktemp -d)
  /usr/lib/apt/apt-helper -o Acquire::Retries=3 download-file "${1%/}/dists/$release/InRelease" "$folder/InRelease" >/dev/null 2>&1 || status=1
  rm -rf "$folder"
  return "$status"
}

# The libraries of tools/packages.txt, and the C++ library of the cross compiler.
arm64_packages() {
  sed -n 's/^\(\(lib\|zlib1g\|nlohmann-json3\)[^ ]*-dev\)\( .*\)\?$/\1/p' "$(dirname "$0")/../../tools/packages.txt" | grep -v clang
  printf '%s\n' "libstdc++-$(aarch64-linux-gnu-g++ -dumpversion | cut -d. -f1)-dev" ibverbs-utils ibverbs-providers
}

variant=(--variant=minbase)
case $kind in
  minimal) include=() ;;
  arm64)
    command -v aarch64-linux-gnu-g++ >/dev/null || unavailable 'g++-aarch64-linux-gnu is not installed'
    variant=(--variant=extract --architectures=arm64)
    include=("--include=$(arm64_packages | paste -sd,)")
    ;;
  programs) include=("--include=$(IFS=,; printf %s "${programs[*]}")") ;;
  ci) include=("--include=$(IFS=,; printf %s "${ci[*]}")") ;;
  *) die "no kind of system $kind" ;;
esac
[ "$(id -u)" = 0 ] || unavailable 'making a system needs root'
command -v mmdebstrap >/dev/null || unavailable 'mmdebstrap is not installed'

mkdir -p "$store"
exec 9>"$store/lock"
flock -w 1000 9 || die "another make_system.sh has held $store/lock for too long"
stamp=$(sha256sum <"$0")
if [ -s "$archive" ] && [ "$(cat "$archive.stamp" 2>/dev/null)" = "$stamp" ] && [ -z "$(find "$archive" -mtime +30)" ]; then
  printf '%s\n' "$archive"
  exit
fi
mapfile -t found < <(archives "$release")
uri=${found[0]-} uri=${uri%% *}
if [ -z "$uri" ] || ! has_release "$uri"; then
  [ -s "$archive" ] || unavailable "the machine's Debian mirror has no $release, or does not answer"
  say "the mirror does not answer: using the $release of $(date -r "$archive" +%F)"
  printf '%s\n' "$archive"
  exit
fi
# mmdebstrap finds the keys of another release by itself if it gets an address. The own release has updates in other archives.
sources=("$uri")
[ "$release" != "$(release)" ] || mapfile -t sources < <(printf 'deb %s main\n' "${found[@]}")
say "making a $kind system of $release"
trap 'rm -f "$archive.new"' EXIT
mapfile -t network < <(network_options)
# The archives' signatures are valid for as long as the machine's own: a snapshot mirror may switch the check off.
valid_until=$(apt-config dump --format '%v' Acquire::Check-Valid-Until)
bounded 900 mmdebstrap --quiet "${variant[@]}" --format=tar --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' \
  --aptopt="Acquire::Check-Valid-Until \"${valid_until:-true}\"" ${network[@]+"${network[@]}"} ${include[@]+"${include[@]}"} \
  "$release" "$archive.new" "${sources[@]}" >&2 || die "mmdebstrap failed; see above"
mv "$archive.new" "$archive"
printf '%s\n' "$stamp" >"$archive.stamp"
printf '%s\n' "$archive"
