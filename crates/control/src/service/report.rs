//! Reports of the group. Takes no lock: a report never waits for a command.

use super::failure::Result;
use super::hidden::{is_hidden, shown_volumes};
use super::platform::{Members, Node};
use super::state::{Service, is_pool};
use crate::metadata::{Document, Origin};
use crate::protocol::{GroupReport, NodeState, Outcome, ScrubReport, StripeReport, VolumePlaces};
use rowen_engine::disk::PvIndex;
use rowen_engine::error::Error;
use rowen_engine::group::{Group, VolumeInfo};
use rowen_engine::units::VolumeId;
use std::collections::{HashMap, HashSet};

/// The devices of the group's `count` physical volumes, in order.
pub(super) fn device_paths(members: &dyn Members, count: usize) -> Vec<String> {
    (0..count)
        .map(|index| {
            let path = u16::try_from(index).ok().and_then(|index| members.path(PvIndex(index)));
            path.map_or_else(|| "[unknown]".to_owned(), |path| path.display().to_string())
        })
        .collect()
}

/// The group as a document.
pub fn document(group: &Group, members: &dyn Members, origin: Origin) -> Document {
    let info = group.info();
    let paths = device_paths(members, info.pvs.len());
    Document::of(&GroupReport::new(info, &paths, shown_volumes(group), |_| NodeState::default()), origin)
}

impl Service {
    /// The group with these volumes. Whether devices are open is searched for the volumes named in `use_of`, for all,
    /// or for none.
    pub fn report(&self, volumes: Vec<VolumeInfo>, use_of: Option<Option<&[String]>>) -> Result<Outcome> {
        let info = self.group.info();
        let paths = device_paths(&*self.platform.members, info.pvs.len());
        let nodes = self.platform.devices.active();
        let is_asked = |node: &&Node| use_of.is_some_and(|of| of.is_none_or(|names| names.contains(&node.name)));
        let asked: Vec<Node> = nodes.iter().filter(is_asked).cloned().collect();
        let open = self.platform.devices.open(&asked);
        let open: HashSet<&str> =
            asked.iter().zip(open).filter(|(_, is_open)| *is_open).map(|(node, _)| node.name.as_str()).collect();
        let nodes: HashMap<&str, &Node> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let state = |name: &str| {
            let Some(node) = nodes.get(name) else { return NodeState::default() };
            let open = open.contains(name);
            NodeState { active: true, open, major: node.major, minor: node.minor, read_only: node.read_only }
        };
        let partial = self.partial(&volumes)?;
        let legs = self.legs(&volumes)?;
        let mut report = GroupReport::new(info, &paths, volumes, |volume| state(&volume.name));
        report.bookmarks = self.reported_bookmarks();
        report.stopped = self.group.failed().is_err();
        report.read_only = self.group.is_read_only();
        report.mirrors = self.group.mirror_info().into();
        report.stripes = self.group.stripe_info().map(StripeReport::from);
        report.moving = self.move_to_report().filter(|moving| moving.is_running).map(Box::new);
        let away = self.disk_wait.lock().as_ref().map(|wait| wait.away.clone()).unwrap_or_default();
        report.pvs.iter_mut().for_each(|pv| pv.is_away = away.contains(&pv.uuid.0));
        for volume in &mut report.volumes {
            volume.is_partial = partial.contains(&volume.name);
            volume.legs = legs.get(&volume.name).copied().unwrap_or_default();
            volume.scrub = self.group.scrub_of(VolumeId(volume.id)).map(ScrubReport::from);
        }
        Ok(Outcome::Report(Box::new(report)))
    }

    /// The named volumes with their families and, with `members`, the volumes of those that are pools with theirs; and the
    /// pools of all of them.
    pub fn relatives(&self, names: &[String], members: bool) -> Vec<VolumeInfo> {
        let mut family = self.group.family(names);
        let mut more: Vec<String> = Vec::new();
        for pool in family.iter().filter(|volume| members && is_pool(volume) && names.contains(&volume.name)) {
            let members = self.group.volumes_where(|volume| volume.attributes.pool == pool.name);
            more.extend(members.into_iter().map(|member| member.name));
        }
        if !more.is_empty() {
            more.extend_from_slice(names);
            family = self.group.family(&more);
        }
        let known: HashSet<&String> = family.iter().map(|volume| &volume.name).collect();
        let pools = family.iter().map(|volume| &volume.attributes.pool).filter(|pool| !pool.is_empty());
        let pools: HashSet<&String> = pools.filter(|pool| !known.contains(pool)).collect();
        let ids: Vec<VolumeId> = pools.into_iter().filter_map(|pool| self.group.find(pool)).collect();
        family.extend(ids.into_iter().filter_map(|id| self.group.volume_info(id).ok()));
        family.retain(|volume| !is_hidden(&volume.name));
        family.sort_by_key(|volume| volume.id);
        family
    }

    /// The places of the blocks of all volumes. A volume that is removed meanwhile has none.
    pub fn places(&self) -> Result<Outcome> {
        let group = self.group.clone();
        let extent_blocks = group.info().extent_blocks;
        let places = self.run(async move {
            let mut places = Vec::new();
            for volume in group.volumes() {
                match group.pv_usage(volume.id).await {
                    Ok(found) => places.push(VolumePlaces::new(volume.name, &found, extent_blocks)),
                    Err(Error::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(places)
        });
        Ok(Outcome::Places(self.told(places, "")?))
    }
}
