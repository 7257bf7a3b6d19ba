//! What `lvm` reports about itself and this host: segment types, formats, tags.

use crate::failure::Result;
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

pub fn host_tags(session: &mut Session<'_>, _args: &Args) -> Result {
    let tags = session.lists.host_tags.clone();
    tags.iter().for_each(|tag| session.console.say(tag));
    Ok(())
}

pub fn system_id(session: &mut Session<'_>, _args: &Args) -> Result {
    session.console.say("system ID: ");
    Ok(())
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
