//! Copies of a group's metadata, as files: whole, bounded, and nobody waits for them.
//!
//! Rules A1 to A5.

use super::Test;
use super::world::{MIB, Pause, Vg, kill, lives, wait_for};
use rowen_control::protocol::{GroupChange, Request, VolumeKind};
use rowen_control::settings::Settings;
use rowen_host::archive;
use rustix::process::Signal;
use std::fs;

pub const TESTS: &[Test] = &[
    ("copies::they_are_whole_and_bounded", they_are_whole_and_bounded),
    ("copies::nobody_waits_for_them", nobody_waits_for_them),
    ("copies::a_late_one_replaces_no_newer_one", a_late_one_replaces_no_newer_one),
];

/// A1, A2 and A3
fn they_are_whole_and_bounded() {
    let group = format!("copies{}", std::process::id());
    let mut settings = Settings { retain_days: 0, retain_min: 5, ..Settings::default() };
    let newest = archive::backup_path(&group);
    let text = |n: usize| format!("document {n}\n");
    for n in 0..20 {
        archive::keep(&group, &text(n), (&settings).into()).unwrap();
        assert_eq!(fs::read_to_string(&newest).unwrap(), text(n));
    }
    let older = || -> Vec<String> {
        archive::archived(&group).unwrap().iter().map(|path| fs::read_to_string(path).unwrap()).collect()
    };
    assert_eq!(older(), (14..19).map(text).collect::<Vec<_>>());
    settings.retain_min = u64::MAX;
    (20..140).for_each(|n| archive::keep(&group, &text(n), (&settings).into()).unwrap());
    assert_eq!(older().len(), archive::MAX_FILES);
    archive::retire(&group, (&settings).into()).unwrap();
    assert!(!newest.exists());
    assert_eq!(older().last(), Some(&text(139)));
    archive::archived(&group).unwrap().iter().for_each(|path| fs::remove_file(path).unwrap());
}

fn tag(vg: &Vg, tag: &str) {
    let change = GroupChange { add_tags: vec![tag.into()], ..GroupChange::default() };
    vg.ask(Request::ChangeGroup { change });
}

fn has_copy_with(vg: &Vg, word: &str) -> bool {
    let newest = fs::read_to_string(archive::backup_path(&vg.name));
    newest.is_ok_and(|text| text.contains(word))
}

/// A4: as when the files lie on a volume of the group that nobody serves.
fn nobody_waits_for_them() {
    let vg = Vg::make(&[64 * MIB]);
    vg.create("lv", VolumeKind::Thin, 16 * MIB, true);
    wait_for("a copy", || has_copy_with(&vg, "lv {"));
    let _in_use = fs::File::open(vg.node("lv")).unwrap();
    let pause = Pause::at("archiving");
    tag(&vg, "first");
    let helper = pause.wait();
    tag(&vg, "second");
    let server = vg.server();
    vg.signal_server(Signal::TERM);
    wait_for("its end", || !lives(server));
    wait_for("a successor", || vg.server() != server);
    assert!(lives(helper));
    tag(&vg, "third");
    drop(pause);
    wait_for("the copy", || has_copy_with(&vg, "third"));
    assert!(vg.log().contains("the last copy of the metadata is late"), "{}", vg.log());
}

/// A5
fn a_late_one_replaces_no_newer_one() {
    let vg = Vg::make(&[64 * MIB]);
    vg.create("lv", VolumeKind::Thin, 16 * MIB, false);
    wait_for("a copy", || has_copy_with(&vg, "lv {"));
    let pause = Pause::at("archiving");
    tag(&vg, "older_tag");
    let late = pause.wait();
    let dead = vg.signal_server(Signal::KILL);
    wait_for("its end", || !lives(dead));
    // Not before: the kernel lets a process go on whose group is orphaned.
    kill(late, Signal::STOP);
    drop(pause);
    tag(&vg, "newer_tag");
    wait_for("the newer copy", || has_copy_with(&vg, "newer_tag"));
    kill(late, Signal::CONT);
    wait_for("the late helper's end", || !lives(late));
    assert!(has_copy_with(&vg, "newer_tag"), "an older copy is the newest");
}
