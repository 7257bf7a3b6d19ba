//! Commands about striped volumes, word for word.

use crate::fake::Fake;
use crate::transcript_test::play;

/// A group over three disks.
fn made() -> Fake {
    let mut world = Fake::new();
    world.devices.push(("/dev/ubdc".to_owned(), 700 << 20));
    assert_eq!(world.run("vgcreate v /dev/ubda /dev/ubdb /dev/ubdc").code, 0);
    world
}

/// What reports say, in LVM's words.
#[test]
fn a_striped_volume_is_shown_as_lvm_shows_one() {
    let mut world = made();
    play(
        &mut world,
        "$ lvcreate -i 2 -L 12M -n s v
        O|  Using default stripesize 64.00 KiB.$
        O|  Rounding size 12.00 MiB (3 extents) up to stripe boundary size 16.00 MiB (4 extents).$
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvs v
        O|  LV   VG Attr       LSize  Pool Origin Data%  Meta%  Move Log Cpy%Sync Convert$
        O|  s    v  -wi-a----- 16.00m                                                    $
        rc=0

        $ lvs -a -o lv_name,segtype,stripes,stripe_size,data_copies,seg_size,devices v/s
        O|  LV   Type    #Str Stripe #Cpy SSize  Devices                   $
        O|  s    striped    2 64.00k    1 16.00m /dev/ubdc(0),/dev/ubda(10)$
        rc=0

        $ lvs --noheadings -o lv_layout,lv_role,seg_pe_ranges v/s
        O|  striped    public     /dev/ubdc:0-1,/dev/ubda:10-11$
        rc=0

        $ vgs -o vg_name,vg_size,vg_free,vg_striped,vg_striped_free v
        O|  VG VSize  VFree  Striped StrFree$
        O|  v  <2.04g <1.95g  16.00m      0 $
        rc=0

        $ pvs --segments -o pv_name,pvseg_start,pvseg_size,lv_name,segtype
        O|  PV         Start SSize LV   Type   $
        O|  /dev/ubda     10     2 s    striped$
        O|  /dev/ubda     12   162      free   $
        O|  /dev/ubdb     10   164      free   $
        O|  /dev/ubdc      0     2 s    striped$
        O|  /dev/ubdc      2   172      free   $
        rc=0

        $ lvdisplay -m v/s
        O|  --- Logical volume ---$
        O|  LV Path                /dev/v/s$
        O|  LV Name                s$
        O|  VG Name                v$
        O|  LV UUID                5GxicF-T9LX-PDxs-W8xQ-ft90-0000-000000$
        O|  LV Write Access        read/write$
        O|  LV Creation host, time , 2026-11-20 18:13:34 +0000$
        O|  LV Status              available$
        O|  # open                 0$
        O|  LV Size                16.00 MiB$
        O|  Current LE             4$
        O|  Segments               1$
        O|  Allocation             inherit$
        O|  Read ahead sectors     auto$
        O|  Block device           7:0$
        O|   $
        O|  --- Segments ---$
        O|  Logical extents 0 to 3:$
        O|    Type		striped$
        O|    Stripes		2$
        O|    Stripe size		64.00 KiB$
        O|    Stripe 0:$
        O|      Physical volume	/dev/ubdc$
        O|      Physical extents	0 to 1$
        O|    Stripe 1:$
        O|      Physical volume	/dev/ubda$
        O|      Physical extents	10 to 11$
        O|   $
        O|   $
        rc=0

        $ lvcreate -s -n snap v/s
        O|  Logical volume \"snap\" created.$
        rc=0

        $ lvs -o lv_name,lv_attr,segtype,stripes v
        O|  LV   Attr       Type    #Str$
        O|  s    owi-a-s--- striped    2$
        O|  snap swi-a-s--- linear     1$
        rc=0

        $ lvremove -y v/s
        O|  Logical volume \"s\" successfully removed.$
        rc=0

        $ lvs -o lv_name,lv_attr,segtype,stripes,devices v
        O|  LV   Attr       Type    #Str Devices                   $
        O|  snap swi-a-s--- striped    2 /dev/ubdc(0),/dev/ubda(10)$
        rc=0
",
    );
}

/// Sizes, and the room on the physical volumes.
#[test]
fn striped_volumes_have_whole_rows() {
    let mut world = made();
    play(
        &mut world,
        "$ lvcreate -i 2 -I 64k -l 3 -n s v
        O|  Rounding size 12.00 MiB (3 extents) up to stripe boundary size 16.00 MiB (4 extents).$
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvextend -L +4M v/s
        O|  Rounding size 20.00 MiB (5 extents) up to stripe boundary size 24.00 MiB (6 extents).$
        O|  Size of logical volume v/s changed from 16.00 MiB (4 extents) to 24.00 MiB (6 extents).$
        O|  Logical volume v/s successfully resized.$
        rc=0

        $ lvreduce -y -L -4M v/s
        O|  Rounding size 20.00 MiB (5 extents) up to stripe boundary size 24.00 MiB (6 extents).$
        E|  New size (6 extents) matches existing size (6 extents).
        rc=5

        $ lvreduce -y -l 2 v/s
        O|  Size of logical volume v/s changed from 24.00 MiB (6 extents) to 8.00 MiB (2 extents).$
        O|  Logical volume v/s successfully resized.$
        E|  WARNING: Reducing active logical volume to 8.00 MiB.
        E|  THIS MAY DESTROY YOUR DATA (filesystem etc.)
        rc=0

        $ lvreduce -y -l 1 v/s
        O|  Rounding size 4.00 MiB (1 extents) up to stripe boundary size 8.00 MiB (2 extents).$
        E|  New size (2 extents) matches existing size (2 extents).
        rc=5

        $ lvextend -l 100%FREE v/s
        O|  Size of logical volume v/s changed from 8.00 MiB (2 extents) to 1.95 GiB (500 extents).$
        O|  Logical volume v/s successfully resized.$
        rc=0

        $ lvextend -l +100%FREE v/s
        O|  Size of logical volume v/s changed from 1.95 GiB (500 extents) to 1.96 GiB (502 extents).$
        O|  Logical volume v/s successfully resized.$
        rc=0

        $ lvcreate -i 2 -l 2 -n t v
        E|  Insufficient free space: 2 extents needed, but only 0 available
        rc=5

        $ lvcreate -l 1 -n t v
        E|  Volume group \"v\" has insufficient free space (0 extents): 1 required.
        rc=5

        $ lvremove -y v/s
        O|  Logical volume \"s\" successfully removed.$
        rc=0

        $ lvcreate -i 3 -I 64k -l 100%FREE -n t v
        O|  Logical volume \"t\" created.$
        rc=0

        $ lvs -o lv_name,lv_size,stripes v
        O|  LV   LSize #Str$
        O|  t    1.92g    3$
        rc=0

        $ lvremove -y v/t
        O|  Logical volume \"t\" successfully removed.$
        rc=0

        $ lvcreate -i 2 -l 2 -n u v /dev/ubdb /dev/ubdc
        O|  Using default stripesize 64.00 KiB.$
        O|  Logical volume \"u\" created.$
        rc=0

        $ lvs -o lv_name,devices v
        O|  LV   Devices                   $
        O|  u    /dev/ubdc(0),/dev/ubdb(10)$
        rc=0

        $ lvextend -l +2 v/u /dev/ubda /dev/ubdb
        O|  Size of logical volume v/u changed from 8.00 MiB (2 extents) to 16.00 MiB (4 extents).$
        O|  Logical volume v/u successfully resized.$
        rc=0

        $ lvs -o lv_name,seg_size,devices v
        O|  LV   SSize Devices                    $
        O|  u    8.00m /dev/ubdc(0),/dev/ubdb(10) $
        O|  u    8.00m /dev/ubda(10),/dev/ubdb(11)$
        rc=0

        $ lvremove -y v/u
        O|  Logical volume \"u\" successfully removed.$
        rc=0

        $ lvcreate -i 2 -l 100%FREE -n w v
        O|  Using default stripesize 64.00 KiB.$
        O|  Logical volume \"w\" created.$
        rc=0

        $ lvremove -y v/w
        O|  Logical volume \"w\" successfully removed.$
        rc=0

        $ vgs -o vg_free_count,vg_striped v
        O|  Free Striped$
        O|   502      0 $
        rc=0

        $ lvcreate -i 2 -l 600 -n w v
        O|  Using default stripesize 64.00 KiB.$
        E|  Insufficient free space: 600 extents needed, but only 502 available
        rc=5

        $ vgs -o vg_free_count,vg_striped v
        O|  Free Striped$
        O|   502      0 $
        rc=0
",
    );
}

/// One sentence and an exit code for each, and nothing changes.
#[test]
fn what_stripes_cannot_be_is_refused() {
    let mut world = made();
    play(
        &mut world,
        "$ lvcreate -i 2 -I 64k -l 4 -n s v
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvcreate -i 2 -I 128k -L 8M -n t v
        E|  Volume group \"v\" has logical volumes with 2 stripes of 64.00 KiB, and all of its striped volumes have the same: use --stripes 2 --stripesize 64k.
        rc=5

        $ lvcreate -i 3 -L 8M -n t v
        E|  Volume group \"v\" has logical volumes with 2 stripes of 64.00 KiB, and all of its striped volumes have the same: use --stripes 2 --stripesize 64k.
        rc=5

        $ lvcreate -i 2 -I 3k -l 2 -n u v
        E|  Invalid stripe size 3.00 KiB.
        E|  Invalid argument for --stripesize: 3k
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate -i 2 -I 0 -l 2 -n u v
        E|  Invalid stripe size 0 .
        E|  Invalid argument for --stripesize: 0
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate -i 33 -l 2 -n u v
        E|  Number of stripes (33) must not exceed number of physical volumes (3)
        rc=5

        $ lvcreate --type raid0 -i 2 -l 2 -n u v
        E|  Segment type \"raid0\" is not supported: volumes are linear, striped, mirrored (raid1), thin or snapshots. Use --type striped --stripes N.
        rc=5

        $ lvcreate -m1 -i 2 -l 4 -n u v
        E|  Stripes argument cannot be used with segment type, raid1
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -i 2 -l 2 -n u v /dev/ubda
        E|  Number of stripes (2) must not exceed number of physical volumes (1)
        rc=5

        $ lvextend -L +4M -i 3 v/s
        E|  Logical volume v/s has 2 stripes, and a new size does not change that: leave out --stripes 3.
        rc=5

        $ lvextend -L +4M -I 128k v/s
        E|  Logical volume v/s has stripes of 64.00 KiB, and a new size does not change that: leave out --stripesize.
        rc=5

        $ lvcreate --type linear -i 2 -l 2 -n u v
        E|  --stripes must be 1 with segment type linear.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvconvert -m1 v/s
        E|  Logical volume v/s is striped, and its type does not change: copy it to a new logical volume.
        rc=5

        $ lvconvert --type linear v/s
        E|  Logical volume v/s is striped, and its type does not change: copy it to a new logical volume.
        rc=5

        $ lvconvert --type striped --stripes 2 v/s
        E|  Logical volume v/s is already of requested type striped.
        rc=5

        $ pvmove -i 0 -n v/s /dev/ubda
        rc=0

        $ pvmove -i 0 /dev/ubda
        E|  No data to move for v.
        rc=5

        $ vgreduce v /dev/ubdc
        E|  Physical volume \"/dev/ubdc\" still in use
        rc=5

        $ lvcreate -i 1 -I 64k -l 2 -n lin v
        O|  Ignoring stripesize argument with single stripe.$
        O|  Logical volume \"lin\" created.$
        rc=0

        $ lvconvert --type striped --stripes 2 v/lin
        E|  Logical volume v/lin cannot become striped: create a striped logical volume and copy it.
        rc=5

        $ lvextend -i 2 -L+4M v/lin
        E|  Logical volume v/lin is not striped, and a new size does not change that: leave out --stripes 2.
        rc=5

        $ lvcreate -i 2 -L 8M -T v/pool
        O|  Logical volume \"pool\" created.$
        E|  WARNING: Thin pools are not striped; the logical volume is linear.
        rc=0

        $ lvremove -y v/s
        O|  Logical volume \"s\" successfully removed.$
        rc=0

        $ lvcreate -i 2 -I 8M -l 2 -n u v
        O|  Reducing requested stripe size 8.00 MiB to maximum, physical extent size 4.00 MiB.$
        O|  Logical volume \"u\" created.$
        rc=0

        $ lvs -o lv_name,segtype,stripes,stripe_size v
        O|  LV   Type      #Str Stripe$
        O|  lin  linear       1     0 $
        O|  pool thin-pool    1     0 $
        O|  u    striped      2  4.00m$
        rc=0
",
    );
}

/// Striped and mirrored volumes need several physical volumes with space.
#[test]
fn who_closes_the_last_space_is_warned() {
    let mut world = made();
    play(
        &mut world,
        "$ lvcreate -y -i 2 -l 2 -n s v
        O|  Using default stripesize 64.00 KiB.$
        O|  Logical volume \"s\" created.$
        rc=0

        $ pvchange -x n /dev/ubda
        O|  Physical volume \"/dev/ubda\" changed$
        O|  1 physical volume changed / 0 physical volumes not changed$
        rc=0

        $ pvchange -x n /dev/ubdb
        O|  Physical volume \"/dev/ubdb\" changed$
        O|  1 physical volume changed / 0 physical volumes not changed$
        E|  WARNING: No new space for striped volumes and their snapshots: it lies on 2 physical volumes at once, and 1 with free space are left. Writes that need it fail, or make a snapshot invalid.
        rc=0

        $ pvchange -x y /dev/ubda
        O|  Physical volume \"/dev/ubda\" changed$
        O|  1 physical volume changed / 0 physical volumes not changed$
        rc=0",
    );
}
