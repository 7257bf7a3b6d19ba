//! `rowen COMMAND ...`, the same by a symlink of the command's name, and `lvm COMMAND ...`. This crate owns what a user
//! types and reads: the table of commands, options, reports, messages and exit codes. It decides nothing about volumes:
//! it sends requests to the group's server, and the host crate handles devices.
#![forbid(unsafe_code)]

mod ahead;
mod backend;
mod command;
mod commands;
mod console;
mod default_group;
mod documents;
mod facts;
mod failure;
mod gather;
mod help;
mod hooks;
mod host;
mod options;
mod parse;
mod passing;
mod report;
mod roles;
mod scrape;
mod session;
mod shell;
mod table;
mod top;

#[cfg(test)]
mod facts_test;
#[cfg(any(test, feature = "hostile"))]
#[allow(clippy::too_many_lines, reason = "a list of requests")]
#[allow(clippy::unwrap_used, reason = "tests, helpers of tests included, end where something unexpected happens")]
mod fake;
#[cfg(any(test, feature = "hostile"))]
#[allow(clippy::unwrap_used, reason = "tests, helpers of tests included, end where something unexpected happens")]
mod fake_hooks;
#[cfg(any(test, feature = "hostile"))]
mod fake_hosts;
#[cfg(test)]
mod features_test;
#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod history_test;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
#[cfg(test)]
mod iostat_test;
#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "transcripts are tables")]
mod mirrors_test;
#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "transcripts are tables")]
mod missing_test;
#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "transcripts are tables")]
mod stripes_test;
#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "transcripts are tables")]
mod transcript_test;

use console::Console;
use failure::{Failure, exit};
use options::Opt;
use rowen_control::config::Config;
use rowen_control::lists::{self, Lists};
use rowen_control::protocol::Caller;
use session::Session;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = if words.is_empty() { String::new() } else { words.remove(0) };
    if let Some(code) = host::special_role(&words) {
        return ExitCode::from(code);
    }
    let (mut out, mut err) = (io::BufWriter::new(io::stdout()), io::stderr());
    let mut input = io::stdin().lock();
    let console = Console::new(&mut out, &mut err, Some(&mut input)).with_progress();
    let code = run(&mut host::Host::default(), console, &program, &words);
    let _unread = out.flush();
    ExitCode::from(code)
}

/// Runs one command line; `program` is the name of the process.
pub fn run<'a>(backend: &'a mut dyn backend::Backend, console: Console<'a>, program: &str, words: &[String]) -> u8 {
    let called = program.rsplit('/').next().unwrap_or(program);
    let command_line = [called].into_iter().chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let mut session = Session {
        backend,
        console,
        is_test: false,
        alone: None,
        caller: Caller::default(),
        command_line,
        lists: Lists::default(),
    };
    let code = match table::find(called).filter(|command| command.has_own_name()) {
        Some(command) => run_command(&mut session, command, words),
        None => run_multi_call(&mut session, called, words),
    };
    session.console.flush();
    code
}

fn run_multi_call(session: &mut Session<'_>, called: &str, words: &[String]) -> u8 {
    let (name, rest) = match words {
        [] if called == "lvm" => return shell::run(session, run_named),
        [] => {
            session.console.raw_out(&help::overview(table::COMMANDS));
            return exit::OK;
        }
        [name, rest @ ..] => (name.as_str(), rest),
    };
    run_named(session, name, rest).unwrap_or_else(|| {
        let tool = if called == "lvm" { "lvm" } else { "rowen" };
        session.console.complain(format!("No such command.  Try '{tool} help'."));
        exit::NO_COMMAND
    })
}

/// Runs the command of this name, or shows help; none: there is no such command.
fn run_named(session: &mut Session<'_>, name: &str, rest: &[String]) -> Option<u8> {
    if !matches!(name, "help" | "--help" | "-h") {
        let command = table::find(if name == "--version" { "version" } else { name })?;
        return Some(run_command(session, command, rest));
    }
    let text = match rest {
        [] => help::overview(table::COMMANDS),
        [about, ..] => match table::find(about) {
            Some(command) => help::of_command(command),
            None => {
                session.console.say(format!("{about}: no such command."));
                session.console.complain("Run `help --help' for more information.");
                return Some(exit::USAGE);
            }
        },
    };
    session.console.raw_out(&text);
    Some(exit::OK)
}

fn run_command(session: &mut Session<'_>, command: &'static command::Command, words: &[String]) -> u8 {
    let begun = Instant::now();
    session.console.begins();
    let outcome = try_command(session, command, words);
    session.note(begun, &outcome);
    match outcome {
        Ok(()) => exit::OK,
        Err(failure) => {
            for line in failure.lines(&command.called()) {
                session.console.raw_err(&format!("{line}\n"));
            }
            // A command with one form prints it. If there are several, the intended one is not known.
            if let (Failure::NoForm, [form]) = (&failure, command.forms) {
                session.console.complain("Correct command syntax is:");
                session.console.raw_out(&format!("  {} {form}\n\n", command.called()));
            }
            failure.exit_code()
        }
    }
}

fn try_command(session: &mut Session<'_>, command: &'static command::Command, words: &[String]) -> failure::Result {
    // Control characters are not permitted in a name, and would garble the message.
    if let Some(word) =
        words.iter().find(|word| word.chars().any(|c| c.is_control() || c == char::REPLACEMENT_CHARACTER))
    {
        return Err(Failure::usage(format!("The argument {word:?} contains characters that cannot be used.")));
    }
    let mut args = parse::parse(command.name, command.options, words)?;
    if let Some(group) = session.backend.default_group() {
        default_group::apply(command, &group, &mut args);
    }
    session.console.set_silent(args.count(Opt::Quiet) > 1);
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
    let mut settings = Config::default();
    if command.uses_settings() {
        let files = session.backend.settings().map_err(Failure::not_begun)?;
        files.warnings.iter().for_each(|warning| session.console.complain(warning));
        settings = files.config;
    }
    // As in LVM, the properties of the host cannot be set on a command line.
    let host_tags = lists::host_tags(&settings, &session.backend.host_name());
    settings.add(std::mem::take(&mut args.config));
    args.config = settings;
    let no_backup = args.yes_no(Opt::AutoBackup) == Some(false) || args.config.is_on("backup/backup") == Some(false);
    let lists = Lists::of(&args.config, host_tags);
    session.lists = lists.clone();
    session.caller = Caller { command: session.command_line.clone(), no_backup, lists, ..session.backend.caller() };
    session.backend.introduce(session.caller.clone(), command.only_shows(&args));
    (command.run)(session, &args)
}
