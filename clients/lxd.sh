# LXD with its storage driver lvm on an existing volume group: images, containers, snapshots, copies, quotas, custom volumes,
# exports. $thin says whether in a thin pool. The filesystem is xfs, since ext4 grows while mounted only for CAP_SYS_RESOURCE.
# shellcheck shell=bash

needs lxd lxc fio busybox mkfs.xfs xfs_growfs mkfs.ext4 rsync mksquashfs

export LXD_DIR=/mnt/lxd

start_lxd() {
    grep -q '^root:' /etc/subuid || echo root:1000000:65536 | tee -a /etc/subuid >>/etc/subgid
    mkdir "$LXD_DIR"
    lxd --group root --logfile /mnt/lxd.log &
    lxd_pid=$!
    lxd waitready --timeout 60
}

stop_lxd() {
    lxd shutdown --timeout 60
    until_true 30 not kill -0 "$lxd_pid"
}

# An image with busybox, fio and the libraries it needs.
make_image() {
    local root=/mnt/image/rootfs
    mkdir -p "$root"/{bin,sbin,etc,proc,sys,dev,tmp,root,usr/bin,mnt}
    give "$root" /bin/busybox busybox
    chroot "$root" /bin/busybox --install -s /bin
    ln -s ../bin/busybox "$root/sbin/init"
    echo '::askfirst:/bin/true' >"$root/etc/inittab"
    echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    give "$root" /usr/bin/fio fio
    cat >/mnt/image/metadata.yaml <<END
architecture: $(uname -m)
creation_date: 1700000000
properties: {description: busybox and fio}
END
    tar -C /mnt/image -czf /mnt/image.tar.gz metadata.yaml rootfs
    rm -rf /mnt/image
    lxc image import /mnt/image.tar.gz --alias tiny
}

inside() { lxc exec "$1" -- /bin/sh -c "$2"; }
file_in() { inside "$1" 'cat /root/file'; }

# has_size CONTAINER LEAST MOST: its root, as it sees it, in MiB.
has_size() {
    local size
    size=$(inside "$1" 'df -P -m / | tail -n 1' | awk '{print $2}')
    if [ "$size" -lt "$2" ] || [ "$size" -gt "$3" ]; then fail "a root of $3 MiB is $size MiB"; fi
}

containers() {
    lxc launch tiny one
    inside one 'echo first >/root/file; sync -f /root'
    inside one 'fio --name=random --filename=/root/random --size=8m --rw=randrw --bs=4k --direct=1 --ioengine=psync \
        --verify=crc32c --verify_fatal=1'
    inside one 'dd if=/dev/urandom of=/root/bulk bs=1M count=8 conv=fsync; sha256sum /root/bulk >/root/sum'

    # A quota, grown while it runs.
    same "$(lxc storage volume get pool container/one block.filesystem)" xfs
    lxc config device override one root size=600MiB
    has_size one 500 600
    lxc config device set one root size=800MiB
    has_size one 700 800
}

snapshots() {
    lxc snapshot one s1
    inside one 'echo second >/root/file; sync -f /root'
    lxc snapshot one s2
    inside one 'echo third >/root/file; rm /root/bulk; sync -f /root'
    lxc snapshot one s3
    same "$(lxc query /1.0/instances/one/snapshots | grep -c /snapshots/)" 3

    # Back to a snapshot that is not the newest; the newer ones stay.
    lxc stop --force one
    lxc restore one s1
    lxc start one
    same "$(file_in one)" first
    inside one 'cd / && sha256sum -c /root/sum'
    lxc stop --force one
    lxc restore one s3
    lxc start one
    same "$(file_in one)" third
    lxc restore one s2 # while it runs
    same "$(file_in one)" second

    lxc copy one/s1 from-snapshot
    lxc start from-snapshot
    same "$(file_in from-snapshot)" first
    inside from-snapshot 'cd / && sha256sum -c /root/sum'
    lxc delete --force from-snapshot
}

copies() {
    lxc copy one two
    lxc start two
    same "$(file_in two)" second
    inside two 'echo of two >/root/file; sync -f /root'
    same "$(file_in one)" second
    lxc stop --force two
    lxc stop --force one

    inside_mounted
    # What has changed since goes over, with the snapshots that are new.
    lxc snapshot one s4
    lxc copy --refresh one two
    lxc start two
    same "$(file_in two)" fifth
    same "$(lxc query /1.0/instances/two/snapshots | grep -c /snapshots/)" 4
    lxc stop --force two

    lxc rename two three
    lxc start three
    same "$(file_in three)" fifth
    lxc rename three/s4 three/last
    lxc restore three s1
    same "$(file_in three)" first
    lxc delete --force three
}

# Changes a file of the stopped container.
inside_mounted() {
    echo fifth >/mnt/fifth
    lxc file push --quiet /mnt/fifth one/root/file
    lxc start one
    inside one 'sync -f /root'
    lxc stop --force one
}

custom_volumes() {
    lxc storage volume create pool files size=320MiB
    lxc storage volume create pool blocks --type block size=64MiB
    lxc start one
    lxc storage volume attach pool files one data /mnt
    inside one 'echo kept >/mnt/file; sync -f /mnt'
    lxc storage volume snapshot pool files f1
    inside one 'echo changed >/mnt/file; sync -f /mnt'
    lxc storage volume set pool files size 400MiB
    same "$(inside one 'df -P -m /mnt | tail -n 1' | awk '{print ($2 > 320)}')" 1
    lxc storage volume detach pool files one
    lxc storage volume restore pool files f1
    lxc storage volume attach pool files one data /mnt
    same "$(inside one 'cat /mnt/file')" kept
    lxc storage volume detach pool files one
    lxc storage volume copy pool/files pool/more
    lxc storage volume rename pool more most
    lxc storage volume attach pool most one data /mnt
    same "$(inside one 'cat /mnt/file')" kept
    lxc storage volume detach pool most one

    # A block volume is for virtual machines; what it holds is written to its device.
    lxc storage volume snapshot pool blocks b1
    lxc storage volume set pool blocks size 96MiB
    lxc storage volume restore pool blocks b1
    lxc storage volume copy pool/blocks pool/blocks2

    lxc storage volume export --quiet --compression none pool most /mnt/most.tar
    lxc storage volume delete pool most
    lxc storage volume import --quiet pool /mnt/most.tar again
    lxc storage volume attach pool again one data /mnt
    same "$(inside one 'cat /mnt/file')" kept
    lxc storage volume detach pool again one

    local name
    for name in files again blocks blocks2; do lxc storage volume delete pool "$name"; done
}

exports() {
    lxc stop --force one
    lxc export --quiet --compression none one /mnt/one.tar
    lxc delete one
    lxc import --quiet /mnt/one.tar
    lxc start one
    same "$(file_in one)" fifth
    lxc restore one s1
    same "$(file_in one)" first
    inside one 'cd / && sha256sum -c /root/sum'
}

the_end() {
    lxc delete --force one
    lxc image delete tiny
    lxc profile device remove default root
    lxc storage delete pool
    stop_lxd
}

new_group 12288
# Two ways to share a group: with the thin pool it is LXD's, which removes it in the end; without, something of the
# administrator's is in it already, and LXD has to leave that alone.
$thin || lvcreate -L 64M -n mine "$vg"
start_lxd
lxd init --preseed <<END
storage_pools:
- name: pool
  driver: lvm
  config:
    source: $vg
    lvm.use_thinpool: "$thin"
    lvm.vg.force_reuse: "$($thin && echo false || echo true)"
    volume.block.filesystem: xfs
    volume.size: 512MiB
profiles:
- name: default
  devices:
    root: {type: disk, path: /, pool: pool}
END
make_image
containers
snapshots
copies
custom_volumes
exports
the_end
if $thin; then
    refused vgs "$vg"
else
    same "$(volumes)" mine
    lvremove -f "$vg/mine"
fi
