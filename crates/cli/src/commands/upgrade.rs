//! rowen upgrade: replaces running servers and keepers by this program.

use super::groups::known_groups;
use crate::backend::Upgraded;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use std::time::Instant;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A failure in one group does not stop the others.
pub fn upgrade(session: &mut Session<'_>, args: &Args) -> Result {
    let mut groups = known_groups(args)?;
    if groups.is_empty() {
        groups = session.backend.served_groups();
        if groups.is_empty() {
            session.console.say("No volume group has a server on this machine: there is nothing to upgrade.");
            return Ok(());
        }
    }
    let check = args.has(Opt::OnlyCheck) || session.is_test;
    let mut end = Ok(());
    for group in groups {
        let begun = Instant::now();
        match session.backend.upgrade(&group, check) {
            Ok(upgraded) => session.console.say(sentence(&group, upgraded)),
            Err(trouble) => {
                let failure = Failure::from(trouble);
                session.tell(&failure);
                if !check {
                    // The old server has recorded that it was asked to end. This adds the result.
                    session.alone = Some((group, "upgrade"));
                    session.note(begun, &Err(failure));
                }
                end = Err(Failure::Told);
            }
        }
    }
    end
}

fn sentence(group: &str, upgraded: Upgraded) -> String {
    match upgraded {
        Upgraded::NotRunning => {
            format!("No server of volume group \"{group}\" runs: the next command starts Rowen {VERSION}.")
        }
        Upgraded::Tried => format!("Volume group \"{group}\" can be upgraded to Rowen {VERSION}."),
        Upgraded::Done { pause: Some(pause) } => {
            format!("Volume group \"{group}\" is upgraded to Rowen {VERSION}; its volumes waited for {pause} ms.")
        }
        Upgraded::Done { pause: None } => format!("Volume group \"{group}\" is upgraded to Rowen {VERSION}."),
    }
}
