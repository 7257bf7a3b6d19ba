//! Commands and events of a group are written down, whichever process dies. No request waits for that.
//!
//! Rules HS1, HS2, HS4 and HS5.

use super::Test;
use super::world::{MIB, Pause, Vg, keeper_of, kill, kill_both, lives, wait_for};
use rowen_control::history::{Book, Command, Event, merge, read, write};
use rowen_control::protocol::{GroupChange, Request, VolumeKind};
use rowen_control::uuids;
use rowen_engine::units::Uuid;
use rowen_host::history::{self, MAX_BYTES, MAX_GROUPS};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub const TESTS: &[Test] = &[
    ("history::commands_and_events_outlive_servers", commands_and_events_outlive_servers),
    ("history::deaths_are_reported", deaths_are_reported),
    ("history::nobody_waits_for_the_history", nobody_waits_for_the_history),
    ("history::files_are_bounded", files_are_bounded),
    ("history::what_is_not_ours_is_left_alone", what_is_not_ours_is_left_alone),
    ("history::a_line_that_was_cut_short_costs_itself", a_line_that_was_cut_short_costs_itself),
];

fn uuid(vg: &Vg) -> Uuid {
    vg.report().uuid
}

fn commands(uuid: Uuid) -> Vec<Command> {
    let name = uuids::lvm_text(uuid);
    let kept = history::read().into_iter().find(|kept| kept.uuid == name).unwrap_or_default();
    assert_eq!(kept.troubles, Vec::<String>::new());
    merge(read::<Command>(&kept.commands).lines)
}

pub fn events(uuid: Uuid) -> Vec<Event> {
    let name = uuids::lvm_text(uuid);
    let kept = history::read().into_iter().find(|kept| kept.uuid == name).unwrap_or_default();
    read::<Event>(&kept.events).lines
}

fn requests(uuid: Uuid) -> Vec<String> {
    commands(uuid).into_iter().map(|command| command.request).collect()
}

fn tag(vg: &Vg, tag: &str) {
    let change = GroupChange { add_tags: vec![tag.into()], ..GroupChange::default() };
    vg.ask(Request::ChangeGroup { change });
}

fn commands_and_events_outlive_servers() {
    let vg = Vg::make(&[64 * MIB]);
    let uuid = uuid(&vg);
    vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    vg.refusal(Request::Remove { names: vec!["none".into()] });
    vg.ask(Request::Checkpoint);
    // What a killed server had not handed to its helper yet is lost.
    wait_for("the lines before the kill", || requests(uuid).len() == 2 && !events(uuid).is_empty());
    let first = vg.signal_server(Signal::KILL);
    wait_for("a successor", || !lives(first) && vg.server() != first);
    tag(&vg, "a");
    // A server that ends waits for its lines, but not for ever.
    wait_for("the line of the tag", || requests(uuid).len() == 3 && events(uuid).len() == 4);
    let second = vg.signal_server(Signal::TERM);
    // In use by nobody: the volume goes, and its mark stays.
    wait_for("its end", || !lives(second));
    vg.ask(Request::Deactivate { names: None });
    wait_for("the line before the last", || requests(uuid).len() == 4);
    vg.ask(Request::Stop);
    wait_for("all lines", || requests(uuid).len() == 5);
    assert_eq!(requests(uuid), ["create-volume", "remove", "change-group", "deactivate", "stop"]);
    let told = commands(uuid);
    let failures: Vec<bool> = told.iter().map(|command| command.failure.is_some()).collect();
    assert_eq!(failures, [false, true, false, false, false], "{told:?}");
    assert!(told.iter().all(|command| command.group == vg.name && command.pid == std::process::id()), "{told:?}");
    wait_for("the last event", || events(uuid).last().is_some_and(|event| event.event == "server-ended"));
    let kinds: Vec<String> = events(uuid).into_iter().map(|event| event.event).collect();
    let expected = [
        "server-started",
        "taken-over",
        "server-started",
        "server-died",
        "server-ended",
        "server-started",
        "server-ended",
    ];
    assert_eq!(kinds, expected);
    // A group that is removed is remembered, and who removed it.
    vg.ask(Request::Destroy { force: true });
    wait_for("the last line", || requests(uuid).last().is_some_and(|word| word == "destroy"));
}

/// HS6
fn deaths_are_reported() {
    let vg = Vg::make(&[64 * MIB]);
    let uuid = uuid(&vg);
    vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    let told = |kind: &str, words: &str| {
        let events = events(uuid);
        events.iter().any(|event| event.event == kind && event.message.contains(words))
    };
    let dead = vg.signal_server(Signal::KILL);
    wait_for("the server's death", || told("server-died", "without a message"));
    assert!(!lives(dead));
    let keeper = keeper_of(&vg);
    kill(keeper, Signal::KILL);
    wait_for("the keeper's death", || told("keeper-died", "another holds its devices"));
    assert!(
        vg.log().contains("its keeper started this server") && vg.log().contains("died; another holds"),
        "{}",
        vg.log()
    );
    // One that ends in order has not died.
    let before = events(uuid).iter().filter(|event| event.event.ends_with("-died")).count();
    vg.ask(Request::Deactivate { names: None });
    vg.ask(Request::Stop);
    vg.report();
    assert_eq!(events(uuid).iter().filter(|event| event.event.ends_with("-died")).count(), before);
}

/// HS1, HS5
fn nobody_waits_for_the_history() {
    let vg = Vg::make(&[64 * MIB]);
    let uuid = uuid(&vg);
    tag(&vg, "before");
    wait_for("the first line", || requests(uuid).len() == 1);
    let pause = Pause::at("recording");
    tag(&vg, "meanwhile");
    let helper = pause.wait();
    // Answered while what was written down before it is still being written.
    vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    vg.report();
    assert_eq!(requests(uuid).len(), 1, "a request waited for its line");
    // Neither does a server that ends, or its successor. A helper has nothing that they need (H2).
    let dead = vg.signal_server(Signal::KILL);
    wait_for("a successor", || !lives(dead) && vg.server() != dead);
    vg.report();
    assert!(lives(helper));
    vg.ask(Request::Deactivate { names: None });
    let server = vg.server();
    vg.ask(Request::Stop);
    wait_for("the server's end", || !lives(server));
    assert_eq!(requests(uuid).len(), 1);
    drop(pause);
    // A helper writes what it has, also after the death of its server.
    wait_for("the line", || requests(uuid).iter().filter(|word| *word == "change-group").count() == 2);
    wait_for("the helper's end", || !lives(helper));
    tag(&vg, "after");
    wait_for("the last line", || requests(uuid).last().is_some_and(|word| word == "change-group"));
}

fn with_lines(path: &Path, bytes: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let line = write(&Command { group: "old".into(), command: "x".repeat(1000), ..Command::default() });
    fs::write(path, line.repeat(usize::try_from(bytes).unwrap() / line.len())).unwrap();
}

/// HS2
fn files_are_bounded() {
    let vg = Vg::make(&[64 * MIB]);
    let uuid = uuid(&vg);
    let path = history::path(uuid, Book::Commands);
    let old = PathBuf::from(format!("{}.old", path.display()));
    with_lines(&path, MAX_BYTES + 10_000);
    with_lines(&old, 1000);
    tag(&vg, "a");
    wait_for("the line", || commands(uuid).iter().any(|command| command.request == "change-group"));
    assert!(fs::metadata(&path).unwrap().len() < 10_000, "the file goes on as another");
    assert!(fs::metadata(&old).unwrap().len() > MAX_BYTES / 2);
    assert_eq!(commands(uuid).len(), commands(uuid).iter().filter(|one| one.group == "old").count() + 1);
    // Somebody made it longer than it may be: the end of it is read.
    with_lines(&old, 4 * MAX_BYTES);
    assert!(history::read().iter().all(|kept| kept.commands.len() as u64 <= 2 * MAX_BYTES + 200_000));
    // The groups with the oldest writes are dropped first.
    let others: Vec<PathBuf> = (0..MAX_GROUPS + 9).map(|_| history::path(uuids::fresh(), Book::Commands)).collect();
    for (age, path) in others.iter().enumerate() {
        with_lines(path, 2000);
        let long_ago = SystemTime::now() - Duration::from_secs(1_000_000 + age as u64);
        File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
    }
    fs::write(history::dir().join("of an administrator"), "x").unwrap();
    let other = Vg::make(&[64 * MIB]);
    tag(&other, "a");
    wait_for("its line", || !commands(self::uuid(&other)).is_empty());
    let groups = history::read().len();
    assert!(groups <= MAX_GROUPS, "{groups} groups");
    assert!(others[0].exists() && !others[MAX_GROUPS + 8].exists());
    assert!(path.exists() && history::dir().join("of an administrator").exists());
}

/// HS4
fn what_is_not_ours_is_left_alone() {
    let vg = Vg::make(&[64 * MIB]);
    let uuid = uuid(&vg);
    let path = history::path(uuid, Book::Commands);
    let elsewhere = history::dir().join("elsewhere");
    let refused = |make: &dyn Fn(), why: &str| {
        drop(fs::remove_file(&path));
        drop(fs::remove_dir(&path));
        make();
        tag(&vg, "a");
        wait_for(why, || vg.log().contains(why));
        let kept = history::read().into_iter().find(|kept| kept.uuid == uuids::lvm_text(uuid)).unwrap();
        assert!(kept.commands.is_empty() && kept.troubles.len() == 1, "{:?}", kept.troubles);
    };
    fs::create_dir_all(history::dir()).unwrap();
    fs::write(&elsewhere, "").unwrap();
    refused(&|| symlink(&elsewhere, &path).unwrap(), "it is a link");
    assert_eq!(fs::read(&elsewhere).unwrap(), b"", "a link was followed");
    refused(&|| rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap(), "it is not a regular file");
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    let other_user = || {
        fs::write(&path, "").unwrap();
        chown(&path, Some(65534), None).unwrap();
    };
    refused(&other_user, "it belongs to another user");
    refused(&|| fs::create_dir(&path).unwrap(), "Is a directory");
    // Told once each, however often it is tried.
    let lines = vg.log().lines().filter(|line| line.contains("History of the volume group cannot be kept")).count();
    assert_eq!(lines, 4, "{}", vg.log());
    tag(&vg, "b");
    tag(&vg, "c");
    // The next line that finds a place says that lines are missing.
    fs::remove_dir(&path).unwrap();
    tag(&vg, "d");
    // The lines before it may come as well, where they were not tried yet.
    wait_for("the line", || !requests(uuid).is_empty());
    wait_for("the gap", || events(uuid).iter().any(|event| event.event == "gap"));
    let lines = vg.log().lines().filter(|line| line.contains("History of the volume group cannot be kept")).count();
    assert_eq!(lines, 4, "{}", vg.log());
    drop(fs::remove_file(elsewhere));
}

fn a_line_that_was_cut_short_costs_itself() {
    let vg = Vg::make(&[64 * MIB]);
    let uuid = uuid(&vg);
    let path = history::path(uuid, Book::Commands);
    tag(&vg, "a");
    wait_for("the first line", || requests(uuid).len() == 1);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], &whole[..whole.len() / 2]].concat()).unwrap();
    tag(&vg, "b");
    wait_for("the next line", || requests(uuid).len() == 2);
    let kept = history::read().into_iter().find(|kept| kept.uuid == uuids::lvm_text(uuid)).unwrap();
    assert_eq!(read::<Command>(&kept.commands).damaged, 1);
    // Server and keeper are killed in the middle of it all: at most what was not written yet is missing.
    vg.create("lv", VolumeKind::Thin, 8 * MIB, true);
    wait_for("its line", || requests(uuid).len() == 3);
    kill_both(&vg);
    tag(&vg, "c");
    wait_for("the last line", || requests(uuid).len() == 4);
}
