//! `rowen backup run`: what is due is taken, sent and removed. A volume or a target that fails keeps nothing else from its turn.
//!
//! Invariants
//!
//! * BK4 Only what a policy made is removed: snapshots with its tag.

use super::calendar::{bucket, is_due};
use super::files::{policies, state, state_path, volumes};
use crate::backend::{Hook, Pending, Where};
use crate::commands::replicate::{Job, SSH, Sent, Side, moment_name, numbered, rate};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::backup::{Attempt, Keep, Policy, Shot, State, Target, removable};
use rowen_control::points::{POLICY, Point, Points};
use rowen_engine::planted;
use std::collections::BTreeMap;
use std::time::Duration;

/// One run.
struct Run {
    is_dry: bool,
    /// As many are removed as the policy says.
    all: bool,
    is_failed: bool,
    state: State,
}

pub fn run(session: &mut Session<'_>, args: &Args, names: &[String]) -> Result {
    let policies = policies(session, names)?;
    let is_dry = args.has(Opt::DryRun) || session.is_test;
    let _alone = if is_dry { None } else { session.backend.only_one("backup")? };
    let mut run = Run { is_dry, all: args.has(Opt::RemoveAll), is_failed: false, state: state(session) };
    let mut reports = BTreeMap::new();
    for policy in &policies {
        let (groups, is_incomplete) = volumes(session, policy, &mut reports);
        run.is_failed |= is_incomplete;
        for (group, volumes) in groups {
            run.group(session, policy, &group, &volumes);
        }
    }
    if !is_dry {
        let path = state_path(session);
        session.backend.publish(&path, &run.state.write())?;
    }
    if run.is_failed { Err(Failure::Told) } else { Ok(()) }
}

impl Run {
    /// A failure is reported, and the run goes on.
    fn told<T>(&mut self, session: &mut Session<'_>, of: &str, done: Result<T>) -> Option<T> {
        done.map_err(|failure| {
            session.console.complain(format!("{of}:"));
            session.tell(&failure);
            self.is_failed = true;
        })
        .ok()
    }

    fn group(&mut self, session: &mut Session<'_>, policy: &Policy, group: &str, volumes: &[String]) {
        let side = |volume: &String| Side { at: Where::Here, group: group.to_owned(), volume: volume.clone() };
        let sides: Vec<Side> = volumes.iter().map(side).collect();
        let (mut due, mut taken) = (Vec::new(), Vec::new());
        for side in &sides {
            let looked = side.look(session);
            let Some(points) = self.told(session, &of(policy, side), looked) else { continue };
            let newest = own(&points, policy).last().map(|point| point.made);
            if is_due(newest, session.backend.now(), policy.every) {
                due.push(side.volume.clone());
            }
            taken.extend(points.points.into_iter().map(|point| point.name));
        }
        let taken = self.take(session, policy, group, (&due, &taken));
        self.told(session, &format!("Policy {}, volume group {group}", policy.name), taken);
        for side in &sides {
            for target in &policy.targets {
                self.send(session, policy, side, target);
            }
            let pruned = self.prune(session, policy, side, &policy.keep);
            self.told(session, &of(policy, side), pruned);
        }
    }

    /// One snapshot of all that is due in a group, at one moment.
    fn take(
        &mut self,
        session: &mut Session<'_>,
        policy: &Policy,
        group: &str,
        (due, known): (&[String], &[String]),
    ) -> Result {
        if due.is_empty() {
            return Ok(());
        }
        // A clock that was set back comes to the same moment again.
        let suffix = format!("{}-{}", policy.name, moment_name(session.backend.now()));
        let is_free = |suffix: &String| !due.iter().any(|volume| known.contains(&format!("{volume}-{suffix}")));
        let suffix = (0..).map(|number| numbered(&suffix, number)).find(is_free).unwrap_or(suffix);
        let names: Vec<String> = due.iter().map(|volume| format!("{group}/{volume}-{suffix}")).collect();
        if self.is_dry {
            session.console.say(format!("Would take {}.", names.join(", ")));
            return Ok(());
        }
        let later = self.before(session, policy, group, due)?;
        let taken = take(session, policy, group, due, &suffix);
        self.after(session, policy, group, later);
        taken?;
        session.console.say(format!("Took {}.", names.join(", ")));
        Ok(())
    }

    /// Runs the program before a snapshot; the one after it is ready then (BK5).
    fn before(
        &mut self,
        session: &mut Session<'_>,
        policy: &Policy,
        group: &str,
        due: &[String],
    ) -> Result<Option<Box<dyn Pending>>> {
        let hook = |program: &String| Hook {
            program: program.clone(),
            variables: vec![
                ("ROWEN_POLICY".to_owned(), policy.name.clone()),
                ("ROWEN_GROUP".to_owned(), group.to_owned()),
                ("ROWEN_VOLUMES".to_owned(), due.join(" ")),
            ],
            limit: Duration::from_secs(policy.hook_timeout),
        };
        let later = match &policy.after {
            Some(after) => Some(session.backend.later(hook(after))?),
            None => None,
        };
        let Some(before) = &policy.before else { return Ok(later) };
        if let Err(trouble) = session.backend.hook(&hook(before)) {
            self.after(session, policy, group, later);
            let lines = Failure::from(trouble).lines("").concat();
            return Err(Failure::failed(format!("{} No snapshot was taken.", lines.trim())));
        }
        Ok(later)
    }

    /// Runs the program after a snapshot. A failure is reported, and the run goes on.
    fn after(&mut self, session: &mut Session<'_>, policy: &Policy, group: &str, later: Option<Box<dyn Pending>>) {
        let done = later.map_or(Ok(()), |later| later.run().map_err(Failure::from));
        self.told(session, &format!("Policy {}, volume group {group}", policy.name), done);
    }

    fn send(&mut self, session: &mut Session<'_>, policy: &Policy, side: &Side, target: &Target) {
        let (key, now) = (State::key(&policy.name, &side.full(), &target.name), session.backend.now());
        let sent = job(side, target, self.is_dry).and_then(|mut job| {
            let sent = job.run_policy(session, &policy.name)?;
            Ok((job, sent))
        });
        let mut attempt = self.state.attempts.get(&key).cloned().unwrap_or_default();
        match sent {
            Ok((job, sent)) => {
                if let Sent::Nothing(name) | Sent::All { snapshot: name, .. } = &sent {
                    attempt = Attempt { arrived: Some(now), failed: None, why: None, snapshot: Some(name.clone()) };
                }
                if let (Sent::All { .. }, Some(line)) = (&sent, job.told(&sent, rowen_control::units::Units::default()))
                {
                    session.console.say(line);
                }
                if sent != Sent::Dry {
                    let pruned = self.prune(session, policy, &job.to, target.keep.as_ref().unwrap_or(&policy.keep));
                    if let Err(failure) = pruned {
                        // A key that may only receive removes nothing, which its owner knows.
                        session.console.complain(format!("Older snapshots stay at {}:", job.to.shown()));
                        session.tell(&failure);
                    }
                }
            }
            Err(failure) => {
                let why = failure.lines("").first().map(|line| line.trim().to_owned());
                (attempt.failed, attempt.why) = (Some(now), why);
                let about = format!("{} to {}", of(policy, side), target.to);
                self.told::<()>(session, &about, Err(failure));
            }
        }
        self.state.attempts.insert(key, attempt);
    }

    /// Removes what the policy does not keep (BK4).
    fn prune(&mut self, session: &mut Session<'_>, policy: &Policy, side: &Side, keep: &Keep) -> Result {
        let points = side.look(session)?;
        let all: Vec<&Point> = if planted::is("any_snapshot_is_the_policys") {
            points.snapshots().collect()
        } else {
            own(&points, policy).collect()
        };
        let is_held = |point: &Point| !point.holds.is_empty() || points.names_held(point);
        let shots: Vec<Shot> = all.iter().map(|point| Shot { made: point.made, is_held: is_held(point) }).collect();
        for at in removable(&shots, keep, self.all, bucket) {
            let full = side.of(&all[at].name);
            if self.is_dry {
                session.console.say(format!("Would remove {full}."));
                continue;
            }
            side.run(session, &["lvremove", "-y", &full])?;
            session.console.say(format!("Removed {}.", Side { volume: all[at].name.clone(), ..side.clone() }.shown()));
        }
        Ok(())
    }
}

/// Takes one snapshot of these volumes.
fn take(session: &mut Session<'_>, policy: &Policy, group: &str, due: &[String], suffix: &str) -> Result {
    let tag = format!("{POLICY}{}", policy.name);
    let mut words = vec!["snapshot", group];
    words.extend(due.iter().map(String::as_str));
    words.extend(["--suffix", suffix, "-pr", "--addtag", &tag]);
    let side = Side { at: Where::Here, group: group.to_owned(), volume: String::new() };
    side.run(session, &words).map(drop)
}

fn of(policy: &Policy, side: &Side) -> String {
    format!("Policy {}, {}", policy.name, side.full())
}

/// The snapshots that the policy made, from the oldest to the newest.
pub fn own<'p>(points: &'p Points, policy: &Policy) -> impl DoubleEndedIterator<Item = &'p Point> {
    points.snapshots().filter(move |point| point.policy.as_deref() == Some(policy.name.as_str()))
}

/// How a target is reached.
pub fn job(side: &Side, target: &Target, is_dry: bool) -> Result<Job> {
    let mut to = Side::parse(&target.to, target.ssh.as_deref().unwrap_or(SSH))?;
    if !to.volume.is_empty() {
        return Err(Failure::failed(format!(
            "\"{}\" names a volume: copies have the names of their volumes, so give a volume group.",
            target.to.escape_debug()
        )));
    }
    to.volume = side.volume.clone();
    let limit = target.limit.as_deref().map(|text| {
        rate(text).ok_or_else(|| Failure::failed(format!("\"{}\" is no rate: 50m, for instance.", text.escape_debug())))
    });
    Ok(Job { from: side.clone(), to, limit: limit.transpose()?, is_plain: false, is_thin: false, is_dry })
}
