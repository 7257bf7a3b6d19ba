//! Copies of the volumes of a group, as they were at one moment.
//!
//! Invariants
//!
//! * RP4 The snapshots that one run sends were taken in one step, and each is held from then on.
//! * RP5 What the last complete run brought stays on both sides until a run has brought all its volumes. So one moment of all
//!   volumes can always be found at the target, also if a run ends half way.

use super::job::{Both, Brought, Job, Prune, free_ending, is_made, with_rest};
use crate::failure::{Failure, Result};
use crate::session::{Session, no_volume};
use rowen_control::points::hold_of_pair;
use rowen_control::time;
use rowen_control::units::Units;
use rowen_engine::planted;
use serde_json::Value;
use std::fs::File;

pub struct Group {
    /// What is the same for each volume; its sides name groups.
    pub all: Job,
    pub units: Units,
}

/// A volume that can be brought up to date.
struct Member {
    job: Job,
    both: Both,
    /// Bytes of a stream that was cut before.
    resumed: Option<u64>,
    _alone: Option<File>,
}

/// What `lvs` says of a volume.
struct Listed {
    name: String,
    is_snapshot: bool,
    is_pool: bool,
}

/// Reads what `lvs --reportformat json` printed. None: it is not that.
fn listed(printed: &str) -> Option<Vec<Listed>> {
    let printed: Value = serde_json::from_str(printed.trim()).ok()?;
    let tables = printed["report"].as_array()?.iter();
    let rows = tables.flat_map(|table| table["lv"].as_array().into_iter().flatten());
    let row = |row: &Value| {
        Some(Listed {
            name: row["lv_name"].as_str()?.to_owned(),
            is_snapshot: !row["origin"].as_str()?.is_empty(),
            is_pool: row["lv_layout"].as_str()?.split(',').any(|word| word == "pool"),
        })
    };
    rows.map(row).collect()
}

impl Group {
    /// Brings these volumes up to date, or all. One that fails keeps no other one from its turn.
    pub fn run(&self, session: &mut Session<'_>, named: Vec<String>) -> Result {
        let _alone = self.all.lock(session)?;
        let volumes = self.volumes(session, named)?;
        let first = self.job(&volumes[0]);
        let found = first.look(session)?;
        first.refuse_itself(&found)?;
        let members = self.members(session, &volumes)?;
        if self.all.is_dry {
            return self.say_all(session, &members, volumes.len());
        }
        if members.is_empty() {
            return Err(Failure::Told);
        }
        let taken_at = session.backend.now();
        let (members, ending) = self.take(session, members, taken_at)?;
        let mut arrived = Vec::new();
        for member in &members {
            match self.bring(session, member, &ending) {
                Ok(brought) => arrived.extend(brought.at.map(|at| (member, at))),
                Err(failure) => {
                    tell(session, &member.job, &failure);
                    if !self.is_reached(session, &member.job) {
                        break;
                    }
                }
            }
        }
        let prune = if arrived.len() == volumes.len() || planted::is("half_a_group_is_pruned") {
            Prune::All
        } else {
            Prune::ButOldest
        };
        let mut is_tidy = true;
        for (member, at) in &arrived {
            if let Err(failure) = member.job.tidy(session, at, prune) {
                tell(session, &member.job, &failure);
                is_tidy = false;
            }
        }
        self.end(session, (arrived.len(), volumes.len()), taken_at)?;
        if is_tidy { Ok(()) } else { Err(Failure::Told) }
    }

    /// The last line, or the failure.
    fn end(&self, session: &mut Session<'_>, (arrived, all): (usize, usize), taken_at: u64) -> Result {
        let (from, to) = (self.all.from.shown(), self.all.to.shown());
        if arrived < all {
            return Err(Failure::failed(format!(
                "{arrived} of {all} volumes of {from} are up to date at {to}: the copies do not show one moment. Snapshots of the last \
                 complete run stay there until all have arrived. The same command goes on."
            )));
        }
        let moment = time::long(taken_at);
        session
            .console
            .say(format!("{to} is up to date: it shows {all} volume(s) of {from} as they were at {moment}."));
        Ok(())
    }

    fn job(&self, volume: &str) -> Job {
        let mut job = self.all.clone();
        (job.from.volume, job.to.volume) = (volume.to_owned(), volume.to_owned());
        job
    }

    /// The named volumes; without names, all that are neither snapshots nor pools.
    fn volumes(&self, session: &mut Session<'_>, named: Vec<String>) -> Result<Vec<String>> {
        let from = &self.all.from;
        let words = ["lvs", "--reportformat", "json", "-o", "lv_name,origin,lv_layout", &from.group];
        let said = from.run(session, &words)?;
        let listed = listed(&said.out).ok_or_else(|| {
            let from = from.shown();
            Failure::failed(format!("What lvs says of {from} cannot be read: is Rowen of another version there?"))
        })?;
        if named.is_empty() {
            let is_own = |one: &Listed| !one.is_snapshot && !one.is_pool && !is_made(&one.name);
            let all: Vec<String> = listed.into_iter().filter(is_own).map(|one| one.name).collect();
            return match all.is_empty() {
                true => Err(Failure::failed(format!("{} has no volume that could be replicated.", from.shown()))),
                false => Ok(all),
            };
        }
        for name in &named {
            match listed.iter().find(|one| one.name == *name) {
                None => return Err(Failure::failed(no_volume(&from.group, name))),
                Some(one) if one.is_pool => {
                    return Err(Failure::failed(format!("Thin pool {} has no contents to replicate.", from.of(name))));
                }
                Some(_) => {}
            }
        }
        Ok(named)
    }

    /// Goes on with what was cut, and finds the volumes that can be brought up to date. The others are told.
    fn members(&self, session: &mut Session<'_>, volumes: &[String]) -> Result<Vec<Member>> {
        let mut members = Vec::new();
        for volume in volumes {
            let job = self.job(volume);
            match ready(session, &job) {
                Ok((both, resumed, alone)) => members.push(Member { job, both, resumed, _alone: alone }),
                Err(failure) => {
                    tell(session, &job, &failure);
                    if !self.is_reached(session, &job) {
                        return Err(Failure::Told);
                    }
                }
            }
        }
        Ok(members)
    }

    /// Whether the other host answers after something failed. If not, nothing else is tried.
    fn is_reached(&self, session: &mut Session<'_>, job: &Job) -> bool {
        let is_reached = job.from.answers(session) && job.to.answers(session);
        if !is_reached {
            session.console.complain("The other host does not answer: the rest is not tried.");
        }
        is_reached
    }

    /// Takes a snapshot of all of them in one step, and holds each (RP4). Returns how the names of the snapshots end.
    fn take(&self, session: &mut Session<'_>, members: Vec<Member>, now: u64) -> Result<(Vec<Member>, String)> {
        let from = &self.all.from;
        let known: Vec<(&str, &Both)> =
            members.iter().map(|member| (member.job.from.volume.as_str(), &member.both)).collect();
        let ending = free_ending(&known, now);
        let found = &members[0].both;
        let hold = hold_of_pair((&found.from.group_uuid, ""), (&found.to.group_uuid, ""), &self.all.to.full());
        let tag = format!("hold={hold}");
        let mut words = vec!["snapshot", &from.group];
        words.extend(members.iter().map(|member| member.job.from.volume.as_str()));
        words.extend(["--suffix", &ending[1..], "-pr", "--addtag", &tag]);
        from.run(session, &words)?;
        let mut taken = Vec::new();
        for mut member in members {
            let job = &member.job;
            let name = format!("{}{ending}", job.from.volume);
            let held = job.from.look(session).and_then(|points| {
                member.both.from = points;
                let both = &member.both;
                let point = both.from.snapshots().find(|point| point.name == name);
                let point = point.ok_or_else(|| Failure::failed(no_volume(&from.group, &name)))?;
                job.hold(session, &both.from, point, &both.hold_from)
            });
            match held {
                Ok(()) => taken.push(member),
                Err(failure) => tell(session, job, &failure),
            }
        }
        // Each has a hold of its own now. What an earlier run left of this one ends, too.
        from.run(session, &["release", "-n", &hold, &from.group])?;
        Ok((taken, ending))
    }

    fn bring(&self, session: &mut Session<'_>, member: &Member, ending: &str) -> Result<Brought> {
        let name = format!("{}{ending}", member.job.from.volume);
        let brought = member.job.bring_taken(session, &member.both, &name)?;
        let sent = with_rest(brought.sent, member.resumed);
        if let Some(line) = member.job.told(&sent, self.units) {
            session.console.say(line);
        }
        Ok(Brought { sent, ..brought })
    }

    /// Says what would be done.
    fn say_all(&self, session: &mut Session<'_>, members: &[Member], all: usize) -> Result {
        let names: Vec<&str> = members.iter().map(|member| member.job.from.volume.as_str()).collect();
        if !names.is_empty() {
            let from = self.all.from.shown();
            session.console.say(format!("Would take a snapshot of {from} in one step: {}.", names.join(", ")));
        }
        for Member { job, both, .. } in members {
            let what = match job.base(both)? {
                Some(base) => format!("what changed since {}", base.name),
                None => "all of it".to_owned(),
            };
            session.console.say(format!("Would send {} to {}: {what}.", job.from.shown(), job.to.shown()));
        }
        if members.len() == all { Ok(()) } else { Err(Failure::Told) }
    }
}

/// Looks at both sides of a volume, which no other run changes from then on.
fn ready(session: &mut Session<'_>, job: &Job) -> Result<(Both, Option<u64>, Option<File>)> {
    let alone = job.lock(session)?;
    let (both, resumed) = job.begin(session)?;
    let base = job.base(&both)?;
    if let (Some(base), true) = (base, resumed.is_some()) {
        job.tidy(session, base, Prune::ButOldest)?;
    }
    if !job.is_dry {
        job.remove_leftovers(session, &both)?;
    }
    Ok((both, resumed, alone))
}

/// Says which volume failed, and why.
fn tell(session: &mut Session<'_>, job: &Job, failure: &Failure) {
    session.console.complain(format!("{} to {}:", job.from.shown(), job.to.shown()));
    session.tell(failure);
}
