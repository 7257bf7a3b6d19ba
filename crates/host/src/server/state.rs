//! The state of a running server: the service, and the devices, disks and files below it.

use super::archive::Archive;
use super::listen::Handler;
use super::notes::ServerNotes;
use crate::devices::Identity;
use crate::disks::PvSet;
use crate::export::{self, Exports};
use crate::reactor::Pool;
use rowen_control::protocol::{Caller, ErrorKind, Outcome, Request};
use rowen_control::service::Service;
use rowen_control::service::platform::Executor;
use rowen_engine::disk::PvIndex;
use rowen_engine::runtime::Task;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A running server.
pub struct Server {
    pub service: Service,
    pub exports: Arc<Exports>,
    pub archive: Arc<Archive>,
    pub notes: Arc<ServerNotes>,
    pub pvs: Arc<PvSet>,
    // The last field, so that it is dropped last: everything above runs on it.
    pub pool: Arc<Pool>,
}

impl Server {
    /// The device or file that was opened for a physical volume.
    pub fn identity(&self, pv: PvIndex) -> Option<Identity> {
        Identity::of_stat(&self.pvs.stat(pv)?)
    }

    /// Runs a request to the exports.
    pub fn export<T, F>(&self, ask: impl FnOnce(Arc<Exports>) -> F) -> export::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = export::Result<T>> + Send + 'static,
    {
        self.pool.block_on(ask(self.exports.clone()))
    }
}

impl Handler for Server {
    fn handle(&self, request: Request, caller: &Caller, interim: &mut dyn FnMut(Outcome)) -> Outcome {
        if matches!(request, Request::Upgrade { .. }) && !self.exports.can_be_taken_over() {
            let message = format!(
                "Volume group \"{}\" cannot be upgraded while volumes are active: this kernel does not repeat requests to \
                 another server (Linux 6.9 can). Deactivate them, or restart at a quiet moment.",
                self.service.name
            );
            return Outcome::Error { kind: ErrorKind::Denied, message };
        }
        let mut outcome = self.service.handle(request, caller, interim);
        if let Outcome::Status(report) = &mut outcome {
            report.keeper_deaths = self.exports.keeper_deaths();
        }
        outcome
    }
}

/// The interval of progress checks during long work.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Runs the engine's work on the workers.
pub struct Workers(pub Arc<Pool>);

impl Executor for Workers {
    fn complete_polling(&self, work: Task, poll: &mut dyn FnMut()) {
        self.0.block_on_polling(work, POLL_EVERY, poll);
    }
}
