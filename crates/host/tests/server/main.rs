//! Servers of real volume groups on files, from the outside: devices, life and death, the socket, volumes.
//!
//! The test program is its own `rowen`: started as `serve VG` or `keeper VG` it becomes that process. The tests run in a
//! child of the program that has a world of its own (`ROWEN_SYSTEM_DIR`, `ROWEN_RUN_DIR`); the parent clears that world
//! away, whatever became of the child. Arguments are filters of test names, as with other tests.
// What a success holds cannot be shown: `expect_err` would need that.
#![allow(clippy::unwrap_used, clippy::err_expect)]

mod copies;
mod devices;
mod files;
mod freezing;
mod groups;
mod history;
mod hung;
mod io;
mod life;
mod lost;
mod planted;
mod returns;
mod socket;
mod stacks;
mod status;
mod upgrade;
mod usage;
mod volumes;
mod witness;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::time::Instant;

type Test = (&'static str, fn());

fn tests() -> Vec<Test> {
    [
        devices::TESTS,
        files::TESTS,
        freezing::TESTS,
        groups::TESTS,
        copies::TESTS,
        history::TESTS,
        hung::TESTS,
        io::TESTS,
        life::TESTS,
        lost::TESTS,
        returns::TESTS,
        socket::TESTS,
        stacks::TESTS,
        status::TESTS,
        upgrade::TESTS,
        usage::TESTS,
        volumes::TESTS,
        witness::TESTS,
    ]
    .concat()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let bugs: Vec<String> =
        std::env::var(planted::VARIABLE).into_iter().chain(upgrade::bug_of_this_program()).collect();
    if !bugs.is_empty() {
        rowen_host::planted::plant(&bugs.join(","), world::pause_here);
    }
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [planted::ARGUMENT, ..] => return planted::run(&arguments[1..]),
        ["serve", group] => {
            let options = rowen_host::server::Options::new(group);
            return rowen_host::server::main(&rowen_host::server::Options { reached: upgrade::step_here, ..options })
                .into();
        }
        ["keeper", group] => return ExitCode::from(u8::try_from(rowen_host::keeper::main(group)).unwrap_or(1)),
        ["upgrade", group] => return upgrade::as_a_command(group, false),
        ["upgrade", group, "--check"] => return upgrade::as_a_command(group, true),
        ["helper", ..] => return ExitCode::from(rowen_host::helper::main(world::pause_here)),
        ["read all"] => {
            files::read_all();
            return ExitCode::SUCCESS;
        }
        ["place", path] => usage::hold_place(path),
        ["pvcreate", path] => return stacks::pvcreate_as_a_command(path),
        ["greet", socket] => return socket::greet_as_whoever_this_is(socket),
        _ => {}
    }
    let chosen = |name: &str| {
        let mut filters = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
        filters.peek().is_none() || filters.any(|filter| name.contains(filter.as_str()))
    };
    let tests: Vec<Test> = tests().into_iter().filter(|(name, _)| chosen(name)).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if std::env::var_os("ROWEN_RUN_DIR").is_some() {
        return run(&tests);
    }
    assert!(rustix::process::geteuid().is_root(), "these tests make block devices: run them as root");
    let world = world::World::make();
    let child = Command::new("/proc/self/exe")
        .args(&arguments)
        .env("ROWEN_SYSTEM_DIR", world.dir.join("etc"))
        .env("ROWEN_RUN_DIR", world.dir.join("run"))
        .env("ROWEN_IDLE_SECONDS", "600")
        .env("ROWEN_CACHE_MIB", "16")
        .spawn();
    match child.and_then(|mut child| child.wait()) {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn run(tests: &[Test]) -> ExitCode {
    let mut failed = Vec::new();
    for (name, test) in tests {
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(test));
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({} ms)", begun.elapsed().as_millis());
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    println!("\ntest result: {} passed; {} failed {failed:?}", tests.len() - failed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
