#!/usr/bin/env bash
# Usage: enter.sh ROOT [PATH | FROM:TO]... -- COMMAND...
#
# Runs a command in the system whose files are in ROOT, with this process' /dev and /sys, a /proc of its own, and the given folders
# and files at the same paths or at TO. In new mount and process namespaces: nothing stays mounted, and no process stays behind.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
  exec unshare --mount --propagation private --pid --fork --kill-child "$0" --inside "$@"
fi
root=$2
shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
while [ "$1" != -- ]; do
  from=${1%%:*} to=$root${1#*:}
  if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "${to%/*}" && touch "$to"; fi
  mount --rbind "$from" "$to"
  shift
done
shift
# Not `exec`: the first process of a namespace ignores signals that it does not catch.
chroot "$root" "$@"
