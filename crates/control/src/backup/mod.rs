//! Policies of `rowen backup`: which volumes get a snapshot, how often, how many are kept, and where they are sent. The file of settings
//! is in LVM's syntax, as `rowen.conf` is. Nothing here reads a clock.

mod policy;
mod retention;
pub mod sanoid;
mod state;

pub use policy::{Policies, Policy, Target, Wanted};
pub use retention::{Keep, PERIODS, Period, Shot, kept, removable};
pub use state::{Attempt, State};
