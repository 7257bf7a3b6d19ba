//! `rowen COMMAND ...`, the same by a symlink of the command's name, and `lvm COMMAND ...`. This crate owns what a user types
//! and reads: the table of commands, options, reports, sentences and exit codes. It decides nothing about volumes: requests
//! go to the group's server, and devices to the host.
#![forbid(unsafe_code)]

mod backend;
mod commands;
mod config;
mod console;
mod documents;
mod failure;
mod help;
mod options;
mod parse;
mod report;
mod session;
mod table;
mod world;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod transcript_test;

use console::Console;
use failure::{Failure, exit};
use options::Opt;
use rowen_control::wire::Caller;
use session::Session;
use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = if words.is_empty() { String::new() } else { words.remove(0) };
    if let Some(code) = world::special_role(&words) {
        return ExitCode::from(code);
    }
    let (mut out, mut err) = (io::BufWriter::new(io::stdout()), io::stderr());
    let mut input = io::stdin().lock();
    let answers: Option<&mut dyn BufRead> = if io::stdin().is_terminal() { Some(&mut input) } else { None };
    let console = Console::new(&mut out, &mut err, answers).with_progress();
    let code = run(&mut world::Host, console, &program, &words);
    let _unread = out.flush();
    ExitCode::from(code)
}

/// Runs one command line; `program` is what the process was called.
pub fn run<'a>(backend: &'a mut dyn backend::Backend, console: Console<'a>, program: &str, words: &[String]) -> u8 {
    let called = program.rsplit('/').next().unwrap_or(program);
    let command_line = [called].into_iter().chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let mut session = Session { backend, console, is_test: false, command_line };
    let code = match table::find(called).filter(|command| command.is_lvm) {
        Some(command) => run_command(&mut session, command, words),
        None => run_multi_call(&mut session, called, words),
    };
    session.console.flush();
    code
}

fn run_multi_call(session: &mut Session<'_>, called: &str, words: &[String]) -> u8 {
    let (name, rest) = match words {
        [] => {
            session.console.raw_out(&help::overview());
            return exit::OK;
        }
        [name, rest @ ..] => (name.as_str(), rest),
    };
    let tool = if called == "lvm" { "lvm" } else { "rowen" };
    match name {
        "help" | "--help" | "-h" => match rest {
            [] => {
                session.console.raw_out(&help::overview());
                exit::OK
            }
            [about, ..] => match table::find(about) {
                Some(command) => {
                    session.console.raw_out(&help::of_command(command));
                    exit::OK
                }
                None => {
                    session.console.say(format!("{about}: no such command."));
                    session.console.complain("Run `help --help' for more information.");
                    exit::USAGE
                }
            },
        },
        _ => match table::find(if name == "--version" { "version" } else { name }) {
            Some(command) => run_command(session, command, rest),
            None => {
                session.console.complain(format!("No such command.  Try '{tool} help'."));
                exit::NO_COMMAND
            }
        },
    }
}

fn run_command(session: &mut Session<'_>, command: &'static table::Command, words: &[String]) -> u8 {
    match try_command(session, command, words) {
        Ok(()) => exit::OK,
        Err(failure) => {
            for line in failure.lines(&help::called(command)) {
                session.console.raw_err(&format!("{line}\n"));
            }
            failure.exit_code()
        }
    }
}

fn try_command(session: &mut Session<'_>, command: &'static table::Command, words: &[String]) -> failure::Result {
    // Control characters have no place in a name, and would make a mess of the sentence that refuses them.
    if let Some(word) =
        words.iter().find(|word| word.chars().any(|c| c.is_control() || c == char::REPLACEMENT_CHARACTER))
    {
        return Err(Failure::usage(format!("The argument {word:?} contains characters that cannot be used.")));
    }
    let args = parse::parse(command, words)?;
    if args.has(Opt::Help) || args.has(Opt::LongHelp) {
        session.console.raw_out(&help::of_command(command));
        return Ok(());
    }
    if args.has(Opt::Version) {
        return commands::own::version(session, &args);
    }
    if args.has(Opt::Test) {
        session.is_test = true;
        session.console.complain("TEST MODE: Metadata will NOT be updated and volumes will not be (de)activated.");
    }
    if command.heeds_settings() {
        session.backend.check_settings()?;
    }
    let no_backup = args.yes_no(Opt::AutoBackup) == Some(false);
    session.backend.introduce(Caller { command: session.command_line.clone(), no_backup });
    (command.run)(session, &args)
}
