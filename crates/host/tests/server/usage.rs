//! What users of the host can claim of a volume's device: nothing keeps it that does not have it open.

use super::Test;
use super::world::{MIB, Vg, wait_for};
use rowen_control::protocol::{Request, VolumeKind};
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

pub const TESTS: &[Test] = &[
    ("usage::a_place_that_a_user_holds_is_no_use", a_place_that_a_user_holds_is_no_use),
    ("usage::a_mount_that_names_a_volume_is_no_use", a_mount_that_names_a_volume_is_no_use),
];

/// Somebody without rights.
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// Ended when dropped.
struct User(Child);

impl User {
    fn runs(words: &[&str]) -> User {
        User(Command::new("setpriv").args(NOBODY).args(words).spawn().unwrap())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The program in another role: has a place open until it is killed.
pub fn hold_place(path: &str) -> ! {
    let _place = rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
    loop {
        std::thread::park();
    }
}

fn is_open(vg: &Vg) -> bool {
    vg.report().volumes.iter().any(|volume| volume.node.open)
}

fn goes(vg: &Vg) {
    assert!(!is_open(vg));
    vg.ask(Request::Deactivate { names: Some(vec!["lv".into()]) });
    vg.ask(Request::Remove { names: vec!["lv".into()] });
}

/// A user who may not read a device can hold its place.
fn a_place_that_a_user_holds_is_no_use() {
    let vg = Vg::make(&[64 * MIB]);
    let node = fs::canonicalize(vg.create("lv", VolumeKind::Thin, 16 * MIB, true)).unwrap();
    // The test program may be where only root finds it.
    let program = std::env::temp_dir().join(format!("rowen-place-{}", std::process::id()));
    fs::copy("/proc/self/exe", &program).unwrap();
    let user = User::runs(&[program.to_str().unwrap(), "place", node.to_str().unwrap()]);
    let files = format!("/proc/{}/fd", user.0.id());
    let has_it = |path: &Path| fs::read_link(path).is_ok_and(|link| link == node);
    wait_for("the user's place", || {
        fs::read_dir(&files).into_iter().flatten().flatten().any(|file| has_it(&file.path()))
    });
    fs::remove_file(program).unwrap();
    goes(&vg);
}

/// A user can mount memory in a namespace of their own, and call its source what they like.
fn a_mount_that_names_a_volume_is_no_use() {
    let vg = Vg::make(&[64 * MIB]);
    let node = fs::canonicalize(vg.create("lv", VolumeKind::Thin, 16 * MIB, true)).unwrap();
    let line = format!("mount -t tmpfs {} /mnt && exec sleep 300", node.display());
    let user = User::runs(&["unshare", "-Urm", "sh", "-c", &line]);
    let mounts = format!("/proc/{}/mountinfo", user.0.id());
    wait_for("the user's mount", || {
        fs::read_to_string(&mounts).is_ok_and(|mounts| mounts.contains(node.to_str().unwrap()))
    });
    goes(&vg);
}
