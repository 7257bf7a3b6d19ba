#!/bin/bash
# The first process in user-mode-linux, over the host's root: what the kernel needs for the experiments, then one part of them.
# PLAN and PROGRAM come from the kernel's command line. Nothing of the host is changed but the plan's directory.
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TZ=UTC LC_ALL=C
export DM_DISABLE_UDEV=1 LVM_SUPPRESS_FD_WARNINGS=1 LVM_SYSTEM_DIR=/run/lvm.conf.d
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o size=80% tmp /run
mount -t tmpfs tmp /tmp
mount -t devtmpfs dev /dev 2>/dev/null
release=$(uname -r)
mkdir -p /run/lock/lvm /run/lvm /run/modules/lib/modules "$LVM_SYSTEM_DIR"
ln -s "/usr/lib/uml/modules/$release" "/run/modules/lib/modules/$release"
for module in dm-mod dm-snapshot dm-thin-pool dm-raid raid1 fuse loop; do modprobe -d /run/modules "$module"; done
modprobe -d /run/modules nbd nbds_max=4
# A disk that is served must not be found twice.
disks='ubd[bc]'
[ -z "$RECORD" ] || disks='nbd[12]'
cat >"$LVM_SYSTEM_DIR/lvm.conf" <<EOF
devices { scan = ["/dev"] use_devicesfile = 0 global_filter = ["a|^/dev/$disks\$|", "a|^/dev/mapper/plug[012]\$|", "r|.*|"] }
backup { backup = 0 archive = 0 }
global { use_lvmpolld = 0 use_lvmlockd = 0 }
# Locking memory reads every page of the program and its libraries, which takes half a second here.
activation { reserved_memory = 0 reserved_stack = 0 mlock_filter = ["/"] udev_sync = 0 udev_rules = 0 monitoring = 0 thin_pool_autoextend_threshold = 100 }
EOF
if [ -n "$RECORD" ]; then
    # Each disk is served by a process that logs every request, and the systems see only what it serves. Rowen records by itself.
    number=0
    for disk in ubda ubdb ubdc; do
        nbdkit -U "/run/$disk.sock" --filter=log file "/dev/$disk" "logfile=/run/$disk.log" &&
            nbd-client -unix "/run/$disk.sock" "/dev/nbd$number" >/dev/null 2>&1
        number=$((number + 1))
    done
fi
"$PROGRAM" inside "$PLAN"
if [ -n "$RECORD" ]; then
    sync
    for record in /run/ubda.log /run/ubdb.log /run/experiment/rowen.io; do
        [ ! -e "$record" ] || cp "$record" "$(dirname "$PLAN")/"
    done
fi
sync
echo o >/proc/sysrq-trigger
sleep 60
