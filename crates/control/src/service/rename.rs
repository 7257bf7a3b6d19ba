//! Renames the group.

use super::failure::{Failure, Result};
use super::state::Service;
use crate::history::What;
use crate::names;
use crate::protocol::{ErrorKind, Outcome};

impl Service {
    /// Renames the group, its devices and its run directory. A process that was started with the old name cannot change
    /// it. So this server ends, and its successor takes over the devices.
    pub fn rename_group(&self, to: &str) -> Result<Outcome> {
        let invalid = |why: String| Failure::new(ErrorKind::Invalid, why);
        names::check_form(to).map_err(|why| invalid(format!("{why}\nNew volume group name \"{to}\" is invalid.")))?;
        if self.platform.members.is_group(to)? {
            let message = format!("New volume group \"{to}\" already exists");
            return Err(Failure::new(ErrorKind::Exists, message));
        }
        let volumes = self.group.volumes();
        if let Some(refusal) = volumes.iter().find_map(|volume| names::pair_too_long(to, &volume.name)) {
            return Err(invalid(refusal));
        }
        let begun = self.platform.notes.renaming(to, self.group.info().uuid);
        let renaming = begun.map_err(|e| Failure::new(ErrorKind::Internal, format!("Cannot begin to rename: {e}.")))?;
        if let Err(failure) = self.platform.devices.make_names_of(to) {
            renaming.end();
            return Err(failure.into());
        }
        (self.reached)("names made");
        let (group, name) = (self.group.clone(), to.to_owned());
        let renamed = self.run(async move { group.rename_group(&name).await });
        if let Err(failure) = self.told(renamed, "") {
            match self.platform.devices.remove_names_of(to) {
                Ok(()) => renaming.end(),
                Err(_) => renaming.leave(),
            }
            return Err(failure);
        }
        (self.reached)("disks renamed");
        // From here on the rename cannot be undone: the disks have the new name.
        self.ending.rename();
        self.announce_end();
        if let Err(failure) = self.platform.devices.move_to(to, self.reached) {
            renaming.leave();
            return Err(failure.into());
        }
        (self.reached)("keeper told");
        renaming.end();
        self.event(What::Changed, &format!("volume group \"{}\" is \"{to}\" from now on", self.name));
        Ok(Outcome::Ok)
    }
}
