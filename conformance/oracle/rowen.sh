# The world of Rowen: this machine, on loop devices over files in memory. ROWEN is the program, WORLD_DIR an empty directory.

lvm_names="lvchange lvconvert lvcreate lvdisplay lvextend lvmconfig lvmdevices lvmdiskscan lvmsadc lvmsar lvreduce lvremove
lvrename lvresize lvs lvscan pvchange pvck pvcreate pvdisplay pvmove pvremove pvresize pvs pvscan vgcfgbackup vgcfgrestore
vgchange vgck vgconvert vgcreate vgdisplay vgexport vgextend vgimport vgimportclone vgmerge vgmknodes vgreduce vgremove vgrename
vgs vgscan vgsplit"

begin() {
    export ROWEN_SYSTEM_DIR=$WORLD_DIR/etc ROWEN_RUN_DIR=$WORLD_DIR/run LC_ALL=C TZ=UTC
    mkdir -p "$WORLD_DIR/bin" /dev/pv
    local name
    # Also LVM's names that Rowen does not have: the machine's own LVM2 must not answer to them.
    for name in $lvm_names; do
        printf '#!/bin/sh\nexec lvm %s "$@"\n' "$name" >"$WORLD_DIR/bin/$name"
        chmod +x "$WORLD_DIR/bin/$name"
    done
    for name in $("$ROWEN" commands); do ln -sf "$ROWEN" "$WORLD_DIR/bin/$name"; done
    export PATH=$WORLD_DIR/bin:$PATH
    for name in a b c d; do
        truncate -s "${DISK:?}" "$WORLD_DIR/$name.img"
        local loop
        loop=$(losetup --find --show "$WORLD_DIR/$name.img") || exit 1
        echo "$loop" >>"$WORLD_DIR/loops"
        mknod "/dev/pv/$name" b $((0x$(stat -c %t "$loop"))) $((0x$(stat -c %T "$loop"))) || exit 1
    done
}

fresh() {
    awk '$1 ~ "^/dev/(mapper/)?cf" { print $2 }' /proc/mounts | xargs -r umount -l
    local group pid
    for group in $(ls "$ROWEN_RUN_DIR" 2>/dev/null); do
        "$ROWEN" vgremove -ff -y "$group" >/dev/null 2>&1
        "$ROWEN" stop "$group" >/dev/null 2>&1
    done
    # A server that did not end, and its keeper, which would start another for ever: by the name of this world.
    for pid in /proc/[0-9]*; do
        [[ $(readlink "$pid/exe" 2>/dev/null) == "$(readlink -f "$ROWEN")"* ]] || continue
        grep -qsz "^ROWEN_RUN_DIR=$ROWEN_RUN_DIR$" "$pid/environ" && kill -9 "${pid#/proc/}" 2>/dev/null
    done
    awk -v run="$ROWEN_RUN_DIR/" 'index($2, run) == 1 { print $2 }' /proc/mounts | xargs -r umount -l
    rm -rf "$ROWEN_RUN_DIR"
    rm -rf "$ROWEN_SYSTEM_DIR" /dev/cf* /dev/mapper/cf*
    for group in a b c d; do
        dd if=/dev/zero of=/dev/pv/$group bs=1M count=2 conv=notrunc status=none
        truncate -s 0 "$WORLD_DIR/$group.img"
        truncate -s "$DISK" "$WORLD_DIR/$group.img"
    done
}

finish() {
    cd /
    fresh
    xargs -r -n1 losetup -d <"$WORLD_DIR/loops"
    rm -rf /dev/pv "$WORLD_DIR"
}
