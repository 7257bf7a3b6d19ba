//! The server of a volume group: one process that holds the group's physical volumes, runs its engine, makes its block
//! devices and carries out what commands ask for over the control socket. And the commands' side of that socket:
//! [`ensure_running`] gives a connection to a group's server and starts one where none runs.
//!
//! # Life
//!
//! * Start, in this order:
//!   1. Take the group's lock.
//!   2. Open the physical volumes exclusively, after a dead predecessor's last writes.
//!   3. Connect to the keeper.
//!   4. Open the group, which recovers it.
//!   5. Take over the exports that the keeper holds.
//!   6. Make the other nodes that existed when the last server of this boot ended.
//!   7. Thaw filesystems that the last server left frozen.
//!   8. Bind the socket.
//! * A server that a command started ends when no volume is active and no request has come for a while.
//! * SIGTERM and SIGINT, no volume in use: the nodes are removed, the group takes a checkpoint and is closed, and the
//!   keeper ends. The volumes keep the attribute "active", so the next start of this boot makes their nodes again.
//! * SIGTERM and SIGINT, a volume in use: a device cannot be removed from under a filesystem. The group takes a
//!   checkpoint and the process ends. The keeper, which holds the exports, starts a successor at once, and users of the
//!   volumes see a pause.
//! * Upgrade (`upgrade`, `successor`): a server of another program gets ready while this one serves. Then this one
//!   closes the group and ends. The keeper, which already runs the new program, returns to this one if the other does
//!   not serve.
//! * Kill: the same as with a volume in use, without the checkpoint.
//! * Under systemd ([`systemd`]) it is a service; a successor makes itself the service's main process.
//! * SIGUSR1: the counters go to the log. SIGHUP: the settings are read again.

mod archive;
mod check;
mod client;
mod doubt;
mod failure;
mod hung;
mod left;
mod listen;
mod log;
mod lost;
mod members;
mod moving;
mod notes;
mod opening;
mod partial;
mod presence;
mod recorder;
mod renaming;
mod returns;
mod run;
mod seek;
mod signals;
mod start;
mod state;
mod steps;
mod successor;
pub(crate) mod systemd;
mod upgrade;
mod watchdog;

pub use check::check_closed;
pub use client::{Client, ConnectError, introduce};
pub use left::accept as accept_disks;
pub use partial::{WentOn, go_on_without};
pub use recorder::command_alone;
pub use rowen_control::service::failure::Failure;
pub use run::{Options, main};
pub use start::{clear_remains, connect, ensure_running};
pub use upgrade::{Upgraded, served_groups, upgrade};

/// Set in the environment of a server that a command starts. The server prints to its standard output when it serves,
/// or why it cannot. It ends by itself when it is not needed.
const LAUNCHED_BY_COMMAND: &str = "ROWEN_LAUNCHED_BY_COMMAND";
