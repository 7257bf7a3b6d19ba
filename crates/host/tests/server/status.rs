//! Looks at all groups at once.

use super::Test;
use super::stacks::Stopped;
use super::world::{MIB, MIB_BLOCKS, Vg, wait_for};
use rowen_control::protocol::{Request, VolumeKind};
use rowen_control::status::{IoSeen, MembersSeen, Seen, ServerSeen, Survey};
use rowen_host::{paths, server, survey};
use std::fs;
use std::io::{Seek, SeekFrom};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("status::what_hangs_is_named_and_the_rest_shown", what_hangs_is_named_and_the_rest_shown),
    ("status::losetup_waits_for_no_server", losetup_waits_for_no_server),
    ("status::to_look_changes_nothing", to_look_changes_nothing),
];

fn seen<'a>(survey: &'a Survey, vg: &Vg) -> &'a Seen {
    survey.groups.iter().find(|seen| seen.name == vg.name).unwrap_or_else(|| panic!("{}: {survey:?}", vg.name))
}

/// ST3
fn what_hangs_is_named_and_the_rest_shown() {
    let (hangs, vg) = (Vg::make(&[64 * MIB]), Vg::make(&[64 * MIB]));
    hangs.create("lv", VolumeKind::Thick, 16 * MIB, true);
    vg.create("lv", VolumeKind::Thick, 16 * MIB, true);
    let stopped = Stopped::all_of(&hangs);
    let (begun, look) = (Instant::now(), std::thread::spawn(|| survey::survey(&[])));
    wait_for("a look", || look.is_finished());
    assert!(begun.elapsed() < Duration::from_millis(2500), "it took {:?}", begun.elapsed());
    let found = look.join().unwrap();
    let (begun, io) = (Instant::now(), survey::io(&[hangs.name.clone(), vg.name.clone(), "nosuch".into()]));
    assert!(begun.elapsed() < Duration::from_millis(2500), "it took {:?}", begun.elapsed());
    assert_eq!((&io[&hangs.name], &io["nosuch"]), (&IoSeen::Silent, &IoSeen::None));
    assert!(matches!(&io[&vg.name], IoSeen::Answered { io, .. } if io.volumes.len() == 1), "{io:?}");
    drop(stopped);
    let silent = seen(&found, &hangs);
    let is_silent = matches!(silent.server, ServerSeen::Silent(Some(process)) if process.state == Some('T'));
    assert!(is_silent, "{silent:?}");
    assert!(silent.keeper.is_some_and(|keeper| keeper.process.state == Some('T') && keeper.answer.is_none()));
    let served = seen(&found, &vg);
    assert!(matches!(served.server, ServerSeen::Answered { .. }), "{served:?}");
    assert!(matches!(&served.members, MembersSeen::Found(pvs) if pvs.len() == 1 && pvs[0].is_there), "{served:?}");
    assert!(served.keeper.is_some_and(|keeper| keeper.answer.is_some_and(|told| told.held == 1)), "{served:?}");
    assert_eq!(served.devices, 1);
    assert!(found.troubles.is_empty() && found.silent_devices.is_empty(), "{found:?}");
}

/// FU5
fn losetup_waits_for_no_server() {
    let hangs = Vg::make(&[64 * MIB]);
    let node = hangs.create("lv", VolumeKind::Thick, 16 * MIB, true);
    let resize =
        Request::Resize { name: "lv".into(), blocks: 20 * MIB_BLOCKS, force: true, on: Vec::new(), seen: None };
    hangs.ask(resize);
    let size = fs::File::open(&node).unwrap().seek(SeekFrom::End(0)).unwrap();
    assert_eq!(size, 20 * MIB, "the kernel has asked for the new size");
    let stopped = Stopped::all_of(&hangs);
    let mut child = Command::new("losetup").arg("-a").stdout(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    let mut ended = None;
    while ended.is_none() && Instant::now() < until {
        ended = child.try_wait().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(stopped);
    child.wait().unwrap();
    assert!(ended.is_some_and(|status| status.success()), "it waited: {ended:?}");
}

/// ST2
fn to_look_changes_nothing() {
    let vg = Vg::make(&[64 * MIB]);
    // A group that was never served has no directory, and gets none.
    let directory = paths::group_dir(&vg.name);
    // A survey gives up devices that are not read in time, as on a machine that is busy.
    let is_seen = || {
        let survey = survey::survey(&[]);
        let seen = survey.groups.iter().find(|seen| seen.name == vg.name);
        seen.is_some_and(|seen| matches!(seen.server, ServerSeen::None))
    };
    wait_for("the group to be seen", is_seen);
    assert!(!directory.exists());
    vg.create("lv", VolumeKind::Thick, 16 * MIB, false);
    vg.ask(Request::Stop);
    wait_for("the server's end", || !matches!(seen(&survey::survey(&[]), &vg).server, ServerSeen::Opening { .. }));
    let files = || {
        let entries = fs::read_dir(&directory).unwrap().flatten();
        let mut files: Vec<_> =
            entries.map(|entry| (entry.file_name(), entry.metadata().unwrap().modified().unwrap())).collect();
        files.sort();
        files
    };
    let before = files();
    let found = survey::survey(std::slice::from_ref(&vg.name));
    assert_eq!(found.groups.len(), 1, "{found:?}");
    assert!(matches!(found.groups[0].server, ServerSeen::None), "{found:?}");
    assert_eq!(files(), before);
    assert!(server::connect(&vg.name).unwrap().is_none());
}
