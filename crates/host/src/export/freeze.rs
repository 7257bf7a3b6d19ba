//! Freezes filesystems during a snapshot: the server's side. A helper does the work (`helper/hold.rs`).

use super::error::{Doing, Error, Result};
use crate::helper::hold::{Held, Progress, Stage, Thaw};
use crate::helper::{self, Job, Session, is_late};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Finding the filesystems. Only a mount that another user made can take long.
const FIND: Duration = Duration::from_secs(5);
/// Writing out their cached data: perhaps gigabytes, on a slow disk.
const SYNC: Duration = Duration::from_secs(600);
/// Freezing and thawing what was written out just now.
const FREEZE: Duration = Duration::from_secs(60);

/// The environment may change it, for tests and unusual hosts: `ROWEN_FREEZE_SECONDS`.
fn freeze_limit() -> Duration {
    let seconds = std::env::var("ROWEN_FREEZE_SECONDS").ok().and_then(|text| text.parse().ok());
    seconds.map_or(FREEZE, Duration::from_secs)
}

/// Frozen filesystems. Dropping it thaws them on a separate thread; [`FrozenGuard::thaw`] waits for the thaw.
#[derive(Default)]
pub struct FrozenGuard {
    helper: Option<Session>,
    /// What says what is frozen, should the helper be killed.
    markers: Vec<PathBuf>,
}

/// Why a helper did not hold them still.
struct Failed {
    /// The last thing that it has done.
    after: Option<Stage>,
    why: Error,
    is_late: bool,
}

/// Writes out the cached data of these volumes and freezes the filesystems on them until the guard is dropped. After an
/// error nothing stays frozen.
pub(super) fn freeze(volumes: Vec<Held>) -> Result<FrozenGuard> {
    if volumes.is_empty() {
        return Ok(FrozenGuard::default());
    }
    match attempt(&volumes, false) {
        // Whatever somebody put in the way of another mount namespace's mounts stays in their way only.
        Err(failed) if failed.is_late && failed.after.is_none() => attempt(&volumes, true),
        attempted => attempted,
    }
    .map_err(|failed| failed.why)
}

fn attempt(volumes: &[Held], near: bool) -> std::result::Result<FrozenGuard, Failed> {
    let failed = |after, doing: &str, source: io::Error| {
        let is_late = is_late(&source);
        Failed { after, why: Error::System { doing: doing.into(), source }, is_late }
    };
    let start = Session::start(Job::Hold { volumes: volumes.to_vec(), near });
    let mut helper = start.map_err(|e| failed(None, "start a helper process", e))?;
    let markers: Vec<PathBuf> = volumes.iter().map(|held| held.marker.clone()).collect();
    let mut after = None;
    let steps = [
        (FIND, "find the filesystems that are to be snapshotted"),
        (SYNC, "write out the filesystems that are to be snapshotted"),
        (freeze_limit(), "freeze the filesystems that are to be snapshotted"),
    ];
    for (limit, doing) in steps {
        match helper.receive::<Progress>(limit) {
            Ok(Ok(Stage::Nothing)) => {
                helper.end();
                return Ok(FrozenGuard::default());
            }
            Ok(Ok(stage)) => after = Some(stage),
            Ok(Err(trouble)) => return Err(Failed { after, why: trouble.into(), is_late: false }),
            Err(e) => {
                if !is_late(&e) {
                    // H5: it was killed. A late helper sees that its socket closes, and thaws.
                    thaw_left_over(&markers);
                }
                return Err(failed(after, doing, e));
            }
        }
    }
    Ok(FrozenGuard { helper: Some(helper), markers })
}

impl FrozenGuard {
    /// Thaws, and waits until it is done. Blocks.
    pub fn thaw(mut self) {
        self.release();
    }

    fn release(&mut self) {
        let Some(mut helper) = self.helper.take() else { return };
        let thawed = helper.send(&Thaw).and_then(|()| helper.receive::<Progress>(FREEZE));
        match thawed {
            Ok(_) => helper.end(),
            Err(e) if is_late(&e) => crate::journal::warn(format_args!("cannot thaw filesystems in time: {e}")),
            Err(_) => thaw_left_over(&self.markers),
        }
    }
}

impl Drop for FrozenGuard {
    fn drop(&mut self) {
        if self.helper.is_none() {
            return;
        }
        let mut guard = FrozenGuard { helper: self.helper.take(), markers: std::mem::take(&mut self.markers) };
        // Without a thread the socket ends here, and the helper thaws by itself.
        let _ = std::thread::Builder::new().name("rowen-thaw".into()).spawn(move || guard.release());
    }
}

/// Asks a helper to thaw the filesystems of these markers, which killed helpers left. Waits for it.
pub(super) fn thaw_left_over(markers: &[PathBuf]) {
    let markers: Vec<PathBuf> = markers.iter().filter(|marker| marker.exists()).cloned().collect();
    if markers.is_empty() {
        return;
    }
    let thawed = Session::start(Job::Thaw(markers.clone()))
        .and_then(|mut session| session.receive::<helper::Answer>(FREEZE).inspect(|_| session.end()))
        .doing(|| format!("thaw the filesystems that {markers:?} name"));
    if let Err(e) = thawed {
        crate::journal::warn(format_args!("{e}"));
    }
}
