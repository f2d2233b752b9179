#!/usr/bin/env bash
# Usage: podman.sh [--user ID] CDI_FILE STATE ROOT DEVICE... -- COMMAND...
#
# Runs a command by podman in a container whose files are those in ROOT, with the CDI devices of CDI_FILE; podman's own files are in
# the folder STATE. Its own user (with --user), PID, mount and network namespaces, podman's default seccomp filter and capabilities.
# --user: podman runs without privileges as the user with this number. In a new mount namespace: nothing stays mounted.
#
# Exit status 77 if podman is missing or cannot create containers here.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
  command -v podman >/dev/null && command -v crun >/dev/null || { echo 'podman and crun are not installed' >&2; exit 77; }
  exec unshare --mount --propagation private --pid --fork --kill-child "$0" --inside "$@"
fi
shift
user=0
if [ "$1" = --user ]; then user=$2; shift 2; fi
cdi=$1 state=$2 root=$3
shift 3
devices=()
while [ "$1" != -- ]; do devices+=(--device "$1"); shift; done
shift

mount -t proc proc /proc
# crun takes no hierarchy of both versions.
umount -R -l /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
# Where podman looks for CDI files; the machine's own do not count.
mkdir -p "$state/home" "$state/cdi"
cp "$cdi" "$state/cdi/devices.json"
chmod -R go+rX "$state/cdi"
mount -t tmpfs none /run
mkdir /run/cdi /run/podman
mount --bind "$state/cdi" /run/cdi
podman=(podman --runtime crun --root "$state/home/storage" --runroot /run/podman --storage-driver vfs)
# Limits of the machine may be lower than podman's default.
run=(run --rm --cgroups=disabled --network=none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "${devices[@]}")
if [ "$user" = 0 ]; then
  "${podman[@]}" "${run[@]}" --rootfs "$root" "$@"
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
# The root folder belongs to others: an overlay takes what the container writes.
setpriv --reuid "$user" --regid "$user" --clear-groups env HOME="$state/home" XDG_RUNTIME_DIR=/run/podman \
  "${podman[@]}" "${run[@]}" --rootfs "$root:O" "$@"
