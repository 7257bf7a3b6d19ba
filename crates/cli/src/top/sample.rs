//! A sample of the groups: the data of each and its state.

use rowen_control::protocol::{GroupReport, IoReport, StatusReport};
use rowen_control::status::{GroupStatus, LostPv, MembersSeen, Problem, Seen, ServerSeen, Survey, judge};
use std::collections::BTreeMap;

/// One sample.
#[derive(Debug, Default)]
pub struct Sample {
    pub groups: Vec<GroupSample>,
    /// Problems that belong to no group.
    pub problems: Vec<Problem>,
    /// Seconds since 1970.
    pub time: u64,
}

/// The sample of one group.
#[derive(Debug)]
pub struct GroupSample {
    pub status: GroupStatus,
    /// The status of its server, if it answered.
    pub report: Option<Box<StatusReport>>,
    /// The process number of the server, and its counters.
    pub counted: Option<(u32, IoReport)>,
    pub volumes: Option<Box<GroupReport>>,
}

impl Sample {
    pub fn new(mut survey: Survey, time: u64) -> Sample {
        let more: Vec<_> = survey.groups.iter_mut().map(more).collect();
        let status = judge(survey);
        let group = |(status, (report, counted, volumes))| GroupSample { status, report, counted, volumes };
        Sample { groups: status.groups.into_iter().zip(more).map(group).collect(), problems: status.problems, time }
    }
}

type More = (Option<Box<StatusReport>>, Option<(u32, IoReport)>, Option<Box<GroupReport>>);

fn more(seen: &mut Seen) -> More {
    let (pid, report) = match &seen.server {
        ServerSeen::Answered { pid, report } => (*pid, Some(report.clone())),
        _ => (0, None),
    };
    (report, seen.counters.take().map(|counters| (pid, counters.io)), seen.report.take())
}

/// The labels of devices when they were last read. A disk that hangs also blocks its reader, so only some samples read
/// devices.
#[derive(Default)]
pub struct Labels {
    /// Of each group, and where its server's log is.
    members: BTreeMap<String, (MembersSeen, String)>,
    lost: Vec<LostPv>,
    silent: Vec<String>,
    troubles: Vec<String>,
}

impl Labels {
    /// The labels in a sample that read devices.
    pub fn of(survey: &Survey) -> Labels {
        let member = |seen: &Seen| (seen.name.clone(), (seen.members.clone(), seen.log.clone()));
        let is_known = |seen: &&Seen| !matches!(seen.members, MembersSeen::Unknown);
        Labels {
            members: survey.groups.iter().filter(is_known).map(member).collect(),
            lost: survey.lost.clone(),
            silent: survey.silent_devices.clone(),
            troubles: survey.troubles.clone(),
        }
    }

    /// Adds the labels to a sample that did not read devices.
    pub fn add_to(&self, survey: &mut Survey) {
        for (name, (members, log)) in &self.members {
            match survey.groups.iter_mut().find(|seen| seen.name == *name) {
                Some(seen) => seen.members = members.clone(),
                None => survey.groups.push(Seen {
                    name: name.clone(),
                    members: members.clone(),
                    log: log.clone(),
                    ..Seen::default()
                }),
            }
        }
        survey.groups.sort_by(|one, other| one.name.cmp(&other.name));
        survey.lost.clone_from(&self.lost);
        survey.silent_devices.clone_from(&self.silent);
        survey.troubles.clone_from(&self.troubles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowen_control::status::{PvSeen, State};

    #[test]
    fn what_labels_said_is_remembered() {
        let lost = PvSeen { path: Some("/dev/gone".into()), uuid: "u".into(), ..PvSeen::default() };
        let there = PvSeen {
            path: Some("/dev/sda".into()),
            uuid: "v".into(),
            is_there: true,
            size_bytes: 1 << 30,
            ..PvSeen::default()
        };
        let whole = Seen { name: "vg1".into(), members: MembersSeen::Found(vec![there]), ..Seen::default() };
        let torn = Seen { name: "vg0".into(), members: MembersSeen::Found(vec![lost]), ..Seen::default() };
        let first = Survey { groups: vec![torn, whole], silent_devices: vec!["/dev/sdx".into()], ..Survey::default() };
        let labels = Labels::of(&first);
        // No server runs, and devices were not read.
        let mut second = Survey::default();
        labels.add_to(&mut second);
        let sample = Sample::new(second, 0);
        let states: Vec<_> =
            sample.groups.iter().map(|group| (group.status.name.as_str(), group.status.state)).collect();
        assert_eq!(states, [("vg0", State::Incomplete), ("vg1", State::NotRunning)]);
        assert_eq!(sample.problems.len(), 1);
    }
}
