use crate::fake::Fake;

/// A group with a volume of each kind. Sizes and lines are those of LVM 2.03.16.
fn world() -> Fake {
    let mut world = Fake::new();
    for line in [
        "pvcreate /dev/ubdb",
        "vgcreate vt /dev/ubda",
        "lvcreate -L 100M -n lin vt",
        "lvcreate -s -L 12M -n snap vt/lin",
        "lvcreate -T -L 40M vt/pool",
        "lvcreate -V 20M -T vt/pool -n thin",
        "lvcreate -s -n tsnap vt/thin",
        "lvcreate -L 8M -n big vt -an",
        "lvchange -pr vt/big",
    ] {
        let printed = world.run(line);
        assert_eq!(printed.code, 0, "{line}: {printed:?}");
    }
    world
}

/// What a command shows, without lines that have an identifier in them and without the blanks at their ends.
fn shown(world: &mut Fake, line: &str) -> String {
    let printed = world.run(line);
    assert_eq!((printed.code, printed.err.as_str()), (0, ""), "{line}");
    let lines = printed.out.lines().filter(|line| !line.contains("UUID"));
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn pages_of_volumes() {
    let mut world = world();
    assert_eq!(
        shown(&mut world, "lvdisplay vt/lin"),
        "  --- Logical volume ---
  LV Path                /dev/vt/lin
  LV Name                lin
  VG Name                vt
  LV Write Access        read/write
  LV Creation host, time , 2026-11-20 18:13:34 +0000
  LV snapshot status     source of
                         snap [active]
  LV Status              available
  # open                 0
  LV Size                100.00 MiB
  Current LE             25
  Segments               1
  Allocation             inherit
  Read ahead sectors     auto
  Block device           7:0

"
    );
    let page = shown(&mut world, "lvdisplay -m vt/snap");
    for line in [
        "  LV snapshot status     active destination for lin\n",
        "  LV Size                100.00 MiB\n  Current LE             25\n  COW-table size         12.00 MiB\n  COW-table LE           3\n",
        "  Allocated to snapshot  0.00%\n  Snapshot chunk size",
        "  --- Segments ---\n  Logical extents 0 to 2:\n    Type\t\tlinear\n    Physical volume\t/dev/ubda\n    Physical extents\t5 to 7\n",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    let page = shown(&mut world, "lvdisplay --units b vt/tsnap");
    for line in [
        "  LV Pool name           pool\n  LV Thin origin name    thin\n  LV Status              NOT available\n",
        "  LV Size                20971520 B\n",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    let page = shown(&mut world, "lvdisplay vt/pool");
    assert!(!page.contains("LV Path") && page.contains("  Allocated pool data    0.00%\n"), "{page}");
    assert!(
        shown(&mut world, "lvdisplay -m vt/thin")
            .contains("  Virtual extents 0 to 4:\n    Type\t\tthin\n    Device ID\t\t")
    );
}

#[test]
fn lines_of_colons() {
    let mut world = world();
    assert_eq!(
        shown(&mut world, "lvdisplay -c"),
        "  /dev/vt/lin:vt:3:1:-1:0:204800:25:-1:0:-1:7:0
  /dev/vt/snap:vt:3:1:-1:0:24576:3:-1:0:-1:7:1
  /dev/vt/pool:vt:7:1:-1:0:81920:10:-1:0:-1:-1:-1
  /dev/vt/thin:vt:3:1:-1:0:40960:5:-1:0:-1:7:2
  /dev/vt/tsnap:vt:3:0:-1:0:40960:5:-1:0:-1:-1:-1
  /dev/vt/big:vt:1:0:-1:0:16384:2:-1:0:-1:-1:-1
"
    );
    assert_eq!(shown(&mut world, "lvdisplay -S lv_name=lin -c").lines().count(), 1);
    let line = shown(&mut world, "vgdisplay -c");
    assert!(line.starts_with("  vt:r/w:772:-1:0:6:0:-1:0:1:1:712704:4096:174:35:139:"), "{line}");
    let lines = shown(&mut world, "pvdisplay -c");
    assert!(lines.starts_with("  /dev/ubda:vt:1433600:-1:8:8:-1:4096:174:139:35:"), "{lines}");
    assert!(lines.contains("\n  /dev/ubdb::1433600:-1:0:0:-1:0:0:0:0:"), "{lines}");
}

#[test]
fn pages_of_groups_and_physical_volumes() {
    let mut world = world();
    assert_eq!(
        shown(&mut world, "vgdisplay vt"),
        "  --- Volume group ---
  VG Name               vt
  System ID
  Format                lvm2
  Metadata Areas        1
  Metadata Sequence No  4
  VG Access             read/write
  VG Status             resizable
  MAX LV                0
  Cur LV                6
  Open LV               0
  Max PV                0
  Cur PV                1
  Act PV                1
  VG Size               696.00 MiB
  PE Size               4.00 MiB
  Total PE              174
  Alloc PE / Size       35 / 140.00 MiB
  Free  PE / Size       139 / 556.00 MiB

"
    );
    assert_eq!(shown(&mut world, "vgdisplay -s"), "  \"vt\" 696.00 MiB [140.00 MiB used / 556.00 MiB free]\n");
    assert_eq!(
        shown(&mut world, "vgdisplay -s --units k"),
        "  \"vt\" 712704.00 KiB [143360.00 KiB used / 569344.00 KiB free]\n"
    );
    assert!(
        shown(&mut world, "vgdisplay -v vt")
            .contains("  --- Physical volumes ---\n  PV Name               /dev/ubda\n")
    );
    assert_eq!(
        shown(&mut world, "pvdisplay /dev/ubda"),
        "  --- Physical volume ---
  PV Name               /dev/ubda
  VG Name               vt
  PV Size               700.00 MiB / not usable 4.00 MiB
  Allocatable           yes
  PE Size               4.00 MiB
  Total PE              174
  Free PE               139
  Allocated PE          35

"
    );
    assert_eq!(
        shown(&mut world, "pvdisplay /dev/ubdb"),
        "  \"/dev/ubdb\" is a new physical volume of \"700.00 MiB\"
  --- NEW Physical volume ---
  PV Name               /dev/ubdb
  VG Name
  PV Size               700.00 MiB
  Allocatable           NO
  PE Size               0
  Total PE              0
  Free PE               0
  Allocated PE          0

"
    );
    let maps = shown(&mut world, "pvdisplay -m /dev/ubda");
    assert!(
        maps.contains("  Physical extent 5 to 29:\n    Logical volume\t/dev/vt/lin\n    Logical extents\t0 to 24\n"),
        "{maps}"
    );
    assert_eq!(
        shown(&mut world, "pvdisplay -s"),
        "  Device \"/dev/ubda\" has a capacity of 556.00 MiB\n  Device \"/dev/ubdb\" has a capacity of 700.00 MiB\n"
    );
}

#[test]
fn columns_are_the_reports() {
    let mut world = world();
    for (display, report) in [("lvdisplay -C", "lvs"), ("vgdisplay -C", "vgs"), ("pvdisplay -C", "pvs")] {
        assert_eq!(shown(&mut world, display), shown(&mut world, report));
    }
    assert_eq!(shown(&mut world, "lvdisplay --noheading -C -o Attr --readonly vt/lin"), "  owi-a-s---\n");
    assert_eq!(
        shown(&mut world, "pvdisplay --units b --columns --noheadings --nosuffix -o dev_size /dev/ubda"),
        "  734003200\n"
    );
    for (line, sentence) in [
        ("lvdisplay -c -m", "Options -c and -m are incompatible."),
        ("lvdisplay -c -C", "Incompatible options selected"),
        ("lvdisplay -o lv_name", "Incompatible options selected."),
        ("vgdisplay -c -s", "Option -c is not allowed with option -s"),
        ("pvdisplay -c -m", "Option -c not allowed with option -m"),
        ("pvdisplay -a", "Incompatible options selected"),
    ] {
        let printed = world.run(line);
        assert_eq!((printed.code, printed.err.lines().next().map(str::trim)), (3, Some(sentence)), "{line}");
    }
    assert_eq!(world.run("lvdisplay vt/nosuch").err, "  Failed to find logical volume \"vt/nosuch\"\n");
    assert_eq!(world.run("lvdisplay vt/nosuch").code, 5);
}

#[test]
fn scans() {
    let mut world = world();
    assert_eq!(
        world.run("lvscan").out,
        "  ACTIVE   Original '/dev/vt/lin' [100.00 MiB] inherit
  ACTIVE   Snapshot '/dev/vt/snap' [12.00 MiB] inherit
  ACTIVE            '/dev/vt/pool' [40.00 MiB] inherit
  ACTIVE            '/dev/vt/thin' [20.00 MiB] inherit
  inactive          '/dev/vt/tsnap' [20.00 MiB] inherit
  inactive          '/dev/vt/big' [8.00 MiB] inherit
"
    );
    assert_eq!(world.run("vgscan --mknodes").out, "  Found volume group \"vt\" using metadata type lvm2\n");
    assert_eq!(
        world.run("pvscan").out,
        "  PV /dev/ubda   VG vt              lvm2 [696.00 MiB / 556.00 MiB free]
  PV /dev/ubdb                      lvm2 [700.00 MiB]
  Total: 2 [1.36 GiB] / in use: 1 [696.00 MiB] / in no VG: 1 [700.00 MiB]
"
    );
    assert_eq!(world.run("pvscan --listvg /dev/ubda").out, "  VG vt\n");
    let printed = world.run("pvscan -n");
    assert_eq!(printed.err, "  WARNING: only considering physical volumes in no volume group\n");
    assert!(
        printed.out.ends_with("  Total: 1 [700.00 MiB] / in use: 0 [0   ] / in no VG: 1 [700.00 MiB]\n"),
        "{}",
        printed.out
    );
    assert_eq!(world.run("pvscan -e").out, "  No matching physical volumes found\n");
    assert!(
        world
            .run("pvscan --cache -aay /dev/ubda")
            .out
            .ends_with("  5 logical volume(s) in volume group \"vt\" now active\n")
    );
    for line in ["lvscan vt", "vgscan vt", "pvscan /dev/ubda"] {
        let printed = world.run(line);
        let word = line.split_once(' ').unwrap().1;
        assert_eq!((printed.code, printed.err), (3, format!("  Command does not accept argument: {word}.\n")));
    }
}
