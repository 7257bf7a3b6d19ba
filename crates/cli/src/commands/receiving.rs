//! Unfinished receives: `rowen receive --status`, and the tokens that continue them.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, unexpected};
use rowen_control::paths::Target;
use rowen_control::protocol::{Outcome, Request, Unfinished, UnfinishedVolume};
use rowen_control::units::Units;
use rowen_engine::units::BLOCK_SIZE;
use rowen_transfer::{Base, MarkPlace, Token, TokenVolume};
use serde_json::json;

pub fn unfinished(session: &mut Session<'_>, group: &str) -> Result<Vec<Unfinished>> {
    match session.ask(group, Request::Receives)? {
        Outcome::Receives(unfinished) => Ok(unfinished),
        other => Err(unexpected(group, &other)),
    }
}

/// Prints only the token of the unfinished receive into this volume.
pub fn token(session: &mut Session<'_>, group: &str, target: &str) -> Result {
    let all = unfinished(session, group)?;
    let Some(one) = all.iter().find(|one| one.volumes.iter().any(|volume| volume.target == target)) else {
        return Err(Failure::failed(format!("Nothing is being received into {group}/{target}.")));
    };
    let Some(token) = token_of(one) else {
        return Err(Failure::failed(format!(
            "What is here for {group}/{target} has no mark yet, or was given up for lack of room: send all of the stream again."
        )));
    };
    session.console.raw_out(&format!("{token}\n"));
    Ok(())
}

/// The token, if there is a mark.
pub fn token_of(one: &Unfinished) -> Option<String> {
    let mark = one.mark?;
    let volume = |volume: &UnfinishedVolume| TokenVolume {
        base: volume.base.as_ref().map(|base| Base { point: base.point.0, name: base.name.clone() }),
        point: volume.point.0.0,
        snapshot: volume.source.clone(),
    };
    let place = MarkPlace { stream: mark.stream.0, volume: mark.volume, block: mark.block, hash: mark.hash };
    let token = Token { place, group_name: one.group.clone(), volumes: one.volumes.iter().map(volume).collect() };
    Some(token.to_word())
}

/// What is being received.
pub fn status(session: &mut Session<'_>, args: &Args) -> Result {
    let group = match &args.positionals[..] {
        [word] => match Target::parse(word) {
            Some(Target::Group(group)) => group,
            _ => return Err(Failure::usage("Please specify a volume group with --status.")),
        },
        _ => return Err(Failure::usage("Please specify one volume group with --status.")),
    };
    let all = unfinished(session, &group)?;
    if args.has(Opt::Json) {
        let rows: Vec<_> = all.iter().flat_map(|one| rows_of(&group, one)).collect();
        session.console.raw_out(&format!("{}\n", json!({ "receiving": rows })));
        return Ok(());
    }
    if all.is_empty() {
        session.console.say(format!("Nothing is being received into volume group \"{group}\"."));
    }
    for one in &all {
        for volume in &one.volumes {
            session.console.say(line_of(&group, volume, args.units()));
        }
        match token_of(one) {
            Some(token) => session.console.say(format!("It goes on with: rowen send --resume {token}")),
            None => session.console.say("It has no mark yet: send all of the stream again."),
        }
    }
    Ok(())
}

fn rows_of(group: &str, one: &Unfinished) -> Vec<serde_json::Value> {
    let token = token_of(one);
    let row = |volume: &UnfinishedVolume| {
        json!({
            "group": group,
            "volume": volume.target,
            "snapshot": volume.snapshot,
            "base": volume.base.as_ref().map(|base| &base.name),
            "size_bytes": volume.blocks * BLOCK_SIZE,
            "held_bytes": volume.held_blocks * BLOCK_SIZE,
            "begun": one.created,
            "token": token,
        })
    };
    one.volumes.iter().map(row).collect()
}

fn line_of(group: &str, one: &UnfinishedVolume, units: Units) -> String {
    let size = |blocks: u64| units.show(blocks * BLOCK_SIZE, true).trim_end().to_owned();
    let what = match &one.base {
        Some(base) => format!("from {} to {}", base.name, one.snapshot),
        None => format!("all of {}", one.snapshot),
    };
    format!(
        "{group}/{}: {what}, of {}, is being received and holds {}.",
        one.target,
        size(one.blocks),
        size(one.held_blocks)
    )
}

#[cfg(test)]
#[path = "resume_test.rs"]
mod tests;
