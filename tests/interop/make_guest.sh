#!/usr/bin/env bash
# Usage: make_guest.sh FOLDER
#
# Creates the boot files of a guest: FOLDER/vmlinuz, from Debian's kernel package, and FOLDER/initrd, with the modules that the
# tests need and guest_init.sh. The guest has no disk: it uses this machine's files, read-only. Done once per version of the
# kernel and of this script.
#
# Exit status 77 if the package is not available.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
PATH=$PATH:/usr/sbin:/sbin  # an ordinary user's lacks them; depmod and modprobe need no privilege here
modules=(virtio_pci virtio_net virtio_blk virtio_rng 9p 9pnet_virtio crc32_generic crc32_pclmul ext4 rdma_rxe rdma_ucm ib_umad vgem
  vfio_iommu_type1 vfio-pci uio_pci_generic)
# Those that few tests need: loaded by guests whose kernel's command line has modules=NAME.
declare -A more_modules=([nfs]='nfs nfsv3 rpcrdma nfsd')

unavailable() { printf 'make_guest: %s\n' "$*" >&2; exit 77; }
for program in qemu-system-x86_64 busybox cpio depmod modprobe dpkg-deb; do
  command -v "$program" >/dev/null || unavailable "$program is not installed"
done

version=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: linux-image-\([0-9].*\)/\1/p' | head -1)
[ -n "$version" ] || unavailable "Debian's package lists have no linux-image-amd64 (apt-get update?)"
mkdir -p "$folder"
# Several tests want it at the same time.
exec 9>"$folder/lock"
flock 9
stamp="$version $(cat "$here/make_guest.sh" "$here/guest_init.sh" | sha256sum)"
[ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"  # apt fetches as a user of its own
(cd "$work" && apt-get -qq download "linux-image-$version") >&2 2>"$work/apt.log" ||
  unavailable "cannot download linux-image-$version: $(sed -n 's/^E: //p' "$work/apt.log" | head -1)"
dpkg-deb -x "$work"/linux-image-*.deb "$work/kernel"
depmod -b "$work/kernel" "$version"

root=$work/initrd
mkdir -p "$root"/{bin,dev,proc,sys,new,modules}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/guest_init.sh" "$root/init"
chmod 755 "$root/init"
# Copies modules, and those that they need. Prints the names of new ones in the order in which they can be loaded.
copy_modules() {
  for module in "$@"; do
    modprobe -d "$work/kernel" -S "$version" --show-depends "$module"
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r path; do
    name=$(basename "$path")
    [ ! -e "$root/modules/$name" ] || continue
    cp "$path" "$root/modules/"
    printf '%s\n' "$name"
  done
}
copy_modules "${modules[@]}" >"$root/modules/order"
for name in "${!more_modules[@]}"; do
  read -ra more <<<"${more_modules[$name]}"
  copy_modules "${more[@]}" >"$root/modules/order.$name"
done
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$folder/initrd"
cp "$work/kernel/boot/vmlinuz-$version" "$folder/vmlinuz"
printf '%s' "$stamp" >"$folder/stamp"
