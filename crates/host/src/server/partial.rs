//! Opens a group without its missing physical volumes (rules MB1 and MB4): from then on the superblocks say that these
//! are out, and every server opens the group without them.
//!
//! * RT6 If volumes are in use, their server has died, and its keeper waits for a disk. What these volumes wrote last may
//!   be on that disk alone, and not flushed. So the next flush of each fails once (RT2). Mirrored volumes whose other leg
//!   has everything owe nothing: what was acknowledged is on both legs.

use super::left;
use super::presence;
use super::start;
use crate::disks::{IoEngine, MISSING, OpenMode, PvSet};
use crate::reactor::Pool;
use crate::{devices, keeper, planted, witness};
use rowen_control::protocol::ErrorKind;
use rowen_control::service::failure::{Context, Failure, Result};
use rowen_control::service::platform::Membership;
use rowen_control::uuids;
use rowen_engine::error::Result as EngineResult;
use rowen_engine::group::{Config, Group, SegmentType};
use rowen_engine::units::Uuid;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server that a keeper has started may look for the disks.
const KEEPERS_TRY: Duration = Duration::from_secs(30);

/// How a group goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WentOn {
    /// Physical volumes that it goes on without.
    pub missing: usize,
    /// What is said besides.
    pub warnings: Vec<String>,
}

/// Makes servers open the group without the physical volumes that are missing now. Does nothing if the group is served
/// already, or complete. `anyway`: also if this host has seen a newer state of it (NW2).
pub fn go_on_without(group: &str, anyway: bool) -> Result<WentOn> {
    if start::connect(group)?.is_some() || devices::find_group(group).is_ok() {
        return Ok(WentOn::default());
    }
    let members = devices::find_group_without(group, anyway)?;
    let internal = |doing, e: std::io::Error| {
        Failure::new(ErrorKind::Internal, format!("Cannot {doing} volume group \"{group}\": {e}."))
    };
    for pv in &members.too_small {
        witness::note_cut(*pv).map_err(|e| internal("note what shrank in", e))?;
    }
    let begun = Instant::now();
    let wait = || {
        std::thread::sleep(Duration::from_millis(20));
        begun.elapsed() < KEEPERS_TRY
    };
    let free = presence::take_when_free(group, wait).map_err(|e| internal("lock", e))?;
    let _presence = free.ok_or_else(|| {
        Failure::new(ErrorKind::InUse, format!("Volume group \"{group}\" is open in another process."))
    })?;
    let has_users = keeper::is_there(group).map_err(|e| internal("look for the keeper of", e))?;
    if has_users && !planted::is("partial_owes_nothing") {
        left::note_owed(group, &[left::EVERY]).map_err(|e| internal("note the lost writes of", e))?;
    }
    let pool = Pool::start(1).map_err(|e| internal("open", e))?;
    // A server that has just ended may not have let go of them.
    let (paths, limit) = (&members.paths, devices::LETTING_GO);
    let pvs = PvSet::open_waiting(&pool, paths, OpenMode::Exclusive, IoEngine::default(), limit)?;
    let pvs = Arc::new(pvs);
    let runtime = pool.runtime();
    let opened = pool.block_on(async move {
        let group = Group::open_without(pvs, runtime, Config::default(), uuids::random()).await?;
        let membership = Membership::from(&group.info());
        let owing = volumes_owing(&group).await?;
        group.close().await.map(|()| (membership, owing))
    });
    let devices = |index: usize| members.paths.get(index).cloned();
    let context = Context { group, extent_blocks: 1, devices: &devices };
    let (membership, owing) = opened.map_err(|error| context.failure(&error, ""))?;
    let (owed, mut names): (Vec<u64>, Vec<String>) = owing.into_iter().unzip();
    names.sort();
    let is_owing = has_users && !owed.is_empty();
    if has_users && !planted::is("partial_owes_nothing") {
        left::note_owed(group, &owed).map_err(|e| internal("note the lost writes of", e))?;
    }
    // A person has said that the disks that are there are the group.
    left::forget(group);
    let missing = members.paths.iter().filter(|path| path.as_path() == Path::new(MISSING)).count();
    let mut warnings = Vec::new();
    if is_owing {
        warnings.push(format!(
            "WARNING: Volumes of VG {group} are in use. What was written last to these may be lost, and the next flush of each fails \
             once: {}.",
            names.join(", ")
        ));
    }
    if let Err(e) = witness::note(&membership) {
        let file = witness::path(Uuid(membership.group));
        warnings
            .push(format!("WARNING: Cannot record in {} that VG {group} goes on without them: {e}.", file.display()));
    }
    Ok(WentOn { missing, warnings })
}

/// The volumes whose last writes may be on a physical volume that is out, and nowhere else (RT6): their numbers and names. A mirrored
/// one is among them if its other leg lacks something.
async fn volumes_owing(group: &Group) -> EngineResult<Vec<(u64, String)>> {
    let mut owing = Vec::new();
    for volume in group.volumes() {
        if volume.segment != SegmentType::Raid1 || group.is_partial(volume.id).await? {
            owing.push((volume.id.0, volume.name));
        }
    }
    Ok(owing)
}
