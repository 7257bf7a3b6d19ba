//! The exports as the service sees them: synchronous calls.

use super::{Error, Exports, FrozenGuard, Node, Result, VolumeTarget, usage};
use crate::reactor::Pool;
use rowen_control::protocol::{ErrorKind, IoCounts};
use rowen_control::service::platform::{self, DeviceError, Devices, Done, HeldStill, User};
use rowen_engine::group::{Volume, VolumeInfo};
use rowen_engine::units::VolumeId;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

/// The exports of a group, and the executor for calls to them.
pub struct ExportedDevices {
    pub exports: Arc<Exports>,
    pub pool: Arc<Pool>,
}

impl ExportedDevices {
    fn wait<T, F>(&self, ask: impl FnOnce(Arc<Exports>) -> F) -> Done<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        Ok(self.pool.block_on(ask(self.exports.clone()))?)
    }
}

impl From<Error> for DeviceError {
    fn from(error: Error) -> DeviceError {
        let kind = match &error {
            Error::InUse { .. } => ErrorKind::InUse,
            Error::Foreign { .. } | Error::Active(_) => ErrorKind::Exists,
            Error::BadName(_) => ErrorKind::Invalid,
            Error::NotActive(_) => ErrorKind::NotFound,
            Error::System { .. } | Error::Keeper(_) => ErrorKind::Io,
        };
        let user = match &error {
            Error::InUse { user, .. } => Some(usage::kind(user)),
            _ => None,
        };
        DeviceError { kind, user, why: error.to_string() }
    }
}

impl From<Node> for platform::Node {
    fn from(node: Node) -> platform::Node {
        let Node { name, major, minor, read_only, .. } = node;
        platform::Node { name, major, minor, read_only }
    }
}

impl HeldStill for FrozenGuard {
    fn thaw(self: Box<Self>) {
        FrozenGuard::thaw(*self);
    }
}

/// What uses a device, without the words.
fn kind_of(user: Result<Option<String>>) -> Done<Option<User>> {
    Ok(user?.map(|user| usage::kind(&user)))
}

impl Devices for ExportedDevices {
    fn active(&self) -> Vec<platform::Node> {
        self.exports.active().into_iter().map(platform::Node::from).collect()
    }

    fn find(&self, name: &str) -> Option<platform::Node> {
        self.exports.find(name).map(platform::Node::from)
    }

    fn activate(&self, volume: Arc<Volume>, info: &VolumeInfo, read_only: bool) -> Done<platform::Node> {
        let (target, name) = (VolumeTarget::new(volume, info), info.name.clone());
        let made = self.wait(|exports| async move { exports.activate(&name, target, read_only).await });
        made.map(platform::Node::from)
    }

    fn deactivate(&self, name: &str, unused: bool) -> Done<()> {
        let name = name.to_owned();
        self.wait(|exports| async move {
            match unused {
                true => exports.deactivate_unused(&name).await,
                false => exports.deactivate(&name).await,
            }
        })
    }

    fn rename(&self, from: &str, to: &str) -> Done<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.wait(|exports| async move { exports.rename(&from, &to).await.map(drop) })
    }

    fn resized(&self, name: &str) -> Done<()> {
        let name = name.to_owned();
        self.wait(|exports| async move { exports.resized(&name).await })
    }

    fn set_read_only(&self, name: &str, read_only: bool) -> Done<()> {
        let name = name.to_owned();
        self.wait(|exports| async move { exports.set_read_only(&name, read_only).await })
    }

    fn flush_cache(&self, name: &str) -> Done<()> {
        let name = name.to_owned();
        self.wait(|exports| async move { exports.flush_cache(&name).await })
    }

    fn freeze(&self, names: &[String]) -> Done<Box<dyn HeldStill>> {
        let names = names.to_vec();
        Ok(Box::new(self.wait(|exports| async move { exports.freeze(&names).await })?))
    }

    fn open(&self, nodes: &[platform::Node]) -> Vec<bool> {
        let numbers: Vec<_> = nodes.iter().map(|node| (node.major, node.minor)).collect();
        let open = self.exports.open(&numbers);
        numbers.iter().map(|numbers| open.contains(numbers)).collect()
    }

    fn user(&self, node: &platform::Node) -> Done<Option<User>> {
        kind_of(usage::in_use(node.major, node.minor))
    }

    fn lasting_user(&self, node: &platform::Node) -> Done<Option<User>> {
        kind_of(usage::in_lasting_use(node.major, node.minor))
    }

    fn claimant(&self, node: &platform::Node) -> Done<Option<User>> {
        kind_of(usage::claimed_by(node.major, node.minor))
    }

    fn io(&self) -> Vec<(VolumeId, IoCounts)> {
        self.exports.io().into_iter().map(|(id, counts)| (VolumeId(id), counts)).collect()
    }

    fn request_memory(&self) -> (u64, u64) {
        let (used, limit) = self.exports.memory().used();
        (used as u64, limit as u64)
    }

    fn set_request_memory(&self, bytes: u64) {
        self.exports.memory().set_limit(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    fn keep_io(&self, volumes: &BTreeSet<VolumeId>) {
        self.exports.keep_io(|id| volumes.contains(&VolumeId(id)));
    }

    fn make_names_of(&self, group: &str) -> Done<()> {
        let group = group.to_owned();
        self.wait(|exports| async move { exports.make_names_of(&group).await })
    }

    fn remove_names_of(&self, group: &str) -> Done<()> {
        let group = group.to_owned();
        self.wait(|exports| async move { exports.remove_names_of(&group).await })
    }

    fn move_to(&self, group: &str, reached: fn(&str)) -> Done<()> {
        let group = group.to_owned();
        self.wait(|exports| async move { exports.move_to(&group, reached).await })
    }
}
