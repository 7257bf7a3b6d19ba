//! What a host has seen of who is in a group. Rules NW1, NW2, NW3 and NW4.

use super::Test;
use super::world::{MIB, Vg, wait_for};
use rowen_control::protocol::Request;
use rowen_host::server;
use std::fs;
use std::path::{Path, PathBuf};

pub const TESTS: &[Test] = &[
    ("witness::an_older_half_is_not_opened", an_older_half_is_not_opened),
    (
        "witness::copies_of_one_moment_are_opened_and_the_file_goes_with_the_group",
        copies_of_one_moment_are_opened_and_the_file_goes_with_the_group,
    ),
    ("witness::an_older_disk_alone_is_not_opened_after_an_end", an_older_disk_alone_is_not_opened_after_an_end),
];

fn away(disk: &Path) -> PathBuf {
    disk.with_extension("away")
}

fn pull(disk: &Path) {
    fs::rename(disk, away(disk)).unwrap();
}

fn attach(disk: &Path) {
    fs::rename(away(disk), disk).unwrap();
}

/// The server has ended when this returns.
fn stop(vg: &Vg) {
    vg.report();
    let server = vg.server();
    vg.ask(Request::Stop);
    // Its parent may be this program, which does not ask what became of it.
    let state = || fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
    wait_for("the end of the server", || state().rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')));
}

fn refusal(name: &str) -> String {
    server::go_on_without(name, false).unwrap_err().message
}

/// Opened with what is there.
fn used_alone(vg: &Vg) {
    assert!(server::go_on_without(&vg.name, false).unwrap().missing <= 1);
    stop(vg);
}

fn an_older_half_is_not_opened() {
    // Large enough for a journal on each.
    let vg = Vg::make(&[256 * MIB, 256 * MIB]);
    let (first, second) = (&vg.files[0], &vg.files[1]);
    stop(&vg);
    let copy = second.with_extension("copy");
    fs::copy(second, &copy).unwrap();
    pull(second);
    used_alone(&vg);
    pull(first);
    attach(second);
    assert!(refusal(&vg.name).contains("went on without the disks that are attached"), "{}", refusal(&vg.name));
    // Elsewhere it goes on, for longer: its numbers are the greater ones.
    let file = rowen_host::witness::dir();
    let kept = file.with_extension("kept");
    fs::rename(&file, &kept).unwrap();
    used_alone(&vg);
    (0..3).for_each(|_| {
        stop(&vg);
    });
    fs::remove_dir_all(&file).unwrap();
    fs::rename(&kept, &file).unwrap();
    assert!(refusal(&vg.name).contains("went on without the disks that are attached"), "{}", refusal(&vg.name));
    let opened = server::ensure_running(&vg.name).err().unwrap();
    assert!(opened.message.contains("this host has seen"), "{}", opened.message);
    // Somebody wants that one all the same, and the other is the older from then on.
    server::go_on_without(&vg.name, true).unwrap();
    stop(&vg);
    pull(second);
    attach(first);
    assert!(refusal(&vg.name).contains("went on without the disks that are attached"), "{}", refusal(&vg.name));
    server::go_on_without(&vg.name, true).unwrap();
    fs::rename(&copy, second).unwrap();
}

fn copies_of_one_moment_are_opened_and_the_file_goes_with_the_group() {
    let vg = Vg::make(&[64 * MIB, 64 * MIB]);
    let uuid = rowen_engine::units::Uuid(vg.report().uuid.0);
    stop(&vg);
    let file = rowen_host::witness::path(uuid);
    assert!(fs::read_to_string(&file).unwrap().contains("\nin "));
    let copies: Vec<PathBuf> = vg.files.iter().map(|disk| disk.with_extension("copy")).collect();
    for (disk, copy) in vg.files.iter().zip(&copies) {
        fs::copy(disk, copy).unwrap();
    }
    pull(&vg.files[1]);
    used_alone(&vg);
    assert!(fs::read_to_string(&file).unwrap().contains("\nout "));
    copies.iter().zip(&vg.files).for_each(|(copy, disk)| fs::rename(copy, disk).unwrap());
    fs::remove_file(away(&vg.files[1])).unwrap();
    assert_eq!(vg.report().pvs.len(), 2);
    assert!(!fs::read_to_string(&file).unwrap().contains("\nout "));
    vg.ask(Request::Destroy { force: true });
    wait_for("the file to go", || !file.exists());
}

/// No change of members: the host knows the older copy by the last end alone.
fn an_older_disk_alone_is_not_opened_after_an_end() {
    let vg = Vg::make(&[256 * MIB, 256 * MIB]);
    let (first, second) = (&vg.files[0], &vg.files[1]);
    vg.report();
    let copy = second.with_extension("copy");
    fs::copy(second, &copy).unwrap();
    stop(&vg);
    pull(first);
    pull(second);
    fs::copy(&copy, second).unwrap();
    assert!(refusal(&vg.name).contains("older"), "{}", refusal(&vg.name));
    fs::remove_file(second).unwrap();
    attach(second);
    used_alone(&vg);
    attach(first);
    fs::remove_file(copy).unwrap();
}
