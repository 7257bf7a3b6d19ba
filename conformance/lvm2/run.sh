#!/bin/bash
# Runs one script of LVM2's test suite on Rowen, in a world of its own, and leaves nothing.
#   run.sh TREE SCRIPT DIRECTORY     exits as the script does: 0 passed, 200 skipped, another number failed
set -u
tree=$1 script=$2 world=$3
suite=$tree/lvm2-testsuite
mkdir -p "$world/tmp"
export ROWEN_SYSTEM_DIR=$world/etc ROWEN_RUN_DIR=$world/run DMSETUP_SHIM_DIR=$world/parts
export LVM_TEST_DIR=$world/tmp LVM_TEST_DEVDIR=/dev LVM_TEST_FLAVOUR=ndev-vanilla LVM_TEST_PREFER_BRD=0 LVM_TEST_PARALLEL=1
export LVM_TEST_NODEBUG=1 DM_DISABLE_UDEV=1 DM_UDEV_SYNCHRONISATION=0 PATH=$suite/lib:$tree/bin:$PATH

# Only what is bound to a file of this world: the number of a loop device that came free may be another's by now.
detach() {
    local backing loop
    for backing in /sys/block/loop*/loop/backing_file; do
        case $(cat "$backing" 2>/dev/null) in "$world"/*) ;; *) continue ;; esac
        loop=${backing#/sys/block/}
        losetup -d "/dev/${loop%%/*}" 2>/dev/null
    done
}

# Servers and keepers of this world, by its name in their environment: a keeper that is left would start servers for ever.
end_processes() {
    local process pid
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        [ "$pid" != $$ ] && [ "$pid" != "$BASHPID" ] || continue
        [[ $(readlink "$process/exe" 2>/dev/null) == "$(readlink -f "$tree/bin/lvm")"* ]] || continue
        grep -qsz "^ROWEN_RUN_DIR=$ROWEN_RUN_DIR$" "$process/environ" && kill -9 "$pid" 2>/dev/null
    done
    grep -s " $world/" /proc/mounts | cut -d' ' -f2 | tac | while read -r process; do umount -l "$process"; done
}

clean() {
    local group pid part point
    grep -s " $world/" /proc/mounts | cut -d' ' -f2 | tac | while read -r point; do umount -l "$point"; done
    for group in $(ls "$ROWEN_RUN_DIR" 2>/dev/null); do
        timeout 30 "$tree/bin/lvm" vgremove -ff -y "$group" >/dev/null 2>&1
    done
    end_processes
    for group in $(ls "$ROWEN_RUN_DIR" 2>/dev/null); do
        rm -f "/dev/mapper/$group-"*
        rm -rf "/dev/${group:?}"
    done
    for part in "$DMSETUP_SHIM_DIR"/*; do rm -f "/dev/mapper/${part##*/}"; done
    detach
    rm -rf "$world"
}
trap clean EXIT
trap 'exit 1' TERM INT HUP

cd "$suite" || exit 1
bash "shell/$script.sh" </dev/null &
wait $!
