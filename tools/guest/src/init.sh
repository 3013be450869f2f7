#!/bin/busybox sh
# The first process of a guest: loads the modules, puts a file system together out of this
# machine's and some memory for what is written to it, and goes on there, with guest.sh.
export PATH=/bin
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
fail() {
    echo "gossamer: $1"
    poweroff -f
}
mount -t sysfs sysfs /sys && mount -t devtmpfs devices /dev || fail "no /sys or no /dev"
while read -r module; do
    insmod "/modules/$module.ko" || fail "cannot load the module $module"
done </modules/order

share() {
    options="trans=virtio,version=9p2000.L,msize=512000,$3"
    mount -t 9p -o "$options" "$1" "$2" || fail "cannot mount $1 at $2"
}
share machine /machine ro,cache=loose
share packages /packages ro,cache=loose
mount -t tmpfs -o mode=755 fresh /fresh && mkdir /fresh/files /fresh/work
layers=lowerdir=/machine:/packages,upperdir=/fresh/files,workdir=/fresh/work
mount -t overlay -o "$layers" all /root || fail "cannot lay the file systems over each other"
for folder in proc sys dev; do mount --move "/$folder" "/root/$folder"; done
mount -t tmpfs -o mode=755 run /root/run && mkdir -p /root/run/lock /root/run/gossamer
mkdir -p /root/dev/shm /root/dev/pts
mount -t tmpfs -o mode=1777 memory /root/dev/shm && mount -t devpts -o ptmxmode=666 pts /root/dev/pts
for link in fd stdin:0 stdout:1 stderr:2; do
    case $link in
        *:*) ln -sf "/proc/self/fd/${link#*:}" "/root/dev/${link%:*}" ;;
        *) ln -sf /proc/self/fd "/root/dev/$link" ;;
    esac
done

. /gossamer/settings
mkdir -p "/root$OUT" && share out "/root$OUT" cache=mmap
cp /bin/busybox /gossamer/* /root/run/gossamer/
hostname "gossamer-$GUEST"
ip link set lo up
ulimit -l unlimited
exec chroot /root /bin/sh /run/gossamer/guest.sh
