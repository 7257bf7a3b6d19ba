#!/bin/bash
# Gets LVM2's test suite of the Debian release that the comparison is with, and lays it out to run on Rowen.
#   prepare.sh CACHE TREE ROWEN     the source is kept in CACHE; TREE is made anew
# The suite itself is used as it is. Its only hooks are used: the `lvm` and `dmsetup` found in PATH, and lib/paths.
set -eu
cache=$1 tree=$2 rowen=$3
here=$(cd "$(dirname "$0")" && pwd)
version=2.03.16

mkdir -p "$cache"
if [ ! -d "$cache/lvm2-$version/test/shell" ]; then
    rm -rf "$cache/apt"
    mkdir -p "$cache/apt/lists/partial" "$cache/apt/cache/archives/partial" "$cache/apt/sources.d"
    "$here/source-lists" /etc/apt "$cache/apt/sources.d"
    apt=(apt-get -qq -o Dir::Etc::sourcelist=- -o "Dir::Etc::sourceparts=$cache/apt/sources.d"
        -o "Dir::State::lists=$cache/apt/lists" -o "Dir::Cache=$cache/apt/cache" -o APT::Sandbox::User=root)
    # A package source of somebody else's may have no sources: what counts is whether LVM2's come.
    "${apt[@]}" update || true
    (cd "$cache/apt" && "${apt[@]}" source --download-only lvm2)
    [ -e "$cache/apt/lvm2_$version.orig.tar.xz" ] ||
        { echo "the package sources of this machine have another LVM2 than $version, Debian 12's: $(cd "$cache/apt" && echo lvm2_*)" >&2; exit 1; }
    rm -rf "$cache/unpacked"
    mkdir "$cache/unpacked"
    tar -xf "$cache/apt/lvm2_$version.orig.tar.xz" -C "$cache/unpacked" --strip-components=1
    rm -rf "$cache/lvm2-$version"
    mv "$cache/unpacked" "$cache/lvm2-$version"
fi

source=$cache/lvm2-$version
suite=$tree/lvm2-testsuite
rm -rf "$tree"
mkdir -p "$suite/shell" "$suite/lib" "$tree/bin"
cp "$source"/test/shell/*.sh "$suite/shell/"
for file in "$source"/test/lib/*.sh; do
    cp "$file" "$suite/lib/$(basename "$file" .sh)"
done
chmod +x "$suite"/lib/*
cc -o "$suite/lib/not" "$source/test/lib/not.c"
for name in invalid fail should; do ln -s not "$suite/lib/$name"; done
cp "$source/test/lib/mke2fs.conf" "$suite/lib/"
# LVM2's own script, to which its tests give filesystems.
cp "$source/scripts/fsadm.sh" "$suite/lib/fsadm"
chmod +x "$suite/lib/fsadm"
ln -s lvm-wrapper "$suite/lib/lvm"
ln -s "$rowen" "$tree/bin/lvm"
cp "$here/dmsetup" "$here/losetup" "$here/umount" "$tree/bin/"
for name in lvchange lvconvert lvcreate lvdisplay lvextend lvmconfig lvmdevices lvmdiskscan lvmsadc lvmsar lvreduce lvremove \
    lvrename lvresize lvs lvscan pvchange pvck pvcreate pvdisplay pvmove pvremove pvresize pvs pvscan vgcfgbackup vgcfgrestore \
    vgchange vgck vgconvert vgcreate vgdisplay vgexport vgextend vgimport vgimportclone vgmerge vgmknodes vgreduce vgremove \
    vgrename vgs vgscan vgsplit; do
    ln -s lvm-wrapper "$suite/lib/$name"
done
cat >"$suite/lib/paths" <<EOF
installed_testsuite=1
export PATH=$suite/lib:$tree/bin:\${PATH#$suite/lib:$tree/bin:}
LVM_TEST_THIN_CHECK_CMD= LVM_TEST_THIN_DUMP_CMD= LVM_TEST_THIN_REPAIR_CMD= LVM_TEST_THIN_RESTORE_CMD=
LVM_TEST_CACHE_CHECK_CMD= LVM_TEST_CACHE_DUMP_CMD= LVM_TEST_CACHE_REPAIR_CMD= LVM_TEST_CACHE_RESTORE_CMD=
export LVM_TEST_THIN_CHECK_CMD LVM_TEST_THIN_DUMP_CMD LVM_TEST_THIN_REPAIR_CMD LVM_TEST_THIN_RESTORE_CMD
export LVM_TEST_CACHE_CHECK_CMD LVM_TEST_CACHE_DUMP_CMD LVM_TEST_CACHE_REPAIR_CMD LVM_TEST_CACHE_RESTORE_CMD
THIN=internal RAID=none CACHE=none
# For LVM2's own scripts that call it.
export LVM_BINARY=$tree/bin/lvm
EOF
