//! Counters of volumes and disks. Takes no lock that a change holds while it waits.

use super::state::Service;
use crate::protocol::{IoReport, PvIo, VolumeIo};
use rowen_engine::disk::PvIndex;
use rowen_engine::units::{Uuid, VolumeId};
use std::collections::{BTreeMap, BTreeSet, HashSet};

impl Service {
    /// The counters of I/O since the group was opened.
    pub fn io(&self) -> IoReport {
        let open = self.platform.notes.open_for();
        let path = |at| {
            let path = self.platform.members.path(at);
            path.map_or_else(|| "[unknown]".to_owned(), |path| path.display().to_string())
        };
        let pv = |(index, uuid)| {
            let at = PvIndex(u16::try_from(index).unwrap_or(u16::MAX));
            PvIo { path: path(at), uuid, counts: self.platform.members.io(at) }
        };
        let (request_memory_bytes, request_memory_limit_bytes) = self.platform.devices.request_memory();
        IoReport {
            request_memory_bytes,
            request_memory_limit_bytes,
            open_micros: u64::try_from(open.as_micros()).unwrap_or(u64::MAX),
            pvs: self.group.info().pvs.iter().map(|pv| pv.uuid).enumerate().map(pv).collect(),
            volumes: self.volumes_io(),
        }
    }

    /// Volumes with counters, by name.
    fn volumes_io(&self) -> Vec<VolumeIo> {
        let counted = self.platform.devices.io();
        let wanted: BTreeSet<VolumeId> = counted.iter().map(|(id, _)| *id).collect();
        let mut known: BTreeMap<VolumeId, (String, Uuid)> = BTreeMap::new();
        self.group.any_volume(|volume| {
            if wanted.contains(&volume.id) {
                known.insert(volume.id, (volume.name.clone(), volume.uuid));
            }
            false
        });
        let active: HashSet<String> = self.platform.devices.active().into_iter().map(|node| node.name).collect();
        let line = |(id, counts)| {
            let (name, uuid) = known.remove(&id)?;
            Some(VolumeIo { is_active: active.contains(&name), name, uuid, counts })
        };
        let mut volumes: Vec<VolumeIo> = counted.into_iter().filter_map(line).collect();
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        volumes
    }

    /// Drops the counters of volumes that were removed.
    pub(super) fn forget_removed(&self) {
        let mut volumes = BTreeSet::new();
        self.group.any_volume(|volume| {
            volumes.insert(volume.id);
            false
        });
        self.platform.devices.keep_io(&volumes);
    }
}
