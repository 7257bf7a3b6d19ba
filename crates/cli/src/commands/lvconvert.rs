//! lvconvert --merge: the origin gets the snapshot's contents at once, and the snapshot is gone.

use super::volumes::{Role, role};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::wire::Request;

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    let is_merge = args.has(Opt::Merge) || args.has(Opt::MergeSnapshot);
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
