//! Rowen under simulation. Disks fail on request, a seed drives the scheduler, and an oracle knows what a volume may
//! hold. Explorers cut the power at every disk command.
//!
//! [`exec`] is the world (time and tasks), [`disk`] the disks in it. [`oracle`] knows every version of every sector
//! that was ever written, and says which may be read, now or after a crash. [`client`] does operations on the real
//! engine and records them in the oracle.
//!
//! Five modules use these:
//!
//! * [`model`]: random operations, with accounting;
//! * [`crash`]: every cut of a scenario;
//! * [`steps`]: every cut of changes that the oracle does not know;
//! * [`sweep`]: every request fails once;
//! * [`worlds`]: whole lives of a group.
//!
//! [`forge`] makes hostile images. [`progress`] reports the progress of a long run.
//!
//! `ROWEN_SIM_SEEDS` (percent) scales the tests' effort ([`effort`]). Every failure prints the line that replays it.
//! With `ROWEN_TRACE=1` that run shows each step. `ROWEN_STRICT=N` checks all accounts after step N of a model run (0:
//! after each).
#![forbid(unsafe_code)]

pub mod accounts;
pub mod client;
pub mod crash;
pub mod disk;
pub mod effort;
pub mod exec;
pub mod fan_out;
pub mod forge;
pub mod hostile;
pub mod model;
pub mod oracle;
pub mod progress;
pub mod rng;
pub mod scenario;
pub mod stamp;
pub mod steps;
pub mod sweep;
pub mod worlds;
