//! How a server opens its group: the disks, and those that it leaves out.

use super::run::Options;
use super::steps::Steps;
use super::{left, log, lost};
use crate::devices::{self, GroupDevices};
use crate::disks::{OpenMode, PvSet, Recorded};
use crate::reactor::Pool;
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

/// The group's disks without those that failed in use (LD1), and the disks that failed. If the others are not enough to find
/// the group, none is left out.
pub fn find_members(group: &str) -> Result<(GroupDevices, Vec<Uuid>)> {
    let lost = lost::noted(group);
    match devices::find_group_but(group, &lost) {
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
}

impl Opening<'_> {
    /// Opens the group, which recovers it. `lost`: the disks that failed. If the group cannot be opened without them, it is
    /// opened with all of its disks.
    pub fn open_members(
        &self,
        members: &mut GroupDevices,
        lost: &[Uuid],
        steps: &mut Steps,
    ) -> Result<(Arc<PvSet>, Arc<Group>)> {
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

    fn open(&self, paths: &[PathBuf], may_miss: bool, steps: &mut Steps) -> Result<(Arc<PvSet>, Arc<Group>)> {
        let Opening { options, settings, pool, .. } = self;
        let pvs = PvSet::open_waiting(pool, paths, OpenMode::Exclusive, options.io_engine, self.limit)?;
        steps.done("devices held");
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
            leaves_failed_disks: true,
            ..Config::default()
        };
        let (disks, runtime) = (recorded(options, &pvs, pool), pool.runtime());
        let opened = pool.block_on(async move {
            match may_miss {
                true => Group::open_without(disks, runtime, config, uuids::random()).await,
                false => Group::open(disks, runtime, config).await,
            }
        });
        let group = opened.map_err(|error| open_failure(&options.group, paths, &error))?;
        steps.done("group opened");
        Ok((pvs, group))
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
