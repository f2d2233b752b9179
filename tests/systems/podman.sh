#!/usr/bin/env bash
# Usage: podman.sh [--user ID] CDI_FILE STATE ROOT DEVICE... -- COMMAND...
#
# Runs a command by podman in a container whose files are those in ROOT, with the CDI devices of CDI_FILE; podman's own files are in
# the folder STATE. Its own user (with --user), PID, mount and network namespaces, podman's default seccomp filter and capabilities.
# --user: podman runs without privileges as the user with this number.
#
# Exit status 77 if podman is missing.
set -euo pipefail

# The root folder of --rootfs belongs to others than that user: an overlay takes what the container writes.
room=() overlay=''
if [ "$1" = --user ]; then room=(--user "$2") overlay=:O; shift 2; fi
cdi=$1 state=$2 root=$3
shift 3
devices=()
while [ "$1" != -- ]; do devices+=(--device "$1"); shift; done
shift
mkdir -p "$state/cdi"
cp "$cdi" "$state/cdi/devices.json"
exec "$(dirname "$0")/podman_room.sh" ${room[@]+"${room[@]}"} "$state" bash -c '$ROCI_PODMAN $ROCI_PODMAN_RUN "$@"' bash \
  "${devices[@]}" --rootfs "$root$overlay" "$@"
