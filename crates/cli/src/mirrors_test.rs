//! Commands about mirrored volumes, word for word.

use crate::fake::Fake;
use crate::transcript_test::play;

/// A group over two disks, or over three.
fn made(disks: &str) -> Fake {
    let mut world = Fake::new();
    world.devices.push(("/dev/ubdc".to_owned(), 700 << 20));
    assert_eq!(world.run(&format!("vgcreate v {disks}")).code, 0);
    world
}

/// What reports say, in LVM's words.
#[test]
fn a_mirrored_volume_is_shown_as_lvm_shows_one() {
    let mut world = made("/dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate --type raid1 -L 8M -n m v
        O|  Logical volume \"m\" created.$
        rc=0

        $ lvs v
        O|  LV   VG Attr       LSize Pool Origin Data%  Meta%  Move Log Cpy%Sync Convert$
        O|  m    v  rwi-a-r--- 8.00m                                    100.00          $
        rc=0

        $ lvs -a -o lv_name,segtype,stripes,data_copies,region_size,copy_percent,sync_percent,raid_sync_action,lv_health_status,devices v/m
        O|  LV   Type  #Str #Cpy Region Cpy%Sync Cpy%Sync SyncAction Health          Devices                  $
        O|  m    raid1    2    2  4.00m 100.00   100.00   idle                       /dev/ubda(7),/dev/ubdb(7)$
        rc=0

        $ lvs --noheadings -o lv_layout,lv_role,lv_initial_image_sync,seg_pe_ranges,mirror_log v/m
        O|  raid,raid1 public     initial image sync /dev/ubda:7-8,/dev/ubdb:7-8    $
        rc=0

        $ vgs -o vg_name,vg_size,vg_free,vg_mirrored,vg_mirrored_free,vg_mirrored_single v
        O|  VG VSize  VFree Mirrored MirFree MirSingle$
        O|  v  <1.36g 1.21g   48.00m  40.00m        0 $
        rc=0

        $ lvdisplay -m v/m
        O|  --- Logical volume ---$
        O|  LV Path                /dev/v/m$
        O|  LV Name                m$
        O|  VG Name                v$
        O|  LV UUID                4KPemJ-jkpz-FUqa-XvqS-Nz70-0000-000000$
        O|  LV Write Access        read/write$
        O|  LV Creation host, time , 2026-11-20 18:13:34 +0000$
        O|  LV Status              available$
        O|  # open                 0$
        O|  LV Size                8.00 MiB$
        O|  Current LE             2$
        O|  Mirrored volumes       2$
        O|  Segments               1$
        O|  Allocation             inherit$
        O|  Read ahead sectors     auto$
        O|  Block device           7:0$
        O|   $
        O|  --- Segments ---$
        O|  Logical extents 0 to 1:$
        O|    Type		raid1$
        O|    Physical volume	/dev/ubda$
        O|    Physical extents	7 to 8$
        O|    Physical volume	/dev/ubdb$
        O|    Physical extents	7 to 8$
        O|   $
        O|   $
        rc=0",
    );
}

/// Growth, shares of the free space, snapshots, and removal.
#[test]
fn space_is_taken_twice_and_comes_back() {
    let mut world = made("/dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate --type raid1 -L 8M -n m v
        O|  Logical volume \"m\" created.$
        rc=0

        $ lvcreate -s -n s v/m
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvs -o lv_name,lv_attr,segtype,lv_size,origin,copy_percent v
        O|  LV   Attr       Type   LSize Origin Cpy%Sync$
        O|  m    owi-a-r--- raid1  8.00m        100.00  $
        O|  s    swi-a-s--- linear 8.00m m              $
        rc=0

        $ lvextend -L +8M v/m
        O|  Size of logical volume v/m changed from 8.00 MiB (2 extents) to 16.00 MiB (4 extents).$
        O|  Logical volume v/m successfully resized.$
        rc=0

        $ lvreduce -f -L 8M v/m
        O|  Size of logical volume v/m changed from 16.00 MiB (4 extents) to 8.00 MiB (2 extents).$
        O|  Logical volume v/m successfully resized.$
        E|  WARNING: Reducing active logical volume to 8.00 MiB.
        E|  THIS MAY DESTROY YOUR DATA (filesystem etc.)
        rc=0

        $ lvextend -l +100%FREE v/m
        O|  Size of logical volume v/m changed from 8.00 MiB (2 extents) to 668.00 MiB (167 extents).$
        O|  Logical volume v/m successfully resized.$
        E|  WARNING: Volume group \"v\" is 100.0% full; remove volumes or add a physical volume.
        rc=0

        $ vgs -o vg_free,vg_mirrored,vg_mirrored_free v
        O|  VFree Mirrored MirFree$
        O|     0   668.00m      0 $
        rc=0

        $ lvremove -f v/m
        O|  Logical volume \"m\" successfully removed.$
        rc=0

        $ vgs -o vg_free,vg_mirrored,vg_mirrored_free v
        O|  VFree Mirrored MirFree$
        O|  1.13g   88.00m  80.00m$
        rc=0

        $ lvremove -f v
        O|  Logical volume \"s\" successfully removed.$
        rc=0

        $ vgs -o vg_free,vg_mirrored,vg_mirrored_free v
        O|  VFree Mirrored MirFree$
        O|  1.30g       0       0 $
        rc=0

        $ lvcreate -m1 --nosync -R 512k -L 4M -n n v /dev/ubda /dev/ubdb
        O|  Logical volume \"n\" created.$
        rc=0

        $ lvcreate --type mirror --mirrorlog core -l 1 v
        O|  Logical volume \"lvol0\" created.$
        rc=0

        $ lvcreate -m1 -l 10%VG -n p v
        O|  Logical volume \"p\" created.$
        rc=0

        $ lvcreate -m1 -l 100%FREE -n q v
        O|  Logical volume \"q\" created.$
        rc=0

        $ lvs -o lv_name,lv_size,segtype v
        O|  LV    LSize   Type $
        O|  lvol0   4.00m raid1$
        O|  n       4.00m raid1$
        O|  p     136.00m raid1$
        O|  q     524.00m raid1$
        rc=0",
    );
}

/// One disk, and options that make no sense.
#[test]
fn what_cannot_be_made_is_refused() {
    let mut world = made("/dev/ubda");
    play(
        &mut world,
        "$ lvcreate --type raid1 -L 8M -n m v
        E|  Insufficient suitable allocatable extents for logical volume m: 4 more required
        rc=5

        $ lvcreate -m1 -L 500M -n m v
        E|  Insufficient free space: 250 extents needed, but only 169 available
        rc=5

        $ lvcreate --type raid1 -m0 -L 8M v
        E|  --mirrors must be at least 1 with segment type raid1.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -m2 -L 8M v
        E|  A mirrored logical volume has two copies of its data, not 3: use --mirrors 1.
        rc=5

        $ lvcreate -m-1 -L 8M v
        E|  Number may not be negative.
        E|  Invalid argument for --mirrors: -1
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate --type linear -m1 -L 8M v
        E|  Command does not accept option: --mirrors.
        rc=3

        $ lvcreate -m1 --mirrorlog core -L 8M v
        E|  --mirrorlog is supported only with mirrors.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate --type raid1 -R 0 -L 8M v
        E|  Region size may not be zero.
        E|  Invalid argument for --regionsize: 0
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate --type raid1 -R 3k -L 8M v
        E|  Region size must be a multiple of machine memory page size (4096 bytes).
        E|  Invalid argument for --regionsize: 3k
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate --type raid1 -i2 -L 8M v
        E|  Stripes argument cannot be used with segment type, raid1
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -s -m1 -n s v/x
        E|  Command does not accept option: --mirrors.
        rc=3

        $ lvcreate --type thin-pool -m1 -L 8M -n p v
        E|  Command does not accept option: --mirrors.
        rc=3

        $ lvcreate --type raid10 -m1 -i2 -L 8M v
        E|  Segment type \"raid10\" is not supported: volumes are linear, striped, mirrored (raid1), thin or snapshots. For two copies of the data use --type raid1, for stripes --type striped --stripes N; both together are not supported.
        rc=5

        $ lvcreate --type raid0 -i2 -L 8M v
        E|  Segment type \"raid0\" is not supported: volumes are linear, striped, mirrored (raid1), thin or snapshots. Use --type striped --stripes N.
        rc=5

        $ lvcreate --type raid6 -L 8M v
        E|  Segment type \"raid6\" is not supported: volumes are linear, striped, mirrored (raid1), thin or snapshots. For two copies of the data use --type raid1; for parity put the physical volumes on RAID (md, hardware).
        rc=5",
    );
}

/// A linear volume becomes mirrored, and its snapshots with it.
#[test]
fn a_linear_volume_gets_a_second_copy() {
    let mut world = made("/dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate -y -L 8M -n l v
        O|  Logical volume \"l\" created.$
        rc=0

        $ lvcreate -y -s -n s v/l
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvconvert -y -m1 v/s
        E|  Command on LV v/s does not accept LV type snapshot.
        E|  Command not permitted on LV v/s.
        rc=5

        $ lvconvert -y -m1 v/l /dev/ubdc
        E|  Physical Volume \"/dev/ubdc\" not found in Volume Group \"v\".
        rc=5

        $ lvconvert -y -m1 v/l
        O|  Logical volume v/l successfully converted.$
        rc=0

        $ lvs -o lv_name,segtype,copy_percent v
        O|  LV   Type   Cpy%Sync$
        O|  l    raid1  100.00  $
        O|  s    linear         $
        rc=0

        $ lvconvert -y -m1 v/l
        O|  Logical volume v/l successfully converted.$
        E|  WARNING: v/l already has image count of 2.
        rc=0

        $ vgs -o vg_mirrored_single v
        O|  MirSingle$
        O|         0 $
        rc=0",
    );
}

/// Conversions and options of LVM's mirrors.
#[test]
fn a_volume_keeps_its_copies() {
    let mut world = made("/dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate -y -m1 -L 8M -n m v
        O|  Logical volume \"m\" created.$
        rc=0

        $ lvcreate -y -L 8M -n l v
        O|  Logical volume \"l\" created.$
        rc=0

        $ lvconvert -m0 v/m
        E|Are you sure you want to convert raid1 LV v/m to type linear losing all resilience? [y/n]: [n]
        E|  Logical volume v/m NOT converted.
        rc=5

        $ lvconvert -y -m0 v/m /dev/none
        E|  Physical Volume \"/dev/none\" not found in Volume Group \"v\".
        rc=5

        $ lvconvert -y --type striped v/m
        E|  Logical volume v/m cannot become striped. To make it linear: lvconvert --type linear v/m.
        rc=5

        $ lvconvert -y -m1 v/m
        O|  Logical volume v/m successfully converted.$
        E|  WARNING: v/m already has image count of 2.
        rc=0

        $ lvconvert -y --type raid1 v/m
        O|  Logical volume v/m successfully converted.$
        E|  WARNING: v/m already has image count of 2.
        rc=0

        $ lvconvert -y -m0 v/l
        O|  Logical volume v/l successfully converted.$
        E|  WARNING: v/l already has image count of 1.
        rc=0

        $ lvconvert -y --type raid1 -m0 v/m
        E|  --mirrors must be at least 1 with segment type raid1.
        E|  Run `lvconvert --help' for more information.
        rc=3

        $ lvconvert -y --type linear -m1 v/m
        E|  --mirrors must be 0 with segment type linear.
        E|  Run `lvconvert --help' for more information.
        rc=3

        $ lvconvert -y -m0 v/m /dev/ubda:0-3
        E|  A copy is removed from a whole physical volume: name it without extents.
        rc=5

        $ lvcreate -y -m1 -L 8M -n n v
        O|  Logical volume \"n\" created.$
        rc=0

        $ lvconvert -y -m0 v/n /dev/ubda
        O|  Logical volume v/n successfully converted.$
        rc=0

        $ lvs -o lv_name,segtype v
        O|  LV   Type  $
        O|  l    linear$
        O|  m    raid1 $
        O|  n    linear$
        rc=0

        $ lvconvert -y -m+1 v/m
        E|  Logical volume v/m cannot have 3 copies of its data: a mirrored logical volume has two.
        rc=5

        $ lvconvert -y --splitmirrors 1 -n x v/m
        E|  No copy of v/m can be split off. A snapshot keeps what it has now: lvcreate -s v/m.
        rc=5

        $ lvconvert -y --replace /dev/ubda v/l
        E|  Logical volume v/l is not mirrored, so no copy of it can be replaced. To move it: pvmove -n l /dev/ubda.
        rc=5

        $ lvconvert -y --replace /dev/ubda --replace /dev/ubdb v/m
        E|  One copy is replaced at a time, because the other one is read: give --replace once.
        E|  Run `lvconvert --help' for more information.
        rc=3

        $ lvconvert -y --replace /dev/ubda v/m
        E|  Volume group \"v\": 2 extents cannot move, because they go to no physical volume with another copy of them, and the other ones have 0 free extents. Add a physical volume (vgextend), or name other ones to move to.
        rc=5

        $ lvconvert -y --repair v/l
        E|  v/l cannot be repaired alone: \"rowen check v\" lists the damage, \"rowen repair v\" repairs the group.
        rc=5

        $ lvconvert -y --repair v/m
        O|  v/m has two copies of everything: there is nothing to repair.$
        rc=0

        $ lvconvert -y --repair v/m /dev/ubdc
        E|  Physical Volume \"/dev/ubdc\" not found in Volume Group \"v\".
        rc=5

        $ lvconvert -y --type thin-pool v/m
        E|  Logical volume v/m is mirrored, and thin pools are not: its volumes would have one copy of their data.
        rc=5

        $ lvchange --writemostly /dev/ubda v/m
        E|  --writemostly is not supported: the copies of a mirrored volume are made equal by themselves, after a crash and when a disk comes back. After a disk was replaced: \"lvconvert --repair\".
        rc=5

        $ lvextend -m2 -L +4M v/m
        E|  A mirrored logical volume has two copies of its data, not 3: use --mirrors 1.
        rc=5

        $ lvextend --type raid1 -L +4M v/l
        E|  Logical volume v/l has one copy of its data, and a new size does not change that: leave out --type.
        rc=5

        $ lvextend --type raid1 -m1 -L +4M v/m
        O|  Size of logical volume v/m changed from 8.00 MiB (2 extents) to 12.00 MiB (3 extents).$
        O|  Logical volume v/m successfully resized.$
        rc=0

        $ lvextend -L +2G v/m
        E|  Insufficient free space: 1024 extents needed, but only 324 available
        rc=5

        $ pvmove -n m /dev/ubda
        E|  Volume group \"v\": 3 extents cannot move, because they go to no physical volume with another copy of them, and the other ones have 0 free extents. Add a physical volume (vgextend), or name other ones to move to.
        rc=5

        $ pvmove /dev/ubda
        E|  Volume group \"v\": 3 extents cannot move, because they go to no physical volume with another copy of them, and the other ones have 0 free extents. Add a physical volume (vgextend), or name other ones to move to.
        rc=5",
    );
}

/// The copy on a disk that works goes to another one.
#[test]
fn a_copy_is_replaced() {
    let mut world = made("/dev/ubda /dev/ubdb /dev/ubdc");
    play(
        &mut world,
        "$ lvcreate -y -m1 -L 8M -n m v /dev/ubda /dev/ubdb
        O|  Logical volume \"m\" created.$
        rc=0

        $ lvconvert -y --replace /dev/ubdc v/m
        E|  Logical volume v/m has no data on /dev/ubdc, so nothing is to be replaced.
        rc=5

        $ lvconvert -y -i 0 --replace /dev/ubda v/m
        O|  Logical volume v/m successfully converted.$
        O|  What is written from now on may lie on /dev/ubda again: \"pvchange -x n /dev/ubda\" keeps new data away from it.$
        rc=0

        $ pvchange -x n /dev/ubdb
        O|  Physical volume \"/dev/ubdb\" changed$
        O|  1 physical volume changed / 0 physical volumes not changed$
        rc=0

        $ lvconvert -y -i 0 --replace /dev/ubdb v/m /dev/ubda
        O|  Logical volume v/m successfully converted.$
        rc=0

        $ lvs --noheadings -o devices v/m
        O|  /dev/ubdc(16),/dev/ubda(28)$
        rc=0",
    );
}

/// A disk is lost, removed, and replaced.
#[test]
fn a_lost_disk_is_done_without_and_replaced() {
    let mut world = made("/dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate -y -m1 -L 8M -n m v
        O|  Logical volume \"m\" created.$
        rc=0

        $ lvcreate -y -L 8M -n l v
        O|  Logical volume \"l\" created.$
        rc=0",
    );
    world.write("m", 300);
    world.lose_disk("v", "/dev/ubdb");
    play(
        &mut world,
        "$ lvs -o lv_name,lv_attr,lv_health_status,copy_percent,raid_sync_action,devices v
        O|  LV   Attr       Health          Cpy%Sync SyncAction Devices                  $
        O|  l    -wi-------                                     /dev/ubda(19)            $
        O|  m    rwi---r-p- partial                             /dev/ubda(7),[unknown](7)$
        rc=0

        $ vgchange -ay --activationmode degraded v
        O|  2 logical volume(s) in volume group \"v\" now active$
        rc=0

        $ lvs -o lv_name,lv_attr,lv_health_status,copy_percent,raid_sync_action,devices v
        O|  LV   Attr       Health          Cpy%Sync SyncAction Devices                  $
        O|  l    -wi-a-----                                     /dev/ubda(19)            $
        O|  m    rwi-a-r-p- partial         100.00   idle       /dev/ubda(7),[unknown](7)$
        rc=0

        $ lvcreate -s -n s v/m
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvconvert -y --repair v/m
        E|  v/m cannot be repaired while a physical volume of volume group \"v\" is missing. If it comes back: \"vgextend --restoremissing v PV\", and nothing has to be repaired. If it is lost: \"vgreduce --removemissing v\", \"vgextend v PV\", then this command again.
        rc=5

        $ lvcreate -m1 -L 4M v
        E|  Cannot change VG v while PVs are missing.
        E|  See vgreduce --removemissing and vgextend --restoremissing.
        E|  Cannot process volume group v
        rc=5

        $ lvextend -L +4M v/m
        E|  Cannot change VG v while PVs are missing.
        E|  See vgreduce --removemissing and vgextend --restoremissing.
        E|  Cannot process volume group v
        rc=5",
    );
    // Without a disk no mirrored extents are made: this takes of those that were made ahead.
    world.write("m", 300);
    play(
        &mut world,
        "$ vgreduce --removemissing v
        O|  Wrote out consistent volume group v.$
        rc=0

        $ vgreduce --removemissing --force v
        O|  Volume group \"v\" is already consistent.$
        rc=0

        $ lvs -o lv_name,lv_attr,lv_health_status,copy_percent,raid_sync_action,devices v
        O|  LV   Attr       Health          Cpy%Sync SyncAction Devices      $
        O|  l    -wi-a-----                                     /dev/ubda(19)$
        O|  m    owi-a-r-r- refresh needed  100.00   idle       /dev/ubda(9) $
        O|  s    swi-a-s-r- refresh needed                      /dev/ubda(7) $
        rc=0

        $ vgs -o vg_free,vg_mirrored,vg_mirrored_free,vg_mirrored_single v
        O|  VFree   Mirrored MirFree MirSingle$
        O|  608.00m   48.00m  36.00m    48.00m$
        rc=0

        $ lvconvert -y --repair v/m
        E|  Insufficient free space: 12 extents needed, but only 0 available
        E|  Failed to replace faulty devices in v/m: 12 extents have one copy and need room on another physical volume.
        rc=5

        $ vgextend v /dev/ubdc
        O|  Physical volume \"/dev/ubdc\" successfully created.$
        O|  Volume group \"v\" successfully extended$
        rc=0

        $ lvconvert --repair --use-policies v/m
        E|  Use 'lvconvert --repair v/m' to replace failed device.
        rc=0

        $ lvconvert --repair v/m
        E|Attempt to replace failed RAID images (requires full device resync)? [y/n]: [n]
        E|  v/m has one copy of its data, and keeps it.
        rc=5

        $ lvconvert -y --repair v/m
        O|  Faulty devices in v/m successfully replaced.$
        rc=0

        $ lvs -o lv_name,lv_attr,lv_health_status,copy_percent,raid_sync_action,devices v
        O|  LV   Attr       Health          Cpy%Sync SyncAction Devices                   $
        O|  l    -wi-a-----                                     /dev/ubda(19)             $
        O|  m    owi-a-r---                 100.00   idle       /dev/ubda(9),/dev/ubdc(12)$
        O|  s    swi-a-s---                                     /dev/ubda(7),/dev/ubdc(10)$
        rc=0

        $ pvs --segments -o pv_name,pvseg_start,pvseg_size,lv_name,segtype /dev/ubda /dev/ubdc
        O|  PV         Start SSize LV   Type  $
        O|  /dev/ubda      7     2 s    linear$
        O|  /dev/ubda      9     2 m    raid1 $
        O|  /dev/ubda     19     2 l    linear$
        O|  /dev/ubda     24   150      free  $
        O|  /dev/ubdc     10     2 s    linear$
        O|  /dev/ubdc     12     2 m    raid1 $
        O|  /dev/ubdc     22   152      free  $
        rc=0",
    );
}

/// A disk is lost that has copies of free extents only. The next write would have one copy.
#[test]
fn free_extents_with_one_copy_are_repaired() {
    let mut world = made("/dev/ubda /dev/ubdb /dev/ubdc");
    play(
        &mut world,
        "$ lvcreate -y -m1 -L 8M -n m v /dev/ubda /dev/ubdb
        O|  Logical volume \"m\" created.$
        rc=0

        $ lvcreate -y -m1 -L 8M -n n v /dev/ubda /dev/ubdc
        O|  Logical volume \"n\" created.$
        rc=0

        $ lvremove -y v/n
        O|  Logical volume \"n\" successfully removed.$
        rc=0",
    );
    world.lose_disk("v", "/dev/ubdc");
    play(
        &mut world,
        "$ vgchange -ay --activationmode degraded v
        O|  1 logical volume(s) in volume group \"v\" now active$
        rc=0

        $ vgreduce --removemissing v
        O|  Wrote out consistent volume group v.$
        rc=0

        $ lvs --noheadings -o lv_attr,lv_health_status v/m
        O|  rwi-a-r---                $
        rc=0

        $ vgs --noheadings -o vg_mirrored,vg_mirrored_free,vg_mirrored_single v
        O|    80.00m  72.00m    72.00m$
        rc=0

        $ lvconvert --repair v/m
        E|Attempt to replace failed RAID images (requires full device resync)? [y/n]: [n]
        E|  Free mirrored extents of volume group \"v\" have one copy, and keep it.
        rc=5

        $ lvconvert -y --repair v/m
        O|  Faulty devices in v/m successfully replaced.$
        rc=0

        $ vgs --noheadings -o vg_mirrored_single v
        O|         0 $
        rc=0

        $ lvconvert -y --repair v/m
        O|  v/m has two copies of everything: there is nothing to repair.$
        rc=0",
    );
}

/// A snapshot with a size, and linear volumes where mirrored ones were.
#[test]
fn reserves_of_snapshots_are_mirrored_too() {
    let mut world = made("/dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate --type raid1 -L 8M -n m v
        O|  Logical volume \"m\" created.$
        rc=0

        $ lvcreate -s -L 4M -n t v/m
        O|  Logical volume \"t\" created.$
        rc=0

        $ lvextend -L +4M v/t
        O|  Size of logical volume v/t changed from 4.00 MiB (1 extents) to 8.00 MiB (2 extents).$
        O|  Logical volume v/t successfully resized.$
        rc=0

        $ lvs -o lv_name,lv_attr,segtype,lv_size,origin v
        O|  LV   Attr       Type   LSize Origin$
        O|  m    owi-a-r--- raid1  8.00m       $
        O|  t    swi-a-s--- linear 8.00m m     $
        rc=0

        $ lvremove -f v
        O|  Logical volume \"t\" successfully removed.$
        O|  Logical volume \"m\" successfully removed.$
        rc=0

        $ lvcreate -l 300 -n l v
        O|  Logical volume \"l\" created.$
        rc=0",
    );
}

/// The copies are compared on request.
#[test]
fn copies_are_compared() {
    let mut world = made("/dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate --type raid1 -L 8M -n m v
        O|  Logical volume \"m\" created.$
        rc=0

        $ lvcreate -L 4M -n l v
        O|  Logical volume \"l\" created.$
        rc=0

        $ lvcreate -s -n s v/m
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvchange --syncaction check v/m
        rc=0

        $ lvs -o lv_name,raid_sync_action,raid_mismatch_count,lv_health_status v
        O|  LV   SyncAction Mismatches Health         $
        O|  l                                         $
        O|  m    idle                0                $
        O|  s                                         $
        rc=0

        $ lvchange --syncaction repair v/m
        rc=0

        $ lvchange --syncaction idle v/m
        rc=0

        $ lvchange --syncaction check v/l
        E|  Command on LV v/l uses options that require LV types raid.
        E|  Command not permitted on LV v/l.
        rc=5

        $ lvchange --syncaction check v/s
        E|  Command on LV v/s uses options that require LV types raid.
        E|  Command not permitted on LV v/s.
        rc=5

        $ lvchange --syncaction scrub v/m
        E|  Invalid argument for --syncaction: scrub
        E|  Error during parsing of command line.
        rc=3
        ",
    );
}

/// A mirror is of no use in a group that does not open without one of its disks.
#[test]
fn a_journal_on_one_disk_is_warned_of() {
    let mut world = made("--vgmetadatacopies 1 /dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate --type raid1 -L 8M -n m v
        O|  Logical volume \"m\" created.$
        E|  WARNING: The journal of volume group \"v\" is on one physical volume, and the group does not open without that one \
         (vgchange --vgmetadatacopies 2 v keeps it on two).
        rc=0

        $ lvcreate -L 8M -n l v
        O|  Logical volume \"l\" created.$
        rc=0

        $ lvconvert -y -m1 v/l
        O|  Logical volume v/l successfully converted.$
        E|  WARNING: The journal of volume group \"v\" is on one physical volume, and the group does not open without that one \
         (vgchange --vgmetadatacopies 2 v keeps it on two).
        rc=0

        $ vgchange --vgmetadatacopies 2 v
        O|  Volume group \"v\" successfully changed$
        rc=0

        $ lvcreate --type raid1 -L 8M -n n v
        O|  Logical volume \"n\" created.$
        rc=0",
    );
}
