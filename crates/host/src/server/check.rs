//! Verifying a group that no server has open.

use super::presence::{Presence, Taken};
use super::start;
use crate::disks::{IoEngine, OpenMode, PvSet, holders};
use crate::reactor::Pool;
use crate::{devices, paths};
use parking_lot::Mutex;
use rowen_control::protocol::{CheckOutcome, ErrorKind};
use rowen_control::service::failure::{Context, Failure, Result};
use rowen_engine::group::{CheckProgress, Group};
use std::sync::Arc;
use std::time::Duration;

/// How often the progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Verifies a closed group read-only or, with `repair`, repairs damaged copies of metadata. If a server runs, ask the
/// server instead. A check does not prevent a server from starting. If one has opened the group meanwhile, the result
/// is invalid, and that server must be asked. During a repair no server can start. `progress` is called about ten times
/// a second with the metadata nodes that were read, and with an upper bound of them.
pub fn check_closed(group: &str, repair: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckOutcome> {
    let members = devices::find_group(group)?;
    let internal = |doing, e: std::io::Error| {
        Failure::new(ErrorKind::Internal, format!("Cannot {doing} volume group \"{group}\": {e}."))
    };
    let begun = Servers::of(group)?;
    let _presence = match repair {
        false => None,
        true => {
            Some(Presence::take(group).map_err(|e| internal("lock", e))?.map_err(|Taken(pid)| open_by(group, pid))?)
        }
    };
    let mode = if repair { OpenMode::Exclusive } else { OpenMode::ReadOnly };
    let pool = Pool::start(1).map_err(|e| internal("check", e))?;
    let pvs = Arc::new(PvSet::open(&pool, &members.paths, mode, IoEngine::default())?);
    let seen = Arc::new(Mutex::new(CheckProgress::default()));
    let sees = seen.clone();
    let check = async move { Group::verify(pvs, repair, &move |progress| *sees.lock() = progress).await };
    let report = pool.block_on_polling(check, REPORT_EVERY, &mut || {
        let CheckProgress { nodes, total } = *seen.lock();
        progress(nodes, total);
    });
    if !repair && Servers::of(group)? != begun {
        return Err(open_by(group, None));
    }
    let devices = |index: usize| members.paths.get(index).cloned();
    let context = Context { group, extent_blocks: 1, devices: &devices };
    report.map(CheckOutcome::from).map_err(|error| context.failure(&error, ""))
}

fn open_by(group: &str, pid: Option<u32>) -> Failure {
    let by = pid.map(|pid| format!(" by process {pid}")).unwrap_or_default();
    Failure::new(ErrorKind::InUse, format!("Volume group \"{group}\" is open{by}; its server has to check it."))
}

/// The servers that a group had: each writes its number, and holds a lock that nobody who only looks may take.
#[derive(PartialEq, Eq)]
struct Servers {
    last: Vec<u8>,
}

impl Servers {
    /// Refused while there is one.
    fn of(group: &str) -> Result<Servers> {
        let path = paths::pid_file(group);
        let is_locked = std::fs::metadata(&path).is_ok_and(|file| holders::locker_of(&file).is_some());
        if is_locked || start::connect(group)?.is_some() {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            return Err(open_by(group, text.trim().parse().ok()));
        }
        Ok(Servers { last: std::fs::read(&path).unwrap_or_default() })
    }
}
