//! The files of policies and of what runs did, and the volumes that policies name.

use crate::failure::{Failure, Result};
use crate::session::{Session, no_volume};
use rowen_control::backup::{Policies, Policy, State, Wanted};
use rowen_control::protocol::GroupReport;
use std::collections::BTreeMap;

/// The file of policies.
fn policies_path(session: &mut Session<'_>) -> String {
    format!("{}/backup.conf", session.backend.directories().0)
}

/// The policies, or those of them that are named.
pub fn policies(session: &mut Session<'_>, names: &[String]) -> Result<Vec<Policy>> {
    let path = policies_path(session);
    let text = session.backend.read_text(&path).map_err(|trouble| {
        let lines = Failure::from(trouble).lines("").concat();
        Failure::not_begun(format!(
            "{}\nThis file says what is backed up. docs/backup.md has an example; \"rowen backup import-sanoid FILE\" makes one.",
            lines.trim()
        ))
    })?;
    let read = Policies::read(&text).map_err(|error| {
        Failure::not_begun(format!("{}\n{path} cannot be read: nothing was done.", error.sentence(&path)))
    })?;
    if let Some(name) = names.iter().find(|name| !read.policies.iter().any(|policy| policy.name == **name)) {
        return Err(Failure::failed(format!("{path} has no policy \"{}\".", name.escape_debug())));
    }
    let is_wanted = |policy: &Policy| names.is_empty() || names.contains(&policy.name);
    Ok(read.policies.into_iter().filter(is_wanted).collect())
}

pub fn state_path(session: &mut Session<'_>) -> String {
    format!("{}/backup-state.json", session.backend.directories().0)
}

pub fn state(session: &mut Session<'_>) -> State {
    let path = state_path(session);
    session.backend.read_text(&path).map(|text| State::read(&text)).unwrap_or_default()
}

/// The volumes of a policy, by group. Missing volumes are reported; then the second value is true.
pub fn volumes(
    session: &mut Session<'_>,
    policy: &Policy,
    reports: &mut BTreeMap<String, Option<GroupReport>>,
) -> (BTreeMap<String, Vec<String>>, bool) {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut is_incomplete = false;
    for wanted in &policy.volumes {
        let (Wanted::Group(group) | Wanted::Volume { group, .. }) = wanted;
        if !reports.contains_key(group) {
            let report = session.usable_report(group).map_err(|failure| session.tell(&failure)).ok();
            reports.insert(group.clone(), report);
        }
        let Some(report) = &reports[group] else {
            is_incomplete = true;
            continue;
        };
        let names: Vec<String> = match wanted {
            Wanted::Group(_) => {
                let own = report.volumes.iter().filter(|volume| volume.origin.is_none() && !volume.is_pool());
                own.map(|volume| volume.name.clone()).collect()
            }
            Wanted::Volume { volume, .. } if report.volume(volume).is_some() => vec![volume.clone()],
            Wanted::Volume { volume, .. } => {
                session.console.complain(format!(
                    "Policy {}: {}.",
                    policy.name,
                    no_volume(group, volume).to_lowercase()
                ));
                is_incomplete = true;
                continue;
            }
        };
        let known = found.entry(group.clone()).or_default();
        names.into_iter().for_each(|name| {
            if !known.contains(&name) {
                known.push(name);
            }
        });
    }
    (found, is_incomplete)
}
