# What the scripts share that cut the power of the real program: a group on a disk with a volatile cache
# (crates/host/examples/volatile_disk.rs). Set before this is read: rowen, disk (the programs), seed, what (a word for names).
# shellcheck shell=bash

RANDOM=$seed
export PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d "${TMPDIR:-/tmp}/rowen-$what.XXXXXX")
export ROWEN_SYSTEM_DIR=$work/etc ROWEN_RUN_DIR=$work/run ROWEN_IDLE_SECONDS=600
# How long anything may take to end, in seconds. DISK_OPTION=lies makes a disk whose flushes do nothing.
patience=${PATIENCE:-60} disk_option=${DISK_OPTION:-}
group=$what$$ image=$work/image pv=$work/pv faults=0 disk_pid='' users=() roots=() cuts=0
# Servers of databases run as others than root.
chmod 755 "$work"
mkdir -p "$work"/{etc,run,m}
: >"$pv"
ulimit -n 4096

say() { printf '%s\n' "$*"; }
fault() { say "FAULT after cut $cuts (seed $seed${how:+, kept $how}): $*"; faults=$((faults + 1)); }
give_up() { say "$faults faults"; exit 1; }
r() { "$rowen" "$@"; }
clock() { date +%s%N; }
# within SECONDS COMMAND...: until it succeeds.
within() {
    local i tries=$(($1 * 50)); shift
    for ((i = 0; i < tries; i++)); do "$@" >/dev/null 2>&1 && return; sleep 0.02; done
    return 1
}
# A process whose first thread has ended may have others that have not.
has_ended() { case $(sed 's/.*) //' "/proc/$1"/task/*/stat 2>/dev/null | cut -c1 | tr -d 'ZX\n') in '') return 0 ;; *) return 1 ;; esac; }
# The process just started uses a volume. (Disowned: the shell says nothing when it is killed.)
uses() { users+=("$1"); disown "$1"; }
# A process that was killed must end; one that waits for a device that is gone is a fault.
ends() {
    within "$patience" has_ended "$1" && return
    does_not_end "$1"
}
# What it waits for, and whose descriptors keep the requests of FUSE files waiting.
does_not_end() {
    local pid
    fault "process $1 ($(tr '\0' ' ' <"/proc/$1/cmdline")) does not end:"
    for pid in "$1" $(pgrep -xf "($rowen|$disk|/proc/self/exe) .*"); do
        say "$pid $(tr '\0' ' ' <"/proc/$pid/cmdline") $(find "/proc/$pid/fd" -lname /dev/fuse -printf '%f ' 2>/dev/null)"
        head -5 "/proc/$pid"/task/*/stack 2>/dev/null
    done
    give_up
}
# This run's processes of Rowen.
processes() {
    local pid
    pgrep -xf "$rowen (serve|keeper) $group"
    for pid in $(pgrep -xf '/proc/self/exe helper'); do
        grep -qz "^ROWEN_RUN_DIR=$ROWEN_RUN_DIR\$" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
    done
}
# None of this run's processes is left. One that was started while the others were listed is killed, too, as a power cut does it.
none_left() {
    local pid left=''
    for pid in $(processes); do kill -9 "$pid" 2>/dev/null; left=$pid; killed+=("$pid"); done
    [ -z "$left" ]
}
# A helper that was killed leaves its filesystem frozen; the machine that loses its power does not. A shut down XFS cannot be
# opened, so its root is, before the cut.
open_roots() { local point root; for point in $(mounts_in "$work/m"); do exec {root}<"$point" && roots+=("$root"); done; }
thaw() {
    local root
    for root in "${roots[@]}"; do
        perl -e 'ioctl(STDIN, 0xC0045878, 0)' <&"$root"
        exec {root}<&-
    done
    roots=()
}
# XFS tries a write that failed again for ever, and a freeze waits for it. In a machine without power nothing waits.
no_more_tries() {
    local number file
    for number in $(awk -v w="$work/m" 'index($5, w) == 1 && / - xfs / {print $3}' /proc/self/mountinfo); do
        for file in "/sys/fs/xfs/$(basename "$(readlink "/sys/dev/block/$number")")"/error/metadata/*/max_retries; do
            [ ! -e "$file" ] || echo 0 >"$file"
        done
    done
}
mounts_in() { awk -v w="$1" 'index($2, w) == 1 {print $2}' /proc/self/mounts | sort -r; }
loops_in() { losetup -n -O NAME,BACK-FILE | awk -v w="$1" 'index($2, w) == 1 {print $1}'; }

power_on() {
    # The words of the disk before are nobody's: the shell that starts the next one may be slow to replace them.
    : >"$work/disk"
    "$disk" "$image" "$pv" "$((RANDOM * 32768 + RANDOM))" ${disk_option:+"$disk_option"} >"$work/disk" 2>&1 &
    disk_pid=$!
    disown $disk_pid
    within 30 grep -q ready "$work/disk" || { fault "the disk does not start: $(cat "$work/disk")"; give_up; }
}

# Everything stops: the disk answers nothing from here on and loses what it loses; then all that ran is killed, and what is
# mounted goes. `users` are the processes that use volumes.
power_cut() {
    local pid killed=()
    kill -"${cut_signal:-USR1}" "$disk_pid"
    within "$patience" grep -q '^off' "$work/disk" || { fault "the disk does not end: $(cat "$work/disk")"; give_up; }
    cuts=$((cuts + 1))
    no_more_tries
    open_roots
    none_left
    for pid in "${users[@]}" "$disk_pid"; do kill -9 "$pid" 2>/dev/null; done
    ends "$disk_pid"
    within "$patience" none_left || does_not_end "$(processes | head -1)"
    for pid in "${killed[@]}"; do ends "$pid"; done
    thaw
    for pid in "${users[@]}"; do ends "$pid"; done
    users=() disk_pid=''
    for point in $(mounts_in "$work/m"); do
        within "$patience" umount "$point" || { fault "$point cannot be unmounted"; give_up; }
    done
    umount -l "$pv"
}

# The power stays off when this is over. Without a fault nothing is left to be taken away by force.
clean() {
    local pid i
    trap - EXIT
    for pid in $(processes) "${users[@]}" $disk_pid; do kill -9 "$pid" 2>/dev/null; done
    open_roots
    thaw
    mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections 2>/dev/null
    # What still waits for a volume or the disk gets an error.
    awk -v w="$work/" '/ fuse.(rowen|faultdisk) / && index($5, w) == 1 {split($3, n, ":"); print n[2]}' /proc/self/mountinfo |
        while read -r pid; do echo 1 >"/sys/fs/fuse/connections/$pid/abort" 2>/dev/null; done
    for i in 1 2 3 4 5; do
        for point in $(mounts_in "$work/m"); do umount "$point" 2>/dev/null; done
        [ -n "$(mounts_in "$work/m")" ] || break
        sleep 0.5
    done
    for point in $(mounts_in "$work"); do umount -l "$point" 2>/dev/null; done
    for i in $(loops_in "$work"); do losetup -d "$i"; done
    rm -rf "/dev/${group:?}" "/dev/mapper/$group"-*
    [ -n "${KEEP:-}" ] && say "kept: $work" || rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
