//! What `lvm` tells about itself and this host: kinds of volume, formats, configuration. Most of it is short here.

use crate::failure::{Failure, Result};
use crate::options::TYPES;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::units::sentence;

pub fn segtypes(session: &mut Session<'_>, _args: &Args) -> Result {
    TYPES.iter().for_each(|kind| session.console.say(kind));
    Ok(())
}

pub fn formats(session: &mut Session<'_>, _args: &Args) -> Result {
    session.console.say("lvm2");
    Ok(())
}

pub fn devtypes(session: &mut Session<'_>, _args: &Args) -> Result {
    session.console.say("block  any block device");
    session.console.say("file   a regular file");
    Ok(())
}

pub fn host_tags(_session: &mut Session<'_>, _args: &Args) -> Result {
    Ok(())
}

pub fn system_id(session: &mut Session<'_>, _args: &Args) -> Result {
    session.console.say("system ID: ");
    Ok(())
}

/// No configuration is read, so no node of it is there; without a name there is nothing to show.
pub fn config(_session: &mut Session<'_>, args: &Args) -> Result {
    match args.positionals.first() {
        None => Ok(()),
        Some(name) => Err(Failure::failed(format!("Configuration node {name} not found"))),
    }
}

pub fn diskscan(session: &mut Session<'_>, _args: &Args) -> Result {
    let labels = session.backend.labels()?;
    let shown = labels.iter().filter(|label| label.trouble.is_none());
    let mut count = 0;
    for label in shown {
        session.console.say(format!("{} [{:>16}] LVM physical volume", label.path, sentence(label.size)));
        count += 1;
    }
    session.console.say("0 disks");
    session.console.say("0 partitions");
    session.console.say(format!("{count} LVM physical volume whole disks"));
    session.console.say("0 LVM physical volumes");
    Ok(())
}
