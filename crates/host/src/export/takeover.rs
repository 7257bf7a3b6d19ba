//! Devices that a predecessor left with the keeper: they are served again, or removed.

use super::error::Doing;
use super::loopdev::LoopDevice;
use super::{Error, Export, Inner, Result, Target, freeze, fuse, remains};
use crate::keeper::{self, Entry};
use crate::planted;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The outcome for the devices that a predecessor left.
#[derive(Debug, Default)]
pub struct Takeover {
    /// Names of the volumes that were taken over.
    pub taken: Vec<String>,
    /// Devices that could not be taken over, and why; their users get I/O errors.
    pub dropped: Vec<String>,
    /// When the last of them was served again.
    pub served: Option<Instant>,
}

/// Finds the volume that an entry is about, and its present name.
pub(super) type Resolve<'a> = dyn Fn(&Entry) -> Option<(String, Arc<dyn Target>)> + 'a;

/// A device that a successor serves.
struct GoingOn {
    name: String,
    device: LoopDevice,
    size: u64,
    read_only: bool,
    is_renamed: bool,
}

impl Inner {
    /// All are served before anything else is done, because their users wait.
    pub(super) fn takeover(&self, resolve: &Resolve<'_>) -> Result<Takeover> {
        let mut outcome = Takeover::default();
        let keepers = self.keepers.load(Ordering::Acquire);
        let held = self.keeper.lock().held().map_err(|e| Error::Keeper(e.to_string()))?;
        let (mut taken, mut ended) = (Vec::new(), Vec::new());
        for (entry, fd) in held {
            planted::reached()("taking over");
            match self.take_over(&entry, fd, resolve) {
                Ok(going_on) => taken.push(going_on),
                Err(why) => ended.push((entry, why)),
            }
        }
        outcome.served = Some(Instant::now());
        if let Err(e) = self.with_keeper(keeper::Client::send_took_over) {
            crate::journal::warn(format_args!(
                "the keeper of {} does not know that its volumes are served: {e}",
                self.group
            ));
        }
        // K1: another keeper was given what was served by then.
        if keepers != self.keepers.load(Ordering::Acquire) && !planted::is("keeper_has_a_part") {
            taken.iter().try_for_each(|going_on| self.hold_again(&going_on.name))?;
        }
        for going_on in taken {
            if let Err(e) = self.put_right(&going_on) {
                crate::journal::warn(format_args!("{}/{} was taken over, but {e}", self.group, going_on.name));
            }
            outcome.taken.push(going_on.name);
        }
        for (entry, why) in ended {
            self.drop_remains(&entry)?;
            outcome.dropped.push(format!("{}: {why}", entry.name));
        }
        self.clear_remains()?;
        Ok(outcome)
    }

    fn take_over(&self, entry: &Entry, fd: OwnedFd, resolve: &Resolve<'_>) -> std::result::Result<GoingOn, String> {
        let device = LoopDevice { number: entry.loop_number.ok_or("it was not complete")? };
        if device.backing().as_deref() != Some(&self.files.join(&entry.file)) {
            return Err("its loop device is gone".into());
        }
        let (name, target) = resolve(entry).ok_or("there is no such volume any more")?;
        if !planted::is("not_repeated") {
            fuse::mount::resend(&fd).map_err(|e| format!("the kernel cannot repeat requests (Linux 6.9 can): {e}"))?;
        }
        let fd = Arc::new(fd);
        let (connection, ended) = self.serve(fd.clone(), target.clone());
        let (major, minor) = device.numbers().map_err(|e| e.to_string())?;
        let is_renamed = entry.name != name;
        let entry = Entry { name: name.clone(), ..entry.clone() };
        // A device that was activated read-only stays so: the successor may not know the client's list.
        let read_only = target.read_only() || device.is_read_only();
        let export = Export { entry, fd, connection, ended, device, major, minor, read_only };
        self.active.lock().insert(name.clone(), export);
        Ok(GoingOn { name, device, size: target.size(), read_only, is_renamed })
    }

    /// Corrects a device that is served again.
    fn put_right(&self, going_on: &GoingOn) -> Result<()> {
        let GoingOn { name, device, size, read_only, is_renamed } = going_on;
        self.make_names(name, *device)?;
        if device.size()? != *size {
            self.update_size(name)?;
        }
        if device.is_read_only() != *read_only {
            device.set_read_only(*read_only)?;
        }
        if *is_renamed { self.hold_again(name) } else { Ok(()) }
    }

    /// Removes a device that cannot be taken over. Its connection is closed first, so that nothing waits for an answer.
    fn drop_remains(&self, entry: &Entry) -> Result<()> {
        self.with_keeper(|keeper| keeper.release(&entry.file))?;
        let path = self.files.join(&entry.file);
        if let Some(device) = entry.loop_number.map(|number| LoopDevice { number })
            && device.backing().as_deref() == Some(&path)
        {
            device.abandon();
        }
        // Refused when it is not mounted.
        let _ =
            rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW);
        self.remove_file(&entry.file);
        Ok(())
    }

    /// Removes devices that neither this process nor the keeper knows.
    fn clear_remains(&self) -> Result<()> {
        let active = self.active.lock();
        let kept: Vec<_> = active.iter().map(|(name, export)| (name.clone(), export.entry.file.clone())).collect();
        drop(active);
        remains::clear(&self.nodes, &self.files, &kept)?;
        let markers = remains::frozen(&self.run)?;
        // To thaw takes writes, which this process is about to serve.
        let thaw = move || freeze::thaw_left_over(&markers);
        std::thread::Builder::new().name("rowen-thaw".into()).spawn(thaw).doing(|| "start a thread".into()).map(drop)
    }
}
