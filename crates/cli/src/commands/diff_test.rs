//! Transcripts of `rowen diff`, and what it does when its list cannot be written.

use crate::fake::Fake;
use crate::transcript_test::{play, with_group};

/// A volume of which three ranges were written, then a snapshot, and then the first two blocks again.
fn changed() -> Fake {
    let mut world = with_group();
    world.write("lv1", 300);
    assert_eq!(world.run("lvcreate -s -n mon vg0/lv1").code, 0);
    world.write("lv1", 2);
    world
}

#[test]
fn a_list_for_people() {
    play(
        &mut changed(),
        "$ rowen diff vg0/mon lv1
        O|              OFFSET             LENGTH KIND$
        O|                   0               8192 data$
        O|  vg0/lv1 differs from vg0/mon in 1 range: 8.00k of data, 0 of zeros, of 100.00m.$
        rc=0

        $ rowen diff --summary /dev/vg0/mon vg0/lv1
        O|  vg0/lv1 differs from vg0/mon in 1 range: 8.00k of data, 0 of zeros, of 100.00m.$
        rc=0

        $ rowen diff --summary --units b vg0/mon vg0/mon
        O|  vg0/mon differs from vg0/mon in 0 ranges: 0B of data, 0B of zeros, of 104857600B.$
        rc=0

        $ rowen diff --allocated vg0/lv1
        O|              OFFSET             LENGTH KIND$
        O|                   0            1228800 data$
        O|             1228800          103628800 zero$
        O|  vg0/lv1 has blocks in 2 ranges: 1.17m of data, <98.83m of zeros, of 100.00m.$
        rc=0",
    );
}

#[test]
fn lists_for_programs() {
    let mut world = changed();
    assert_eq!(world.run("lvextend -L +4M vg0/lv1").code, 0);
    play(
        &mut world,
        "$ rowen diff --json vg0/mon lv1
        O|{\"group\":\"vg0\",\"new\":\"lv1\",\"old\":\"mon\",\"old_size\":104857600,\"size\":109051904,\"ranges\":[$
        O|{\"start\":0,\"length\":8192,\"data\":true,\"zero\":false},$
        O|{\"start\":104857600,\"length\":4194304,\"data\":false,\"zero\":true}$
        O|],\"summary\":{\"data_bytes\":8192,\"ranges\":2,\"zero_bytes\":4194304}}$
        rc=0

        $ rowen diff --json vg0/mon mon
        O|{\"group\":\"vg0\",\"new\":\"mon\",\"old\":\"mon\",\"old_size\":104857600,\"size\":104857600,\"ranges\":[$
        O|],\"summary\":{\"data_bytes\":0,\"ranges\":0,\"zero_bytes\":0}}$
        rc=0

        $ rowen diff --format json --summary vg0/mon lv1
        O|{\"data_bytes\":8192,\"ranges\":2,\"zero_bytes\":4194304}$
        rc=0

        $ rowen diff --format thin-delta vg0/mon lv1
        O|<superblock uuid=\"\" time=\"0\" transaction=\"0\" data_block_size=\"8\" nr_data_blocks=\"26624\">$
        O|  <diff left=\"2\" right=\"1\">$
        O|    <different begin=\"0\" length=\"2\"/>$
        O|    <same begin=\"2\" length=\"25598\"/>$
        O|    <left_only begin=\"25600\" length=\"1024\"/>$
        O|  </diff>$
        O|</superblock>$
        rc=0",
    );
    for line in ["rowen diff --json vg0/mon lv1", "rowen diff --json vg0/mon mon"] {
        let list: serde_json::Value = serde_json::from_str(&world.run(line).out).unwrap();
        assert_eq!(list["summary"]["ranges"].as_u64().unwrap(), list["ranges"].as_array().unwrap().len() as u64);
    }
    let words = ["diff", "--format", "binary", "vg0/mon", "lv1"].map(str::to_owned);
    let (mut list, mut err) = (Vec::new(), Vec::new());
    assert_eq!(crate::run(&mut world, crate::console::Console::new(&mut list, &mut err, None), "rowen", &words), 0);
    let number = |at: usize| u64::from_le_bytes(list[at..at + 8].try_into().unwrap());
    assert_eq!(&list[..8], b"RwDiff01");
    let numbers: Vec<u64> = (8..list.len()).step_by(8).map(number).collect();
    assert_eq!(numbers, [104 << 20, 0, 8192, 100 << 20, 4 << 20 | 1, 104 << 20, 2]);
}

#[test]
fn what_cannot_be_compared() {
    let mut world = changed();
    for line in ["lvcreate -L 4M -n other vg0", "lvcreate -T -L 8M vg0/pool"] {
        assert_eq!(world.run(line).code, 0, "{line}");
    }
    play(
        &mut world,
        "$ rowen diff vg0/mon other
        E|  Logical volumes vg0/mon and vg0/other have no snapshot in common, so nothing is known of what differs. \"rowen diff --allocated vg0/other\" lists all that vg0/other has.
        rc=5

        $ rowen diff vg0/mon nosuch
        E|  Failed to find logical volume \"vg0/nosuch\"
        rc=5

        $ rowen diff nosuch/mon lv1
        E|  Volume group \"nosuch\" not found
        E|  Cannot process volume group nosuch
        rc=5

        $ rowen diff --allocated vg0/pool
        E|  Logical volume vg0/pool is a pool: give the name of a volume in it.
        rc=5

        $ rowen diff vg0/mon vg1/lv1
        E|  \"vg1/lv1\" is not in volume group \"vg0\": volumes of one group can be compared.
        E|  Run `rowen diff --help' for more information.
        rc=3

        $ rowen diff vg0/mon
        E|  Please specify two logical volumes, the older one first, or one with --allocated.
        E|  Run `rowen diff --help' for more information.
        rc=3

        $ rowen diff mon lv1
        E|  Please specify a logical volume path: \"mon\" has no volume group.
        E|  Run `rowen diff --help' for more information.
        rc=3

        $ rowen diff --json --format binary vg0/mon lv1
        E|  --json is the same as --format json: please choose one form.
        E|  Run `rowen diff --help' for more information.
        rc=3

        $ rowen diff --summary --format binary vg0/mon lv1
        E|  --summary has the forms table and json only.
        E|  Run `rowen diff --help' for more information.
        rc=3

        $ rowen diff --format qcow2 vg0/mon lv1
        E|  Invalid argument for --format: qcow2
        E|  Error during parsing of command line.
        rc=3",
    );
}

/// A disk that is full, or a reader that has gone.
struct Full(std::io::ErrorKind);

impl std::io::Write for Full {
    fn write(&mut self, _bytes: &[u8]) -> std::io::Result<usize> {
        Err(self.0.into())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Err(self.0.into())
    }
}

#[test]
fn a_list_that_is_not_written_whole_is_a_failure() {
    let words = ["diff", "--json", "vg0/mon", "lv1"].map(str::to_owned);
    for (kind, code) in [(std::io::ErrorKind::StorageFull, 5), (std::io::ErrorKind::BrokenPipe, 0)] {
        let (mut world, mut err) = (changed(), Vec::new());
        let mut out = Full(kind);
        let console = crate::console::Console::new(&mut out, &mut err, None);
        assert_eq!(crate::run(&mut world, console, "rowen", &words), code);
        assert_eq!(String::from_utf8(err).unwrap().contains("Cannot write the list"), code == 5);
    }
}
