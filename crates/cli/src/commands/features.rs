//! The format features of groups, and whether this program can open the groups.

use super::groups::known_group;
use crate::backend::PvFormat;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::{Session, no_group};
use rowen_control::history::clean;
use rowen_control::uuids::lvm_text;
use rowen_engine::format::features::{FEATURES, FormatInfo};
use rowen_engine::format::superblock::VERSION;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The width of the longest name and two blanks.
const NAME: usize = 16;

pub fn features(session: &mut Session<'_>, args: &Args) -> Result {
    if args.positionals.is_empty() {
        known(session, args.has(Opt::Json));
        return Ok(());
    }
    let mut wanted: Vec<String> = Vec::with_capacity(args.positionals.len());
    for word in &args.positionals {
        let name = known_group(word)?;
        if !wanted.contains(&name) {
            wanted.push(name);
        }
    }
    let (seen, silent) = session.backend.formats()?;
    silent
        .iter()
        .for_each(|path| session.console.complain(format!("WARNING: {path} does not answer and is left out.")));
    let mut is_well = true;
    let mut rows = Vec::new();
    for name in &wanted {
        let groups = groups(&seen, name);
        if groups.is_empty() {
            session.console.complain(no_group(name));
            is_well = false;
        }
        for group in groups {
            is_well &= group.can_be_opened();
            match args.has(Opt::Json) {
                true => rows.push(as_json(&group)),
                false => lines(&group).iter().for_each(|line| session.console.say(line)),
            }
        }
    }
    if args.has(Opt::Json) {
        session.console.raw_out(&format!("{}\n", json!({"groups": rows})));
    }
    if is_well { Ok(()) } else { Err(Failure::Told) }
}

/// The features that this program knows.
fn known(session: &mut Session<'_>, as_json: bool) {
    if as_json {
        let features: Vec<Value> =
            FEATURES.iter().map(|one| json!({"name": one.name, "bit": one.bit, "what": one.what})).collect();
        session.console.raw_out(&format!("{}\n", json!({"format_version": VERSION, "features": features})));
        return;
    }
    session.console.say(format!("This program opens groups of format version {VERSION} with these features:"));
    for feature in FEATURES {
        session.console.say(format!("  {:<NAME$}{}", feature.name, feature.what));
    }
}

/// The formats of the groups with this name, from the newest superblock of each. If two groups have the name, both are
/// returned.
fn groups(seen: &[PvFormat], name: &str) -> Vec<FormatInfo> {
    let newest = |uuid| {
        let of_group = seen.iter().map(|pv| &pv.format).filter(|format| format.group_uuid == uuid);
        of_group.max_by_key(|format| format.sequence).cloned()
    };
    let uuids: BTreeSet<_> =
        seen.iter().filter(|pv| !pv.format.group.is_empty()).map(|pv| pv.format.group_uuid).collect();
    uuids.into_iter().filter_map(newest).filter(|format| format.group == name).collect()
}

/// The numbers of the bits that are set, from 0.
fn bits(features: u64) -> Vec<u32> {
    (0..u64::BITS).filter(|bit| features & (1 << bit) != 0).collect()
}

fn lines(format: &FormatInfo) -> Vec<String> {
    let verdict = match (format.can_be_opened(), format.can_be_written()) {
        (true, true) => "this program can open it",
        (true, false) => "this program can only read it",
        (false, _) => "this program cannot open it",
    };
    let name = clean(&format.group, 128);
    let mut lines =
        vec![format!("{name} ({}): format version {}; {verdict}", lvm_text(format.group_uuid), format.version)];
    if format.version != VERSION {
        lines.push(format!(
            "  this program knows format version {VERSION} only: use the version of Rowen that made the group"
        ));
        return lines;
    }
    for feature in FEATURES.iter().filter(|feature| format.incompatible & feature.bit != 0) {
        lines.push(format!("  {:<NAME$}{}", feature.name, feature.what));
    }
    for bit in bits(format.unknown()) {
        lines.push(format!(
            "  {:<NAME$}not known to this program: a later version of Rowen added it",
            format!("bit {bit}")
        ));
    }
    for bit in bits(format.unknown_to_writers()) {
        lines.push(format!(
            "  {:<NAME$}not known to this program, which opens the group read-only because of it",
            format!("only read {bit}")
        ));
    }
    for bit in bits(format.compatible) {
        lines.push(format!(
            "  {:<NAME$}not known to this program, which can open the group all the same",
            format!("also {bit}")
        ));
    }
    lines
}

fn as_json(format: &FormatInfo) -> Value {
    let known: Vec<&str> =
        FEATURES.iter().filter(|one| format.incompatible & one.bit != 0).map(|one| one.name).collect();
    json!({
        "name": clean(&format.group, 128),
        "uuid": lvm_text(format.group_uuid),
        "format_version": format.version,
        "can_be_opened": format.can_be_opened(),
        "can_be_written": format.can_be_written(),
        "features": known,
        "unknown_bits": bits(format.unknown()),
        "unknown_read_only_compatible_bits": bits(format.unknown_to_writers()),
        "unknown_compatible_bits": bits(format.compatible),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_apart_from_what_they_mean() {
        assert!(FEATURES.iter().all(|feature| feature.name.len() + 2 <= NAME));
    }
}
