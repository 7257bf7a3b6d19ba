//! A request to end, for the code that runs the service.

use parking_lot::Mutex;
use rowen_engine::disk::PvIndex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the service must end, and how.
#[derive(Default)]
pub struct Ending {
    asked: AtomicBool,
    destroyed: AtomicBool,
    renamed: AtomicBool,
    reopened: AtomicBool,
    goes_on: AtomicBool,
    upgraded: AtomicBool,
    leaving: Mutex<Option<PvIndex>>,
    lost: Mutex<Option<PvIndex>>,
    hangs: AtomicBool,
}

impl Ending {
    /// The service must end. `destroyed`: there is nothing to checkpoint.
    pub(super) fn ask(&self, destroyed: bool) {
        self.destroyed.fetch_or(destroyed, Ordering::SeqCst);
        self.asked.store(true, Ordering::SeqCst);
    }

    /// The group has another name from now on.
    pub(super) fn rename(&self) {
        self.renamed.store(true, Ordering::SeqCst);
        self.ask(false);
    }

    /// Another server is to open the group.
    pub(super) fn reopen(&self) {
        self.reopened.store(true, Ordering::SeqCst);
        self.ask(false);
    }

    /// The same because a disk is back, without a request.
    pub(super) fn go_on(&self) {
        self.goes_on.store(true, Ordering::SeqCst);
        self.reopen();
    }

    /// The same because a physical volume failed, and unasked.
    pub(super) fn lose(&self, pv: PvIndex) {
        *self.lost.lock() = Some(pv);
        self.go_on();
    }

    /// Requests to a disk hang: whoever found that ends the process, and nobody else may (MB10). Or not, after all.
    pub fn set_hanging(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }

    pub fn is_hanging(&self) -> bool {
        self.hangs.load(Ordering::SeqCst)
    }

    /// A successor of another version is ready.
    pub(super) fn upgrade(&self) {
        self.upgraded.store(true, Ordering::SeqCst);
        self.ask(false);
    }

    /// The close must also remove this physical volume from the group.
    pub(super) fn leave_out(&self, pv: PvIndex) {
        *self.leaving.lock() = Some(pv);
        self.ask(false);
    }

    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// The group is gone.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::SeqCst)
    }

    /// The group has another name.
    pub fn is_renamed(&self) -> bool {
        self.renamed.load(Ordering::SeqCst)
    }

    /// Another server is to open the group.
    pub fn is_reopened(&self) -> bool {
        self.reopened.load(Ordering::SeqCst)
    }

    /// Another server is to open the group, without a request.
    pub fn is_unasked(&self) -> bool {
        self.goes_on.load(Ordering::SeqCst)
    }

    /// A successor of another version is ready.
    pub fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::SeqCst)
    }

    /// The physical volume that failed, which the next server must leave out.
    pub fn lost(&self) -> Option<PvIndex> {
        *self.lost.lock()
    }

    /// The physical volume to remove from the group.
    pub fn leaving(&self) -> Option<PvIndex> {
        *self.leaving.lock()
    }
}
