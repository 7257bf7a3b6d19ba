//! Real disks against the contract, and the ways in which opening one is refused.
#![allow(clippy::unwrap_used)]

mod silent;

use rowen_engine::disk::{DiskError, DiskOp, Disks, PageBuf, PvIndex, Segment, Segments, back, start};
use rowen_host::disks::suite::{BlockOn, CONTRACT, REFUSALS};
use rowen_host::disks::{IoEngine, OpenMode, PvSet, Reason};
use rowen_host::reactor::Pool;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A directory that goes away with the test.
struct Dir(PathBuf);

impl Dir {
    fn under(parent: &Path, name: &str) -> Dir {
        let path = parent.join(format!("rowen-disks-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Dir(path)
    }
    fn new(name: &str) -> Dir {
        Dir::under(&std::env::temp_dir(), name)
    }
    fn file(&self, name: &str, size: u64) -> PathBuf {
        let path = self.0.join(name);
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A loop device that goes away with the test.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path, options: &[&str]) -> Loop {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().unwrap();
        assert!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
        Loop(String::from_utf8(output.stdout).unwrap().trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A mount that goes away with the test.
struct Mounted(PathBuf);

impl Mounted {
    fn new(what: &[&str], at: &Path) -> Mounted {
        assert!(Command::new("mount").args(what).arg(at).status().unwrap().success());
        Mounted(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root for loop devices");
    }
    root
}

/// Runs the whole suite from a worker, and from this thread, whose requests another has to carry out.
fn run_suite(pool: &Pool, paths: &[PathBuf], engine: IoEngine) {
    // A helper thread may let go of a disk a moment after its last request was answered.
    let set = PvSet::open_waiting(pool, paths, OpenMode::Exclusive, engine, Duration::from_secs(60)).unwrap();
    let set = Arc::new(set);
    let on_worker: BlockOn<'_> = &|future| pool.block_on(future);
    let outside: BlockOn<'_> = &|future| park_on(future);
    for (name, check) in CONTRACT.iter().chain(REFUSALS) {
        for run in [on_worker, outside] {
            eprintln!("{engine}: {name}");
            check(set.clone(), run);
        }
    }
}

/// Polls on this thread, which is no worker.
fn park_on(mut future: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    while future.as_mut().poll(&mut cx).is_pending() {
        std::thread::park();
    }
}

fn write_op(offset: u64, buf: PageBuf) -> DiskOp {
    let len = buf.capacity() as u32;
    DiskOp::Write {
        segments: Segments::from_iter([Segment { pv: PvIndex(0), offset, at: 0, len }]),
        buf: Arc::new(buf),
    }
}

fn read_op(offset: u64, len: u32) -> DiskOp {
    let segments = Segments::from_iter([Segment { pv: PvIndex(0), offset, at: 0, len }]);
    DiskOp::Read { segments, buf: PageBuf::zeroed(len as usize) }
}

#[test]
fn files_pass_the_suite_through_rings() {
    let dir = Dir::new("uring");
    let paths = [dir.file("a", 32 * MIB), dir.file("b", 16 * MIB)];
    run_suite(&Pool::start(1).unwrap(), &paths, IoEngine::Uring);
    run_suite(&Pool::start(2).unwrap(), &paths, IoEngine::Uring);
}

#[test]
fn files_pass_the_suite_through_helper_threads() {
    let dir = Dir::new("sync");
    let paths = [dir.file("a", 32 * MIB), dir.file("b", 16 * MIB)];
    run_suite(&Pool::start(1).unwrap(), &paths, IoEngine::Sync);
    let without = Pool::start_without_rings(2).unwrap();
    // Asking for rings where there are none gives helper threads.
    let set = PvSet::open(&without, &paths, OpenMode::Exclusive, IoEngine::Uring).unwrap();
    assert_eq!(set.engine(), IoEngine::Sync);
    drop(set);
    run_suite(&without, &paths, IoEngine::Uring);
}

#[test]
fn buffered_files_pass_the_suite_and_say_so() {
    let dir = Dir::new("buffered");
    let pool = Pool::start(1).unwrap();
    let direct = PvSet::open(&pool, &[dir.file("direct", 16 * MIB)], OpenMode::Exclusive, IoEngine::Uring).unwrap();
    assert_eq!(direct.notes(), Vec::<String>::new());
    if !root() {
        return;
    }
    // ramfs knows no O_DIRECT on any kernel; tmpfs has learnt it.
    let ramfs = dir.0.join("ram");
    std::fs::create_dir(&ramfs).unwrap();
    let _mounted = Mounted::new(&["-t", "ramfs", "ramfs"], &ramfs);
    let inner = Dir::under(&ramfs, "files");
    let paths = [inner.file("a", 32 * MIB), inner.file("b", 16 * MIB)];
    run_suite(&pool, &paths, IoEngine::Uring);
    run_suite(&pool, &paths, IoEngine::Sync);
    let buffered = PvSet::open(&pool, &paths, OpenMode::Exclusive, IoEngine::Uring).unwrap();
    assert_eq!(buffered.notes().len(), 2);
    assert!(buffered.notes()[0].contains("does not support direct I/O"), "{:?}", buffered.notes());
}

#[test]
fn block_devices_pass_the_suite() {
    if !root() {
        return;
    }
    let dir = Dir::new("loop");
    for options in [&["--direct-io=on"][..], &["--sector-size=4096"]] {
        let a = Loop::new(&dir.file("a", 32 * MIB), options);
        let b = Loop::new(&dir.file("b", 16 * MIB), options);
        let paths = [a.0.clone(), b.0.clone()];
        let pool = Pool::start(2).unwrap();
        run_suite(&pool, &paths, IoEngine::Uring);
        run_suite(&pool, &paths, IoEngine::Sync);
        let patience = Duration::from_secs(60);
        let set = PvSet::open_waiting(&pool, &paths, OpenMode::Exclusive, IoEngine::Uring, patience).unwrap();
        assert_eq!(set.geometry(PvIndex(0)).size, 32 * MIB);
        assert_eq!(set.geometry(PvIndex(0)).sector, if options[0].contains("4096") { 4096 } else { 512 });
    }
}

#[test]
fn a_disk_can_join_a_live_set() {
    let dir = Dir::new("push");
    let pool = Pool::start(2).unwrap();
    let set = Arc::new(PvSet::open(&pool, &[dir.file("a", 16 * MIB)], OpenMode::Exclusive, IoEngine::Uring).unwrap());
    assert_eq!(set.count(), 1);
    let b = dir.file("b", 24 * MIB);
    assert_eq!(set.push(&b).unwrap(), PvIndex(1));
    assert_eq!((set.count(), set.geometry(PvIndex(1)).size), (2, 24 * MIB));
    assert_eq!(set.path(PvIndex(1)).unwrap(), b);
    for (_, check) in CONTRACT {
        check(set.clone(), &|future| pool.block_on(future));
    }
    set.pop();
    assert_eq!(set.count(), 1);
    PvSet::open(&pool, &[b], OpenMode::Exclusive, IoEngine::Uring).expect("it was let go");
}

#[test]
fn a_file_that_shrinks_gives_errors_not_junk() {
    let dir = Dir::new("shrunk");
    let path = dir.file("a", 16 * MIB);
    let pool = Pool::start(1).unwrap();
    for engine in [IoEngine::Uring, IoEngine::Sync] {
        for shrunk in [8 * MIB, 8 * MIB + 100, 8 * MIB + 4096] {
            File::options().write(true).open(&path).unwrap().set_len(16 * MIB).unwrap();
            let set = PvSet::open(&pool, &[&path], OpenMode::Exclusive, engine).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(shrunk).unwrap();
            let error = pool.block_on(async move { start(&set, read_op(8 * MIB - 4096, 16384)).await }).unwrap_err();
            assert_eq!(error.errno, 5, "{engine}, {shrunk}: {error}");
        }
    }
}

#[test]
fn errors_of_the_disk_arrive_with_their_number() {
    let dir = Dir::new("errno");
    let path = dir.file("a", 16 * MIB);
    let pool = Pool::start(1).unwrap();
    for engine in [IoEngine::Uring, IoEngine::Sync] {
        let set = Arc::new(PvSet::open(&pool, &[&path], OpenMode::ReadOnly, engine).unwrap());
        let disks = set.clone();
        // A descriptor opened for reading refuses writes: EBADF.
        let write = pool.block_on(async move { start(&*disks, write_op(4096, PageBuf::zeroed(4096))).await });
        let error = write.unwrap_err();
        assert_eq!((error.errno, error.pv, error.offset), (9, PvIndex(0), 4096), "{engine}: {error}");
        pool.block_on(async move { start(&*set, read_op(0, 4096)).await }).expect("reading goes on");
    }
}

/// Asks for room behind this many bytes of a sparse file's beginning.
fn back_file(path: &Path, len: u64) -> Result<(), DiskError> {
    let pool = Pool::start(1).unwrap();
    let set = PvSet::open(&pool, &[path], OpenMode::Exclusive, IoEngine::Uring).unwrap();
    let segments = Segments::from_iter([Segment { pv: PvIndex(0), offset: 0, at: 0, len: len as u32 }]);
    pool.block_on(async move { back(&set, segments).await }).map(drop)
}

#[test]
fn a_sparse_file_gets_its_room_and_keeps_its_contents() {
    let dir = Dir::new("room");
    let path = dir.file("a", 16 * MIB);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&[7; 4096], MIB).unwrap();
    back_file(&path, 4 * MIB).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 >= 4 * MIB, "it is still sparse");
    assert_eq!(file.metadata().unwrap().len(), 16 * MIB);
    let bytes = std::fs::read(&path).unwrap();
    let own = MIB as usize..MIB as usize + 4096;
    assert!(bytes[own.clone()].iter().all(|byte| *byte == 7), "its contents changed");
    assert!(bytes[..own.start].iter().chain(&bytes[own.end..]).all(|byte| *byte == 0), "its contents changed");
}

#[test]
fn a_full_filesystem_is_no_broken_disk() {
    if !root() {
        return;
    }
    let dir = Dir::new("full");
    let _mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=4m", "none"], &dir.0);
    let path = dir.file("a", 16 * MIB);
    let error = back_file(&path, 8 * MIB).unwrap_err();
    assert!(error.is_no_room() && error.pv == PvIndex(0), "{error}");
    back_file(&path, 2 * MIB).unwrap();
}

#[test]
fn requests_of_a_stopped_pool_fail() {
    let dir = Dir::new("stopped");
    let pool = Pool::start(1).unwrap();
    let set = Arc::new(PvSet::open(&pool, &[dir.file("a", 16 * MIB)], OpenMode::Exclusive, IoEngine::Uring).unwrap());
    drop(pool);
    park_on(Box::pin(async move {
        start(&*set, read_op(0, 4096)).await.expect_err("nobody is left to do it");
    }));
}

fn refusal(pool: &Pool, path: impl AsRef<Path>, mode: OpenMode) -> (Reason, String) {
    let error = PvSet::open(pool, &[path.as_ref()], mode, IoEngine::Uring).map(|_| ()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&path.as_ref().display().to_string()), "{text}");
    assert!(!text.contains('\n'), "{text}");
    (error.reason, text)
}

#[test]
fn what_is_no_disk_is_refused() {
    let dir = Dir::new("refused");
    let pool = Pool::start(1).unwrap();
    for mode in [OpenMode::ReadOnly, OpenMode::Exclusive] {
        assert!(matches!(refusal(&pool, dir.0.join("absent"), mode).0, Reason::Missing));
        assert!(matches!(refusal(&pool, &dir.0, mode).0, Reason::NotADisk("a directory")));
        assert!(matches!(refusal(&pool, "/dev/null", mode).0, Reason::NotADisk("a character device")));
        let small = dir.file("small", MIB - 4096);
        assert!(matches!(refusal(&pool, &small, mode).0, Reason::TooSmall { .. }));
        let empty = dir.file("empty", 0);
        assert!(matches!(refusal(&pool, &empty, mode).0, Reason::TooSmall { size: 0, .. }));
        let pipe = dir.0.join(format!("pipe-{mode:?}"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(matches!(refusal(&pool, &pipe, mode).0, Reason::NotADisk("a pipe")));
    }
    // All or none: the good disk of a refused set is free again.
    let good = dir.file("good", 16 * MIB);
    let both = [good.clone(), dir.0.join("absent")];
    assert!(PvSet::open(&pool, &both, OpenMode::Exclusive, IoEngine::Uring).is_err());
    let set = PvSet::open(&pool, &[&good], OpenMode::Exclusive, IoEngine::Uring).unwrap();
    // A partial sector at the end is no part of the disk.
    drop(set);
    File::options().write(true).open(&good).unwrap().set_len(2 * MIB + 1).unwrap();
    let set = PvSet::open(&pool, &[&good], OpenMode::Exclusive, IoEngine::Uring).unwrap();
    assert_eq!(set.geometry(PvIndex(0)).size, 2 * MIB);
}

#[test]
fn a_held_file_is_refused_to_a_second_owner() {
    let dir = Dir::new("held");
    let path = dir.file("a", 16 * MIB);
    let pool = Pool::start(2).unwrap();
    for engine in [IoEngine::Uring, IoEngine::Sync] {
        let set = PvSet::open(&pool, &[&path], OpenMode::Exclusive, engine).unwrap();
        let (reason, text) = refusal(&pool, &path, OpenMode::Exclusive);
        assert!(matches!(&reason, Reason::InUse { by: Some(by) } if by == "this process"), "{text}");
        PvSet::open(&pool, &[&path], OpenMode::ReadOnly, engine).expect("looking is allowed");
        // Use it on both workers, so that both rings have it in their tables, and let go.
        let set = Arc::new(set);
        for worker in 0..2 {
            let (set, (done, wait)) = (set.clone(), std::sync::mpsc::channel());
            pool.spawn_on(
                worker,
                Box::pin(async move {
                    let result = start(&*set, read_op(0, 4096)).await;
                    drop(set);
                    done.send(result.is_ok()).unwrap();
                }),
            );
            assert!(wait.recv().unwrap());
        }
        drop(set);
        PvSet::open(&pool, &[&path], OpenMode::Exclusive, engine).expect("it was let go");
    }
}

#[test]
fn a_file_held_by_another_process_names_it_and_can_be_waited_for() {
    let dir = Dir::new("waiting");
    let path = dir.file("a", 16 * MIB);
    let pool = Pool::start(1).unwrap();
    let mut holder = Command::new("flock").arg(&path).args(["sleep", "0.5"]).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let text = loop {
        match PvSet::open(&pool, &[&path], OpenMode::Exclusive, IoEngine::Uring) {
            Err(error) => break error.to_string(),
            Ok(set) => drop(set),
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "flock never took the file");
    };
    assert!(text.contains("in use by process ") && text.contains("(flock)"), "{text}");
    let short = Duration::from_millis(30);
    let open = |patience| PvSet::open_waiting(&pool, &[&path], OpenMode::Exclusive, IoEngine::Uring, patience);
    assert!(open(short).err().unwrap().is_in_use());
    open(Duration::from_secs(10)).expect("the holder ends");
    holder.wait().unwrap();
}

#[test]
fn block_devices_in_use_mounted_or_read_only_are_refused() {
    if !root() {
        return;
    }
    let dir = Dir::new("devices");
    let file = dir.file("a", 16 * MIB);
    let pool = Pool::start(2).unwrap();
    let device = Loop::new(&file, &[]);
    let set = PvSet::open(&pool, &[&device.0], OpenMode::Exclusive, IoEngine::Uring).unwrap();
    assert!(matches!(refusal(&pool, &device.0, OpenMode::Exclusive).0, Reason::InUse { .. }));
    PvSet::open(&pool, &[&device.0], OpenMode::ReadOnly, IoEngine::Uring).expect("looking is allowed");
    // The file behind a loop device has an owner already.
    let (reason, text) = refusal(&pool, &file, OpenMode::Exclusive);
    assert!(matches!(&reason, Reason::InUse { by: Some(by) } if Path::new(by) == device.0), "{text}");
    // Let go by both rings, it can be mounted.
    let set = Arc::new(set);
    let disks = set.clone();
    pool.block_on(async move { start(&*disks, read_op(0, 4096)).await }).unwrap();
    drop(set);
    assert!(Command::new("mkfs.ext4").arg("-q").arg(&device.0).status().unwrap().success());
    let mount = dir.0.join("mnt");
    std::fs::create_dir(&mount).unwrap();
    let mounted = Mounted::new(&[device.0.to_str().unwrap()], &mount);
    let (reason, text) = refusal(&pool, &device.0, OpenMode::Exclusive);
    drop(mounted);
    assert!(matches!(&reason, Reason::Mounted { at } if Path::new(at) == mount), "{text}");
    drop(device);
    let device = Loop::new(&file, &["--read-only"]);
    assert!(matches!(refusal(&pool, &device.0, OpenMode::Exclusive).0, Reason::ReadOnly));
    PvSet::open(&pool, &[&device.0], OpenMode::ReadOnly, IoEngine::Uring).expect("looking is allowed");
}

#[test]
fn data_goes_where_it_was_sent() {
    let dir = Dir::new("place");
    let path = dir.file("a", 16 * MIB);
    let pool = Pool::start(1).unwrap();
    for engine in [IoEngine::Uring, IoEngine::Sync] {
        let set = PvSet::open(&pool, &[&path], OpenMode::Exclusive, engine).unwrap();
        let mut buf = PageBuf::zeroed(8192);
        buf.as_mut_slice().fill(engine as u8 + 1);
        pool.block_on(async move {
            start(&set, write_op(5 * MIB, buf)).await.unwrap();
            start(&set, DiskOp::Flush).await.unwrap();
        });
        let mut found = vec![0xff; 16384];
        File::open(&path).unwrap().read_exact_at(&mut found, 5 * MIB - 4096).unwrap();
        assert!(found[..4096].iter().chain(&found[12288..]).all(|b| *b == 0));
        assert!(found[4096..12288].iter().all(|b| *b == engine as u8 + 1));
    }
}
