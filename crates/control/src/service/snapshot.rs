//! Snapshots of volumes that are in use. The filesystems on the origins are frozen during the engine's snapshot, so
//! that the snapshot holds a clean filesystem, as in LVM.
//!
//! Whatever happens meanwhile, the filesystems are thawed. A helper process freezes them, and thaws them on request or
//! when the server dies. If the helper is killed, the server or its successor starts another one to thaw them.

use super::failure::{Failure, Result};
use super::platform::DeviceError;
use super::state::Service;
use crate::protocol::{Created, Outcome, SnapshotSpec};
use rowen_engine::group::NewSnapshot;
use rowen_engine::units::VolumeId;
use std::collections::BTreeSet;

impl Service {
    /// One atomic snapshot of all the origins.
    pub fn snapshot(&self, specs: Vec<SnapshotSpec>, hold_still: bool) -> Result<Outcome> {
        self.refuse_more_volumes(specs.len())?;
        let mut origins = BTreeSet::new();
        let mut engine_specs: Vec<NewSnapshot> = Vec::with_capacity(specs.len());
        let mut on = Vec::with_capacity(specs.len());
        for spec in specs {
            let origin = self.find(&spec.origin)?;
            self.check_name(&spec.name)?;
            let node = self.node(&origin.name);
            let mut wanted = spec.activate;
            let mut made = spec.for_engine(origin.id);
            if made.reserve.is_some() && node.is_none() {
                // It is activated with its origin, which is not active.
                wanted = false;
            }
            wanted &= made.reserve.is_some() || self.allows(&made.name, &made.attributes.tags);
            made.attributes.active = wanted;
            on.push((made.name.clone(), wanted));
            engine_specs.push(made);
            origins.extend(node.map(|_| origin.name));
        }

        let ids = self.snapshot_held_still(&origins, engine_specs, hold_still)?;
        let mut created = Vec::with_capacity(on.len());
        for (name, wanted) in on {
            let on = || self.first_node(&name).map_err(|failure| self.unmake(&ids, failure));
            let node = if wanted { Some(on()?) } else { None };
            created.push(Created { name, node });
        }
        Ok(Outcome::Created(created))
    }

    fn snapshot_held_still(
        &self,
        origins: &BTreeSet<String>,
        specs: Vec<NewSnapshot>,
        hold_still: bool,
    ) -> Result<Vec<VolumeId>> {
        let names: Vec<String> = origins.iter().cloned().collect();
        // Cached data cannot be written to a group that has stopped: the freeze would fail, or wait.
        self.told(self.group.failed(), "")?;
        let held = if hold_still {
            Some(self.platform.devices.freeze(&names).map_err(|failure| self.unless_stopped(failure))?)
        } else {
            for name in &names {
                self.platform.devices.flush_cache(name).map_err(|failure| self.unless_stopped(failure))?;
            }
            None
        };
        let group = self.group.clone();
        let name = specs.first().map(|spec| spec.name.clone()).unwrap_or_default();
        let made = self.run(async move { group.snapshot(&specs).await });
        if let Some(held) = held {
            held.thaw();
        }
        self.told(made, &name)
    }

    /// If a device fails because its group has stopped, reports that, which says what to do.
    fn unless_stopped(&self, failure: DeviceError) -> Failure {
        self.group.failed().err().map_or_else(|| failure.into(), |error| self.failure(&error, ""))
    }
}
