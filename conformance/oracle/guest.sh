#!/bin/bash
# The first process of user-mode-linux, over this machine's own root: device-mapper's modules, then the recorder.
# The kernel's command line says record=RECORDER world=WORLD out=FILE scripts=DIRECTORY
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /run
mount -t devtmpfs dev /dev 2>/dev/null
ln -s /proc/self/fd /dev/fd
mkdir -p /run/tmp
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/run/tmp
for word in $(</proc/cmdline); do
    case $word in record=* | world=* | out=* | scripts=*) declare "$word" ;; esac
done
modules=/usr/lib/uml/modules/$(uname -r)/kernel
for module in dm-mod dm-bufio dm-snapshot dm-bio-prison dm-persistent-data dm-thin-pool dm-zero; do
    insmod "$(find "$modules" -name $module.ko)"
done
bash "$record" "$world" "$out" "$scripts"/*.txt
echo "RECORDED $?"
sync
echo o >/proc/sysrq-trigger
sleep 60
