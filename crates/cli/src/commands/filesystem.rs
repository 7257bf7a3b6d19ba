//! Resizes the filesystem on a volume together with the volume: ext2/3/4, xfs and btrfs, by their own tools. To grow,
//! the volume comes first. To shrink, the filesystem comes first. An unmounted filesystem is checked before.

use crate::backend::Backend;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::paths::mapper_path;
use rowen_control::protocol::{GroupReport, VolumeReport};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ext,
    Xfs,
    Btrfs,
}

/// A filesystem that is about to be resized.
#[derive(Debug)]
pub struct Filesystem {
    kind: Kind,
    device: String,
    /// The mount point, if it is mounted.
    point: Option<String>,
}

/// Whether the command line asks to resize the filesystem.
pub fn is_wanted(args: &Args) -> bool {
    args.has(Opt::ResizeFs) || args.text(Opt::FilesystemMode).is_some_and(|mode| mode != "ignore")
}

impl Filesystem {
    /// The filesystem on this volume. One that cannot be resized is refused.
    pub fn on(session: &mut Session<'_>, report: &GroupReport, volume: &VolumeReport) -> Result<Filesystem> {
        let device = mapper_path(&report.name, &volume.name);
        if !volume.node.active {
            let full = format!("{}/{}", report.name, volume.name);
            return Err(Failure::failed(format!(
                "Logical volume {full} must be active to resize its filesystem: lvchange -ay {full}."
            )));
        }
        let kind = match session.backend.filesystem(&device)?.as_deref() {
            Some("ext2" | "ext3" | "ext4") => Kind::Ext,
            Some("xfs") => Kind::Xfs,
            Some("btrfs") => Kind::Btrfs,
            Some(other) => {
                return Err(Failure::failed(format!(
                    "Filesystem \"{other}\" on device \"{device}\" is not supported."
                )));
            }
            None => return Err(Failure::failed(format!("Cannot get FSTYPE of \"{device}\"."))),
        };
        let point = session.backend.mounted_at(volume.node.major, volume.node.minor);
        Ok(Filesystem { kind, device, point })
    }

    /// The steps before the volume grows.
    pub fn before_growth(&self, session: &mut Session<'_>, args: &Args) -> Result {
        self.check(session, args)
    }

    /// Grows the filesystem to the volume's new size.
    pub fn grow(&self, session: &mut Session<'_>) -> Result {
        match self.kind {
            Kind::Ext => self.tool(session, &["resize2fs", &self.device]),
            Kind::Xfs => self.mounted(session, |session, point| self.tool(session, &["xfs_growfs", point])),
            Kind::Btrfs => self.mounted(session, |session, point| {
                self.tool(session, &["btrfs", "filesystem", "resize", "max", point])
            }),
        }
    }

    /// Shrinks the filesystem to `bytes`.
    pub fn shrink(&self, session: &mut Session<'_>, args: &Args, bytes: u64) -> Result {
        match (self.kind, &self.point) {
            (Kind::Xfs, _) => Err(Failure::failed(format!(
                "Xfs filesystem shrinking is unsupported; the filesystem on {} stays as it is.",
                self.device
            ))),
            (Kind::Ext, Some(point)) => Err(Failure::failed(format!(
                "The filesystem on {} can be reduced only while it is not mounted: umount {point}.",
                self.device
            ))),
            (Kind::Ext, None) => {
                self.check(session, args)?;
                self.tool(session, &["resize2fs", &self.device, &format!("{}K", bytes / 1024)])
            }
            (Kind::Btrfs, _) => {
                self.check(session, args)?;
                let size = bytes.to_string();
                self.mounted(session, |session, point| {
                    self.tool(session, &["btrfs", "filesystem", "resize", &size, point])
                })
            }
        }
    }

    /// `--nofsck` skips the check. A mounted filesystem cannot be checked.
    fn check(&self, session: &mut Session<'_>, args: &Args) -> Result {
        if self.point.is_some() || args.has(Opt::NoFsck) {
            return Ok(());
        }
        match self.kind {
            // 1: errors were found and repaired.
            Kind::Ext => self.tool_ending_with(session, &["e2fsck", "-f", "-p", &self.device], &[0, 1]),
            Kind::Xfs => Ok(()),
            Kind::Btrfs => self.tool(session, &["btrfs", "check", &self.device]),
        }
        .map_err(|failure| {
            session.tell(&failure);
            Failure::failed("Filesystem check failed.")
        })
    }

    /// Some filesystems are resized by their mount point. One that is not mounted is mounted for the resize.
    fn mounted(&self, session: &mut Session<'_>, act: impl FnOnce(&mut Session<'_>, &str) -> Result) -> Result {
        if let Some(point) = &self.point {
            return act(session, point);
        }
        if session.is_test {
            return Ok(());
        }
        let point = session.backend.temporary_directory()?;
        let outcome = self.tool(session, &["mount", &self.device, &point]).and_then(|()| {
            let outcome = act(session, &point);
            outcome.and(self.tool(session, &["umount", &point]))
        });
        session.backend.remove_directory(&point);
        outcome
    }

    fn tool(&self, session: &mut Session<'_>, words: &[&str]) -> Result {
        self.tool_ending_with(session, words, &[0])
    }

    fn tool_ending_with(&self, session: &mut Session<'_>, words: &[&str], good: &[i32]) -> Result {
        if session.is_test {
            return Ok(());
        }
        // The output so far must come before the output of the tool.
        session.console.flush();
        let code = Backend::run_tool(session.backend, words)?;
        match good.contains(&code) {
            true => Ok(()),
            false => Err(Failure::failed(format!("{} failed on {} (exit code {code}).", words[0], self.device))),
        }
    }
}
