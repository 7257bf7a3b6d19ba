//! A running server and its keeper are replaced by another program: UP1 to UP8.
//!
//! Programs are copies of this one. What one does wrong is in a file beside it (`COPY.does`): `plant BUG`, `exit STEP` or `hang STEP`.

use crate::world::{
    MIB, Mounted, Pause, Vg, dir, helpers_of, keeper_of, kill, lives, run, step_here as world_step, verifying_fio,
    wait_for,
};
use crate::{Test, history};
use rowen_control::history::Event;
use rowen_control::protocol::{Outcome, Request, VolumeKind};
use rowen_host::keeper;
use rowen_host::programs::Program;
use rowen_host::server::{self, Upgraded};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("upgrade::old_to_new_and_back_under_fio_loses_nothing", old_to_new_and_back_under_fio_loses_nothing),
    ("upgrade::a_group_without_active_volumes_is_upgraded", a_group_without_active_volumes_is_upgraded),
    (
        "upgrade::a_check_and_a_program_that_cannot_open_change_nothing",
        a_check_and_a_program_that_cannot_open_change_nothing,
    ),
    ("upgrade::a_keeper_that_knows_no_upgrade_is_reported", a_keeper_that_knows_no_upgrade_is_reported),
    ("upgrade::a_program_that_cannot_be_the_keeper_is_not", a_program_that_cannot_be_the_keeper_is_not),
    ("upgrade::a_successor_that_is_never_ready_costs_nothing", a_successor_that_is_never_ready_costs_nothing),
    (
        "upgrade::a_successor_that_hangs_before_it_is_ready_costs_nothing",
        a_successor_that_hangs_before_it_is_ready_costs_nothing,
    ),
    (
        "upgrade::a_successor_that_does_not_serve_is_replaced_by_the_old_program",
        a_successor_that_does_not_serve_is_replaced_by_the_old_program,
    ),
    (
        "upgrade::a_successor_that_hangs_is_replaced_by_the_old_program",
        a_successor_that_hangs_is_replaced_by_the_old_program,
    ),
    (
        "upgrade::whoever_is_killed_in_an_upgrade_the_group_is_served",
        whoever_is_killed_in_an_upgrade_the_group_is_served,
    ),
    (
        "upgrade::a_keeper_that_is_killed_while_a_server_takes_over_is_followed_by_one_that_has_all",
        a_keeper_that_is_killed_while_a_server_takes_over_is_followed_by_one_that_has_all,
    ),
    ("upgrade::two_upgrades_at_once_are_one", two_upgrades_at_once_are_one),
    (
        "upgrade::a_change_under_way_is_waited_for_for_a_limited_time",
        a_change_under_way_is_waited_for_for_a_limited_time,
    ),
    ("upgrade::a_program_whose_file_was_replaced_goes_on", a_program_whose_file_was_replaced_goes_on),
    (
        "upgrade::processes_of_the_root_filesystem_are_spared_and_stay",
        processes_of_the_root_filesystem_are_spared_and_stay,
    ),
];

fn own_path() -> PathBuf {
    Program::own().unwrap().path()
}

fn deed() -> Option<(String, String)> {
    let text = fs::read_to_string(own_path().with_extension("does")).ok()?;
    let (what, of) = text.trim().split_once(' ')?;
    Some((what.to_owned(), of.to_owned()))
}

/// What is planted in this copy of the program.
pub fn bug_of_this_program() -> Option<String> {
    deed().filter(|(what, _)| what == "plant").map(|(_, bug)| bug)
}

/// In a server: it has come to this step.
pub fn step_here(step: &str) {
    match deed() {
        Some((what, at)) if what == "exit" && at == step => std::process::exit(9),
        Some((what, at)) if what == "hang" && at == step => std::thread::sleep(Duration::from_secs(120)),
        _ => world_step(step),
    }
}

/// `rowen upgrade VG`.
pub fn as_a_command(group: &str, check: bool) -> ExitCode {
    let version = own_path().file_name().unwrap().to_string_lossy().into_owned();
    match server::upgrade(group, &Program::own().unwrap(), &version, check) {
        Ok(Upgraded::NotRunning) => println!("not running"),
        Ok(Upgraded::Tried) => println!("tried"),
        Ok(Upgraded::Done { pause }) => println!("done {}", pause.expect("the old server told when it stopped")),
        Err(failure) => {
            eprintln!("{}", failure.message);
            return ExitCode::from(5);
        }
    }
    ExitCode::SUCCESS
}

/// A copy of this program. Dropped, its file goes.
struct Copy {
    path: PathBuf,
}

impl Copy {
    fn make(name: &str) -> Copy {
        let path = dir().join(name);
        fs::copy("/proc/self/exe", &path).unwrap();
        Copy { path }
    }

    fn that(name: &str, does: &str) -> Copy {
        let copy = Copy::make(name);
        fs::write(copy.path.with_extension("does"), does).unwrap();
        copy
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(&self.path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn upgrade(&self, vg: &Vg) -> Output {
        self.start(&["upgrade", &vg.name]).wait_with_output().unwrap()
    }

    /// It takes over; the milliseconds of the pause.
    fn takes_over(&self, vg: &Vg) -> u64 {
        let before = vg.server();
        let said = succeeded(self.upgrade(vg));
        assert_ne!(vg.server(), before);
        assert_eq!((exe(vg.server()), exe(keeper_of(vg))), (self.path.clone(), self.path.clone()));
        said.strip_prefix("done ").unwrap().trim().parse().unwrap()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
        drop(fs::remove_file(self.path.with_extension("does")));
    }
}

fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The words of one that failed.
fn refused(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{said}{}", String::from_utf8_lossy(&output.stdout));
    said
}

/// The program that a process executes.
fn exe(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default()
}

fn deaths(vg: &Vg) -> u64 {
    keeper::query(&vg.name, Duration::from_secs(2)).unwrap().answer.unwrap().deaths
}

fn is_served(vg: &Vg) -> bool {
    server::connect(&vg.name).is_ok_and(|client| client.is_some())
}

/// A group with a mounted volume, and the processes that serve it.
struct Used {
    mounted: Mounted,
    vg: Vg,
    server: i32,
    keeper: i32,
    files: std::cell::Cell<u32>,
}

impl Used {
    fn make() -> Used {
        let vg = Vg::make(&[256 * MIB]);
        let mounted = Mounted::ext4(&vg.create("lv", VolumeKind::Thin, 64 * MIB, true));
        let (server, keeper) = (vg.server(), keeper_of(&vg));
        let used = Used { mounted, vg, server, keeper, files: std::cell::Cell::new(0) };
        used.write();
        used
    }

    fn path(&self, number: u32) -> PathBuf {
        self.mounted.point.join(format!("file{number}"))
    }

    /// Writes one more file, and finds all of those before.
    fn write(&self) {
        let number = self.files.get();
        let path = self.path(number);
        fs::write(&path, vec![number as u8 + 1; 1 << 20]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        run("sh", &["-c", "echo 3 >/proc/sys/vm/drop_caches"]);
        self.files.set(number + 1);
        for number in 0..=number {
            assert!(fs::read(self.path(number)).unwrap() == vec![number as u8 + 1; 1 << 20], "file {number}");
        }
    }

    /// Served by the very processes of before, and the old program.
    fn is_untouched(&self) {
        assert_eq!((self.vg.server(), keeper_of(&self.vg)), (self.server, self.keeper));
        self.is_served_by(&own_path());
        assert_eq!(deaths(&self.vg), 0);
    }

    /// Served, with all that was written, and still after one more death.
    fn is_served_by(&self, program: &Path) {
        wait_for("a server", || is_served(&self.vg));
        assert_eq!(exe(self.vg.server()), program);
        wait_for("the keeper", || exe(keeper_of(&self.vg)) == program);
        self.write();
    }

    fn outlives_a_death(&self) {
        let dead = self.vg.signal_server(Signal::KILL);
        self.write();
        wait_for("a successor", || self.vg.server() != dead && is_served(&self.vg));
    }

    fn end(self) {
        let Used { mounted, vg, .. } = self;
        drop(mounted);
        run("e2fsck", &["-fn", vg.node("lv").to_str().unwrap()]);
        let Outcome::Check(check) = vg.ask(Request::Check) else { panic!("no check") };
        assert_eq!(check.findings, Vec::<String>::new());
    }
}

fn old_to_new_and_back_under_fio_loses_nothing() {
    let vg = Vg::make(&[512 * MIB]);
    let node = vg.create("lv", VolumeKind::Thin, 96 * MIB, true);
    let mut fio = verifying_fio("upgrades", &node);
    let copies = [Copy::make("program-new"), Copy::make("program-old")];
    let keeper = keeper_of(&vg);
    let mut pauses = Vec::new();
    for round in 0..6 {
        assert!(fio.try_wait().unwrap().is_none(), "fio gave up before upgrade {round}");
        pauses.push(copies[round % 2].takes_over(&vg));
        // The same process.
        assert_eq!(keeper_of(&vg), keeper);
        if round % 2 == 1 {
            vg.snapshot("lv", &format!("s{round}"));
        }
    }
    println!("  pauses in ms: {pauses:?}");
    kill(fio.id().cast_signed(), Signal::INT);
    let output = fio.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("verify:") && !said.contains("error") && !said.contains("rror="), "{said}");
    // UP7.
    assert_eq!(deaths(&vg), 0);
    let log = vg.log();
    assert_eq!(log.matches("is upgraded to Rowen").count(), 6, "{log}");
    // UP2: the keeper has everything still.
    let dead = vg.signal_server(Signal::KILL);
    wait_for("a successor", || vg.server() != dead && is_served(&vg));
    let Outcome::Check(check) = vg.ask(Request::Check) else { panic!("no check") };
    assert_eq!(check.findings, Vec::<String>::new());
}

fn a_group_without_active_volumes_is_upgraded() {
    let vg = Vg::make(&[64 * MIB]);
    let copy = Copy::make("program-idle");
    assert_eq!(succeeded(copy.upgrade(&vg)), "not running\n");
    vg.create("lv", VolumeKind::Thick, 8 * MIB, false);
    copy.takes_over(&vg);
    assert_eq!(vg.names(), ["lv"]);
    assert!(server::served_groups().contains(&vg.name));
    assert!(refused(copy.start(&["upgrade", "nosuchvg"]).wait_with_output().unwrap()).contains("not found"));
}

/// UP1.
fn a_check_and_a_program_that_cannot_open_change_nothing() {
    let used = Used::make();
    let good = Copy::make("program-good");
    let checked = good.start(&["upgrade", &used.vg.name, "--check"]).wait_with_output().unwrap();
    assert_eq!(succeeded(checked), "tried\n");
    used.is_untouched();
    let bad = Copy::that("program-bad", "plant cannot_open");
    let said = refused(bad.upgrade(&used.vg));
    assert!(said.contains("this program cannot open it") && said.contains("Nothing was changed"), "{said}");
    used.is_untouched();
    assert!(!used.vg.keeper_log().contains("becomes"), "{}", used.vg.keeper_log());
    used.end();
}

fn a_keeper_that_knows_no_upgrade_is_reported() {
    let vg = Vg::make(&[64 * MIB]);
    let before = Copy::that("program-before", "plant knows_no_upgrade");
    let mut server = before.start(&["serve", &vg.name]);
    wait_for("the server", || is_served(&vg));
    vg.create("lv", VolumeKind::Thick, 8 * MIB, true);
    let pid = vg.server();
    let said = refused(Copy::make("program-after").upgrade(&vg));
    assert!(said.contains("Its keeper is of a version that knows no upgrade") && said.contains("rowen stop"), "{said}");
    assert_eq!(vg.server(), pid);
    vg.ask(Request::Stop);
    server.wait().unwrap();
}

/// UP3.
fn a_program_that_cannot_be_the_keeper_is_not() {
    let used = Used::make();
    let cannot = Copy::that("program-cannot", "plant cannot_take_over");
    let said = refused(cannot.upgrade(&used.vg));
    assert!(said.contains("the new program cannot be the keeper"), "{said}");
    used.is_untouched();
    let fails = Copy::that("program-fails", "plant fails_after_rehearsal");
    let said = refused(fails.upgrade(&used.vg));
    assert!(said.contains("it was told to fail"), "{said}");
    used.is_untouched();
    used.outlives_a_death();
    used.end();
}

fn a_successor_that_is_never_ready_costs_nothing() {
    let used = Used::make();
    let said = refused(Copy::that("program-exits", "exit successor started").upgrade(&used.vg));
    assert!(said.contains("ended before its turn to serve"), "{said}");
    used.is_untouched();
    used.outlives_a_death();
    used.end();
}

fn a_successor_that_hangs_before_it_is_ready_costs_nothing() {
    let used = Used::make();
    let said = refused(Copy::that("program-hangs", "hang successor started").upgrade(&used.vg));
    assert!(said.contains("was not ready within"), "{said}");
    used.is_untouched();
    used.end();
}

/// UP5.
fn a_successor_that_does_not_serve_is_replaced_by_the_old_program() {
    let used = Used::make();
    let said = refused(Copy::that("program-dies", "exit taken over").upgrade(&used.vg));
    assert!(said.contains("servers of the new program died") && said.contains("old program still serves"), "{said}");
    used.is_served_by(&own_path());
    let uuid = used.vg.report().uuid;
    let is_told = |event: &Event| event.event == "upgrade-failed" && event.message.contains("old program still serves");
    wait_for("the event", || history::events(uuid).iter().any(is_told));
    used.outlives_a_death();
    // One that dies once is followed by another of the new program, unless it dies just before its turn: then the old
    // program still serves.
    loop {
        let before = used.vg.server();
        let program = Copy::that("program-dies-once", "exit successor takes over");
        let output = program.upgrade(&used.vg);
        if output.status.success() {
            assert!(used.vg.server() != before && exe(used.vg.server()) == program.path);
            used.write();
            break;
        }
        let said = refused(output);
        assert!(said.contains("before its turn to serve"), "{said}");
        used.write();
    }
    used.end();
}

fn a_successor_that_hangs_is_replaced_by_the_old_program() {
    let used = Used::make();
    let begun = Instant::now();
    let said = refused(Copy::that("program-waits", "hang successor takes over").upgrade(&used.vg));
    assert!(said.contains("did not serve in time"), "{said}");
    used.is_served_by(&own_path());
    assert!(begun.elapsed() >= Duration::from_secs(5));
    used.outlives_a_death();
    used.end();
}

/// UP2, UP4.
fn whoever_is_killed_in_an_upgrade_the_group_is_served() {
    for step in ["successor prepared", "successor ready", "stopped reading", "successor takes over"] {
        for victim in ["old", "new", "keeper", "command"] {
            if (victim == "old" && ["successor ready", "successor takes over"].contains(&step))
                || (step, victim) == ("stopped reading", "new")
            {
                // It has ended; it is as at the step before.
                continue;
            }
            println!("  {victim} is killed at: {step}");
            let used = Used::make();
            let copy = Copy::make("program-killed");
            let pause = Pause::at(step);
            let mut command = copy.start(&["upgrade", &used.vg.name]);
            let at = pause.wait();
            let pid = match victim {
                "old" => used.server,
                "new" => at,
                "keeper" => used.keeper,
                _ => command.id().cast_signed(),
            };
            kill(pid, Signal::KILL);
            if victim == "command" {
                command.wait().unwrap();
            }
            wait_for("a death", || !lives(pid));
            if victim == "command" {
                // The keeper hears of it.
                std::thread::sleep(Duration::from_millis(100));
            }
            drop(pause);
            used.write();
            let ended = command.wait_with_output().unwrap();
            wait_for("a server", || is_served(&used.vg));
            let program = exe(used.vg.server());
            assert!([own_path(), copy.path.clone()].contains(&program), "{}", program.display());
            if victim != "command" && ended.status.success() {
                assert_eq!(program, copy.path);
            }
            used.outlives_a_death();
            used.end();
        }
    }
}

/// UP2, K1: the next keeper has all of it, also what the server takes over later.
fn a_keeper_that_is_killed_while_a_server_takes_over_is_followed_by_one_that_has_all() {
    let used = Used::make();
    let slow = Copy::that("program-slow", "plant none");
    let pause = Pause::at("taking over");
    let command = slow.start(&["upgrade", &used.vg.name]);
    pause.wait();
    kill(used.keeper, Signal::KILL);
    wait_for("another keeper", || {
        let keeper = keeper_of_or_none(&used.vg);
        keeper > 0 && keeper != used.keeper
    });
    drop(pause);
    refused(command.wait_with_output().unwrap());
    used.is_served_by(&slow.path);
    used.outlives_a_death();
    used.end();
}

/// UP6.
fn two_upgrades_at_once_are_one() {
    let used = Used::make();
    let (first, second) = (Copy::make("program-first"), Copy::make("program-second"));
    let pause = Pause::at("successor prepared");
    let upgrade = first.start(&["upgrade", &used.vg.name]);
    pause.wait();
    let keeper = keeper::Upgrader::connect(&used.vg.name).unwrap().unwrap();
    let said = keeper.begin(&Program::at(&second.path).unwrap()).expect_err("there is one").to_string();
    assert!(said.contains("another upgrade of this group is under way"), "{said}");
    let said = refused(second.upgrade(&used.vg));
    assert!(said.contains("another upgrade of this group is under way"), "{said}");
    drop(pause);
    succeeded(upgrade.wait_with_output().unwrap());
    used.is_served_by(&first.path);
    used.end();
}

/// UP8.
fn a_change_under_way_is_waited_for_for_a_limited_time() {
    let used = Used::make();
    let copy = Copy::make("program-patient");
    let snapshot = |name: &'static str| {
        let vg = used.vg.name.clone();
        let request = Request::Snapshot { specs: vec![crate::world::snapshot("lv", name, None)], freeze: true };
        std::thread::spawn(move || {
            let mut client = server::ensure_running(&vg).unwrap();
            client.ask(&request, &mut |_| {})
        })
    };
    let is_made = |outcome: &Outcome| matches!(outcome, Outcome::Created(_));
    // A short one.
    let pause = Pause::at("frozen");
    let made = snapshot("s1");
    pause.wait();
    let upgrade = copy.start(&["upgrade", &used.vg.name]);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(used.vg.server(), used.server);
    drop(pause);
    succeeded(upgrade.wait_with_output().unwrap());
    let outcome = made.join().unwrap();
    assert!(is_made(&outcome), "{outcome:?}");
    // One that takes longer than an upgrade waits.
    let before = used.vg.server();
    let pause = Pause::at("frozen");
    let made = snapshot("s2");
    pause.wait();
    let begun = Instant::now();
    let said = refused(Copy::make("program-impatient").upgrade(&used.vg));
    assert!(said.contains("Another command changes volume group"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(40));
    drop(pause);
    made.join().unwrap();
    assert_eq!(used.vg.server(), before);
    used.write();
    used.end();
}

/// What runs is started again, and its helpers are, whatever is at its path by then.
fn a_program_whose_file_was_replaced_goes_on() {
    let used = Used::make();
    let copy = Copy::make("program-replaced");
    copy.takes_over(&used.vg);
    fs::remove_file(&copy.path).unwrap();
    fs::write(&copy.path, "#!/bin/false\n").unwrap();
    run("chmod", &["755", copy.path.to_str().unwrap()]);
    let dead = used.vg.signal_server(Signal::KILL);
    used.write();
    wait_for("a successor", || used.vg.server() != dead && is_served(&used.vg));
    // A helper makes its device.
    used.vg.create("more", VolumeKind::Thick, 8 * MIB, true);
    assert!(!helpers_of(&used.vg).is_empty());
    let device = File::options().read(true).write(true).open(used.vg.node("more")).unwrap();
    device.write_all_at(&[7; 4096], 0).unwrap();
    // A keeper that dies is followed by one of the same program.
    kill(keeper_of(&used.vg), Signal::KILL);
    wait_for("another keeper", || {
        exe(keeper_of_or_none(&used.vg)).to_string_lossy().ends_with("program-replaced (deleted)")
    });
    drop(device);
    used.end();
}

/// BT1
fn processes_of_the_root_filesystem_are_spared_and_stay() {
    let vg = Vg::make(&[64 * MIB]);
    let mut first = crate::life::serve_with(&vg, &[("ROWEN_SURVIVES", "1")]);
    vg.create("lv", VolumeKind::Thick, 16 * MIB, true);
    let said = refused(Copy::make("program-root").upgrade(&vg));
    assert!(said.contains("by the initramfs"), "{said}");
    let dead = vg.signal_server(Signal::KILL);
    first.wait().unwrap();
    wait_for("a successor", || vg.server() != dead && server::connect(&vg.name).is_ok_and(|it| it.is_some()));
    for pid in [keeper_of(&vg), vg.server()] {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(line.starts_with(b"@/"), "{}", String::from_utf8_lossy(&line));
    }
}

fn keeper_of_or_none(vg: &Vg) -> i32 {
    keeper::query(&vg.name, Duration::from_secs(1)).map_or(-1, |seen| seen.process.pid.cast_signed())
}
