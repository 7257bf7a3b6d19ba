//! An entry of the table of commands. The table itself is in `table.rs`, which depends on everything that it names.

use crate::failure::Result;
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;

/// What the operands of a command name. Completion offers these names, and `LVM_VG_NAME` adds the group to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// No operands, or operands that are no names.
    Nothing,
    Groups,
    /// Physical volumes, or other files.
    Devices,
    /// A group, and then physical volumes.
    GroupAndDevices,
    /// A group and its volumes; a volume always comes with its group.
    GroupAndVolumes,
    /// Volumes, or groups and tags that stand for their volumes.
    Volumes,
    /// A volume, and then physical volumes or a second volume.
    VolumeFirst,
    /// The origin of a snapshot, or the group of a new volume.
    OriginOrGroup,
}

/// A command's entry.
pub struct Command {
    pub name: &'static str,
    pub summary: &'static str,
    /// It is a command of LVM, and can be called by LVM's name.
    pub is_lvm: bool,
    /// The operands, one string for each form of the command.
    pub forms: &'static [&'static str],
    pub operands: Operands,
    pub options: &'static [Opt],
    /// Examples, each with its meaning.
    pub examples: &'static [(&'static str, &'static str)],
    pub run: fn(&mut Session<'_>, &Args) -> Result,
}

impl Command {
    /// Whether it refuses to run if the settings cannot be read, as LVM's commands do. Rowen's own commands that
    /// inspect or rescue a group run all the same.
    pub fn uses_settings(&self) -> bool {
        self.is_lvm || matches!(self.name, "snapshot" | "revert" | "fullreport" | "tags" | "dumpconfig" | "config")
    }

    /// Whether it only shows what groups are and do. Then it ends in a limited time, whatever hangs.
    pub fn only_shows(&self, args: &Args) -> bool {
        let listings = ["pvs", "vgs", "lvs", "fullreport", "pvdisplay", "vgdisplay", "lvdisplay", "vgscan", "lvscan"];
        match self.name {
            "tree" | "features" | "stats" => true,
            "pvscan" => !args.has(Opt::Cache),
            name => listings.contains(&name),
        }
    }

    /// Whether it may be called by its name alone: LVM's, and what programs know from elsewhere.
    pub fn has_own_name(&self) -> bool {
        self.is_lvm || matches!(self.name, "thin_send" | "thin_recv")
    }

    /// How the user calls it: LVM's commands have their own names.
    pub fn called(&self) -> String {
        if self.has_own_name() { self.name.to_owned() } else { format!("rowen {}", self.name) }
    }
}
