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

#[test]
fn a_mirrored_volume_is_shown_as_lvm_shows_one() {
    let mut world = made("/dev/ubda /dev/ubdb");
    play(
        &mut world,
        "$ lvcreate --type raid1 -L 8M -n m v
        O|  Logical volume \"m\" created.$
        rc=0

        $ lvs v
        rc=0

        $ lvs -a -o lv_name,segtype,stripes,data_copies,region_size,copy_percent,sync_percent,raid_sync_action,lv_health_status,devices v/m
        rc=0

        $ lvs --noheadings -o lv_layout,lv_role,lv_initial_image_sync,seg_pe_ranges,mirror_log v/m
        rc=0

        $ vgs -o vg_name,vg_size,vg_free,vg_mirrored,vg_mirrored_free v
        rc=0

        $ pvs -o pv_name,pv_size,pv_free,pv_used v
        rc=0

        $ pvs --segments -o pv_name,pvseg_start,pvseg_size,lv_name,segtype v
        rc=0

        $ lvdisplay v/m
        rc=0

        $ lvdisplay -m v/m
        rc=0

        $ vgcfgbackup -f /tmp/m v
        rc=0",
    );
}

#[test]
fn probe() {
    let Ok(script) = std::fs::read_to_string("/root/w/c-logs/probe") else { return };
    let mut world = made("/dev/ubda /dev/ubdb");
    let mut label = None;
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.split_once(' ') {
            Some(("NEW", disks)) => world = made(disks),
            Some(("LOSE", disk)) => label = Some(world.lose_disk("v", disk)),
            Some(("FOUND", _)) => world.labels.push(label.take().unwrap()),
            Some(("WRITE", volume)) => world.write(volume, 300),
            Some(("REPORT", _)) => println!("{:#?}", world.report("v").mirrors),
            _ => {
                let printed = world.run(line);
                println!("        $ {line}");
                printed.out.lines().for_each(|line| println!("        O|{line}$"));
                printed.err.lines().for_each(|line| println!("        E|{line}"));
                println!("        rc={}\n", printed.code);
            }
        }
    }
}
