//! rowen trim: discards a group's free space on its physical volumes.

use super::groups::known_groups;
use crate::failure::{Failure, Result};
use crate::parse::Args;
use crate::session::{Session, unexpected, unless_exported};
use rowen_control::protocol::{Outcome, Request, TrimReport};
use rowen_control::units::sentence;

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    let groups = known_groups(args)?;
    if groups.is_empty() {
        return Err(Failure::usage("Please specify the volume group's name."));
    }
    // A failure in one group does not stop the others.
    let mut end = Ok(());
    for group in groups {
        if let Err(failure) = trim(session, &group) {
            session.tell(&failure);
            end = Err(Failure::Told);
        }
    }
    end
}

fn trim(session: &mut Session<'_>, group: &str) -> Result {
    unless_exported(session.report(group)?)?;
    session.console.progress(0, 0, &format!("Discarding free space in {group}"));
    match session.change(group, Request::Trim)? {
        Outcome::Trimmed(report) => {
            print(session, group, &report);
            Ok(())
        }
        Outcome::Ok if session.is_test => Ok(()),
        other => Err(unexpected(group, &other)),
    }
}

fn print(session: &mut Session<'_>, group: &str, report: &TrimReport) {
    let (discarded, free) = (sentence(report.discarded), sentence(report.free));
    session.console.say(format!("{group}: {discarded} discarded of {free} that are free"));
    for pv in &report.without {
        session.console.say(format!("  {pv} does not support discards: none of its space was given back"));
    }
}
