# The world of LVM2: inside user-mode-linux, on its disks ubda to ubdd.

begin() {
    export LVM_SYSTEM_DIR=/run/lvmsys LVM_SUPPRESS_FD_WARNINGS=1 DM_DISABLE_UDEV=1 LC_ALL=C TZ=UTC
    mkdir -p "$LVM_SYSTEM_DIR" /run/lock/lvm /run/lvm /dev/pv
    # Only the names under /dev/pv are looked at, so that both worlds call their disks the same.
    cat >"$LVM_SYSTEM_DIR/lvm.conf" <<EOF
devices {
    scan = [ "/dev/pv" ]
    obtain_device_list_from_udev = 0
    external_device_info_source = "none"
    use_devicesfile = 0
}
# What an earlier script wrote on the disks is no matter of this one.
allocation { wipe_signatures_when_zeroing_new_lvs = 0 }
activation { udev_sync = 0 udev_rules = 0 monitoring = 0 }
global { use_lvmpolld = 0 }
EOF
    local minor=0 name
    for name in a b c d; do
        mknod "/dev/pv/$name" b 98 $minor
        minor=$((minor + 16))
    done
}

fresh() {
    awk '$1 ~ "^/dev/(mapper/)?cf" { print $2 }' /proc/mounts | xargs -r umount -l
    lvm vgremove -ff -y $(lvm vgs --noheadings -o vg_name 2>/dev/null) >/dev/null 2>&1
    dmsetup remove_all --force >/dev/null 2>&1
    rm -rf /run/lvm/hints "$LVM_SYSTEM_DIR"/backup "$LVM_SYSTEM_DIR"/archive "$LVM_SYSTEM_DIR"/cache /dev/cf* /dev/mapper/cf*
    local name
    for name in a b c d; do
        dd if=/dev/zero of=/dev/pv/$name bs=1M count=2 conv=notrunc status=none
    done
}

finish() { fresh; }
