# What the clients' scripts share. Each command that they run is in the log; the first that fails ends the client.
# shellcheck shell=bash

exec 2>&1
# Seconds, script, line.
PS4='+ ${SECONDS} ${BASH_SOURCE##*/}:${LINENO}: '
trap 'fail "line $LINENO of ${BASH_SOURCE##*/}"' ERR
set -x

fail() {
    { set +x; } 2>/dev/null
    trap - ERR
    echo "+ FAILED: $*"
    tail -n 30 "/run/rowen/$vg/server.log" 2>/dev/null || true
    exit 1
}

# needs PROGRAM...: the client and its helpers are installed.
needs() {
    local program
    { set +x; } 2>/dev/null
    for program; do
        command -v "$program" >/dev/null || fail "$program is not installed: run '.ci/packages clients'"
    done
    set -x
}

# A group of that many MiB on one file.
new_group() {
    truncate -s "$1M" "$pv"
    vgcreate "$vg" "$pv"
}

# new_disk NAME MIB: prints the path of a disk of that size. (Its file carries the group's name for the sweeping up.)
new_disk() {
    truncate -s "$2M" "/mnt/$vg.$1"
    losetup --find --show "/mnt/$vg.$1"
}

# give ROOT PATH PROGRAM: puts a program of this machine into another root, with the libraries that it needs.
give() {
    local file
    install -D "$(command -v "$3")" "$1$2"
    { ldd "$1$2" || true; } | { grep -o '/[^ ]*' || true; } | while read -r file; do install -D "$file" "$1$file"; done
}

same() { [ "$1" = "$2" ] || fail "expected '$2', found '$1'"; }
differ() { [ "$1" != "$2" ] || fail "'$1' should have changed"; }

# refused COMMAND...: it must fail.
refused() { if "$@"; then fail "should have been refused: $*"; fi; }

# until_true SECONDS COMMAND...
until_true() {
    local tries=$(($1 * 10))
    { set +x; } 2>/dev/null
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "waited too long for: $*"
        sleep 0.1
    done
    set -x
}

# stop PID: asks a daemon that this script started to end, and waits until it has.
stop() {
    kill "$1"
    until_true 30 not kill -0 "$1"
}
not() { ! "$@"; }

# What the volumes of the group are called, in one line.
volumes() { { lvs --noheadings -o lv_name "$vg" || echo 'lvs failed'; } | xargs; }

# The client has given everything back; then the group goes too.
finish() {
    if vgs "$vg"; then
        same "$(volumes)" ""
        rowen check "$vg"
        vgremove -f "$vg"
    fi
    if [ -e "$pv" ]; then pvremove "$pv"; fi
    same "$(grep -c "^/dev/.*/$vg" /proc/mounts || true)" 0
}
