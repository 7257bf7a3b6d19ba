//! `rowen receive --restrict`, for `command=` in authorized_keys. sshd runs it instead of the command that the client
//! requests, and passes that command to it.
//!
//! Invariants
//!
//! * RS1 A client can only receive into the named group or volume, and look what it can go on from there. It can use no other command, group, volume or
//!   setting. No shell reads its command.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::{self, Args};
use crate::session::Session;
use rowen_control::paths::Target;
use rowen_engine::planted;

/// The options that a client can use.
const ALLOWED: &[Opt] = &[
    Opt::SnapshotName,
    Opt::ReceiveThin,
    Opt::MoveHold,
    Opt::OfPolicy,
    Opt::ReceiveStatus,
    Opt::ReceiveToken,
    Opt::ReceiveAbort,
    Opt::Json,
    Opt::UnitsShown,
    Opt::Test,
];

/// What the client asks for.
#[derive(Debug)]
pub enum Asked {
    Receive(Args),
    /// What there is, from which a transfer can go on.
    Points(Args),
}

/// The client's command line, if `args` restrict it (RS1). None: there is no restriction.
pub fn asked(session: &mut Session<'_>, args: &Args) -> Result<Option<Asked>> {
    let Some(allowed) = args.text(Opt::Restrict) else { return Ok(None) };
    let Some(allowed @ (Target::Group(_) | Target::Volume { .. })) = Target::parse(allowed) else {
        return Err(Failure::usage(format!("Please specify a volume group or VG/LV: \"{allowed}\" is none.")));
    };
    let is_alone = args.positionals.is_empty() && !args.given().iter().any(|(option, _)| ALLOWED.contains(option));
    if !is_alone {
        return Err(Failure::usage(
            "With --restrict the client says what is received: give no volume and no other option.",
        ));
    }
    let Some(command) = session.backend.ssh_command() else {
        let message =
            "No client of ssh asks for anything (SSH_ORIGINAL_COMMAND): --restrict is for command= in authorized_keys.";
        return Err(Failure::usage(message));
    };
    let mut asked = read(&command, &allowed).map_err(|why| {
        let into = match &allowed {
            Target::Volume { group, volume } => format!("{group}/{volume}"),
            Target::Group(name) | Target::Tag(name) => format!("volume group \"{name}\""),
        };
        Failure::failed(format!("This key is for \"rowen receive\" into {into} alone: {why}."))
    })?;
    session.caller.command = format!("{}: {command}", session.caller.command);
    let (Asked::Receive(own) | Asked::Points(own)) = &mut asked;
    session.is_test |= own.has(Opt::Test);
    own.config = args.config.clone();
    Ok(Some(asked))
}

/// The client's command, or the reason of the refusal.
fn read(command: &str, allowed: &Target) -> std::result::Result<Asked, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " /_.+-=:@".contains(c);
    if !command.chars().all(is_plain) {
        return Err("the command has other signs than letters, numbers and / _ . + - = : @".to_owned());
    }
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let [program, name, words @ ..] = &words[..] else { return Err("the command is another one".to_owned()) };
    if program.rsplit('/').next() != Some("rowen") || !matches!(name.as_str(), "receive" | "points") {
        return Err("the command is another one".to_owned());
    }
    let is_points = name == "points";
    let options = if is_points { &[Opt::Json, Opt::SumOf, Opt::SumBlocks][..] } else { ALLOWED };
    let asked = parse::parse(name, options, words).map_err(|failure| failure.lines(name).concat())?;
    if let Some((option, _)) = asked.given().iter().find(|(option, _)| !options.contains(option)) {
        return Err(format!("it has the option --{}", option.spec().long));
    }
    let [word] = &asked.positionals[..] else { return Err("it names no volume, or several".to_owned()) };
    let is_within = match (Target::parse(word), allowed) {
        (Some(target), allowed) if target == *allowed => true,
        (Some(Target::Volume { group, .. }), Target::Group(name)) => group == *name,
        _ => false,
    };
    if !is_within && !planted::is("restricted_to_nothing") {
        return Err(format!("it names {word}"));
    }
    Ok(if is_points { Asked::Points(asked) } else { Asked::Receive(asked) })
}
