//! Verifying a group that no server has open.

use super::failure::{Context, Failure, Result};
use super::presence::{Presence, Taken};
use crate::devices;
use crate::disks::{IoEngine, OpenMode, PvSet};
use crate::reactor::Pool;
use rowen_control::wire::{CheckOutcome, ErrorKind};
use rowen_engine::group::Group;
use std::sync::Arc;

/// Verifies a closed group, read-only or, with `repair`, with damaged copies of metadata written anew. While it lasts, no server can start; one that runs already is the one to ask.
pub fn check_closed(group: &str, repair: bool) -> Result<CheckOutcome> {
    let members = devices::find_group(group)?;
    let internal = |doing, e: std::io::Error| {
        Failure::new(ErrorKind::Internal, format!("Cannot {doing} volume group \"{group}\": {e}."))
    };
    let presence = Presence::take(group).map_err(|e| internal("lock", e))?;
    let _presence = presence.map_err(|Taken(pid)| {
        let by = pid.map(|pid| format!(" by process {pid}")).unwrap_or_default();
        Failure::new(ErrorKind::InUse, format!("Volume group \"{group}\" is open{by}; its server has to check it."))
    })?;
    let mode = if repair { OpenMode::Exclusive } else { OpenMode::ReadOnly };
    let pool = Pool::start(1).map_err(|e| internal("check", e))?;
    let pvs = Arc::new(PvSet::open(&pool, &members.paths, mode, IoEngine::default())?);
    let report = pool.block_on(async move {
        match repair {
            true => Group::repair(pvs).await,
            false => Group::check(pvs).await,
        }
    });
    let devices = |index: usize| members.paths.get(index).cloned();
    let context = Context { group, extent_blocks: 1, devices: &devices };
    report.map(CheckOutcome::from).map_err(|error| context.failure(&error, ""))
}
