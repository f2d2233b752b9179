#!/usr/bin/env bash
# Usage: podman_room.sh [--user ID] STATE COMMAND...
#
# Runs a command where podman works, and only its own containers, images and CDI files exist: in new mount and process namespaces, with
# podman's files in the folder STATE. Nothing stays mounted, and no process stays behind. The command finds in its environment
#   ROCI_PODMAN      podman with its options
#   ROCI_PODMAN_RUN  podman's subcommand `run` with options for containers without a network
# --user: the command runs without privileges as the user with this number.
#
# CDI files are those in STATE/cdi. Exit status 77 if podman is missing.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
  command -v podman >/dev/null && command -v crun >/dev/null || { echo 'podman and crun are not installed' >&2; exit 77; }
  exec unshare --mount --propagation private --pid --fork --kill-child "$0" --inside "$@"
fi
shift
user=0
if [ "$1" = --user ]; then user=$2; shift 2; fi
state=$1
shift

mount -t proc proc /proc
# crun takes no hierarchy of both versions.
umount -R -l /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
# Where podman looks for CDI files; the machine's own do not count.
mkdir -p "$state/home" "$state/cdi"
chmod -R go+rX "$state/cdi"
mount -t tmpfs none /run
mkdir /run/cdi /run/podman
mount --bind "$state/cdi" /run/cdi
# (Layers need not be copied where overlays are permitted.)
driver=vfs
[ "$user" != 0 ] || driver=overlay
export ROCI_PODMAN="podman --runtime crun --root $state/home/storage --runroot /run/podman --storage-driver $driver"
# Limits of the machine may be lower than podman's default.
export ROCI_PODMAN_RUN='run --rm --cgroups=disabled --network=none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024'
if [ "$user" = 0 ]; then
  "$@"
  exit
fi
# Subordinate IDs for the user: newuidmap reads these files.
name=$(getent passwd "$user" | cut -d: -f1)
for file in subuid subgid; do
  printf '%s:100000:65536\n' "$name" >"$state/$file"
  chmod 644 "$state/$file"
  mount --bind "$state/$file" "/etc/$file"
done
chown -R "$user" /run/podman "$state/home"
mount --make-rshared /
setpriv --reuid "$user" --regid "$user" --clear-groups env HOME="$state/home" XDG_RUNTIME_DIR=/run/podman "$@"
