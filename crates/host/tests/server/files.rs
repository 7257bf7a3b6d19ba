//! Files below the system directory that nobody can read: they hold up no process (H15).

use super::Test;
use super::world::{MIB, dir, file, run, wait_for};
use rowen_control::uuids;
use rowen_engine::units::Uuid;
use rowen_host::{archive, devices, history, paths, settings, witness};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

pub const TESTS: &[Test] = &[
    ("files::what_is_no_file_holds_up_nobody", what_is_no_file_holds_up_nobody),
    ("files::a_filesystem_that_does_not_answer_holds_up_nobody", a_filesystem_that_does_not_answer_holds_up_nobody),
];

const SOON: Duration = Duration::from_secs(10);

/// What it returns, which has to be soon.
fn soon<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(work()));
    told.recv_timeout(SOON).unwrap_or_else(|_| panic!("{what}: it is held up"))
}

/// Something else at a path, until this is dropped.
struct Instead {
    path: PathBuf,
    before: Option<PathBuf>,
}

impl Instead {
    fn of(path: PathBuf, put: impl FnOnce(&Path)) -> Instead {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let aside = path.with_extension("aside");
        let before = fs::rename(&path, &aside).is_ok().then_some(aside);
        put(&path);
        Instead { path, before }
    }

    fn fifo(path: PathBuf) -> Instead {
        Instead::of(path, |path| drop(run("mkfifo", &[path.to_str().unwrap()])))
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        // The process that waits for it continues.
        let _nobody_may_wait = rustix::fs::open(
            &self.path,
            rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW,
            rustix::fs::Mode::empty(),
        );
        drop(fs::remove_file(&self.path));
        if let Some(before) = &self.before {
            drop(fs::rename(before, &self.path));
        }
    }
}

fn what_is_no_file_holds_up_nobody() {
    let system = paths::system_dir();
    let refused = "it is not a regular file";
    {
        let _fifo = Instead::fifo(devices::file::path());
        let said = soon("the devices file", || devices::file::read().unwrap_err().to_string());
        assert!(said.contains(refused) && said.contains("/devices"), "{said}");
        let said = soon("a change of it", || devices::file::forget(Path::new("/x")).unwrap_err().to_string());
        assert!(said.contains(refused) && said.contains("/devices"), "{said}");
    }
    for other in ["devices.lock", "devices.new"] {
        let _fifo = Instead::fifo(system.join(other));
        let uuid = uuids::fresh();
        let done = soon(other, move || devices::file::remember(uuid, Path::new("/x")).map_err(|e| e.to_string()));
        match done {
            // It was taken away.
            Ok(()) => assert_eq!(other, "devices.new"),
            Err(said) => assert!(said.contains(refused) && said.contains(other), "{said}"),
        }
    }
    devices::file::forget(Path::new("/x")).unwrap();
    {
        let _fifo = Instead::fifo(settings::path());
        let said = soon("the settings", || settings::load().unwrap_err());
        assert!(said.contains(refused) && said.contains("rowen.conf"), "{said}");
    }
    let _fifos = [Instead::fifo(witness::path(Uuid([7; 16]))), Instead::fifo(archive::backup_path("fifo"))];
    assert_eq!(soon("who was in a group", || witness::read(Uuid([7; 16]))), None);
    assert_eq!(soon("copies of metadata", || archive::group_with("none")), None);
}

/// A filesystem that answers nothing.
struct Silent {
    point: PathBuf,
    _connection: File,
}

impl Silent {
    fn mount() -> Silent {
        let point = dir().join("mnt-silent");
        fs::create_dir_all(&point).unwrap();
        let connection = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", connection.as_raw_fd());
        let options = CString::new(options).unwrap();
        rustix::mount::mount("silent", &point, "fuse", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        Silent { point, _connection: connection }
    }

    /// A link to something there, in the place of a file or directory.
    fn instead_of(&self, path: PathBuf) -> Instead {
        let there = self.point.join("what");
        Instead::of(path, |path| std::os::unix::fs::symlink(there, path).unwrap())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _may_be_gone = rustix::mount::unmount(&self.point, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

/// The program in another role: reads all, and prints the answers.
pub fn read_all() {
    let mut said = vec![
        devices::file::read().err().map(|e| e.to_string()),
        devices::file::forget(Path::new("/x")).err().map(|e| e.to_string()),
        settings::load().err(),
        archive::copies("x").err().map(|e| e.to_string()),
        archive::keep("x", "text", (&rowen_control::settings::Settings::default()).into()).err().map(|e| e.to_string()),
        archive::group_with("x"),
        witness::read(Uuid([7; 16])).map(|seen| format!("{seen:?}")),
    ];
    said.extend(history::read().into_iter().flat_map(|kept| kept.troubles).map(Some));
    said.into_iter().flatten().for_each(|line| println!("{line}"));
}

fn a_filesystem_that_does_not_answer_holds_up_nobody() {
    let silent = Silent::mount();
    let places = [
        devices::file::path(),
        settings::path(),
        archive::backup_dir(),
        archive::archive_dir(),
        history::dir(),
        witness::dir(),
    ];
    let instead: Vec<Instead> = places.into_iter().map(|path| silent.instead_of(path)).collect();
    let mut command = Command::new("/proc/self/exe");
    command.arg("read all").env("ROWEN_PROBE_SECONDS", "1").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let begun = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > 3 * SOON {
            // Of what was never begun, a process that is killed does not wait for the end.
            child.kill().unwrap();
            drop(instead);
            panic!("it is held up");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let told = |line: &&str| line.contains("nothing answers for 1 s") || line.contains("still hang in the kernel");
    // Both of the devices file, the settings with their second line, both of the copies, and the history.
    assert_eq!(lines.iter().copied().filter(told).count(), 6, "{said}");
    for file in ["/devices", "/rowen.conf", "/history"] {
        assert!(lines.iter().any(|line| told(line) && line.contains(file)), "{file}: {said}");
    }
    // With these in their places again, all goes on.
    drop(instead);
    drop(silent);
    let path = file(64 * MIB);
    devices::pvcreate(&path, uuids::fresh(), devices::Consent { force: 0, yes: true }).unwrap();
    wait_for("the devices file", || devices::file::read().unwrap().iter().any(|entry| entry.path == path));
    devices::pvremove(&path, devices::Consent { force: 0, yes: true }).unwrap();
}
