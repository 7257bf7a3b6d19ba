//! Names on snapshots that somebody needs: while one is there, the snapshot is not removed. A stream that is sent is one who needs them.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{SelectedGroup, Session};
use rowen_control::holds::{Hold, holds};
use rowen_control::names;
use rowen_control::protocol::{AttributeChange, GroupReport, HexUuid, Request};
use rowen_engine::planted;
use rowen_engine::units::Uuid;
use std::collections::BTreeMap;

/// The name that was given, which is one.
fn name(args: &Args) -> Result<Option<&str>> {
    let name = args.text(Opt::HoldName);
    match name.map(|name| (name, names::check_form(name))) {
        Some((name, Err(refusal))) => {
            Err(Failure::usage(format!("\"{}\" is no name of a hold: {refusal}", name.escape_debug())))
        }
        _ => Ok(name),
    }
}

/// The tags of a volume; none if there is no such volume.
fn tags_of<'r>(report: &'r GroupReport, volume: &str) -> &'r [String] {
    report.volume(volume).map(|found| &found.attributes.tags[..]).unwrap_or_default()
}

pub fn hold(session: &mut Session<'_>, args: &Args) -> Result {
    let name = name(args)?.ok_or_else(|| Failure::usage("Please say by whom it is held: -n NAME."))?;
    if args.positionals.is_empty() {
        return Err(Failure::usage("Please specify snapshots: VG/SNAPSHOT."));
    }
    let mut selection = session.select_by(args, false)?;
    for selected in std::mem::take(&mut selection.groups) {
        if selected.is_whole {
            let message = format!("\"{}\" is a volume group: please specify snapshots.", selected.report.name);
            return Err(Failure::usage(message));
        }
        for volume in &selected.volumes {
            let tags = tags_of(&selected.report, volume);
            let full = format!("{}/{volume}", selected.report.name);
            if holds(tags).any(|hold| hold.name == name && hold.until.is_none()) {
                session.console.say(format!("Logical volume {full} is held by {name} already."));
                continue;
            }
            let add_tags = vec![Hold { name, until: None }.tag()];
            let change = AttributeChange { add_tags, ..AttributeChange::default() };
            let asked = session.change(&selected.report.name, Request::SetAttributes { name: volume.clone(), change });
            match asked {
                Ok(_) => session.console.say(format!("Logical volume {full} is held by {name}.")),
                Err(failure) => {
                    session.tell(&failure);
                    selection.is_incomplete = true;
                }
            }
        }
    }
    selection.end()
}

pub fn release(session: &mut Session<'_>, args: &Args) -> Result {
    let wanted = name(args)?;
    if wanted.is_some() == args.has(Opt::AllHolds) {
        return Err(Failure::usage("Please say which hold ends: -n NAME, or --all."));
    }
    if args.positionals.is_empty() {
        return Err(Failure::usage("Please specify snapshots, or a volume group."));
    }
    let mut selection = session.select_by(args, false)?;
    for selected in std::mem::take(&mut selection.groups) {
        let mut found = 0;
        for volume in &selected.volumes {
            match release_one(session, &selected, volume, wanted) {
                Ok(false) if selected.is_whole => {}
                Ok(false) => {
                    let by = wanted.map_or_else(String::new, |name| format!(" by {name}"));
                    session.console.say(format!("Logical volume {}/{volume} is not held{by}.", selected.report.name));
                }
                Ok(true) => found += 1,
                Err(failure) => {
                    session.tell(&failure);
                    selection.is_incomplete = true;
                }
            }
        }
        if selected.is_whole && found == 0 && !selection.is_incomplete {
            session.console.say(format!("Nothing in volume group \"{}\" is held so.", selected.report.name));
        }
    }
    selection.end()
}

/// Ends the holds of this name, or all. False: there are none.
fn release_one(
    session: &mut Session<'_>,
    selected: &SelectedGroup,
    volume: &str,
    wanted: Option<&str>,
) -> Result<bool> {
    let tags = tags_of(&selected.report, volume);
    let ends: Vec<Hold<'_>> = holds(tags).filter(|hold| wanted.is_none_or(|name| name == hold.name)).collect();
    if ends.is_empty() {
        return Ok(false);
    }
    let change = AttributeChange { remove_tags: ends.iter().map(Hold::tag).collect(), ..AttributeChange::default() };
    session.change(&selected.report.name, Request::SetAttributes { name: volume.to_owned(), change })?;
    let full = format!("{}/{volume}", selected.report.name);
    for hold in ends {
        session.console.say(format!("Logical volume {full} is no longer held by {}.", hold.name));
    }
    Ok(true)
}

/// How long a stream that was cut has its snapshots held.
const FOR_RESUME: u64 = 7 * 24 * 3600;

/// The holds of what is being sent, under the stream's name. They end with it; if it is cut, after a week.
pub struct Sent {
    group: String,
    tag: String,
    /// With the identities of their contents.
    volumes: Vec<(String, Uuid)>,
}

/// What a stream's hold is called.
fn of_stream(stream: [u8; 16]) -> String {
    let digits: String = stream[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("send-{digits}")
}

impl Sent {
    /// Holds what a stream needs. `instead`: the stream that it goes on with, whose holds end. What cannot be held is sent nevertheless.
    pub fn hold(
        session: &mut Session<'_>,
        report: &GroupReport,
        volumes: BTreeMap<String, Uuid>,
        (stream, instead): ([u8; 16], Option<[u8; 16]>),
    ) -> Sent {
        let name = of_stream(stream);
        let tag = Hold { name: &name, until: Some(session.backend.now() + FOR_RESUME) }.tag();
        let before = instead.map(of_stream);
        let mut sent = Sent { group: report.name.clone(), tag, volumes: Vec::new() };
        for (volume, point) in volumes.into_iter().filter(|_| !planted::is("sent_unheld")) {
            let tags = tags_of(report, &volume);
            let ends = holds(tags).filter(|hold| before.as_deref() == Some(hold.name)).map(|hold| hold.tag());
            let change = AttributeChange {
                add_tags: vec![sent.tag.clone()],
                remove_tags: ends.collect(),
                ..AttributeChange::default()
            };
            match session.change(&sent.group, Request::SetAttributes { name: volume.clone(), change }) {
                Ok(_) => sent.volumes.push((volume, point)),
                Err(failure) => {
                    session.console.complain(format!("{}/{volume} is not held while it is sent:", sent.group));
                    session.tell(&failure);
                }
            }
        }
        sent
    }

    /// Whether the stream could go on: all of it is what it was.
    pub fn are_there(&self, session: &mut Session<'_>) -> bool {
        let names = self.volumes.iter().map(|(name, _)| name.clone()).collect();
        // Who does not answer may have all of it.
        let Ok(report) = session.report_of(&self.group, names) else { return true };
        let is_there = |(name, point): &(String, Uuid)| {
            report.volume(name).is_some_and(|volume| volume.point_uuid == Some(HexUuid(*point)))
        };
        self.volumes.iter().all(is_there)
    }

    /// All was sent. A hold that cannot be ended now ends by itself.
    pub fn end(self, session: &mut Session<'_>) {
        for (name, _) in self.volumes {
            let change = AttributeChange { remove_tags: vec![self.tag.clone()], ..AttributeChange::default() };
            if let Err(failure) = session.change(&self.group, Request::SetAttributes { name, change }) {
                session.tell(&failure);
            }
        }
    }
}

#[cfg(test)]
#[path = "holds_test.rs"]
mod tests;
