//! A server that replaces another one in an upgrade. The keeper starts it while the old one serves. It gets ready,
//! except for the disks, so that the pause for users is short.

use super::presence::{self, Presence};
use crate::reactor::Pool;
use crate::reactor::latency::Latency;
use crate::{devices, keeper};
use rowen_control::protocol::ErrorKind;
use rowen_control::service::failure::{Failure, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval of checks for the old server's end.
const POLL_EVERY: Duration = Duration::from_millis(1);
/// The limit for the old server's end.
const LONGEST: Duration = Duration::from_secs(180);
/// How long to wait for the old server's end after the keeper's end.
const LAST_CHANCE: Duration = Duration::from_secs(2);

/// The state of a successor before it is the server.
pub struct Ready {
    pub pool: Arc<Pool>,
    pub keeper: keeper::Client,
    pub presence: Presence,
}

/// Whether the keeper started this process as one.
pub fn is_one() -> bool {
    std::env::var_os(keeper::SUCCESSOR).is_some()
}

/// Gets ready, and waits for the old server's end.
pub fn await_end(
    group: &str,
    workers: usize,
    latency: Option<Arc<Latency>>,
    members: &mut devices::GroupDevices,
    reached: fn(&str),
) -> Result<Ready> {
    let failed = |doing: &str, e: &dyn std::fmt::Display| {
        let message = format!("The successor of the server of volume group \"{group}\" cannot {doing}: {e}.");
        Failure::new(ErrorKind::Internal, message)
    };
    reached("successor started");
    let noted = devices::members::read(group);
    let pool = Arc::new(Pool::start_alert(workers, latency).map_err(|e| failed("start its workers", &e))?);
    let keeper = keeper::Client::prepare(group).map_err(|e| failed("reach the keeper", &e))?;
    reached("successor prepared");
    keeper.send_ready().map_err(|e| failed("tell the keeper that it is ready", &e))?;
    reached("successor ready");
    let deadline = Instant::now() + LONGEST;
    let alone_since = std::cell::Cell::new(None);
    let wait = || {
        if alone_since.get().is_some() {
            std::thread::sleep(POLL_EVERY);
        } else if keeper.is_gone_within(POLL_EVERY) {
            // UP2: this process has copies of the keeper's descriptors. If the old server is alive, it starts another
            // keeper.
            alone_since.set(Some(Instant::now()));
        }
        let is_given_up = alone_since.get().is_some_and(|since: Instant| since.elapsed() > LAST_CHANCE);
        Instant::now() < deadline && !is_given_up
    };
    let presence = presence::take_when_free(group, wait).map_err(|e| failed("take the lock", &e))?;
    let Some(presence) = presence else {
        let message = format!("Volume group \"{group}\" is served by the server before this one, which goes on.");
        return Err(Failure::new(ErrorKind::Exists, message));
    };
    reached("successor takes over");
    // A physical volume that joined or left in the meantime.
    let noted_now: Vec<PathBuf> = devices::members::read(group);
    if noted_now != noted {
        *members = devices::find_group(group)?;
    }
    Ok(Ready { pool, keeper, presence })
}
