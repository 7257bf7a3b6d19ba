//! LVM's commands that Rowen refuses. Each message has the reason and the alternative.

use crate::failure::{Failure, Result};
use crate::parse::Args;
use crate::session::Session;

fn refused(why: &str) -> Result {
    Err(Failure::failed(why))
}

/// The same, if the command line names something.
fn refused_if_named(args: &Args, why: &str) -> Result {
    if args.positionals.is_empty() { Err(Failure::NoForm) } else { refused(why) }
}

pub fn vgsplit(_session: &mut Session<'_>, args: &Args) -> Result {
    refused_if_named(
        args,
        "Splitting a volume group is not supported: its volumes share its space and its journal.\n\
         Copy the volumes to a volume group on other physical volumes.",
    )
}

pub fn vgmerge(_session: &mut Session<'_>, args: &Args) -> Result {
    refused_if_named(
        args,
        "Merging volume groups is not supported: each has a history of snapshots of its own.\n\
         Copy the volumes of the one to the other, and extend that with the physical volumes.",
    )
}

pub fn vgimportclone(_session: &mut Session<'_>, args: &Args) -> Result {
    refused_if_named(
        args,
        "Importing a clone is not supported: blocks carry the identifier of their volume group.\n\
         Open the copy on another host, or with the original detached.",
    )
}

pub fn vgconvert(_session: &mut Session<'_>, args: &Args) -> Result {
    refused_if_named(
        args,
        "There is one format of metadata, and nothing to convert; LVM's own volume groups are not opened.",
    )
}
