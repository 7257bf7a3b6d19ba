//! lvconvert --merge: the origin gets the snapshot's contents at once, and the snapshot is gone. Every other conversion is
//! refused.

use super::volumes::{Role, role};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::wire::Request;

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    let conversions = [
        Opt::Type,
        Opt::Thin,
        Opt::ThinPool,
        Opt::Snapshot,
        Opt::SplitSnapshot,
        Opt::Repair,
        Opt::Mirrors,
        Opt::MergeMirrors,
        Opt::ConvertStripes,
    ];
    if conversions.into_iter().any(|option| args.has(option)) {
        return Err(Failure::failed(
            "Volumes are not converted: any of them has snapshots without it, and damage is for \"rowen check\" and \"rowen repair\".",
        ));
    }
    let is_merge = args.has(Opt::Merge) || args.has(Opt::MergeSnapshot) || args.has(Opt::MergeThin);
    if !is_merge || args.positionals.is_empty() {
        return Err(Failure::NoForm);
    }
    let mut end = Ok(());
    for word in &args.positionals {
        if let Err(failure) = merge(session, word) {
            let code = failure.exit_code();
            if code != crate::failure::exit::FAILED {
                return Err(failure);
            }
            session.tell(&failure);
            end = Err(Failure::Told);
        }
    }
    end
}

fn merge(session: &mut Session<'_>, word: &str) -> Result {
    let missing = |group: &str, name: &str| format!("Failed to find logical volume \"{group}/{name}\"");
    let (report, snapshot) = session.one_volume(word, missing)?;
    let (group, name) = (&report.name, &snapshot.name);
    let Some(origin) = snapshot.origin.clone() else {
        return Err(Failure::failed(format!("\"{group}/{name}\" is not a mergeable logical volume.")));
    };
    session.change(group, Request::Merge { snapshot: name.clone() })?;
    if role(&snapshot) == Role::Thin {
        session.console.say(format!("Volume {group}/{name} replaced origin {group}/{origin}."));
    } else {
        session.console.say(format!("Merging of volume {group}/{name} started."));
        session.console.say(format!("{group}/{origin}: Merged: 100.00%"));
        session.console.say(format!("Merge of snapshot into logical volume {group}/{origin} has finished."));
        session.console.say(format!("Logical volume \"{name}\" successfully removed."));
    }
    Ok(())
}
