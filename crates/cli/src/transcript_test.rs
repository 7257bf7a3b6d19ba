//! Sessions in the form of a transcript: `$ command`, `O|` a line of standard output (`$` marks its end), `E|` a line of
//! standard error, `rc=`. Sentences, columns and exit codes are those of LVM 2.03.16, except where Rowen does better.

use crate::fake::{Fake, Printed};
use rowen_control::protocol::Request;
use rowen_control::service::platform::Faults;
use rowen_control::status::{Process, Seen, ServerSeen};

/// Runs a session and compares each command with what it should print.
pub fn play(world: &mut Fake, session: &str) {
    let mut command: Option<(String, Printed)> = None;
    for line in session.lines().map(|line| line.trim_start_matches(' ')) {
        if let Some(typed) = line.strip_prefix("$ ") {
            assert!(command.is_none(), "no rc before: {typed}");
            command = Some((typed.to_owned(), Printed { out: String::new(), err: String::new(), code: 0 }));
        } else if let Some((typed, expected)) = &mut command {
            if let Some(out) = line.strip_prefix("O|") {
                expected.out.push_str(out.strip_suffix('$').unwrap_or(out));
                expected.out.push('\n');
            } else if let Some(err) = line.strip_prefix("E|") {
                expected.err.push_str(err);
                expected.err.push('\n');
            } else if let Some(code) = line.strip_prefix("rc=") {
                expected.code = code.parse().unwrap();
                let printed = world.run(typed);
                assert_eq!(printed.out, expected.out, "standard output of: {typed}\n{}", printed.err);
                assert_eq!(printed.err, expected.err, "standard error of: {typed}");
                assert_eq!(printed.code, expected.code, "exit code of: {typed}");
                command = None;
            } else {
                panic!("not a line of a transcript: {line}");
            }
        } else {
            assert!(line.is_empty(), "text outside of a command: {line}");
        }
    }
    assert!(command.is_none(), "the last command has no rc");
}

#[test]
fn command_lines_that_make_no_sense() {
    play(
        &mut Fake::new(),
        "$ lvm nosuchcmd
        E|  No such command.  Try 'lvm help'.
        rc=2

        $ lvm help nosuchcmd
        O|  nosuchcmd: no such command.$
        E|  Run `help --help' for more information.
        rc=3

        $ lvs --nosuchopt
        E|lvs: unrecognized option '--nosuchopt'
        E|  Error during parsing of command line.
        rc=3

        $ lvs --units q
        E|  Invalid units specification
        E|  Run `lvs --help' for more information.
        rc=3

        $ lvs --reportformat xml
        E|  Invalid argument for --reportformat: xml
        E|  Error during parsing of command line.
        rc=3

        $ lvs --no
        E|lvs: option '--no' is ambiguous; possibilities: '--noheadings' '--nohints' '--nolocking' '--nosuffix'
        E|  Error during parsing of command line.
        rc=3

        $ lvs --noheadings=1
        E|lvs: option '--noheadings' doesn't allow an argument
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate -L
        E|lvcreate: option requires an argument -- 'L'
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate --size
        E|lvcreate: option '--size' requires an argument
        E|  Error during parsing of command line.
        rc=3

        $ vgcreate -badname /dev/ubdb
        E|vgcreate: invalid option -- 'b'
        E|  Error during parsing of command line.
        rc=3

        $ lvrename v/r1
        E|  No command with matching syntax recognised.  Run 'lvrename --help' for more information.
        rc=3",
    );
}

#[test]
fn physical_volumes_and_groups() {
    let mut world = Fake::new();
    play(
        &mut world,
        "$ pvs
        rc=0

        $ pvs /dev/ubda
        E|  Failed to find physical volume \"/dev/ubda\".
        rc=5

        $ pvs --noheadings -o pv_name /dev/ubda
        E|  No physical volume label read from /dev/ubda.
        rc=5

        $ pvs --noheadings -o pv_name /dev/nonexist
        E|  Failed to find device \"/dev/nonexist\".
        rc=5

        $ pvcreate /dev/tiny
        E|  Cannot use /dev/tiny: device is too small.
        rc=5

        $ pvcreate /dev/ubda
        O|  Physical volume \"/dev/ubda\" successfully created.$
        rc=0

        $ pvcreate -f /dev/ubdb
        O|  Physical volume \"/dev/ubdb\" successfully created.$
        rc=0

        $ pvs
        O|  PV         VG Fmt  Attr PSize   PFree  $
        O|  /dev/ubda     lvm2 ---  700.00m 700.00m$
        O|  /dev/ubdb     lvm2 ---  700.00m 700.00m$
        rc=0

        $ vgcreate vg0 /dev/ubda
        O|  Volume group \"vg0\" successfully created$
        rc=0

        $ vgcreate vg0 /dev/ubdb
        E|  A volume group called vg0 already exists.
        rc=5

        $ pvcreate -f /dev/ubda
        E|  Can't initialize physical volume \"/dev/ubda\" of volume group \"vg0\" without -ff
        E|  /dev/ubda: physical volume not initialized.
        rc=5

        $ vgcreate vg1 /dev/ubdz
        E|  No device found for /dev/ubdz.
        rc=5

        $ vgcreate null /dev/ubdb
        E|  /dev/null: already exists in filesystem
        E|  New volume group name \"null\" is invalid.
        E|  Run `vgcreate --help' for more information.
        rc=3

        $ vgcreate . /dev/ubdb
        E|  Name starts with . or .. and has no following character(s).
        E|  New volume group name \".\" is invalid.
        E|  Run `vgcreate --help' for more information.
        rc=3

        $ vgcreate -s 3 vg1 /dev/ubdb
        E|  Physical extent size must be a power of 2 in the range 4 KiB to 1 GiB.
        E|  Run `vgcreate --help' for more information.
        rc=3

        $ vgs
        O|  VG  #PV #LV #SN Attr   VSize   VFree  $
        O|  vg0   1   0   0 wz--n- 696.00m 676.00m$
        rc=0

        $ pvs
        O|  PV         VG  Fmt  Attr PSize   PFree  $
        O|  /dev/ubda  vg0 lvm2 a--  696.00m 676.00m$
        O|  /dev/ubdb      lvm2 ---  700.00m 700.00m$
        rc=0

        $ vgs vg0 --noheadings --units b --nosuffix --separator , -o vg_size,vg_free
        O|  729808896,708837376$
        rc=0

        $ vgs --noheadings --nosuffix --units b -o vg_extent_size vg0
        O|  4194304$
        rc=0

        $ vgs --noheadings -o lv_count vg0
        O|    0$
        rc=0

        $ vgs --noheadings -o vg_tags nosuchvg
        E|  Volume group \"nosuchvg\" not found
        E|  Cannot process volume group nosuchvg
        rc=5

        $ vgextend vg0 /dev/ubda
        E|  Physical volume '/dev/ubda' is already in volume group 'vg0'
        E|  Unable to add physical volume '/dev/ubda' to volume group 'vg0'
        E|  /dev/ubda: physical volume not initialized.
        rc=5

        $ vgextend vg0 /dev/ubdb
        O|  Volume group \"vg0\" successfully extended$
        rc=0

        $ vgremove vg0
        O|  Volume group \"vg0\" successfully removed$
        rc=0

        $ pvremove /dev/ubda
        O|  Labels on physical volume \"/dev/ubda\" successfully wiped.$
        rc=0

        $ pvremove /dev/ubda
        E|  No PV found on device /dev/ubda.
        rc=5",
    );
}

pub fn with_group() -> Fake {
    let mut world = Fake::new();
    play(
        &mut world,
        "$ vgcreate vg0 /dev/ubda
        O|  Physical volume \"/dev/ubda\" successfully created.$
        O|  Volume group \"vg0\" successfully created$
        rc=0

        $ lvcreate -L 100M -n lv1 vg0
        O|  Logical volume \"lv1\" created.$
        rc=0",
    );
    world
}

#[test]
fn volumes_are_made_or_refused() {
    play(
        &mut with_group(),
        "$ lvcreate -L 100M -n lv1 vg0
        E|  Logical Volume \"lv1\" already exists in volume group \"vg0\"
        rc=5

        $ lvcreate -L 100M -n lv2 nosuchvg
        E|  Volume group \"nosuchvg\" not found
        E|  Cannot process volume group nosuchvg
        rc=5

        $ lvcreate -L 100G -n lv2 vg0
        E|  Volume group \"vg0\" has insufficient free space (144 extents): 25600 required.
        rc=5

        $ lvcreate -L 0 -n lv2 vg0
        E|  --size may not be zero.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -l 0 -n lv2 vg0
        E|  --extents may not be zero.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -L 10X -n lv2 vg0
        E|  Can't parse size argument.
        E|  Invalid argument for --size: 10X
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate -L 1000b -n lvb vg0
        E|  Size is not a multiple of 512. Try using 512 or 1024.
        E|  Invalid argument for --size: 1000b
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate -L 99999999999T -n big vg0
        E|  Size is too big (>=16EiB).
        E|  Invalid argument for --size: 99999999999T
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate -L 4E -n big vg0
        E|  Volume too large (4.00 EiB) for extent size 4.00 MiB. Upper limit is less than <16.00 PiB.
        rc=5

        $ lvcreate -L 3.3M -n lvround vg0
        O|  Rounding up size to full physical extent 4.00 MiB$
        O|  Logical volume \"lvround\" created.$
        rc=0

        $ lvcreate -n lvno vg0
        E|  No command with matching syntax recognised.  Run 'lvcreate --help' for more information.
        rc=3

        $ lvcreate -L 4M vg0
        O|  Logical volume \"lvol0\" created.$
        rc=0

        $ lvcreate -L 4M -n snapshot1 vg0
        E|  Names starting \"snapshot\" are reserved. Please choose a different LV name.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -L 4M -n foo_rimage_1 vg0
        E|  Names including \"_rimage\" are reserved. Please choose a different LV name.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -L 4M -n . vg0
        E|  Logical volume name \".\" is invalid.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -L 4M -n -dash vg0
        E|  Logical volume name \"-dash\" is invalid.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -l1 -n n1 /dev/vg0
        O|  Logical volume \"n1\" created.$
        rc=0

        $ lvcreate -l1 -n vg0/n2
        O|  Logical volume \"n2\" created.$
        rc=0

        $ lvcreate -l1 -n n3 vg0/n3
        E|  Volume group name expected (no slash)
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -l1 -n /dev/vg0/n5 vg0 --addtag @t5
        O|  Logical volume \"n5\" created.$
        rc=0

        $ lvcreate -l1 -n n6 --addtag bad,tag vg0
        E|  Invalid argument for --addtag: bad,tag
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate --test -L 4M -n testlv vg0
        O|  Logical volume \"testlv\" created.$
        E|  TEST MODE: Metadata will NOT be updated and volumes will not be (de)activated.
        rc=0

        $ lvs
        O|  LV      VG  Attr       LSize   Pool Origin Data%  Meta%  Move Log Cpy%Sync Convert$
        O|  lv1     vg0 -wi-a----- 100.00m                                                    $
        O|  lvol0   vg0 -wi-a-----   4.00m                                                    $
        O|  lvround vg0 -wi-a-----   4.00m                                                    $
        O|  n1      vg0 -wi-a-----   4.00m                                                    $
        O|  n2      vg0 -wi-a-----   4.00m                                                    $
        O|  n5      vg0 -wi-a-----   4.00m                                                    $
        rc=0

        $ lvs --noheadings -o lv_name,lv_tags @t5
        O|  n5   t5     $
        rc=0

        $ lvs vg0/lv1 vg0/nosuch
        O|  LV   VG  Attr       LSize   Pool Origin Data%  Meta%  Move Log Cpy%Sync Convert$
        O|  lv1  vg0 -wi-a----- 100.00m                                                    $
        E|  Failed to find logical volume \"vg0/nosuch\"
        rc=5

        $ lvs lin
        E|  Volume group \"lin\" not found
        E|  Cannot process volume group lin
        rc=5

        $ lvcreate -l 100%FREE -n rest vg0
        O|  Logical volume \"rest\" created.$
        rc=0

        $ lvcreate -l 100%FREE -n none vg0
        E|  Calculated size of logical volume is 0 extents. Needs to be larger.
        rc=5",
    );
}

#[test]
fn snapshots_with_and_without_a_size() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvcreate -s --size=20M --name=lv1_snapshot /dev/vg0/lv1
        O|  Logical volume \"lv1_snapshot\" created.$
        rc=0",
    );
    // More than it can keep of what was before.
    world.write("lv1", 21 * 256);
    play(
        &mut world,
        "$ lvcreate -s -L 200M -n lv1_s4 vg0/lv1
        O|  Reducing COW size 200.00 MiB down to maximum usable size 104.00 MiB.$
        O|  Logical volume \"lv1_s4\" created.$
        rc=0

        $ lvcreate -s -l 20%ORIGIN -n s2 vg0/lv1 -pr --setactivationskip y
        O|  Logical volume \"s2\" created.$
        rc=0

        $ lvcreate -s -n free /dev/vg0/lv1
        O|  Logical volume \"free\" created.$
        rc=0

        $ lvcreate -s -n free2 vg0/free
        O|  Logical volume \"free2\" created.$
        rc=0

        $ lvcreate -s -L 20M -n s7 vg0/nolv
        E|  Snapshot origin LV nolv not found in Volume group vg0.
        rc=5

        $ lvcreate -s -L 20M -n s7 vg0
        E|  The origin name should include the volume group.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -s -L 20M -c 3k -n s7 vg0/lv1
        E|  Chunk size must be a power of 2 in the range 4K to 512K.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -L 2TB -c 256 --sharedstore mikulas -s /dev/vg0/lv1
        O|  Snapshots of vg0/lv1 share the free space of volume group \"vg0\"; no store is needed.$
        rc=0",
    );
    world.write("lv1", 2);
    world.set_open("lv1", true);
    play(
        &mut world,
        "$ lvs vg0
        O|  LV           VG  Attr       LSize   Pool Origin Data%  Meta%  Move Log Cpy%Sync Convert$
        O|  free         vg0 swi-a-s--- 100.00m      lv1    0.01                                   $
        O|  free2        vg0 swi-a-s--- 100.00m      free   0.00                                   $
        O|  lv1          vg0 owi-aos--- 100.00m                                                    $
        O|  lv1_s4       vg0 swi-a-s--- 104.00m      lv1    0.00                                   $
        O|  lv1_snapshot vg0 swi-I-s---  20.00m      lv1    100.00                                 $
        O|  s2           vg0 sri-a-s--k  24.00m      lv1    0.00                                   $
        rc=0

        $ lvs --noheadings --nosuffix --units b -o lv_size,origin_size vg0/s2
        O|  25165824 104857600$
        rc=0

        $ lvremove -f vg0/lv1
        E|  Logical volume vg0/lv1 in use.
        rc=5

        $ lvchange -an vg0/lv1
        E|  Logical volume vg0/lv1 in use.
        rc=5",
    );
    world.set_open("lv1", false);
    play(
        &mut world,
        "$ lvremove vg0/lv1
        E|Do you really want to remove active origin logical volume vg0/lv1 with 3 snapshots(s)? [y/n]: [n]
        E|  Logical volume vg0/lv1 not removed.
        rc=5

        $ lvremove vg0/free2
        E|Do you really want to remove active logical volume vg0/free2? [y/n]: [n]
        E|  Logical volume vg0/free2 not removed.
        rc=5

        $ lvremove -f vg0/lv1 vg0/nosuch
        O|  Logical volume \"lv1_snapshot\" successfully removed.$
        O|  Logical volume \"lv1_s4\" successfully removed.$
        O|  Logical volume \"s2\" successfully removed.$
        O|  Logical volume \"lv1\" successfully removed.$
        E|  Failed to find logical volume \"vg0/nosuch\"
        rc=5

        $ lvs --noheadings -o lv_name,origin vg0
        O|  free        $
        O|  free2 free  $
        rc=0

        $ lvconvert --merge vg0/free2
        O|  Merging of volume vg0/free2 started.$
        O|  vg0/free: Merged: 100.00%$
        O|  Merge of snapshot into logical volume vg0/free has finished.$
        O|  Logical volume \"free2\" successfully removed.$
        rc=0

        $ lvconvert --merge vg0/free
        E|  \"vg0/free\" is not a mergeable logical volume.
        rc=5

        $ lvconvert --merge vg0/nosuch
        E|  Failed to find logical volume \"vg0/nosuch\"
        rc=5

        $ lvconvert --type thin --thinpool vg0/pool vg0/free
        E|  Thin pool pool not found.
        rc=5",
    );
}

/// As the real LVM2 did it, but for the lines of its polling daemon.
#[test]
fn a_merge_waits_while_its_origin_is_open() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvcreate -s -L 16M -n s1 vg0/lv1
        O|  Logical volume \"s1\" created.$
        rc=0

        $ lvcreate -s -L 16M -n s2 vg0/lv1
        O|  Logical volume \"s2\" created.$
        rc=0",
    );
    world.set_open("lv1", true);
    play(
        &mut world,
        "$ lvconvert --merge vg0/s1
        O|  Delaying merge since origin is open.$
        O|  Merging of snapshot vg0/s1 will occur on next activation of vg0/lv1.$
        rc=0

        $ lvs -a -o lv_name,lv_attr,lv_merging,lv_role,origin,lv_size,data_percent vg0
        O|  LV   Attr       Merging    Role                                       Origin LSize   Data% $
        O|  lv1  Owi-aos---    merging public,origin,thickorigin,multithickorigin        100.00m       $
        O|  [s1] Swi-a-s---    merging public,snapshot,thicksnapshot              lv1     16.00m 0.00  $
        O|  s2   swi-a-s---            public,snapshot,thicksnapshot              lv1     16.00m 0.00  $
        rc=0

        $ lvs -o lv_name vg0
        O|  LV  $
        O|  lv1 $
        O|  s2  $
        rc=0

        $ lvs -o lv_name,lv_path,lv_full_name vg0/s1
        O|  LV   Path LV    $
        O|  [s1]      vg0/s1$
        rc=0

        $ vgs -o lv_count,snap_count vg0
        O|  #LV #SN$
        O|    2   2$
        rc=0

        $ lvconvert --merge vg0/s1
        E|  Command on LV vg0/s1 is invalid on LV with properties: lv_is_merging_cow .
        E|  Command not permitted on LV vg0/s1.
        rc=5

        $ lvremove vg0/s1
        E|  Can't remove merging snapshot logical volume vg0/s1.
        rc=5

        $ lvcreate -s -L 8M -n s3 vg0/lv1
        E|  Snapshots of an origin that has a merging snapshot are not supported.
        rc=5

        $ lvextend -L +4M vg0/s1
        E|  Can't resize internal logical volume vg0/s1.
        rc=5

        $ lvrename vg0/s1 vg0/s9
        E|  Cannot rename internal LV \"s1\".
        rc=5

        $ lvchange -pr vg0/s1
        E|  Operation not permitted on hidden LV vg0/s1.
        rc=5

        $ lvcreate -L 4M -n s1 vg0
        E|  Logical Volume \"s1\" already exists in volume group \"vg0\"
        rc=5",
    );
    world.set_open("lv1", false);
    play(
        &mut world,
        "$ lvchange -an vg0/lv1
        rc=0

        $ lvs -a -o lv_name,lv_attr vg0
        O|  LV   Attr      $
        O|  lv1  Owi---s---$
        O|  [s1] Swi---s---$
        O|  s2   swi---s---$
        rc=0

        $ lvchange -ay vg0/lv1
        rc=0

        $ lvs -a -o lv_name,lv_attr,lv_merging vg0
        O|  LV   Attr       Merging   $
        O|  lv1  owi-a-s---           $
        O|  s2   swi-a-s---           $
        rc=0",
    );
    world.set_open("s2", true);
    play(
        &mut world,
        "$ lvconvert --merge vg0/s2
        O|  Delaying merge since snapshot is open.$
        O|  Merging of snapshot vg0/s2 will occur on next activation of vg0/lv1.$
        rc=0",
    );
    world.set_open("s2", false);
    play(
        &mut world,
        "$ lvchange --refresh vg0/lv1
        rc=0

        $ lvs -a -o lv_name,lv_attr vg0
        O|  LV   Attr      $
        O|  lv1  -wi-a-----$
        rc=0",
    );
}

#[test]
fn conversions() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvcreate -L 32M -n p1 vg0
        O|  Logical volume \"p1\" created.$
        rc=0

        $ lvconvert --type thin-pool vg0/p1
        E|  WARNING: Converting vg0/p1 to thin pool's data volume with metadata wiping.
        E|  THIS WILL DESTROY CONTENT OF LOGICAL VOLUME (filesystem etc.)
        E|Do you really want to convert vg0/p1? [y/n]: [n]
        E|  Conversion aborted.
        rc=5

        $ lvconvert -y --type thin-pool vg0/p1
        O|  Converted vg0/p1 to thin pool.$
        E|  WARNING: Converting vg0/p1 to thin pool's data volume with metadata wiping.
        E|  THIS WILL DESTROY CONTENT OF LOGICAL VOLUME (filesystem etc.)
        rc=0

        $ lvconvert -y --type thin-pool vg0/p1
        E|  Command on LV vg0/p1 does not accept LV type thinpool.
        E|  Command not permitted on LV vg0/p1.
        rc=5

        $ lvcreate -L 32M -n p2 vg0
        O|  Logical volume \"p2\" created.$
        rc=0

        $ lvcreate -L 4M -n m2 vg0
        O|  Logical volume \"m2\" created.$
        rc=0

        $ lvconvert -y --thinpool vg0/p2 --poolmetadata vg0/m2
        O|  Converted vg0/p2 and vg0/m2 to thin pool.$
        E|  WARNING: Converting vg0/p2 and vg0/m2 to thin pool's data and metadata volumes with metadata wiping.
        E|  THIS WILL DESTROY CONTENT OF LOGICAL VOLUME (filesystem etc.)
        rc=0

        $ lvs -o lv_name,lv_attr,lv_size vg0
        O|  LV   Attr       LSize  $
        O|  lv1  -wi-a----- 100.00m$
        O|  p1   twi-a-tz--  32.00m$
        O|  p2   twi-a-tz--  32.00m$
        rc=0

        $ lvconvert --type thin --thinpool vg0/none vg0/lv1
        E|  Thin pool none not found.
        rc=5

        $ lvconvert --type thin --thinpool vg0/p1 --originname orig vg0/lv1
        O|  Logical volume \"orig\" created.$
        O|  Converted vg0/lv1 to thin volume with external origin vg0/orig.$
        rc=0

        $ lvs -o lv_name,lv_attr,lv_size,origin,pool_lv,lv_role vg0
        O|  LV   Attr       LSize   Origin Pool Role                        $
        O|  lv1  Vwi-a-tz-- 100.00m orig   p1   public,snapshot,thinsnapshot$
        O|  orig ori------- 100.00m             public,origin,extthinorigin $
        O|  p1   twi-aotz--  32.00m             private                     $
        O|  p2   twi-a-tz--  32.00m             private                     $
        rc=0

        $ lvcreate -L 16M -n base vg0
        O|  Logical volume \"base\" created.$
        rc=0

        $ lvcreate -L 16M -n store vg0
        O|  Logical volume \"store\" created.$
        rc=0

        $ lvconvert --type snapshot vg0/none vg0/store
        E|  Couldn't find origin volume none in Volume group vg0.
        rc=5

        $ lvconvert -y --type snapshot vg0/base vg0/store
        O|  Logical volume vg0/store converted to snapshot.$
        E|  WARNING: Converting logical volume vg0/store to snapshot exception store.
        E|  THIS WILL DESTROY CONTENT OF LOGICAL VOLUME (filesystem etc.)
        rc=0

        $ lvs -o lv_name,lv_attr,lv_size,origin vg0/base vg0/store
        O|  LV    Attr       LSize  Origin$
        O|  base  owi-a-s--- 16.00m       $
        O|  store swi-a-s--- 16.00m base  $
        rc=0

        $ lvconvert -y -s vg0/base vg0/store
        E|  Command on LV vg0/store does not accept LV type snapshot.
        E|  Command not permitted on LV vg0/store.
        rc=5

        $ lvconvert -y --splitsnapshot vg0/base
        E|  Command on LV vg0/base does not accept LV type linear.
        E|  Command not permitted on LV vg0/base.
        rc=5

        $ lvconvert -y --splitsnapshot vg0/store
        E|  Snapshot vg0/store cannot be split off: it has no store of its own. To end it, remove it.
        rc=5

        $ lvconvert --type linear vg0/base
        O|  Logical volume vg0/base successfully converted.$
        E|  WARNING: vg0/base already has image count of 1.
        rc=0

        $ lvconvert -m0 vg0/base
        O|  Logical volume vg0/base successfully converted.$
        E|  WARNING: vg0/base already has image count of 1.
        rc=0

        $ lvconvert --type striped vg0/base
        E|  Logical volume vg0/base is already of requested type linear.
        rc=5

        $ lvconvert vg0/base
        E|  Command on LV vg0/base does not accept LV type linear.
        E|  Command not permitted on LV vg0/base.
        rc=5

        $ lvconvert vg0/none
        E|  Failed to find logical volume \"vg0/none\"
        rc=5

        $ lvconvert
        E|  No command with matching syntax recognised.  Run 'lvconvert --help' for more information.
        rc=3",
    );
}

#[test]
fn thin_pools_and_volumes() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvcreate --type thin-pool -L 200M --poolmetadatasize 4M -n pool vg0
        O|  Logical volume \"pool\" created.$
        rc=0

        $ lvcreate --yes --wipesignatures y --thinpool vg0/LXDThinPool --extents 50%FREE
        O|  Logical volume \"LXDThinPool\" created.$
        rc=0

        $ lvcreate --name c1 --yes --wipesignatures y --thin --virtualsize 100663296b vg0/pool
        O|  Logical volume \"c1\" created.$
        rc=0

        $ lvcreate -n c1-snap0 -s /dev/vg0/c1 --setactivationskip y -pr
        O|  Logical volume \"c1-snap0\" created.$
        rc=0

        $ lvcreate -s -k n -n t1kn vg0/c1 --addtag foo --addtag bar
        O|  Logical volume \"t1kn\" created.$
        rc=0

        $ lvcreate -s -L 10M -n t1thick vg0/c1
        O|  Rounding up size to full physical extent 12.00 MiB$
        O|  Logical volume \"t1thick\" created.$
        rc=0

        $ lvcreate -aly -V 51200k --name vm-100-disk-0 --thinpool vg0/pool
        O|  Rounding up size to full physical extent 52.00 MiB$
        O|  Logical volume \"vm-100-disk-0\" created.$
        rc=0

        $ lvcreate -L 40M -T vg0/tp2 -V 30M -n both -y
        O|  Rounding up size to full physical extent 32.00 MiB$
        O|  Logical volume \"both\" created.$
        rc=0

        $ lvcreate -V 1G -n x -T vg0/nopool
        E|  Pool nopool not found in Volume group vg0.
        rc=5

        $ lvs vg0
        O|  LV            VG  Attr       LSize   Pool Origin Data%  Meta%  Move Log Cpy%Sync Convert$
        O|  LXDThinPool   vg0 twi-a-tz-- 288.00m             0.00   2.87                            $
        O|  both          vg0 Vwi-a-tz--  32.00m tp2         0.00                                   $
        O|  c1            vg0 owi-a-tz--  96.00m pool        0.00                                   $
        O|  c1-snap0      vg0 Vri---tz-k  96.00m pool c1                                            $
        O|  lv1           vg0 -wi-a----- 100.00m                                                    $
        O|  pool          vg0 twi-aotz-- 200.00m             0.00   2.87                            $
        O|  t1kn          vg0 Vwi-a-tz--  96.00m pool c1     0.00                                   $
        O|  t1thick       vg0 swi-a-s---  12.00m      c1     0.00                                   $
        O|  tp2           vg0 twi-aotz--  40.00m             0.00   2.87                            $
        O|  vm-100-disk-0 vg0 Vwi-a-tz--  52.00m pool        0.00                                   $
        rc=0

        $ lvs --noheadings -o thin_count vg0/pool
        O|       4$
        rc=0

        $ lvchange -ay vg0/c1-snap0
        rc=0

        $ lvs --noheadings -o lv_attr vg0/c1-snap0
        O|  Vri---tz-k$
        rc=0

        $ lvchange -ay -K vg0/c1-snap0
        rc=0

        $ lvs --noheadings -o lv_attr,lv_tags vg0/c1-snap0 vg0/t1kn
        O|  Vri-a-tz-k        $
        O|  Vwi-a-tz-- bar,foo$
        rc=0

        $ lvchange -pr vg0/t1kn
        O|  Logical volume vg0/t1kn changed.$
        rc=0

        $ lvchange -pr vg0/t1kn
        E|  Logical volume \"vg0/t1kn\" is already read only.
        rc=5

        $ lvchange -prw -ky --addtag t1 --deltag foo vg0/t1kn
        O|  Logical volume vg0/t1kn changed.$
        rc=0

        $ lvs --noheadings -o lv_attr,lv_tags vg0/t1kn
        O|  Vwi-a-tz-k bar,t1 $
        rc=0

        $ lvremove -f vg0/tp2
        O|  Logical volume \"both\" successfully removed.$
        O|  Logical volume \"tp2\" successfully removed.$
        rc=0

        $ lvremove -f vg0/c1
        O|  Logical volume \"t1thick\" successfully removed.$
        O|  Logical volume \"c1\" successfully removed.$
        rc=0

        $ lvs --noheadings -o lv_name,origin,lv_attr vg0/c1-snap0
        O|  c1-snap0        Vri-a-tz-k$
        rc=0

        $ lvcreate -s -n both2 vg0/vm-100-disk-0
        O|  Logical volume \"both2\" created.$
        rc=0

        $ lvconvert --merge vg0/both2
        O|  Volume vg0/both2 replaced origin vg0/vm-100-disk-0.$
        rc=0",
    );
}

#[test]
fn a_full_pool_and_a_sparse_volume() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvcreate -L 16M -T vg0/pool
        O|  Logical volume \"pool\" created.$
        rc=0

        $ lvcreate -V 32M -T vg0/pool -n t1
        O|  Logical volume \"t1\" created.$
        rc=0

        $ lvcreate -L 8M -n sp --type snapshot -V 64M vg0
        O|  Logical volume \"sp\" created.$
        rc=0",
    );
    world.write("t1", 4096);
    play(
        &mut world,
        "$ lvs -o lv_name,lv_attr,data_percent,lv_health_status vg0
        O|  LV   Attr       Data%  Health         $
        O|  lv1  -wi-a-----                       $
        O|  pool twi-aotzD- 100.00 out_of_data    $
        O|  sp   swi-a-s--- 0.00                  $
        O|  t1   Vwi-a-tz-- 50.00                 $
        rc=0

        $ lvcreate -V 32M -T vg0/pool -n t2
        E|  WARNING: Thin pool vg0/pool is out of data space.
        E|  Cannot create new thin volume, free space in thin pool vg0/pool reached threshold.
        rc=5

        $ lvcreate -s -n t3 vg0/t1
        E|  WARNING: Thin pool vg0/pool is out of data space.
        E|  Cannot create new thin volume, free space in thin pool vg0/pool reached threshold.
        rc=5

        $ lvcreate -s -L 4M -n cow vg0/t1
        O|  Logical volume \"cow\" created.$
        E|  WARNING: Thin pool vg0/pool is 100.0% full; extend it: at 100% new data of its volumes waits or is refused.
        rc=0",
    );
}

/// Proxmox gives up all of its storage when `vgs` fails.
#[test]
fn a_group_that_cannot_be_opened_spoils_no_list() {
    let mut world = with_group();
    world.run("vgchange --addtag t vg0");
    world.closed = Some(("w".to_owned(), "Volume group \"w\" cannot be opened: a disk is missing.".to_owned()));
    let told = "  Volume group \"w\" cannot be opened: a disk is missing.\n";
    for line in [
        "vgs",
        "lvs",
        "pvs",
        "vgs @t",
        "lvs @t",
        "lvscan",
        "vgscan",
        "vgdisplay -s",
        "lvdisplay",
        "lvm fullreport",
        "lvchange -ay -S lv_name=lv1",
        "vgchange --addtag u @t",
        "vgchange --addtag v -S vg_name=vg0",
    ] {
        let printed = world.run(line);
        // No device says that it is of the closed group.
        let told = if line == "pvs" { "" } else { told };
        assert_eq!((printed.code, printed.err.as_str()), (0, told), "{line}");
    }
    for line in
        ["vgs w", "lvs w", "lvs vg0 w", "vgdisplay w", "lvs w/x", "vgck", "vgck w", "vgchange -ay", "lvremove -f w/x"]
    {
        let printed = world.run(line);
        assert_eq!((printed.code, printed.err.as_str()), (5, told), "{line}");
    }
    for line in ["vgs vg0", "lvs vg0/lv1", "vgck vg0"] {
        let printed = world.run(line);
        assert_eq!((printed.code, printed.err.as_str()), (0, ""), "{line}");
    }
    for (line, code) in
        [("pvs", 0), ("pvs /dev/ubda", 0), ("pvscan", 0), ("pvdisplay -s", 0), ("pvchange --addtag t -a", 5)]
    {
        // The server of vg0, which is asked as well, says otherwise.
        world.labels[0].group = Some("w".to_owned());
        let printed = world.run(line);
        assert_eq!(printed.code, code, "{line}");
        assert!(printed.err.starts_with(told), "{line}: {}", printed.err);
    }
}

#[test]
fn shares_of_a_group_are_as_much_as_there_is() {
    let mut world = with_group();
    world.run("lvcreate -L 40M -n two vg0");
    play(
        &mut world,
        "$ lvextend -l 100%VG vg0/lv1
        O|  Reducing 100%VG to remaining free space 636.00 MiB in VG.$
        O|  Size of logical volume vg0/lv1 changed from 100.00 MiB (25 extents) to 636.00 MiB (159 extents).$
        O|  Logical volume vg0/lv1 successfully resized.$
        rc=0",
    );
    world.run("lvreduce -f -L 100M vg0/lv1");
    play(
        &mut world,
        "$ lvextend -l 50%PVS vg0/lv1
        O|  Size of logical volume vg0/lv1 changed from 100.00 MiB (25 extents) to 348.00 MiB (87 extents).$
        O|  Logical volume vg0/lv1 successfully resized.$
        rc=0",
    );
    world.run("lvreduce -f -L 100M vg0/lv1");
    for line in [
        "vgextend vg0 /dev/ubdb",
        "vgchange --vgmetadatacopies 1 vg0",
        "lvcreate -l 144 -n big vg0 /dev/ubdb",
        "pvchange -xn /dev/ubda",
    ] {
        let printed = world.run(line);
        assert_eq!(printed.code, 0, "{line}: {printed:?}");
    }
    play(
        &mut world,
        "$ lvextend -l +100%VG vg0/lv1
        E|  Insufficient free space: 348 extents needed, but only 30 available
        rc=5

        $ lvextend -l +200%FREE vg0/lv1
        O|  Size of logical volume vg0/lv1 changed from 100.00 MiB (25 extents) to 220.00 MiB (55 extents).$
        O|  Logical volume vg0/lv1 successfully resized.$
        rc=0",
    );
}

#[test]
fn what_lvm_says_where_nothing_is_to_be_done() {
    let mut world = with_group();
    world.run("lvcreate -L 16M -T vg0/pool");
    play(
        &mut world,
        "$ lvchange -pr vg0/pool
        E|  Command on LV vg0/pool uses options invalid with LV type thinpool.
        E|  Command not permitted on LV vg0/pool.
        rc=5

        $ lvchange -pr vg0
        O|  Logical volume vg0/lv1 changed.$
        E|  Command on LV vg0/pool uses options invalid with LV type thinpool.
        rc=0

        $ lvs -o lv_name,lv_attr vg0
        O|  LV   Attr      $
        O|  lv1  -ri-a-----$
        O|  pool twi-a-tz--$
        rc=0

        $ lvconvert -y --type cache --cachepool cp vg0/lv1
        E|  Segment type \"cache\" is not supported: volumes are linear, striped, mirrored (raid1), thin or snapshots.
        rc=5

        $ lvconvert -y --splitcache vg0/lv1
        E|  --splitcache makes no sense here: there are no caches.
        rc=5

        $ lvchange --cachemode writeback vg0/lv1
        E|  --cachemode makes no sense here: there are no caches.
        rc=5

        $ lvcreate --type vdo -L 8M -V 16M --compression y --deduplication y -n v vg0/vpool
        E|  Segment type \"vdo\" is not supported: volumes are linear, striped, mirrored (raid1), thin or snapshots.
        rc=5

        $ pvremove -f /dev/ubdb
        O|  Labels on physical volume \"/dev/ubdb\" successfully wiped.$
        rc=0

        $ pvremove -y /dev/ubdb
        E|  No PV found on device /dev/ubdb.
        rc=5

        $ vgcreate --shared w /dev/ubdb
        E|  Using a shared lock type requires lvmlockd (lvm.conf use_lvmlockd.)
        E|  Run `vgcreate --help' for more information.
        rc=3

        $ pvcreate /dev/ubdb
        O|  Physical volume \"/dev/ubdb\" successfully created.$
        rc=0

        $ pvs --noheadings --units b --nosuffix --separator : -o pv_name,vg_name,vg_size,vg_free,vg_extent_count,pv_count /dev/ubdb
        O|  /dev/ubdb::0:0:0:0$
        rc=0",
    );
    let long = "x".repeat(121);
    let printed = world.run(&format!("vgrename vg0 {long}"));
    assert_eq!((printed.code, printed.err.as_str()), (5, "  New volume group path exceeds maximum length of 121!\n"));
}

#[test]
fn a_group_that_is_removed_meanwhile_is_no_failure() {
    let mut world = with_group();
    for line in ["vgs", "lvs", "lvs @t", "vgs @t", "vgscan", "lvm fullreport", "vgchange -an"] {
        world.leaving = Some("gone".to_owned());
        let printed = world.run(line);
        assert_eq!((printed.code, printed.err.as_str(), &world.leaving), (0, "", &None), "{line}");
    }
}

/// What libvirt asks: it passes over rows without devices.
#[test]
fn a_sparse_volume_is_on_a_device() {
    let mut world = with_group();
    world.run("lvcreate -L 8M -n sp --type snapshot -V 64M vg0");
    world.run("lvcreate -L 16M -T vg0/pool");
    world.run("lvcreate -V 32M -T vg0/pool -n t1");
    play(
        &mut world,
        "$ lvs --separator : --noheadings --units b --nosuffix -o lv_name,devices,segtype,stripes,seg_size,size,lv_attr,thin_id vg0
        O|  lv1:/dev/ubda(5):linear:1:104857600:104857600:-wi-a-----:$
        O|  pool::thin-pool:1:16777216:16777216:twi-aotz--:$
        O|  sp:/dev/ubda(0):linear:1:67108864:67108864:swi-a-s---:$
        O|  t1::thin:0:33554432:33554432:Vwi-a-tz--:4$
        rc=0",
    );
}

#[test]
fn a_pool_grows_by_what_it_could_be_filled_with() {
    let mut world = with_group();
    world.run("lvcreate -L 80M -n other vg0");
    world.run("lvcreate -L 16M -T vg0/pool");
    play(
        &mut world,
        "$ lvextend -L 700M vg0/pool
        E|  Insufficient free space: 171 extents needed, but only 120 available
        rc=5

        $ lvresize -f -l +100%FREE vg0/pool
        O|  Size of logical volume vg0/pool changed from 16.00 MiB (4 extents) to 496.00 MiB (124 extents).$
        O|  Logical volume vg0/pool successfully resized.$
        rc=0

        $ lvresize -f -l +100%FREE vg0/pool
        E|  New size (124 extents) matches existing size (124 extents).
        rc=5",
    );
    // What its volumes hold is not free any more, and is the pool's.
    world.run("lvcreate -V 40M -T vg0/pool -n t");
    world.write("t", 10 * 1024);
    play(
        &mut world,
        "$ lvextend -l +1 vg0/pool
        E|  Insufficient free space: 1 extents needed, but only 0 available
        rc=5",
    );
    world.run("lvremove -f vg0/other");
    play(
        &mut world,
        "$ lvresize -f -l +50%FREE vg0/pool
        O|  Size of logical volume vg0/pool changed from 496.00 MiB (124 extents) to 536.00 MiB (134 extents).$
        O|  Logical volume vg0/pool successfully resized.$
        rc=0",
    );
}

#[test]
fn resizing() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvextend -L 10M vg0/nope
        E|  Logical volume nope not found in volume group vg0.
        rc=5

        $ lvextend -L 100M vg0/lv1
        E|  New size (25 extents) matches existing size (25 extents).
        rc=5

        $ lvextend -L 50M vg0/lv1
        O|  Rounding size to boundary between physical extents: 52.00 MiB.$
        E|  New size given (13 extents) not larger than existing size (25 extents)
        rc=5

        $ lvreduce -f -L 200M vg0/lv1
        E|  New size given (50 extents) not less than existing size (25 extents)
        rc=5

        $ lvextend -L +4M vg0/lv1
        O|  Size of logical volume vg0/lv1 changed from 100.00 MiB (25 extents) to 104.00 MiB (26 extents).$
        O|  Logical volume vg0/lv1 successfully resized.$
        rc=0

        $ lvextend -L 100G vg0/lv1
        E|  Insufficient free space: 25574 extents needed, but only 143 available
        rc=5

        $ lvextend -l +18446744073709551615 vg0/lv1
        E|  Size is too big (>=16EiB).
        E|  Invalid argument for --extents: +18446744073709551615
        E|  Error during parsing of command line.
        rc=3

        $ lvreduce -L 50M vg0/lv1
        O|  Rounding size to boundary between physical extents: 52.00 MiB.$
        E|  WARNING: Reducing active logical volume to 52.00 MiB.
        E|  THIS MAY DESTROY YOUR DATA (filesystem etc.)
        E|Do you really want to reduce vg0/lv1? [y/n]: [n]
        E|  Logical volume vg0/lv1 NOT reduced.
        rc=5

        $ lvresize -L 50331648b -f vg0/lv1
        O|  Size of logical volume vg0/lv1 changed from 104.00 MiB (26 extents) to 48.00 MiB (12 extents).$
        O|  Logical volume vg0/lv1 successfully resized.$
        E|  WARNING: Reducing active logical volume to 48.00 MiB.
        E|  THIS MAY DESTROY YOUR DATA (filesystem etc.)
        rc=0

        $ lvcreate -n s -s /dev/vg0/lv1 -l 100%ORIGIN -pr
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvresize -l +100%ORIGIN -f /dev/vg0/s
        O|  Reached maximum COW size 52.00 MiB (13 extents).$
        O|  Size of logical volume vg0/s unchanged from 52.00 MiB (13 extents).$
        O|  Logical volume vg0/s successfully resized.$
        rc=0

        $ lvreduce -L -48M vg0/lv1
        E|  Unable to reduce vg0/lv1 below 1 extent.
        rc=5",
    );
}

#[test]
fn names_activation_and_the_end_of_a_group() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvrename vg0 nope nope2
        E|  Existing logical volume \"nope\" not found in volume group \"vg0\"
        rc=5

        $ lvrename /dev/vg0/lv1 /dev/vg0/lv9
        O|  Renamed \"lv1\" to \"lv9\" in volume group \"vg0\"$
        rc=0

        $ lvrename vg0 lv9 bad@name
        E|  New logical volume name \"bad@name\" is invalid
        E|  Run `lvrename --help' for more information.
        rc=3

        $ lvchange -an vg0/lv9
        rc=0

        $ lvs -o lv_name,lv_attr,lv_kernel_major,lv_active vg0
        O|  LV   Attr       KMaj Active$
        O|  lv9  -wi-------   -1       $
        rc=0

        $ lvchange -ay vg0/nope
        E|  Failed to find logical volume \"vg0/nope\"
        rc=5

        $ vgchange -ay vg0
        O|  1 logical volume(s) in volume group \"vg0\" now active$
        rc=0

        $ vgchange -an
        O|  0 logical volume(s) in volume group \"vg0\" now active$
        rc=0

        $ vgremove vg0
        E|Do you really want to remove volume group \"vg0\" containing 1 logical volumes? [y/n]: [n]
        E|  Volume group \"vg0\" not removed
        rc=5

        $ vgremove -f vg0
        O|  Logical volume \"lv9\" successfully removed.$
        O|  Volume group \"vg0\" successfully removed$
        rc=0

        $ vgs
        rc=0",
    );
}

#[test]
fn reports_for_programs() {
    play(
        &mut with_group(),
        "$ lvs vg0 -o lv_name,lv_path,lv_size,lv_uuid,origin --units b --nosuffix --reportformat json
        O|  {$
        O|      \"report\": [$
        O|          {$
        O|              \"lv\": [$
        O|                  {\"lv_name\":\"lv1\", \"lv_path\":\"/dev/vg0/lv1\", \"lv_size\":\"104857600\", \"lv_uuid\":\"3O7bwN-Ju3b-vbkS-XSjU-lG50-0000-000000\", \"origin\":\"\"}$
        O|              ]$
        O|          }$
        O|      ]$
        O|  }$
        rc=0

        $ lvs nosuch -o lv_name --reportformat json
        O|  {$
        O|      \"report\": [$
        O|          {$
        O|              \"lv\": [$
        O|              ]$
        O|          }$
        O|      ]$
        O|  }$
        E|  Volume group \"nosuch\" not found
        E|  Cannot process volume group nosuch
        rc=5

        $ lvs --nameprefixes --noheadings -o lv_name,lv_size vg0/lv1
        O|  LVM2_LV_NAME='lv1' LVM2_LV_SIZE='100.00m'$
        rc=0

        $ lvs --noheadings --nosuffix --units m -o lv_name,size,lv_attr --separator ; vg0
        O|  lv1;100.00;-wi-a-----$
        rc=0

        $ lvs -o lv_name,lv_time vg0
        O|  LV   CTime                     $
        O|  lv1  2026-11-20 18:13:34 +0000 $
        rc=0",
    );
}

#[test]
fn rowens_own_commands() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvcreate -L 4M -n log vg0
        O|  Logical volume \"log\" created.$
        rc=0

        $ rowen snapshot vg0
        O|  Logical volume \"lv1-20261120181334\" created.$
        O|  Logical volume \"log-20261120181334\" created.$
        rc=0

        $ rowen snapshot vg0 log vg0/lv1 log --suffix nightly
        O|  Logical volume \"log-nightly\" created.$
        O|  Logical volume \"lv1-nightly\" created.$
        rc=0

        $ rowen snapshot vg0 --suffix nightly
        E|  Logical Volume \"lv1-nightly\" already exists in volume group \"vg0\"
        rc=5

        $ rowen snapshot vg0 nolv
        E|  Failed to find logical volume \"vg0/nolv\"
        rc=5

        $ rowen revert vg0/lv1 lv1-nightly
        E|Do you really want to replace the contents of vg0/lv1 with those of vg0/lv1-nightly? [y/n]: [n]
        E|  Logical volume vg0/lv1 not reverted.
        rc=5

        $ rowen revert -y vg0/lv1 lv1-nightly
        O|  Logical volume vg0/lv1 reverted to vg0/lv1-nightly.$
        rc=0

        $ rowen check vg0
        O|  Volume group \"vg0\" is sound: 2 metadata nodes and 26624 blocks examined.$
        rc=0

        $ rowen check ../etc
        E|  Volume group name expected (no slash)
        E|  Run `rowen check --help' for more information.
        rc=3

        $ rowen check nosuch
        E|  Volume group \"nosuch\" not found
        E|  Cannot process volume group nosuch
        rc=5",
    );
    let one_moment = |request: &&Request| matches!(request, Request::Snapshot { specs, .. } if specs.len() == 2);
    assert_eq!(world.requests.iter().filter(one_moment).count(), 2, "a group snapshot is one request");
    world.findings = vec!["block 7 of lv1 is used twice".to_owned()];
    world.notice = Some("WARNING: volume group \"vg0\" is 91% full.".to_owned());
    play(
        &mut world,
        "$ rowen check vg0
        E|  WARNING: volume group \"vg0\" is 91% full.
        E|  block 7 of lv1 is used twice
        E|  Volume group \"vg0\" is damaged: 1 finding(s), 2 metadata nodes and 26624 blocks examined.
        rc=5

        $ rowen repair vg0
        O|  Rewritten from the good copy: block 7 of lv1 is used twice.$
        O|  Volume group \"vg0\" is sound: 2 metadata nodes and 26624 blocks examined.$
        E|  WARNING: volume group \"vg0\" is 91% full.
        rc=0",
    );
}

/// As when one was killed and another takes its place.
#[test]
fn a_server_that_is_being_started_is_the_one_to_check() {
    let mut world = with_group();
    world.is_starting = true;
    play(
        &mut world,
        "$ rowen check vg0
        O|  Volume group \"vg0\" is sound: 1 metadata nodes and 25600 blocks examined.$
        rc=0",
    );
}

#[test]
fn questions_take_their_answer_from_standard_input() {
    let mut world = with_group();
    let words: Vec<String> = ["vg0/lv1"].map(str::to_owned).to_vec();
    let refused = world.run_words("lvremove", &words, Some("what\nn\n"));
    assert_eq!(refused.code, 5);
    assert_eq!(refused.err.matches("[y/n]: ").count(), 2);
    assert!(refused.err.contains("WARNING: Invalid input 'what'."), "{}", refused.err);
    let ended = world.run_words("lvremove", &words, Some(""));
    assert_eq!(ended.code, 5);
    let agreed = world.run_words("/usr/sbin/lvremove", &words, Some("y\n"));
    assert_eq!((agreed.code, agreed.out.as_str()), (0, "  Logical volume \"lv1\" successfully removed.\n"));
}

#[test]
fn what_the_environment_and_a_tag_leave_out() {
    let mut world = with_group();
    world.default_group = Some("vg0".to_owned());
    play(
        &mut world,
        "$ lvs --noheadings -o lv_full_name lv1
        O|  vg0/lv1$
        rc=0

        $ lvs vg0
        E|  Failed to find logical volume \"vg0/vg0\"
        rc=5

        $ lvcreate -n named -l 2
        O|  Logical volume \"named\" created.$
        rc=0

        $ lvextend -l+1 --poolmetadatasize -8 named
        E|  Can't reduce pool metadata size.
        E|  Run `lvextend --help' for more information.
        rc=3
        ",
    );
    world.default_group = None;
    play(
        &mut world,
        "$ lvchange --addtag t vg0/named
        O|  Logical volume vg0/named changed.$
        rc=0

        $ lvs --noheadings -o lv_name @t nosuchgroup
        O|  named$
        rc=0

        $ lvs nosuchgroup
        E|  Volume group \"nosuchgroup\" not found
        E|  Cannot process volume group nosuchgroup
        rc=5

        $ vgchange --setautoactivation n vg0
        O|  Volume group \"vg0\" successfully changed$
        rc=0

        $ lvchange -an vg0/lv1
        rc=0

        $ lvchange -aay vg0/lv1
        rc=0

        $ lvs --noheadings -o lv_active vg0/lv1
        O|        $
        rc=0
        ",
    );
}

#[test]
fn devices_that_are_no_physical_volumes() {
    play(
        &mut with_group(),
        "$ pvs -a --noheadings --separator , -o pv_name,vg_name,pv_fmt,pv_attr,pv_size,pv_mda_count
        O|  /dev/tiny,,,---,0 ,0$
        O|  /dev/ubda,vg0,lvm2,a--,696.00m,1$
        O|  /dev/ubdb,,,---,0 ,0$
        rc=0

        $ pvs --noheadings -o pv_name
        O|  /dev/ubda $
        rc=0
        ",
    );
}

#[test]
fn what_a_command_line_may_not_leave_open() {
    play(
        &mut with_group(),
        "$ lvs -a -a
        E|  Option -a/--all may not be repeated.
        E|  Error during parsing of command line.
        rc=3

        $ lvs --noheadings -o lv_name -o +lv_size vg0/lv1
        O|  lv1  100.00m$
        rc=0

        $ lvremove -f -f vg0/
        E|  Failed to find logical volume \"vg0/\"
        rc=5

        $ vgs vg0/
        E|  Invalid volume group name vg0/.
        E|  Run `vgs --help' for more information.
        rc=3

        $ lvremove
        O|  lvremove VG|LV|Tag|Select ...$
        O|$
        E|  No command with matching syntax recognised.  Run 'lvremove --help' for more information.
        E|  Correct command syntax is:
        rc=3

        $ lvcreate -V 1G -n x vg0
        E|  Please specify name of existing pool.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvcreate -s -L 48M -n s vg0/lv1
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvchange -an vg0/s
        E|Change of snapshot vg0/s will also change its origin vg0/lv1. Proceed? [y/n]: [n]
        E|  Logical volume vg0/s not changed.
        rc=5

        $ lvchange -ay vg0/s
        rc=0

        $ lvs -o, vg0/s
        O|  $
        O|  $
        rc=0

        $ lvs --reportformat json -o, vg0/s
        O|  {$
        O|      \"report\": [$
        O|          {$
        O|              \"lv\": [$
        O|                  {}$
        O|              ]$
        O|          }$
        O|      ]$
        O|  }$
        rc=0

        $ lvcreate -s -n free vg0/lv1
        O|  Logical volume \"free\" created.$
        rc=0

        $ lvchange -an vg0/free
        rc=0

        $ lvcreate -l 1 -ky -n k vg0
        O|  Logical volume \"k\" created.$
        rc=0

        $ lvs --noheadings -o lv_attr vg0/k
        O|  -wi------k$
        rc=0

        $ lvchange -an -y vg0
        rc=0

        $ vgexport vg0
        O|  Volume group \"vg0\" successfully exported$
        rc=0

        $ lvs vg0/lv1
        E|  Volume group vg0 is exported
        rc=5

        $ lvs
        rc=0

        $ vgremove -ff -y vg0
        E|  Volume group vg0 is exported
        rc=5
",
    );
}

#[test]
fn one_command_merges_one_snapshot_into_an_origin() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvcreate -s -L 48M -n s1 vg0/lv1
        O|  Logical volume \"s1\" created.$
        rc=0

        $ lvcreate -s -L 48M -n s2 vg0/lv1
        O|  Logical volume \"s2\" created.$
        rc=0
",
    );
    let words = ["--merge", "vg0/s1", "vg0/s2"].map(str::to_owned);
    let merged = world.run_words("lvconvert", &words, None);
    assert_eq!(merged.code, 5, "{merged:?}");
    assert_eq!(merged.err, "  Cannot merge snapshot vg0/s2 into the origin vg0/lv1 with merging snapshot vg0/s2.\n");
    let report = world.report("vg0");
    assert!(report.volume("s1").is_none() && report.volume("s2").is_some());
}

#[test]
fn help_and_versions() {
    let mut world = Fake::new();
    for command in crate::table::COMMANDS {
        let help = world.run(&format!("rowen {} --help", command.name));
        assert_eq!((help.code, help.err.as_str()), (0, ""));
        assert!(help.out.contains(command.summary) && help.out.contains(command.examples[0].0), "{}", command.name);
        let version = world.run(&format!("rowen {} --version", command.name));
        assert!(version.out.starts_with("  LVM version:     2.03."), "{}", command.name);
    }
    let names = world.run("rowen commands").out;
    assert!(names.lines().any(|name| name == "lvcreate") && !names.contains("serve"));
    // The programs that drive LVM call it so.
    assert!(names.lines().any(|name| name == "lvm"), "{names}");
    assert!(world.run("rowen").out.contains("lvcreate"));
    assert_eq!(world.run("lvm lvs --noheadings").code, 0);
}

#[test]
fn groups_have_tags() {
    let mut world = Fake::new();
    play(
        &mut world,
        "$ vgcreate --addtag one --addtag a.b/c-d v /dev/ubda
        O|  Physical volume \"/dev/ubda\" successfully created.$
        O|  Volume group \"v\" successfully created$
        rc=0

        $ vgchange --addtag lxd_pool --addtag zz --deltag one v
        O|  Volume group \"v\" successfully changed$
        rc=0

        $ vgs --noheadings -o vg_tags v
        O|  a.b/c-d,lxd_pool,zz$
        rc=0

        $ vgchange --deltag nosuchtag v
        O|  Volume group \"v\" successfully changed$
        rc=0

        $ vgchange --addtag @last @zz
        O|  Volume group \"v\" successfully changed$
        rc=0

        $ vgs --noheadings -o tags @last
        O|  a.b/c-d,last,lxd_pool,zz$
        rc=0

        $ vgchange --addtag -x v
        O|  Volume group \"v\" successfully changed$
        rc=0

        $ vgchange --addtag t nosuch
        E|  Volume group \"nosuch\" not found
        E|  Cannot process volume group nosuch
        rc=5

        $ vgchange -t --addtag t v
        O|  Volume group \"v\" successfully changed$
        E|  TEST MODE: Metadata will NOT be updated and volumes will not be (de)activated.
        rc=0

        $ vgs --noheadings -o tags v
        O|  -x,a.b/c-d,last,lxd_pool,zz$
        rc=0

        $ vgchange v
        E|  No command with matching syntax recognised.  Run 'vgchange --help' for more information.
        rc=3",
    );
}

#[test]
fn groups_are_changed_as_a_whole() {
    let mut world = Fake::new();
    world.run("vgcreate v /dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ vgchange --setautoactivation n v
        O|  Volume group \"v\" successfully changed$
        rc=0

        $ vgchange --setautoactivation n v
        E|  Volume group autoactivation is already no.
        rc=5

        $ vgchange -aay v
        rc=0

        $ vgchange -l 1 -p 9 --alloc cling v
        O|  Volume group \"v\" successfully changed$
        rc=0

        $ vgs --noheadings -o vg_attr v
        O|  wz--l-$
        rc=0

        $ vgchange -p 1 v
        E|  MaxPhysicalVolumes is less than the current number 2 of PVs for \"v\"
        rc=5

        $ vgchange -x y v
        E|  Volume group \"v\" is already resizeable
        rc=5

        $ vgchange -u v
        E|  The identifier of a volume group cannot be changed: its blocks carry it.
        rc=5

        $ vgchange --refresh v
        rc=0

        $ vgchange --lockstart nosuch
        E|  Volume group \"nosuch\" not found
        E|  Cannot process volume group nosuch
        rc=5

        $ vgchange --sysinit --ignorelockingfailure --poll n -aay --activationmode degraded
        rc=0

        $ vgexport v
        O|  Volume group \"v\" successfully exported$
        rc=0

        $ vgs --noheadings -o vg_attr v
        O|  wzx-l-$
        rc=0

        $ vgexport v
        E|  Volume group \"v\" is exported
        rc=5

        $ vgimport v
        O|  Volume group \"v\" successfully imported$
        rc=0

        $ vgimport v
        E|  Volume group \"v\" is not exported
        rc=5

        $ vgimport
        E|  No command with matching syntax recognised.  Run 'vgimport --help' for more information.
        rc=3

        $ vgck v
        rc=0

        $ vgmknodes
        rc=0

        $ vgrename v w
        O|  Volume group \"v\" successfully renamed to \"w\"$
        rc=0

        $ vgrename v y
        E|  Volume group \"v\" not found
        E|  Cannot process volume group v
        rc=5

        $ vgrename w .
        E|  Name starts with . or .. and has no following character(s).
        E|  New volume group name \".\" is invalid.
        rc=5

        $ vgrename w w
        E|  Old and new volume group names must differ
        rc=5

        $ vgreduce --removemissing w
        O|  Volume group \"w\" is already consistent.$
        rc=0

        $ vgreduce w /dev/ubdb
        O|  Removed \"/dev/ubdb\" from volume group \"w\"$
        rc=0

        $ vgreduce w /dev/ubda
        E|  Can't remove final physical volume \"/dev/ubda\" from volume group \"w\"
        rc=5

        $ vgreduce w
        E|  No command with matching syntax recognised.  Run 'vgreduce --help' for more information.
        rc=3",
    );
    world.findings.push("tree 3 is damaged".to_owned());
    play(&mut world, "$ vgck w\nE|  tree 3 is damaged\nrc=5");
}

#[test]
fn physical_volumes_are_changed() {
    let mut world = Fake::new();
    world.run("vgcreate v /dev/ubda");
    world.run("pvcreate /dev/ubdb");
    play(
        &mut world,
        "$ pvchange --addtag pt --addtag x /dev/ubda
        O|  Physical volume \"/dev/ubda\" changed$
        O|  1 physical volume changed / 0 physical volumes not changed$
        rc=0

        $ pvs --noheadings -o pv_tags /dev/ubda
        O|  pt,x   $
        rc=0

        $ pvchange --deltag pt /dev/ubda /dev/ubdb
        O|  Physical volume \"/dev/ubda\" changed$
        O|  1 physical volume changed / 1 physical volume not changed$
        E|  Can't change tag on Physical Volume /dev/ubdb not in volume group
        E|  Physical volume /dev/ubdb not changed
        rc=5

        $ pvchange -x n /dev/ubda /dev/ubdb
        O|  Physical volume \"/dev/ubda\" changed$
        O|  1 physical volume changed / 1 physical volume not changed$
        E|  Allocatability not supported by orphan lvm2 format PV /dev/ubdb
        E|  Physical volume /dev/ubdb not changed
        rc=5

        $ pvchange -xn --addtag t /dev/ubda
        O|  Physical volume \"/dev/ubda\" changed$
        O|  1 physical volume changed / 0 physical volumes not changed$
        E|  Physical volume \"/dev/ubda\" is already unallocatable.
        rc=0

        $ pvs --noheadings -o pv_attr,pv_allocatable,vg_free -S pv_allocatable=0&&vg_name=v
        O|  u--              676.00m$
        rc=0

        $ lvcreate -l 1 -n no v
        E|  Insufficient free space: 1 extents needed, but only 0 available
        rc=5

        $ lvcreate -l 100%FREE -n no v
        E|  Calculated size of logical volume is 0 extents. Needs to be larger.
        rc=5

        $ lvcreate -l 1 -n no v /dev/ubda
        E|  WARNING: Physical volume /dev/ubda not allocatable.
        E|  No specified PVs have space available.
        rc=5

        $ pvdisplay /dev/ubda
        O|  --- Physical volume ---$
        O|  PV Name               /dev/ubda$
        O|  VG Name               v$
        O|  PV Size               700.00 MiB / not usable 4.00 MiB$
        O|  Allocatable           NO$
        O|  PE Size               4.00 MiB$
        O|  Total PE              174$
        O|  Free PE               169$
        O|  Allocated PE          5$
        O|  PV UUID               1WH3QV-zPlo-aJ6i-ZC6Y-rT10-0000-000000$
        O|   $
        rc=0

        $ pvchange --allocatable y -S pv_tags=t
        O|  Physical volume \"/dev/ubda\" changed$
        O|  1 physical volume changed / 0 physical volumes not changed$
        rc=0

        $ pvchange --allocatable y @t
        O|  Physical volume /dev/ubda not changed$
        O|  0 physical volumes changed / 1 physical volume not changed$
        E|  Physical volume \"/dev/ubda\" is already allocatable.
        rc=0

        $ pvchange -x n -S pv_tags=none
        O|  0 physical volumes changed / 0 physical volumes not changed$
        rc=0

        $ pvchange -x n
        E|  No command with matching syntax recognised.  Run 'pvchange --help' for more information.
        rc=3

        $ pvchange -x z /dev/ubda
        E|  Invalid argument for --allocatable: z
        E|  Error during parsing of command line.
        rc=3

        $ pvchange -a -x n /dev/ubda
        E|  Option --all and PhysicalVolumePath are exclusive.
        E|  Run `pvchange --help' for more information.
        rc=3

        $ pvchange -a -x y
        O|  Physical volume /dev/ubda not changed$
        O|  0 physical volumes changed / 2 physical volumes not changed$
        E|  Physical volume \"/dev/ubda\" is already allocatable.
        E|  Allocatability not supported by orphan lvm2 format PV /dev/ubdb
        E|  Physical volume /dev/ubdb not changed
        rc=5

        $ pvchange /dev/ubda
        E|  No command with matching syntax recognised.  Run 'pvchange --help' for more information.
        rc=3

        $ pvresize -y /dev/ubda
        O|  Physical volume \"/dev/ubda\" changed$
        O|  1 physical volume(s) resized or updated / 0 physical volume(s) not resized$
        rc=0

        $ pvresize --setphysicalvolumesize 100m /dev/ubda
        O|  0 physical volume(s) resized or updated / 1 physical volume(s) not resized$
        E|/dev/ubda: Requested size 100.00 MiB is less than real size 700.00 MiB. Proceed?  [y/n]: [n]
        E|  Physical Volume /dev/ubda not resized.
        rc=5

        $ pvresize -y --setphysicalvolumesize 100m /dev/ubda
        O|  Physical volume \"/dev/ubda\" changed$
        O|  1 physical volume(s) resized or updated / 0 physical volume(s) not resized$
        E|  WARNING: /dev/ubda: Pretending size is 204800 not 1433600 sectors.
        rc=0

        $ pvresize -y --setphysicalvolumesize 100m /dev/ubdb
        O|  Physical volume \"/dev/ubdb\" changed$
        O|  1 physical volume(s) resized or updated / 0 physical volume(s) not resized$
        E|  WARNING: /dev/ubdb: Pretending size is 204800 not 1433600 sectors.
        rc=0

        $ pvs --noheadings -o pv_size,dev_size /dev/ubdb
        O|  100.00m 700.00m$
        rc=0

        $ pvresize /dev/ubdb
        O|  Physical volume \"/dev/ubdb\" changed$
        O|  1 physical volume(s) resized or updated / 0 physical volume(s) not resized$
        rc=0

        $ pvs --noheadings -o pv_size,dev_size /dev/ubdb
        O|  700.00m 700.00m$
        rc=0

        $ pvresize /dev/nonexist
        O|  0 physical volume(s) resized or updated / 0 physical volume(s) not resized$
        E|  Cannot use /dev/nonexist: device not found
        rc=5

        $ pvck /dev/ubda
        rc=0

        $ pvck /dev/tiny
        E|  Failed to find physical volume \"/dev/tiny\".
        rc=5

        $ pvmove -i 1 /dev/ubda /dev/ubdb
        E|  Physical Volume \"/dev/ubdb\" not found in Volume Group \"v\".
        rc=5",
    );
}

#[test]
fn what_is_free_goes_back_and_sparse_files_are_reported() {
    let mut world = Fake::new();
    world.without_room.insert("/dev/ubda".to_owned(), 3 << 20);
    play(
        &mut world,
        "$ pvcreate /dev/ubda
        O|  Physical volume \"/dev/ubda\" successfully created.$
        O|  /dev/ubda is a sparse file: 3.00 MiB of it have no room yet, and first writes there cost about a quarter more (\"pvcreate --writeout\" writes it out).$
        rc=0

        $ pvcreate --writeout /dev/ubda
        O|  Physical volume \"/dev/ubda\" successfully created.$
        O|  3.00 MiB of /dev/ubda written out.$
        rc=0

        $ pvcreate --writeout /dev/ubda
        O|  Physical volume \"/dev/ubda\" successfully created.$
        O|  /dev/ubda has all of its room already.$
        rc=0

        $ rowen trim nosuch
        E|  Volume group \"nosuch\" not found
        E|  Cannot process volume group nosuch
        rc=5

        $ rowen trim
        E|  Please specify the volume group's name.
        E|  Run `rowen trim --help' for more information.
        rc=3",
    );
    world.run("vgcreate vg0 /dev/ubda");
    let printed = world.run("rowen trim vg0 vg0");
    assert!(printed.code == 0 && printed.err.is_empty(), "{}", printed.err);
    assert_eq!(printed.out.lines().count(), 1, "{}", printed.out);
    assert!(printed.out.starts_with("  vg0: ") && printed.out.ends_with(" that are free\n"), "{}", printed.out);
}

#[test]
fn extents_move() {
    play(
        &mut Fake::new(),
        "$ vgcreate --vgmetadatacopies 1 vg0 /dev/ubda /dev/ubdb
        O|  Physical volume \"/dev/ubda\" successfully created.$
        O|  Physical volume \"/dev/ubdb\" successfully created.$
        O|  Volume group \"vg0\" successfully created$
        rc=0

        $ lvcreate -y -l 10 -n data vg0 /dev/ubdb
        O|  Logical volume \"data\" created.$
        rc=0

        $ lvs --noheadings -o lv_name,devices,seg_pe_ranges vg0
        O|  data /dev/ubdb(1) /dev/ubdb:1-10$
        rc=0

        $ pvmove -i 1 /dev/ubdb
        O|  /dev/ubdb: Moved: 100.00%$
        rc=0

        $ lvs --noheadings -o lv_name,devices vg0
        O|  data /dev/ubda(8)$
        rc=0

        $ pvmove /dev/ubdb
        E|  No data to move for vg0.
        rc=5

        $ pvmove -i 0 -n data /dev/ubda:8-9 /dev/ubdb
        rc=0

        $ pvmove
        rc=0

        $ pvmove --abort
        rc=0

        $ pvmove --abort /dev/ubdb
        E|  No pvmove in progress for /dev/ubdb.
        rc=5

        $ pvmove --atomic /dev/ubdb
        E|  --atomic makes no sense here: extents move in runs, and each is at its new place for good. What an abort leaves is brought back by a pvmove the other way.
        rc=5

        $ lvs -a --noheadings -o lv_name,move_pv,copy_percent vg0
        O|  data              $
        rc=0

        $ pvmove -n other /dev/ubda
        E|  Logical volume other not found in volume group vg0.
        rc=5

        $ pvmove /dev/ubda /dev/ubda
        E|  No extents available for allocation: /dev/ubda is moved from. To move within it: --alloc anywhere.
        rc=5

        $ pvmove -i 0 /dev/ubda
        rc=0

        $ vgreduce vg0 /dev/ubda
        O|  Removed \"/dev/ubda\" from volume group \"vg0\"$
        rc=0

        $ lvs --noheadings -o lv_name,lv_size vg0
        O|  data 40.00m$
        rc=0",
    );
}

#[test]
fn lvm_describes_itself() {
    play(
        &mut Fake::new(),
        "$ lvm segtypes
        O|  linear$
        O|  striped$
        O|  raid1$
        O|  mirror$
        O|  snapshot$
        O|  thin$
        O|  thin-pool$
        rc=0

        $ lvm formats
        O|  lvm2$
        rc=0

        $ lvm systemid
        O|  system ID: $
        rc=0

        $ lvm tags
        rc=0

        $ lvm dumpconfig report/time_format
        E|  Configuration node report/time_format not found
        rc=5

        $ lvmconfig --type default activation/thin_pool_autoextend_threshold
        O|# thin_pool_autoextend_threshold=100$
        rc=0

        $ vgmerge a b
        E|  Merging volume groups is not supported: each has a history of snapshots of its own.
        E|  Copy the volumes of the one to the other, and extend that with the physical volumes.
        rc=5

        $ lvmdiskscan
        O|  0 disks$
        O|  0 partitions$
        O|  0 LVM physical volume whole disks$
        O|  0 LVM physical volumes$
        rc=0",
    );
}

#[test]
fn space_is_taken_from_the_named_physical_volumes() {
    let mut world = Fake::new();
    world.run("vgcreate --vgmetadatacopies 1 v /dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate -l 100%PVS -n a v /dev/ubdb:0-9:20+5
        O|  Logical volume \"a\" created.$
        rc=0

        $ lvs --noheadings --units b --nosuffix -o seg_size_pe v/a
        O|     14$
        rc=0

        $ lvcreate -l 100%FREE -n b v /dev/ubda
        O|  Logical volume \"b\" created.$
        rc=0

        $ lvs --noheadings -o lv_size --units m v/b
        O|  668.00m$
        rc=0

        $ lvcreate -L 4M -n c v /dev/ubda
        E|  WARNING: No free extents on physical volume \"/dev/ubda\".
        E|  No specified PVs have space available.
        rc=5

        $ lvextend v/a /dev/ubda /dev/ubdb:150-
        O|  Size of logical volume v/a changed from 56.00 MiB (14 extents) to 152.00 MiB (38 extents).$
        O|  Logical volume v/a successfully resized.$
        E|  WARNING: No free extents on physical volume \"/dev/ubda\".
        rc=0

        $ lvextend -l +200 v/a /dev/ubdb
        E|  Insufficient free space: 200 extents needed, but only 135 available
        rc=5

        $ lvcreate -l 136 -n c v /dev/ubdb
        E|  Volume group \"v\" has insufficient free space (135 extents): 136 required.
        rc=5

        $ lvcreate -l 30 -n c v /dev/ubdb:40-60
        E|  Insufficient free space: 30 extents needed, but only 21 available
        rc=5

        $ lvcreate -l 1 -n c v /dev/ubdc
        E|  Physical Volume \"/dev/ubdc\" not found in Volume Group \"v\".
        rc=5

        $ lvcreate -l 1 -n c v /dev/ubdb:5-3
        E|  PE range error: start extent 5 to end extent 3.
        rc=5

        $ lvcreate -l 1 -n c v /dev/ubdb:0-174
        E|  PE range error: start extent 0 to end extent 174.
        rc=5

        $ lvcreate -l 1 -n c v /dev/ubdb:1-x
        E|  Physical extent parsing error at x.
        rc=5

        $ lvcreate -l 1 -n c v /dev/ubdb:99999999999
        E|  Physical extent parsing error at 99999999999.
        rc=5

        $ lvcreate -l 1 -n c v /dev/ubdb:
        E|  Physical extent parsing error at .
        rc=5

        $ lvcreate -l 1 -n c v /dev/ubdb:1::2
        E|  Physical extent parsing error at :2.
        rc=5

        $ lvcreate -l 1 -n c v /dev/ubdb:1:2-3-4:5
        E|  Physical extent parsing error at -4:5.
        rc=5

        $ lvcreate -l 1 -n c v @nobody
        E|  No specified PVs have space available.
        rc=5

        $ lvcreate -l 1 -n c v /dev/ubdb /dev/ubdb:7
        E|  Overlapping PE ranges specified (7-7, 0-173) on /dev/ubdb.
        rc=5

        $ pvchange --addtag fast /dev/ubdb
        O|  Physical volume \"/dev/ubdb\" changed$
        O|  1 physical volume changed / 0 physical volumes not changed$
        rc=0

        $ lvcreate -l 3 -n c v @fast
        O|  Logical volume \"c\" created.$
        rc=0

        $ lvcreate -s -L 8M -n s v/a /dev/ubdb
        E|  Physical volumes cannot be chosen for a snapshot: it takes its blocks as it is written to, wherever volume group \"v\" has room.
        rc=5

        $ lvcreate -L 8M -T v/pool /dev/ubdb
        E|  Physical volumes cannot be chosen for a thin pool: it takes its blocks as it is written to, wherever volume group \"v\" has room.
        rc=5

        $ lvcreate -s -L 8M -n s v/a /dev/ubda /dev/ubdb
        O|  Logical volume \"s\" created.$
        rc=0

        $ lvextend -L +4M v/s /dev/ubdb
        E|  Physical volumes cannot be chosen for a snapshot: it takes its blocks as it is written to, wherever volume group \"v\" has room.
        rc=5
",
    );
}

#[test]
fn what_clients_ask_for_is_accepted_or_refused_with_a_reason() {
    let mut world = Fake::new();
    world.run("vgcreate v /dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate --yes -n str -W y -L 20971520b --type striped --stripes 2 --stripesize 65536b v
        O|  Rounding size 20.00 MiB (5 extents) up to stripe boundary size 24.00 MiB (6 extents).$
        O|  Logical volume \"str\" created.$
        rc=0

        $ lvcreate -L 16M -i 3 -I 64k -n s3 v
        E|  Number of stripes (3) must not exceed number of physical volumes (2)
        rc=5

        $ lvcreate -L 8M --type raid5 -i 2 -n r v
        E|  Segment type \"raid5\" is not supported: volumes are linear, striped, mirrored (raid1), thin or snapshots. For two copies of the data use --type raid1; for parity put the physical volumes on RAID (md, hardware).
        rc=5

        $ lvcreate -L 8M --type raid1 --mirrors 1 --nosync --raidintegrity y -n r v
        E|  Integrity is not supported: data has no checksums that could tell which copy is right.
        rc=5

        $ lvcreate -L 8M --type nosuch -n r v
        E|  WARNING: Unrecognised segment type nosuch
        E|  Invalid argument for --type: nosuch
        E|  Error during parsing of command line.
        rc=3

        $ lvcreate -L 8M -m0 -r auto -My --major 253 --minor 9 --alloc anywhere -C y --metadataprofile p -n plain v /dev/ubdb:20-29
        O|  Logical volume \"plain\" created.$
        rc=0

        $ lvcreate -L 8M -n x v /dev/tiny
        E|  Physical Volume \"/dev/tiny\" not found in Volume Group \"v\".
        rc=5

        $ lvcreate --type thin-pool -L 100M -c 1m --discards passdown --errorwhenfull y --poolmetadatasize 4M --poolmetadataspare y -n pool v
        O|  Logical volume \"pool\" created.$
        rc=0

        $ lvcreate --type thin -V 10G --thinpool pool -n t v
        O|  Logical volume \"t\" created.$
        rc=0

        $ lvcreate -L 8M -c 192k -T v/stripes
        O|  Logical volume \"stripes\" created.$
        rc=0

        $ lvcreate -L 8M -c 96k -T v/odd
        E|  Chunk size must be a power of 2 in the range 4K to 512K.
        E|  Run `lvcreate --help' for more information.
        rc=3

        $ lvs --noheadings -o lv_name,lv_chunk_size -S lv_chunk_size>64k v
        O|  pool    512.00k$
        O|  stripes 128.00k$
        rc=0

        $ lvcreate --type snapshot -n nosize v/plain
        E|  No command with matching syntax recognised.  Run 'lvcreate --help' for more information.
        rc=3

        $ lvs --noheadings -o lv_when_full v/pool
        O|  error          $
        rc=0

        $ lvchange --errorwhenfull n v/pool
        O|  Logical volume v/pool changed.$
        rc=0

        $ lvchange --errorwhenfull y v/plain
        E|  Command not permitted on LV v/plain: it is no thin pool.
        rc=5

        $ lvcreate -s --thinpool v/pool -n ext v/plain
        O|  Logical volume \"ext\" created.$
        rc=0

        $ lvs --noheadings -o lv_name,pool_lv,segtype v/ext
        O|  ext  pool thin$
        rc=0

        $ lvcreate --type thin --thinpool nopool -n ext2 v/plain
        E|  Pool nopool not found in Volume group v.
        rc=5

        $ lvchange --alloc normal v/plain
        O|  Logical volume v/plain changed.$
        rc=0

        $ lvchange --resync v/plain
        E|  --resync is not supported: the copies of a mirrored volume are made equal by themselves, after a crash and when a disk comes back. After a disk was replaced: \"lvconvert --repair\".
        rc=5

        $ lvchange --poll n --sysinit --ignorelockingfailure --refresh v/plain
        rc=0

        $ lvremove --nohistory -qq -y v/plain
        rc=0",
    );
}

/// Another caller adds an extent between the look at a volume and the change of it: what was to be added is added to that.
#[test]
fn a_size_that_somebody_else_changed_is_worked_out_anew() {
    let mut world = Fake::new();
    world.run("vgcreate v /dev/ubda");
    world.run("lvcreate -L 100M -n l v");
    world.run("lvcreate -s -L 20M -n s v/l");
    world.others = 3;
    play(
        &mut world,
        "$ lvextend -L +5M v/l
        O|  Rounding size to boundary between physical extents: 8.00 MiB.$
        O|  Size of logical volume v/l changed from 112.00 MiB (28 extents) to 120.00 MiB (30 extents).$
        O|  Logical volume v/l successfully resized.$
        rc=0",
    );
    world.others = 1;
    play(
        &mut world,
        "$ lvreduce -f -l -1 v/l
        O|  Size of logical volume v/l changed from 124.00 MiB (31 extents) to 120.00 MiB (30 extents).$
        O|  Logical volume v/l successfully resized.$
        E|  WARNING: Reducing active logical volume to 116.00 MiB.
        E|  THIS MAY DESTROY YOUR DATA (filesystem etc.)
        E|  WARNING: Reducing active logical volume to 120.00 MiB.
        E|  THIS MAY DESTROY YOUR DATA (filesystem etc.)
        rc=0",
    );
    world.others = 1;
    play(
        &mut world,
        "$ lvresize -l +1 v/s
        O|  Size of logical volume v/s changed from 24.00 MiB (6 extents) to 28.00 MiB (7 extents).$
        O|  Logical volume v/s successfully resized.$
        rc=0",
    );
    // What others did may leave nothing to do.
    world.others = 1;
    play(
        &mut world,
        "$ lvextend -L 124M v/l
        E|  New size (31 extents) matches existing size (31 extents).
        rc=5",
    );
    world.run("lvcreate -L 20M -T v/pool");
    world.run("lvcreate -V 20M -n t -T v/pool");
    world.others = u32::MAX;
    play(
        &mut world,
        "$ lvextend -l +1 v/t
        E|  Logical volume v/t is resized by other commands all the time; try again.
        rc=5",
    );
    assert_eq!(world.turns, ["v"], "the pool was given no name by an option; sizes need no turn");
}

#[test]
fn filesystems_are_resized_with_their_volumes() {
    let mut world = Fake::new();
    world.run("vgcreate v /dev/ubda");
    world.run("lvcreate -L 100M -n l v");
    world.filesystem = Some("ext4");
    play(
        &mut world,
        "$ lvextend -r -L 120M v/l
        O|  Size of logical volume v/l changed from 100.00 MiB (25 extents) to 120.00 MiB (30 extents).$
        O|  Logical volume v/l successfully resized.$
        rc=0

        $ lvextend -r -L 120M v/l
        O|  Size of logical volume v/l unchanged from 120.00 MiB (30 extents).$
        O|  Logical volume v/l successfully resized.$
        rc=0

        $ lvreduce -r -L 100M v/l
        O|  Size of logical volume v/l changed from 120.00 MiB (30 extents) to 100.00 MiB (25 extents).$
        O|  Logical volume v/l successfully resized.$
        rc=0",
    );
    assert_eq!(world.turns, ["v"; 3], "one at a time, tools and requests together");
    let check = "e2fsck -f -p /dev/mapper/v-l";
    let grow = "resize2fs /dev/mapper/v-l";
    assert_eq!(world.tools, [check, grow, check, grow, check, "resize2fs /dev/mapper/v-l 102400K"]);

    world.tools.clear();
    world.mount_point = Some("/mnt");
    play(
        &mut world,
        "$ lvresize --resizefs -L 104M v/l
        O|  Size of logical volume v/l changed from 100.00 MiB (25 extents) to 104.00 MiB (26 extents).$
        O|  Logical volume v/l successfully resized.$
        rc=0

        $ lvreduce -f -r -L 100M v/l
        E|  The filesystem on /dev/mapper/v-l can be reduced only while it is not mounted: umount /mnt.
        rc=5

        $ lvextend -t -r -L 200M v/l
        O|  Size of logical volume v/l changed from 104.00 MiB (26 extents) to 200.00 MiB (50 extents).$
        O|  Logical volume v/l successfully resized.$
        E|  TEST MODE: Metadata will NOT be updated and volumes will not be (de)activated.
        rc=0",
    );
    assert_eq!(world.tools, [grow], "a test runs nothing");

    world.tools.clear();
    world.filesystem = Some("xfs");
    world.mount_point = None;
    play(
        &mut world,
        "$ lvextend -r -n -L 108M v/l
        O|  Size of logical volume v/l changed from 104.00 MiB (26 extents) to 108.00 MiB (27 extents).$
        O|  Logical volume v/l successfully resized.$
        rc=0

        $ lvreduce -r -L 100M v/l
        E|  Xfs filesystem shrinking is unsupported; the filesystem on /dev/mapper/v-l stays as it is.
        rc=5",
    );
    assert_eq!(world.tools, ["mount /dev/mapper/v-l /run/there", "xfs_growfs /run/there", "umount /run/there"]);

    world.filesystem = Some("ext4");
    world.failing_tool = Some("e2fsck");
    play(
        &mut world,
        "$ lvreduce -y -r -L 100M v/l
        E|  e2fsck failed on /dev/mapper/v-l (exit code 8).
        E|  Filesystem check failed.
        rc=5

        $ lvs --noheadings -o lv_size v/l
        O|  108.00m$
        rc=0",
    );
    world.filesystem = None;
    play(
        &mut world,
        "$ lvextend -r -L +4M v/l
        E|  Cannot get FSTYPE of \"/dev/mapper/v-l\".
        rc=5

        $ lvchange -an v/l
        rc=0

        $ lvextend -r -L +4M v/l
        E|  Logical volume v/l must be active to resize its filesystem: lvchange -ay v/l.
        rc=5

        $ lvextend --usepolicies v/l
        E|  Policy-based resize is supported only for snapshot, thin pool and vdo pool volumes.
        rc=5

        $ lvextend --poolmetadatasize +4M v/l
        O|  Logical volume v/l successfully resized.$
        rc=0",
    );
}

#[test]
fn whether_devices_are_open_is_asked_only_where_it_is_shown() {
    let mut world = Fake::new();
    for line in ["vgcreate vg0 /dev/ubda", "lvcreate -y -L 100m -n lv1 vg0", "lvcreate -y -L 20m -s -n s1 vg0/lv1"] {
        assert_eq!(world.run(line).code, 0, "{line}");
    }
    let looks = |world: &mut Fake, line: &str| {
        let before = world.use_checks;
        let printed = world.run(line);
        assert_eq!(printed.code, 0, "{line}: {}", printed.err);
        world.use_checks - before
    };
    for line in [
        "lvs -o lv_name,lv_size vg0",
        "lvs -o lv_name -S lv_size>1m",
        "vgs",
        "vgdisplay -s",
        "pvs",
        "pvdisplay",
        "pvscan",
        "vgscan",
        "lvscan",
        "vgcfgbackup",
        "lvcreate -y -L 20m -s -n s2 vg0/lv1",
        "lvcreate -y -L 20m -n lv2 vg0",
        "lvchange --addtag t vg0/lv1",
        "lvchange -an vg0/lv2",
        "lvrename vg0/lv2 lv3",
        "vgchange -ay vg0",
        "vgmknodes vg0",
    ] {
        assert_eq!(looks(&mut world, line), 0, "{line}");
    }
    for line in [
        "lvs vg0",
        "lvs -o lv_device_open vg0/lv1",
        "lvs -o lv_name -O lv_attr",
        "lvs -o lv_name -S lv_device_open=open",
        "vgs -o vg_name,lv_attr",
        "pvs -o pv_name,lv_attr",
        "lvdisplay vg0/lv1",
        "vgdisplay vg0",
        "vgdisplay -s -S lv_device_open=open vg0",
        "pvdisplay -S lv_device_open=open",
        "lvm fullreport",
        "lvchange --addtag u -S lv_device_open!=open vg0",
        "lvremove -f vg0/s2",
    ] {
        assert_eq!(looks(&mut world, line), 1, "{line}");
    }
}

#[test]
fn whether_everything_is_all_right() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvcreate -L 4M -n log vg0
        O|  Logical volume \"log\" created.$
        rc=0

        $ rowen status
        O|    group: vg0$
        O|    state: serving: 2 active volumes of 2; 17.8% of its space is in use$
        O|     runs: server 1234 for 0 s, keeper 1230, 2 restarts$
        O|    disks: PATH       STATE        SIZE  FAILED READS  WRITES  FLUSHES$
        O|           /dev/ubda  ok     700.00 MiB             0       0        0$
        rc=0

        $ rowen status -x
        O|  all groups are healthy$
        rc=0

        $ rowen status -x nosuch
        E|  Volume group \"nosuch\" not found
        E|  Cannot process volume group nosuch
        rc=5

        $ rowen status ../etc
        E|  Invalid volume group name ../etc.
        E|  Run `rowen status --help' for more information.
        rc=3",
    );
    world.set_faults("vg0", &[Faults { reads: 1, writes: 20, ..Faults::default() }]);
    let process = Process { pid: 99, state: Some('T') };
    world.seen.push(Seen { name: "vg1".into(), server: ServerSeen::Silent(Some(process)), ..Seen::default() });
    world.silent.push("/dev/dead".into());
    play(
        &mut world,
        "$ rowen status -x vg0 vg1
        O|    group: vg0$
        O|    state: serving: 2 active volumes of 2; 17.8% of its space is in use$
        O|    wrong: /dev/ubda failed 1 read and 20 writes since the group was opened$
        O|     next: check the disk (dmesg, smartctl); if it fails, replace it by a copy (ddrescue)$
        O|     runs: server 1234 for 0 s, keeper 1230, 2 restarts$
        O|    disks: PATH       STATE         SIZE  FAILED READS  WRITES  FLUSHES$
        O|           /dev/ubda  errors  700.00 MiB             1      20        0$
        O|  $
        O|    group: vg1$
        O|    state: not answering: its server (process 99, which was stopped by a signal (SIGSTOP)) does not answer$
        O|     next: continue it: kill -CONT 99$
        O|     runs: server 99, no keeper$
        O|  $
        O|    wrong: /dev/dead does not answer, so rowen cannot know whether it belongs to a group$
        O|     next: check the device and its path (dmesg); until it answers, its group may be shown as incomplete$
        rc=1",
    );
    let printed = world.run("rowen status --json vg1");
    assert_eq!(printed.code, 1);
    let json: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(json["groups"][0]["state"], "not-answering");
    assert_eq!(json["groups"][0]["server_pid"], 99);
    assert_eq!(json["groups"].as_array().unwrap().len(), 1);
}

#[test]
fn a_group_that_stopped_does_not_look_well() {
    let mut world = with_group();
    play(
        &mut world,
        "$ lvcreate -qq -T -L 200M -V 40M -n thin vg0/pool
        rc=0",
    );
    world.break_disks("vg0");
    assert_eq!(world.run("lvcreate -qq -L 4M -n more vg0").code, 5);
    play(
        &mut world,
        "$ vgs --noheadings -o vg_name,vg_attr,vg_permissions
        O|  vg0 rz--n- read-only $
        E|  WARNING: Volume group \"vg0\" stopped after a failed write (a superblock could not be written: write failed on physical volume /dev/ubda at byte 0: error 5). Once the disk is well, run \"rowen clear vg0\".
        rc=0

        $ lvs --noheadings -o lv_name,lv_attr,lv_health_status
        O|  lv1  -wi-a---X- unknown        $
        O|  more -wi-----X- unknown        $
        O|  pool twi-aotzF- failed         $
        O|  thin Vwi-a-tzF- failed         $
        E|  WARNING: Volume group \"vg0\" stopped after a failed write (a superblock could not be written: write failed on physical volume /dev/ubda at byte 0: error 5). Once the disk is well, run \"rowen clear vg0\".
        rc=0

        $ rowen status
        O|    group: vg0$
        O|    state: stopped: a superblock could not be written: write failed on physical volume /dev/ubda at byte 0: error 5$
        O|    wrong: it takes no more writes until it is opened again$
        O|     next: once its disks are well: rowen clear vg0$
        O|     runs: server 1234 for 0 s, keeper 1230, 2 restarts$
        O|    disks: PATH       STATE        SIZE  FAILED READS  WRITES  FLUSHES$
        O|           /dev/ubda  ok     700.00 MiB             0       0        0$
        rc=1",
    );
    for line in ["vgchange -ay vg0", "vgreduce --removemissing vg0"] {
        let done = world.run(line);
        assert!(done.code == 5 && done.err.contains("\"vg0\" has stopped. Why"), "{line}: {done:?}");
    }
}
