//! Commands about a group that goes on without one of its disks, word for word.

use crate::backend::LabelledPv;
use crate::fake::Fake;
use crate::transcript_test::play;

const TEST_MODE: &str = "  TEST MODE: Metadata will NOT be updated and volumes will not be (de)activated.\n";

/// Volume `a` lies on `/dev/ubda` and volume `b` on `/dev/ubdb`, which is lost then. With the label of that one.
fn lost() -> (Fake, LabelledPv) {
    let mut world = Fake::new();
    world.devices.push(("/dev/ubdc".to_owned(), 700 << 20));
    play(
        &mut world,
        "$ vgcreate v /dev/ubda /dev/ubdb
        O|  Physical volume \"/dev/ubda\" successfully created.$
        O|  Physical volume \"/dev/ubdb\" successfully created.$
        O|  Volume group \"v\" successfully created$
        rc=0

        $ lvcreate -L 8M -n a v /dev/ubda
        O|  Logical volume \"a\" created.$
        rc=0

        $ lvcreate -L 8M -n b v /dev/ubdb
        O|  Logical volume \"b\" created.$
        rc=0",
    );
    let label = world.lose_disk("v", "/dev/ubdb");
    (world, label)
}

#[test]
fn what_works_without_a_disk_and_what_does_not() {
    play(
        &mut lost().0,
        "$ pvs -o pv_name,vg_name,pv_attr
        O|  PV         VG Attr$
        O|  /dev/ubda  v  a-- $
        O|  [unknown]  v  u-m $
        rc=0

        $ vgs -o vg_name,vg_attr,vg_missing_pv_count
        O|  VG Attr   #PV Missing$
        O|  v  wz-pn-           1$
        rc=0

        $ lvs -o lv_name,lv_attr,lv_health_status
        O|  LV   Attr       Health         $
        O|  a    -wi-------                $
        O|  b    -wi-----p- partial        $
        rc=0

        $ rowen check v
        E|  WARNING: 1 physical volume(s) of volume group \"v\" are missing, and nothing on them was examined.
        O|  What there is of volume group \"v\" is sound: 2 metadata nodes and 4096 blocks examined.$
        rc=0

        $ lvcreate -L 4M -n c v
        E|  Cannot change VG v while PVs are missing.
        E|  See vgreduce --removemissing and vgextend --restoremissing.
        E|  Cannot process volume group v
        rc=5

        $ lvextend -L +4M v/a
        E|  Cannot change VG v while PVs are missing.
        E|  See vgreduce --removemissing and vgextend --restoremissing.
        E|  Cannot process volume group v
        rc=5

        $ vgextend v /dev/ubdc
        E|  Cannot change VG v while PVs are missing.
        E|  See vgreduce --removemissing and vgextend --restoremissing.
        E|  Cannot process volume group v
        E|  Unable to add physical volume '/dev/ubdc' to volume group 'v'
        rc=5

        $ pvchange -x n /dev/ubda
        O|  0 physical volumes changed / 1 physical volume not changed$
        E|  Cannot change VG v while PVs are missing.
        E|  See vgreduce --removemissing and vgextend --restoremissing.
        E|  Cannot process volume group v
        E|  Physical volume /dev/ubda not changed
        rc=5

        $ pvresize /dev/ubda
        O|  0 physical volume(s) resized or updated / 1 physical volume(s) not resized$
        E|  Cannot change VG v while PVs are missing.
        E|  See vgreduce --removemissing and vgextend --restoremissing.
        E|  Cannot process volume group v
        rc=5

        $ vgreduce v /dev/ubda
        E|  Cannot change VG v while PVs are missing.
        E|  See vgreduce --removemissing and vgextend --restoremissing.
        E|  Cannot process volume group v
        rc=5

        $ lvchange -an v/b
        rc=0

        $ lvchange -ay v/b
        E|  Refusing activation of partial LV v/b.  Use '--activationmode partial' to override.
        rc=5

        $ lvchange -ay -P v/b
        E|  PARTIAL MODE. Incomplete logical volumes will be processed.
        rc=0

        $ lvcreate -s -n s v/a
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvrename v s t
        O|  Renamed \"s\" to \"t\" in volume group \"v\"$
        rc=0

        $ lvchange --addtag kept v/b
        O|  Logical volume v/b changed.$
        rc=0

        $ vgchange --addtag poor v
        O|  Volume group \"v\" successfully changed$
        rc=0

        $ lvreduce -f -L 4M v/a
        O|  Size of logical volume v/a changed from 8.00 MiB (2 extents) to 4.00 MiB (1 extents).$
        O|  Logical volume v/a successfully resized.$
        rc=0

        $ lvremove -f v/t
        O|  Logical volume \"t\" successfully removed.$
        rc=0

        $ vgck v
        E|  The volume group is missing 1 physical volumes.
        rc=5",
    );
}

/// What is refused because a disk is missing is refused as a test, too, in the same words, and nothing is half done.
#[test]
fn a_restore_that_needs_all_disks_is_refused() {
    let mut world = Fake::new();
    for line in [
        "vgcreate v /dev/ubda /dev/ubdb",
        "lvcreate -L 8M -n a v /dev/ubda",
        "vgcfgbackup v",
        "lvrename v a b",
        "pvchange -x n /dev/ubda",
    ] {
        assert_eq!(world.run(line).code, 0, "{line}");
    }
    world.lose_disk("v", "/dev/ubdb");
    for line in ["vgcfgrestore --test v", "vgcfgrestore v"] {
        let printed = world.run(line);
        let refused = "  Cannot change VG v while PVs are missing.\n  See vgreduce --removemissing and vgextend --restoremissing.\n  \
                       Cannot process volume group v\n";
        assert_eq!((printed.code, printed.err.trim_start_matches(TEST_MODE)), (5, refused), "{line}");
        assert_eq!(world.run("lvs --noheadings -o lv_name v").out.trim(), "b", "{line}");
    }
}

#[test]
fn a_disk_is_taken_back() {
    let (mut world, label) = lost();
    play(
        &mut world,
        "$ vgextend --restoremissing v /dev/ubda
        E|  WARNING: PV /dev/ubda was not missing in VG v
        E|  No PV has been restored.
        rc=5

        $ vgextend --restoremissing v /dev/ubdb
        E|  WARNING: PV /dev/ubdb not found in VG v
        E|  No PV has been restored.
        rc=5",
    );
    world.labels.push(label);
    play(
        &mut world,
        "$ vgextend --restoremissing v /dev/ubdb
        O|  Volume group \"v\" successfully extended$
        rc=0

        $ lvs -o lv_name,lv_attr,lv_health_status
        O|  LV   Attr       Health         $
        O|  a    -wi-------                $
        O|  b    -wi-------                $
        rc=0

        $ pvs -o pv_name,vg_name,pv_attr
        O|  PV         VG Attr$
        O|  /dev/ubda  v  a-- $
        O|  /dev/ubdb  v  a-- $
        rc=0

        $ lvcreate -L 4M -n c v
        O|  Logical volume \"c\" created.$
        rc=0",
    );
}

#[test]
fn a_lost_disk_leaves_for_good() {
    let (mut world, label) = lost();
    play(
        &mut world,
        "$ vgreduce --removemissing v
        E|  WARNING: Partial LV b needs to be repaired or removed.
        E|  There are still partial LVs in VG v.
        E|  To remove them unconditionally use: vgreduce --removemissing --force.
        rc=5

        $ vgreduce --removemissing --force v
        O|  Wrote out consistent volume group v.$
        E|  WARNING: Removing partial LV v/b.
        rc=0

        $ pvs -o pv_name,vg_name,pv_attr
        O|  PV         VG Attr$
        O|  /dev/ubda  v  a-- $
        rc=0

        $ lvs -o lv_name
        O|  LV  $
        O|  a   $
        rc=0

        $ lvcreate -L 4M -n c v
        O|  Logical volume \"c\" created.$
        rc=0",
    );
    // It is attached again, and its label still names the group.
    world.labels.push(label);
    play(
        &mut world,
        "$ pvs -o pv_name,vg_name,pv_attr
        O|  PV         VG Attr$
        O|  /dev/ubda  v  a-- $
        O|  /dev/ubdb     --- $
        rc=0",
    );
}

/// The copy of the journal on the missing disk counts, and is not written.
#[test]
fn a_copy_of_the_journal_on_a_missing_disk_is_told() {
    play(
        &mut lost().0,
        "$ vgchange --vgmetadatacopies 2 v
        E|  WARNING: The journal of volume group \"v\" is written to one physical volume alone: its other copy is on one that is \
         missing. It is written again when that one is back; for a copy elsewhere remove it first (vgreduce --removemissing v).
        rc=0",
    );
}
