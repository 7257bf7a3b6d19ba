//! Opens a group without its missing physical volumes (rules MB1 and MB4): from then on the superblocks say that these
//! are out, and every server opens the group without them.

use super::left;
use super::presence::{Presence, Taken};
use super::start;
use crate::disks::{IoEngine, MISSING, OpenMode, PvSet};
use crate::reactor::Pool;
use crate::{devices, keeper, witness};
use rowen_control::protocol::ErrorKind;
use rowen_control::service::failure::{Context, Failure, Result};
use rowen_control::service::platform::Membership;
use rowen_control::uuids;
use rowen_engine::group::{Config, Group};
use rowen_engine::units::Uuid;
use std::path::Path;
use std::sync::Arc;

/// How a group goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WentOn {
    /// Physical volumes that it goes on without.
    pub missing: usize,
    /// What is said besides.
    pub warning: Option<String>,
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
    let _presence = Presence::take(group).map_err(|e| internal("lock", e))?.map_err(|Taken(pid)| {
        let by = pid.map(|pid| format!(" by process {pid}")).unwrap_or_default();
        Failure::new(ErrorKind::InUse, format!("Volume group \"{group}\" is open{by}."))
    })?;
    // Who uses a volume now has written to what is lost, and would hear that it is safe.
    if keeper::is_there(group).map_err(|e| internal("look for the keeper of", e))? {
        let message = format!(
            "Volumes of volume group \"{group}\" are active, and its keeper waits for what is missing. Attach it; or end what uses \
             them and the keeper (kill -9; see keeper.log), clear them away with \"rowen stop {group}\", and try again."
        );
        return Err(Failure::new(ErrorKind::InUse, message));
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
        group.close().await.map(|()| membership)
    });
    let devices = |index: usize| members.paths.get(index).cloned();
    let context = Context { group, extent_blocks: 1, devices: &devices };
    let membership = opened.map_err(|error| context.failure(&error, ""))?;
    // A person has said that the disks that are there are the group.
    left::forget(group);
    let missing = members.paths.iter().filter(|path| path.as_path() == Path::new(MISSING)).count();
    let warning = witness::note(&membership).err().map(|e| {
        let file = witness::path(Uuid(membership.group));
        format!("WARNING: Cannot record in {} that VG {group} goes on without them: {e}.", file.display())
    });
    Ok(WentOn { missing, warning })
}
