#!/usr/bin/env bash
# Usage: make_systems.sh FOLDER
#
# Creates the root folders of other Debian releases, FOLDER/SUITE, with programs that use libibverbs, from the machine's Debian
# mirror. Done once per version of this script. FOLDER/SUITE.log says why one is missing.
set -uo pipefail
folder=$1
packages=ibverbs-utils,perftest,rdmacm-utils,python3-pyverbs
mkdir -p "$folder"

mirror=$(apt-get indextargets --format '$(REPO_URI)|$(ORIGIN)|$(LABEL)|$(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
  sed -n 's/|Debian|Debian|main$//p' | head -1)

# make SUITE: prints why it cannot be made.
make() {
  command -v mmdebstrap >/dev/null || { echo 'mmdebstrap is not installed'; return 1; }
  [ "$(id -u)" = 0 ] || { echo 'only root may create it'; return 1; }
  [ -n "$mirror" ] || { echo "the machine's apt configuration has no Debian mirror"; return 1; }
  # (Old snapshots of a mirror have expired lists, whose signatures are still good.)
  timeout --kill-after=10 500 mmdebstrap --quiet --mode=root --variant=essential --include="$packages" \
    --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Retries "2"' --aptopt='Acquire::http::Timeout "30"' \
    --aptopt='APT::Install-Recommends "false"' "$1" "$folder/$1.new" "$mirror" 2>&1
}

exec 9>"$folder/lock"
flock 9
for suite in trixie sid; do
  stamp=$(sha256sum <"$0")
  [ "$(cat "$folder/$suite/.stamp" 2>/dev/null)" != "$stamp" ] || continue
  rm -rf --one-file-system "${folder:?}/$suite" "$folder/$suite.new"
  if make "$suite" >"$folder/$suite.log"; then
    mkdir -p "$folder/$suite.new/host"
    printf '%s' "$stamp" >"$folder/$suite.new/.stamp"
    mv "$folder/$suite.new" "$folder/$suite"
  else
    rm -rf --one-file-system "$folder/$suite.new"
  fi
done
