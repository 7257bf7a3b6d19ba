//! How a server opens its group: the disks, and those that it leaves out.
//!
//! * RO2 A group whose volumes may be in use for writing is not opened read-only: writes would fail. Its next server
//!   waits until the group can be written, as it waits for a disk that was pulled.

use super::run::Options;
use super::steps::Steps;
use super::{left, log, lost};
use crate::devices::{self, GroupDevices};
use crate::disks::{OpenError, OpenMode, PvSet, Reason, Recorded};
use crate::reactor::Pool;
use crate::{paths, planted};
use rowen_control::service::failure::{Context, Failure, Result};
use rowen_control::settings::{LayoutSetting, Settings};
use rowen_control::uuids;
use rowen_engine::disk::Disks;
use rowen_engine::error::Error;
use rowen_engine::group::{Config, Group, Layout};
use rowen_engine::units::Uuid;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

/// The group's disks without those that failed in use (LD1), and the disks that failed. If the others are not enough to find
/// the group, none is left out.
pub fn find_members(group: &str) -> Result<(GroupDevices, Vec<Uuid>)> {
    let lost = lost::noted(group);
    match devices::find_group_but(group, &lost, &lost::paths_of_noted(group)) {
        Err(_) if !lost.is_empty() => Ok((wait_for_all(group)?, Vec::new())),
        found => Ok((found?, lost)),
    }
}

/// The group's disks, with those that failed: the others are not enough.
fn wait_for_all(group: &str) -> Result<GroupDevices> {
    lost::give_up(group);
    Ok(devices::find_group(group)?)
}

/// What a server opens its group with.
pub struct Opening<'a> {
    pub options: &'a Options,
    pub settings: &'a Settings,
    pub pool: &'a Arc<Pool>,
    /// A server of the group ran since this host was booted.
    pub same_boot: bool,
    /// How long another may hold the disks.
    pub limit: Duration,
    /// No volume of the group can be written by anyone now: see [`may_only_read`].
    pub may_only_read: bool,
}

/// An open group.
pub struct Opened {
    pub pvs: Arc<PvSet>,
    pub group: Arc<Group>,
    /// Why it is open read-only, if it is (RO1).
    pub read_only: Option<String>,
}

/// Whether the group may be opened read-only (RO2). `has_keeper`: its volumes may be in use.
pub fn may_only_read(group: &str, has_keeper: bool) -> bool {
    !has_keeper || read_only_mark(group).exists() || planted::is("writers_get_errors")
}

/// The mark of a group that is open read-only.
fn read_only_mark(group: &str) -> PathBuf {
    paths::group_dir(group).join("read-only")
}

/// Marks the group for the servers after this one, or takes the mark away.
pub fn mark_read_only(group: &str, is_read_only: bool) {
    let mark = read_only_mark(group);
    let marked = match is_read_only {
        true => fs::write(&mark, ""),
        false => fs::remove_file(&mark).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) }),
    };
    if let Err(e) = marked {
        log::warning(format_args!("cannot change {}: {e}", mark.display()));
    }
}

impl Opening<'_> {
    /// Opens the group, which recovers it. `lost`: the disks that failed. If the group cannot be opened without them, it is
    /// opened with all of its disks.
    pub fn open_members(&self, members: &mut GroupDevices, lost: &[Uuid], steps: &mut Steps) -> Result<Opened> {
        match self.open(&members.paths, !lost.is_empty(), steps) {
            Err(failure) if !lost.is_empty() => {
                let group = &self.options.group;
                log::warning(format_args!(
                    "volume group {group} cannot be opened without what failed: {}",
                    failure.message
                ));
                *members = wait_for_all(group)?;
                self.open(&members.paths, false, steps)
            }
            opened => opened,
        }
    }

    fn open(&self, paths: &[PathBuf], may_miss: bool, steps: &mut Steps) -> Result<Opened> {
        let group = &self.options.group;
        let held = self.hold(paths, OpenMode::Exclusive, steps);
        let why = match &held {
            Err(OpenError { path, reason: Reason::ReadOnly }) if self.may_only_read => {
                format!("{} is read-only", path.display())
            }
            _ => match self.open_held(held?, paths, may_miss, false, steps)? {
                Ok(opened) => return Ok(opened),
                Err(error) if self.may_only_read => error.to_string(),
                Err(error) => return Err(open_failure(group, paths, &error)),
            },
        };
        log::warning(format_args!("volume group {group} is opened read-only: {why}"));
        let pvs = self.hold(paths, OpenMode::ExclusiveReadOnly, steps)?;
        let opened = self.open_held(pvs, paths, may_miss, true, steps)?;
        let opened = opened.map_err(|error| open_failure(group, paths, &error))?;
        Ok(Opened { read_only: Some(why), ..opened })
    }

    fn hold(&self, paths: &[PathBuf], mode: OpenMode, steps: &mut Steps) -> std::result::Result<PvSet, OpenError> {
        let pvs = PvSet::open_waiting(self.pool, paths, mode, self.options.io_engine, self.limit)?;
        steps.done("devices held");
        Ok(pvs)
    }

    /// The inner error: this program can only read the group.
    fn open_held(
        &self,
        pvs: PvSet,
        paths: &[PathBuf],
        may_miss: bool,
        read_only: bool,
        steps: &mut Steps,
    ) -> Result<std::result::Result<Opened, Error>> {
        let Opening { options, settings, pool, .. } = self;
        let pvs = Arc::new(pvs);
        for note in pvs.notes() {
            log::warning(note);
        }
        if self.same_boot {
            left::check(&options.group, paths)?;
        }
        let config = Config {
            cache_bytes: options.cache_bytes,
            rehome: settings.rehome,
            layout: usual_layout(settings.layout, &pvs),
            fill_keeps: settings.fill_keeps,
            discards: settings.discards(),
            leaves_failed_disks: settings.leave_failed_disks && !read_only,
            read_only,
            ..Config::default()
        };
        let (disks, runtime) = (recorded(options, &pvs, pool), pool.runtime());
        let opened = pool.block_on(async move {
            match may_miss {
                true => Group::open_without(disks, runtime, config, uuids::random()).await,
                false => Group::open(disks, runtime, config).await,
            }
        });
        let group = match opened {
            Err(error @ Error::ReadableOnly { .. }) => return Ok(Err(error)),
            opened => opened.map_err(|error| open_failure(&options.group, paths, &error))?,
        };
        steps.done("group opened");
        Ok(Ok(Opened { pvs, group, read_only: None }))
    }
}

/// The layout of volumes without a tag. On rotating disks each piece costs a seek.
fn usual_layout(wanted: LayoutSetting, pvs: &PvSet) -> Layout {
    match wanted {
        LayoutSetting::Auto if pvs.turn() => Layout::Read,
        LayoutSetting::Read => Layout::Read,
        LayoutSetting::Auto | LayoutSetting::Space => Layout::Space,
    }
}

/// The disks, with a record of their I/O if requested. If the record cannot be made, the server runs without it.
fn recorded(options: &Options, pvs: &Arc<PvSet>, pool: &Pool) -> Arc<dyn Disks> {
    let Some(path) = &options.record_io else { return pvs.clone() };
    match Recorded::new(pvs.clone(), pool.runtime(), path) {
        Ok(recorded) => Arc::new(recorded),
        Err(e) => {
            log::warning(format_args!("I/O is not recorded, cannot write {}: {e}", path.display()));
            pvs.clone()
        }
    }
}

fn open_failure(group: &str, paths: &[PathBuf], error: &Error) -> Failure {
    let devices = |index: usize| paths.get(index).cloned();
    Context { group, extent_blocks: 1, devices: &devices }.failure(error, "")
}
