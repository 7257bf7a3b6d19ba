//! Holds by name, and those of what is sent.
//!
//! Rules HO3 and SD2.

use crate::commands::transfer_world::{ok, receive, run, send, token, two_groups, with_marks, write};
use crate::console::Console;
use crate::fake::Fake;
use rowen_engine::planted::must_be_found;
use std::io;

/// A reader that ends after this many bytes.
struct Short(usize);

impl io::Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn holds(world: &mut Fake, name: &str) -> String {
    let told = world.run(&format!("lvs --noheadings -o holds vg0/{name}"));
    assert_eq!(told.code, 0, "{}", told.err);
    told.out.trim().to_owned()
}

/// HO3: of two snapshots of the same contents the older one names them, also for the other one.
fn names_stay() {
    let mut world = two_groups();
    for line in ["lvcreate -s -n wed vg0/db", "lvcreate -s -n thu vg0/db", "rowen hold -n a vg0/thu"] {
        ok(&mut world, line);
    }
    let point = world.report("vg0").volume("thu").unwrap().point_uuid;
    let refused = world.run("lvremove -y vg0/wed");
    let why = "vg0/wed has the same contents as vg0/thu, which is held (a)";
    assert!(refused.code == 5 && refused.err.contains(why), "{refused:?}");
    let refused = world.run("lvconvert --merge -y vg0/wed");
    assert!(refused.code == 5 && refused.err.contains("cannot be merged"), "{refused:?}");
    assert_eq!(world.report("vg0").volume("thu").unwrap().point_uuid, point);
    // What names nothing of it goes, and all does when nobody needs it.
    for line in [
        "lvcreate -s -n fri vg0/db",
        "lvremove -y vg0/fri vg0/mon",
        "rowen release --all vg0/thu",
        "lvremove -y vg0/wed",
    ] {
        ok(&mut world, line);
    }
}

#[test]
fn what_names_a_held_snapshot_stays() {
    names_stay();
    must_be_found("names_of_held_go", names_stay);
}

#[test]
fn a_snapshot_is_held_until_it_is_released() {
    let mut world = two_groups();
    let said = |world: &mut Fake, line: &str, code: u8, part: &str| {
        let done = world.run(line);
        assert!(done.code == code && format!("{}{}", done.out, done.err).contains(part), "{line}: {done:?}");
    };
    said(&mut world, "rowen hold -n a vg0/mon vg0/tue", 0, "Logical volume vg0/mon is held by a.");
    said(&mut world, "rowen hold -n b vg0/mon", 0, "held by b");
    said(&mut world, "rowen hold -n b vg0/mon", 0, "held by b already");
    assert_eq!((holds(&mut world, "mon"), holds(&mut world, "tue")), ("a,b".into(), "a".into()));
    let refused = [
        "lvremove -f vg0/mon",
        "lvconvert --merge -y vg0/mon",
        "rowen revert -y vg0/mon db",
        "vgremove -f vg0",
        "lvremove -ff vg0",
    ];
    for line in refused {
        let done = world.run(line);
        assert!(done.code == 5 && done.err.contains("vg0/mon is held (a, b) and cannot be"), "{line}: {done:?}");
    }
    // The group is as it was, but for what nobody held.
    assert_eq!(world.report("vg0").volumes.len(), 2, "db went with lvremove -ff, as one asked");
    said(&mut world, "rowen release -n c vg0/mon", 0, "vg0/mon is not held by c.");
    said(&mut world, "rowen release -n a vg0", 0, "vg0/tue is no longer held by a.");
    assert_eq!((holds(&mut world, "mon"), holds(&mut world, "tue")), ("b".into(), String::new()));
    said(&mut world, "rowen release --all vg0/mon", 0, "no longer held by b");
    said(&mut world, "rowen release --all vg0", 0, "Nothing in volume group \"vg0\" is held so.");
    ok(&mut world, "vgremove -f vg0");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut world = two_groups();
    for (line, code, part) in [
        ("rowen hold vg0/mon", 3, "Please say by whom"),
        ("rowen hold -n a", 3, "Please specify snapshots"),
        ("rowen hold -n a vg0", 3, "is a volume group"),
        ("rowen hold -n a/b vg0/mon", 3, "is no name of a hold"),
        ("rowen hold -n  vg0/mon", 3, ""),
        ("rowen hold -n a:9 vg0/mon", 3, "is no name of a hold"),
        ("rowen hold -n a vg0/db", 5, "is no snapshot"),
        ("rowen hold -n a vg0/none", 5, "Failed to find"),
        ("rowen release vg0/mon", 3, "Please say which hold ends"),
        ("rowen release -n a --all vg0/mon", 3, "Please say which hold ends"),
        ("rowen release -n a", 3, "Please specify snapshots"),
        ("lvchange --addtag hold=a/b vg0/mon", 5, "is no name of a hold"),
        ("lvchange --addtag hold=a vg0/db", 5, "is no snapshot"),
    ] {
        let done = world.run(line);
        assert!(done.code == code && done.err.contains(part), "{line}: {done:?}");
    }
    write(&world, ("vg0", "mon"), 0, 1, 9);
    let done = world.run("rowen hold -n a vg0/mon");
    assert!(done.code == 5 && done.err.contains("was written to since it was taken"), "{done:?}");
    assert!(world.report("vg0").volumes.iter().all(|volume| volume.attributes.tags.is_empty()));
}

/// What is sent whole leaves no hold. What was cut is held, until a rest of it is sent whole.
fn held_while_sent() {
    let (mut world, stream) = with_marks();
    assert_eq!((holds(&mut world, "mon"), holds(&mut world, "wed")), (String::new(), String::new()));
    let words = ["send", "-i", "mon", "vg0/wed"].map(str::to_owned);
    let (mut out, mut err) = (Short(stream.len() / 2), Vec::new());
    assert_eq!(crate::run(&mut world, Console::new(&mut out, &mut err, None), "rowen", &words), 5);
    let name = holds(&mut world, "wed");
    assert!(name.starts_with("send-") && name == holds(&mut world, "mon"), "SD2: {name}");
    let done = world.run("lvremove -f vg0/wed");
    assert!(done.code == 5 && done.err.contains(&name), "SD2: {done:?}");
    assert_eq!(receive(&mut world, "receive vg1/db", &stream[..stream.len() / 2]).code, 5);
    let word = token(&mut world, "vg1/db").unwrap();
    let rest = send(&mut world, &format!("send --resume {word}"));
    assert_eq!(receive(&mut world, "receive vg1/db", &rest).code, 0);
}

#[test]
fn what_is_sent_is_held_meanwhile() {
    held_while_sent();
}

#[test]
fn what_is_refused_is_not_held() {
    let mut world = two_groups();
    // Its reader ended at once.
    let words = ["send", "vg0/tue"].map(str::to_owned);
    let (mut out, mut err) = (Short(1000), Vec::new());
    assert_eq!(crate::run(&mut world, Console::new(&mut out, &mut err, None), "rowen", &words), 5);
    assert_eq!(holds(&mut world, "tue"), "");
    ok(&mut world, "lvcreate -L 4M -n other vg0");
    ok(&mut world, "lvcreate -s -n of-other vg0/other");
    let (_, err, code) = run(&mut world, "send -i of-other vg0/tue", None);
    assert!(code == 5 && err.contains("have no snapshot in common"), "{err}");
    for name in ["tue", "of-other"] {
        assert_eq!(holds(&mut world, name), "");
    }
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("sent_unheld", held_while_sent);
}
