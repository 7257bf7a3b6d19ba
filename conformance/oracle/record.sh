#!/bin/bash
# Runs the commands of scripts in one world and writes down what each did.
#   record.sh WORLD OUT SCRIPT...        WORLD is a file that defines the functions begin, fresh and finish
# Out comes, for each command: `$ command`, `O|` and `E|` lines of its output, `N|` lines for names under /dev that came (+) or
# went (-), and `rc=`. A script starts in a fresh world of the physical volumes /dev/pv/a to /dev/pv/d, in an empty directory.
set -u
. "$1"
out=$2
shift 2

# Processes are slow to start in the guest: nothing here starts one unless something changed.
shopt -s nullglob

look() {
    names=(/dev/cf*/* /dev/mapper/cf*)
}

details() {
    [ ${#names[@]} = 0 ] || find "${names[@]}" -maxdepth 0 -printf '%p %M %u:%g %l\n' | LC_ALL=C sort
}

run() {
    local rc lines known after
    printf '$ %s\n' "$1"
    (eval "$1") </dev/null >"$scratch/out" 2>"$scratch/err" 3>&-
    rc=$?
    mapfile -t lines <"$scratch/out"
    [ ${#lines[@]} = 0 ] || printf 'O|%s\n' "${lines[@]}"
    mapfile -t lines <"$scratch/err"
    [ ${#lines[@]} = 0 ] || printf 'E|%s\n' "${lines[@]}"
    known=${names[*]-}
    look
    if [ "${names[*]-}" != "$known" ]; then
        after=$(details)
        LC_ALL=C comm -13 <(echo "$before") <(echo "$after") | sed '/^$/d; s/^/N|+/'
        LC_ALL=C comm -23 <(echo "$before") <(echo "$after") | sed '/^$/d; s/^/N|-/'
        before=$after
    fi
    printf 'rc=%s\n\n' "$rc"
}

begin
trap finish EXIT
# A command that is stopped must not leave the world behind.
trap 'exit 1' TERM INT HUP
scratch=$(mktemp -d)
exec 3>"$out"
for script; do
    fresh
    work=$scratch/work
    rm -rf "$work"
    mkdir "$work"
    cd "$work" || exit 1
    look
    before=$(details)
    printf '######## %s\n' "$(basename "$script" .txt)" >&3
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in '' | '#'*) continue ;; esac
        run "$line" >&3
    done <"$script"
    cd /
done
rm -rf "$scratch"
