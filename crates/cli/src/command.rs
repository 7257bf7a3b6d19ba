//! What the table says of one command. The table itself is in `table.rs`, above all that it names.

use crate::failure::Result;
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;

/// What the operands of a command name. Completion offers these names, and `LVM_VG_NAME` completes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// There are none, or they are no names.
    Nothing,
    Groups,
    /// Physical volumes, or other files.
    Devices,
    /// A group, and then physical volumes.
    GroupAndDevices,
    /// A group and its volumes; a volume always comes with its group.
    GroupAndVolumes,
    /// Volumes, and groups and tags that stand for theirs.
    Volumes,
    /// A volume, and then what belongs to it: physical volumes, or a second volume.
    VolumeFirst,
    /// The origin of a snapshot, or the group of a new volume.
    OriginOrGroup,
}

/// A command's entry.
pub struct Command {
    pub name: &'static str,
    pub summary: &'static str,
    /// It has LVM's name, and may be called by it.
    pub is_lvm: bool,
    /// What may follow the options, a form each.
    pub forms: &'static [&'static str],
    pub operands: Operands,
    pub options: &'static [Opt],
    /// Each with what it does.
    pub examples: &'static [(&'static str, &'static str)],
    pub run: fn(&mut Session<'_>, &Args) -> Result,
}

impl Command {
    /// Whether it refuses to run over settings that cannot be read, as LVM's commands do. Rowen's own that look at a
    /// group or rescue it do not.
    pub fn heeds_settings(&self) -> bool {
        self.is_lvm || matches!(self.name, "snapshot" | "revert" | "fullreport" | "tags" | "dumpconfig" | "config")
    }

    /// Whether it may be called by its name alone: LVM's, and what programs know from elsewhere.
    pub fn has_own_name(&self) -> bool {
        self.is_lvm || matches!(self.name, "thin_send" | "thin_recv")
    }

    /// How it is called: LVM's commands have names of their own.
    pub fn called(&self) -> String {
        if self.has_own_name() { self.name.to_owned() } else { format!("rowen {}", self.name) }
    }
}
