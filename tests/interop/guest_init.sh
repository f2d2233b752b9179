#!/bin/busybox sh
# The first process of a guest: loads the modules, mounts the host's files and executes guest_agent.sh.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
load() { while read -r module; do insmod "/modules/$module" || echo "guest: $module does not load"; done <"$1"; }
load /modules/order
for word in $(cat /proc/cmdline); do
  case $word in modules=*) load "/modules/order.${word#modules=}" ;; esac
done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose root /new || exec sh
for place in dev proc sys; do mount --move "/$place" "/new/$place"; done
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
for place in dev/shm run tmp; do mount -t tmpfs tmpfs "/new/$place"; done
ln -sf /proc/self/fd /new/dev/fd
mkdir /new/run/host
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none host /new/run/host
hostname guest
ulimit -l unlimited
exec chroot /new /bin/bash /run/host/guest_agent.sh
