//! What one replication does: it looks at both sides, goes on with what was cut, sends what changed since the newest point that both have,
//! and removes what was only made for that.
//!
//! Invariants
//!
//! * RP1 The newest point that both sides have is held on both, from before anything newer is sent until something newer has arrived. So
//!   neither a person nor a full group costs the next increment without a word. On the source the hold is on the snapshot that names the
//!   point (PT2), also where that is not the one that was sent.
//! * RP2 Only snapshots that a replication made, and that nobody holds, are removed.
//! * RP3 Nothing is taken back on the target: what was written there is refused, with what to do.

use super::side::Side;
use crate::backend::{Pipe, Piped, Where};
use crate::failure::{Failure, Result};
use crate::session::{Session, no_volume};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rowen_control::points::{Arriving, Point, Points, hold_of_pair};
use rowen_control::units::Units;
use rowen_engine::planted;

/// What the names of snapshots that are made for this have between the volume's name and the time.
const MADE: &str = "-repl-";

#[derive(Clone)]
pub struct Job {
    pub from: Side,
    pub to: Side,
    /// Bytes in a second.
    pub limit: Option<u64>,
    pub is_plain: bool,
    pub is_thin: bool,
    /// Only says what would be done.
    pub is_dry: bool,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The target has the contents of this snapshot already.
    Nothing(String),
    /// This snapshot has arrived, the last one of those that were sent.
    All { snapshot: String, bytes: u64 },
    /// It was said what would be done.
    Dry,
}

/// What was done, and the newest point that both sides have then.
pub(super) struct Brought {
    pub sent: Sent,
    pub at: Option<Point>,
}

/// Both sides, as they were when somebody looked.
#[derive(Clone)]
pub(super) struct Both {
    pub from: Points,
    pub to: Points,
    /// What each side calls the hold of their newest common point (RP1).
    pub hold_from: String,
    hold_to: String,
}

/// What follows a transfer that was cut.
const GOES_ON: &str = "What has arrived is kept: the same command goes on there.";

/// Which snapshots of earlier replications are removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prune {
    All,
    /// The oldest one stays: other volumes of the group are still there.
    ButOldest,
}

/// A moment in a name: `20261126T153000Z`.
pub fn moment_name(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let moment = moment.unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format("%Y%m%dT%H%M%SZ", &moment).expect("the format is known")
}

/// Whether a replication made a snapshot of this name.
pub(super) fn is_made(name: &str) -> bool {
    let Some((volume, moment)) = name.rsplit_once(MADE) else { return false };
    let moment = moment.split('.').next().unwrap_or(moment);
    let is_moment = moment.len() == 16 && moment.as_bytes()[8] == b'T' && moment.ends_with('Z');
    !volume.is_empty() && is_moment && moment.bytes().filter(u8::is_ascii_digit).count() == 14
}

impl Job {
    /// Brings the target to what the source has now, or to the snapshot that the source names.
    pub fn run(&mut self, session: &mut Session<'_>) -> Result<Sent> {
        let _alone = self.lock(session)?;
        let found = self.from.look(session)?;
        let given = found.is_snapshot.then(|| found.origin.clone()).flatten();
        let given = given.map(|origin| std::mem::replace(&mut self.from.volume, origin));
        let (both, resumed) = self.begin(session)?;
        let sent = match given {
            Some(snapshot) => self.bring(session, &both, &[snapshot]),
            None => self.bring_now(session, &both),
        };
        self.end(session, resumed, sent?)
    }

    /// Brings the target to the snapshots of a policy that are newer than what it has, one after the other.
    pub fn run_policy(&mut self, session: &mut Session<'_>, policy: &str) -> Result<Sent> {
        let _alone = self.lock(session)?;
        let (both, resumed) = self.begin(session)?;
        let base = self.base(&both)?;
        let at_base = base.and_then(|base| both.from.snapshots().position(|point| point.name == base.name));
        let is_newer = |at: usize| at_base.is_none_or(|base| at > base);
        let own = both.from.snapshots().enumerate().filter(|(_, point)| point.policy.as_deref() == Some(policy));
        let mut newer: Vec<String> = own.filter(|(at, _)| is_newer(*at)).map(|(_, point)| point.name.clone()).collect();
        if base.is_some() && at_base.is_none() {
            // Which of them are newer than a bookmark is not known, but for the last one.
            newer.drain(..newer.len().saturating_sub(1));
        }
        let sent = self.bring(session, &both, &newer)?;
        self.end(session, resumed, sent)
    }

    /// Looks at both sides, and continues a stream that was cut after this many bytes.
    pub(super) fn begin(&self, session: &mut Session<'_>) -> Result<(Both, Option<u64>)> {
        let mut both = self.look(session)?;
        self.refuse_itself(&both)?;
        let Some(arriving) = both.to.arriving.take() else { return Ok((both, None)) };
        let resumed = self.settle(session, &both, &arriving)?;
        if !self.is_dry {
            both = self.look(session)?;
        }
        Ok((both, resumed))
    }

    /// After something has arrived, what older points needed is removed.
    fn end(&self, session: &mut Session<'_>, resumed: Option<u64>, brought: Brought) -> Result<Sent> {
        let sent = with_rest(brought.sent, resumed);
        if let (Sent::All { .. }, Some(at)) = (&sent, &brought.at) {
            self.tidy(session, at, Prune::All)?;
        }
        Ok(sent)
    }

    pub(super) fn lock(&self, session: &mut Session<'_>) -> Result<Option<std::fs::File>> {
        if self.is_dry {
            return Ok(None);
        }
        let name = hold_of_pair((&self.from.shown(), ""), (&self.to.shown(), ""), &self.to.full());
        Ok(session.backend.only_one(&name)?)
    }

    pub(super) fn look(&self, session: &mut Session<'_>) -> Result<Both> {
        let (from, to) = (self.from.look(session)?, self.to.look(session)?);
        if !from.exists {
            return Err(Failure::failed(no_volume(&self.from.group, &self.from.volume)));
        }
        let (own, other) =
            ((from.group_uuid.as_str(), from.volume.as_str()), (to.group_uuid.as_str(), to.volume.as_str()));
        let hold_from = hold_of_pair(own, other, &self.to.full());
        let hold_to = hold_of_pair(other, own, &self.from.full());
        Ok(Both { from, to, hold_from, hold_to })
    }

    pub(super) fn refuse_itself(&self, both: &Both) -> Result {
        if both.from.group_uuid != both.to.group_uuid {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "{} and {} are in one volume group (or in two copies of one), which has each name once. Within a group a snapshot is a copy that \
             costs nothing: \"lvcreate -s -n NAME {}\".",
            self.from.shown(),
            self.to.shown(),
            self.from.full()
        )))
    }

    /// What the target goes on from; none: it gets all. Refused, if it has something else (RP3).
    pub(super) fn base<'b>(&self, both: &'b Both) -> Result<Option<&'b Point>> {
        let (from, to) = (&both.from, &both.to);
        if !to.exists {
            return Ok(None);
        }
        if let Some(point) = to.point_uuid.as_ref().and_then(|point| from.at(point)) {
            return Ok(Some(point));
        }
        let (source, target, full) = (self.from.shown(), self.to.shown(), self.to.full());
        let common = to.snapshots().rev().find(|point| from.at(&point.point_uuid).is_some());
        let Some(common) = common else {
            return Err(Failure::failed(format!(
                "{target} has no snapshot that {source} has, too: nothing says what they have in common. Replicate to a name that is not \
                 there, and all is sent."
            )));
        };
        let (name, there) = (&common.name, self.to.there());
        Err(Failure::failed(format!(
            "{target} was changed since {name}, the newest snapshot that both sides have. Replicating takes nothing back. {there}\"rowen \
             revert {full} {name}\" gives up what was changed there (\"lvcreate -s -n NAME {full}\" before that keeps it); \"lvcreate -s -n \
             NAME {}\" makes a volume beside it, to which can be replicated.",
            self.to.of(name)
        )))
    }

    /// Takes a snapshot, and brings the target to it.
    fn bring_now(&self, session: &mut Session<'_>, both: &Both) -> Result<Brought> {
        let base = self.base(both)?;
        let name = format!("{}{}", self.from.volume, free_ending(&[(&self.from.volume, both)], session.backend.now()));
        if self.is_dry {
            let since = base.map_or("all of it".to_owned(), |base| format!("what changed since {}", base.name));
            let (from, to) = (self.from.shown(), self.to.shown());
            session.console.say(format!("Would take a snapshot of {from}, and send {since} to {to}."));
            return Ok(Brought { sent: Sent::Dry, at: None });
        }
        self.remove_leftovers(session, both)?;
        let tag = format!("hold={}", both.hold_from);
        let tag = if planted::is("replicated_unheld") { "made" } else { &tag };
        self.from.run(session, &["lvcreate", "-s", "-pr", "-n", &name, "--addtag", tag, &self.from.full()])?;
        let after = Both { from: self.from.look(session)?, ..both.clone() };
        self.bring_taken(session, &after, &name)
    }

    /// Brings the target to a snapshot that was just taken and is held. If nobody wrote anything since the base, the snapshot is removed.
    pub(super) fn bring_taken(&self, session: &mut Session<'_>, both: &Both, name: &str) -> Result<Brought> {
        let taken = both.from.snapshots().find(|point| point.name == name);
        let is_same =
            both.to.exists && taken.is_some_and(|taken| Some(&taken.point_uuid) == both.to.point_uuid.as_ref());
        let older = both.from.points.iter().filter(|point| point.name != name);
        let base = older.rev().find(|point| Some(&point.point_uuid) == both.to.point_uuid.as_ref());
        let (true, Some(base)) = (is_same, base) else {
            let brought = self.bring(session, both, &[name.to_owned()]);
            return brought.map_err(|failure| self.take_back(session, both, taken, failure));
        };
        // What is there stays what both have.
        self.hold(session, &both.from, base, &both.hold_from)?;
        self.remove_ours(session, both, name)?;
        Ok(Brought { sent: Sent::Nothing(base.name.clone()), at: Some(base.clone()) })
    }

    /// Removes a snapshot of which nothing has arrived: the next run takes another one.
    fn take_back(
        &self,
        session: &mut Session<'_>,
        both: &Both,
        taken: Option<&Point>,
        mut failure: Failure,
    ) -> Failure {
        let is_needed = |now: &Both, taken: &Point| now.to.arriving.is_some() || now.to.at(&taken.point_uuid).is_some();
        // Who does not answer may have it.
        let (Some(taken), Ok(now)) = (taken, self.look(session)) else { return failure };
        if is_needed(&now, taken) || planted::is("leftovers_stay") {
            return failure;
        }
        if let Failure::Failed(lines) = &mut failure {
            lines.retain(|line| !line.ends_with(GOES_ON));
            lines.push(format!("{} is not up to date: nothing has arrived.", self.to.shown()));
        }
        // The snapshot that names the point may be an older one, and was held, too.
        let named_by = now.from.named_by(&taken.point_uuid).filter(|named_by| named_by.name != taken.name);
        let held = named_by.filter(|named_by| named_by.holds.contains(&both.hold_from));
        let released = held.map_or(Ok(()), |named_by| {
            self.from.run(session, &["release", "-n", &both.hold_from, &self.from.of(&named_by.name)]).map(drop)
        });
        if let Err(other) = released.and_then(|()| self.remove_ours(session, both, &taken.name)) {
            session.tell(&other);
        }
        failure
    }

    /// Removes what earlier runs took and did not bring: it is newer than what the target has, and nobody else holds it.
    pub(super) fn remove_leftovers(&self, session: &mut Session<'_>, both: &Both) -> Result {
        let Some(base) = self.base(both)? else { return Ok(()) };
        let newer = both.from.snapshots().skip_while(|point| point.point_uuid != base.point_uuid);
        let is_left = |point: &&Point| {
            point.point_uuid != base.point_uuid
                && is_made(&point.name)
                && !both.from.names_held(point)
                && point.holds == [both.hold_from.as_str()]
        };
        let left: Vec<&Point> = newer.filter(is_left).collect();
        left.into_iter().try_for_each(|point| self.remove_ours(session, both, &point.name))
    }

    /// Removes a snapshot of the source that only this replication holds.
    fn remove_ours(&self, session: &mut Session<'_>, both: &Both, name: &str) -> Result {
        let full = self.from.of(name);
        self.from.run(session, &["release", "-n", &both.hold_from, &full])?;
        self.from.run(session, &["lvremove", "-y", &full]).map(drop)
    }

    /// Sends these snapshots, in this order, each as what changed since the one before.
    fn bring(&self, session: &mut Session<'_>, both: &Both, snapshots: &[String]) -> Result<Brought> {
        let mut base = self.base(both)?.cloned();
        let (mut bytes, mut last) = (0, None);
        for name in snapshots {
            let found = both.from.snapshots().position(|point| point.name == *name);
            let Some(point) = found.and_then(|at| both.from.snapshots().nth(at)) else {
                return Err(Failure::failed(no_volume(&self.from.group, name)));
            };
            if base.as_ref().is_some_and(|base| base.point_uuid == point.point_uuid) {
                continue;
            }
            let at_base = base.as_ref().and_then(|base| both.from.snapshots().position(|one| one.name == base.name));
            if at_base > found {
                let base = base.map(|base| base.name).unwrap_or_default();
                return Err(Failure::failed(format!(
                    "{} is at {base}, which is newer than {name}: replicating takes nothing back.",
                    self.to.shown()
                )));
            }
            if self.is_dry {
                let since =
                    base.as_ref().map_or("all of it".to_owned(), |base| format!("what changed since {}", base.name));
                session.console.say(format!("Would send {} to {}: {since}.", self.from.of(name), self.to.shown()));
                return Ok(Brought { sent: Sent::Dry, at: None });
            }
            if !planted::is("replicated_unheld") {
                self.hold(session, &both.from, point, &both.hold_from)?;
            }
            bytes += self.send(session, both, base.as_ref(), point)?;
            (base, last) = (Some(point.clone()), Some(point.clone()));
        }
        let Some(last) = last else {
            let name = base.as_ref().map(|base| base.name.clone()).unwrap_or_default();
            return Ok(Brought { sent: if self.is_dry { Sent::Dry } else { Sent::Nothing(name) }, at: base });
        };
        Ok(Brought { sent: Sent::All { snapshot: last.name.clone(), bytes }, at: Some(last) })
    }

    /// Holds a point of the source, by the snapshot that names it.
    pub(super) fn hold(&self, session: &mut Session<'_>, points: &Points, point: &Point, hold: &str) -> Result {
        let Some(named_by) = points.named_by(&point.point_uuid) else { return Ok(()) };
        if named_by.holds.iter().any(|name| name == hold) {
            return Ok(());
        }
        self.from.run(session, &["hold", "-n", hold, &self.from.of(&named_by.name)]).map(drop)
    }

    fn send(&self, session: &mut Session<'_>, both: &Both, base: Option<&Point>, point: &Point) -> Result<u64> {
        let mut words = vec!["send".to_owned()];
        if let Some(base) = base {
            words.extend(["-i".to_owned(), base.name.clone()]);
        }
        words.push(self.from.of(&point.name));
        self.pass(session, both, words, point)
    }

    /// Goes on with what was cut; or gives it up, where it cannot go on.
    fn settle(&self, session: &mut Session<'_>, both: &Both, arriving: &Arriving) -> Result<Option<u64>> {
        let (target, full) = (self.to.shown(), self.to.full());
        if arriving.is_of_group {
            return Err(Failure::failed(format!(
                "{target} is being received with other volumes, in one stream. {}\"rowen receive --status {}\" shows how it goes on; \
                 \"rowen receive --abort {full}\" gives it up.",
                self.to.there(),
                self.to.group
            )));
        }
        let is_there = both.from.snapshots().any(|point| point.point_uuid == arriving.point_uuid);
        let has_base = arriving.base_uuid.as_ref().is_none_or(|base| both.from.at(base).is_some());
        let token = arriving.token.as_ref().filter(|_| is_there && has_base);
        if self.is_dry {
            let what = if token.is_some() { "go on with" } else { "give up" };
            session.console.say(format!("Would {what} {}, of which a part is at {target}.", arriving.snapshot));
            return Ok(None);
        }
        let Some(token) = token else {
            if !is_there || !has_base {
                session.console.complain(format!(
                    "What had arrived of {} at {target} is given up: {} does not have its snapshots any more.",
                    arriving.snapshot,
                    self.from.shown()
                ));
            }
            self.to.run(session, &["receive", "--abort", &full])?;
            return Ok(None);
        };
        let words = ["send", "--resume", token, &self.from.group].map(str::to_owned).to_vec();
        let point = both.from.at(&arriving.point_uuid).cloned().unwrap_or_default();
        self.pass(session, both, words, &Point { name: arriving.snapshot.clone(), ..point }).map(Some)
    }

    /// A stream passes from the source to the target.
    fn pass(&self, session: &mut Session<'_>, both: &Both, mut send: Vec<String>, point: &Point) -> Result<u64> {
        if self.is_plain {
            send.push("--plain".to_owned());
        }
        let mut receive = vec!["receive".to_owned(), self.to.full()];
        if !planted::is("replicated_unheld") {
            receive.extend(["--hold".to_owned(), both.hold_to.clone()]);
        }
        if self.is_thin {
            receive.push("--thin".to_owned());
        }
        if let Some(policy) = &point.policy {
            receive.extend(["--policy".to_owned(), policy.clone()]);
        }
        // What had this name there before is another one: a clock was set back.
        let is_taken = |name: &str| both.to.points.iter().any(|known| known.name == name);
        if is_taken(&point.name) {
            let free = (1..).map(|number| numbered(&point.name, number)).find(|name| !is_taken(name));
            receive.extend(["-n".to_owned(), free.unwrap_or_default()]);
        }
        let pipe = Pipe { from: (&self.from.at, &send), to: (&self.to.at, &receive), limit: self.limit };
        let what = format!("{} to {}, MiB", self.from.shown(), self.to.shown());
        let console = &mut session.console;
        let piped = session.backend.pass(&pipe, &mut |bytes| console.progress(bytes >> 20, 0, &what))?;
        self.passed(session, &piped)?;
        Ok(piped.bytes)
    }

    /// Who failed, and what to do.
    fn passed(&self, session: &mut Session<'_>, piped: &Piped) -> Result {
        let Piped { is_cut, sent, received, .. } = piped;
        if received.code == 0 {
            sent.err
                .lines()
                .filter(|line| !line.trim().is_empty())
                .for_each(|line| session.console.complain(line.trim()));
            return Ok(());
        }
        let (side, said) = if sent.code != 0 && !is_cut { (&self.from, sent) } else { (&self.to, received) };
        let mut failure = side.failure(said);
        if let Failure::Failed(lines) = &mut failure {
            lines.push(format!("{} is not up to date. {GOES_ON}", self.to.shown()));
        }
        Err(failure)
    }

    /// What has arrived is what both have: holds end on older points (RP1), and what was only made for this is removed (RP2).
    pub(super) fn tidy(&self, session: &mut Session<'_>, arrived: &Point, prune: Prune) -> Result {
        let both = self.look(session)?;
        let newest = |points: &Points| points.named_by(&arrived.point_uuid).map(|point| point.name.clone());
        let kept = newest(&both.from);
        let has = |point: &&Point| Some(&point.name) != kept.as_ref() && point.holds.contains(&both.hold_from);
        let olds: Vec<String> = both.from.snapshots().filter(has).map(|point| self.from.of(&point.name)).collect();
        for old in olds {
            self.from.run(session, &["release", "-n", &both.hold_from, &old])?;
        }
        for (side, points, hold) in [(&self.from, &both.from, &both.hold_from), (&self.to, &both.to, &both.hold_to)] {
            let kept = newest(points);
            let is_free = |point: &&Point| point.holds.iter().all(|name| name == hold) && !points.names_held(point);
            let is_ours = |point: &&Point| is_made(&point.name) || planted::is("removes_what_people_made");
            let olds = points.snapshots().filter(|point| Some(&point.name) != kept.as_ref()).filter(is_ours);
            let stay = usize::from(prune == Prune::ButOldest);
            for old in olds.filter(is_free).skip(stay) {
                let full = side.of(&old.name);
                if let Err(failure) = side.run(session, &["lvremove", "-y", &full]) {
                    if side.at == Where::Here {
                        return Err(failure);
                    }
                    // A key that may only receive removes nothing, which its owner knows.
                    session.console.complain(format!("{full} stays, for it cannot be removed from here:"));
                    session.tell(&failure);
                    break;
                }
            }
        }
        Ok(())
    }

    /// What was done, in one line.
    pub fn told(&self, sent: &Sent, units: Units) -> Option<String> {
        let (from, to) = (self.from.shown(), self.to.shown());
        match sent {
            Sent::Dry => None,
            Sent::Nothing(name) => Some(format!("{to} is up to date: it has {name}, and {from} did not change since.")),
            Sent::All { snapshot, bytes } => {
                let size = units.show(*bytes, true);
                Some(format!("{to} is up to date: {snapshot} has arrived, {} from {from}.", size.trim()))
            }
        }
    }
}

/// What was sent, with the rest of a stream that was cut before.
pub(super) fn with_rest(sent: Sent, resumed: Option<u64>) -> Sent {
    match (sent, resumed) {
        (Sent::All { snapshot, bytes }, resumed) => Sent::All { snapshot, bytes: bytes + resumed.unwrap_or(0) },
        (Sent::Nothing(snapshot), Some(bytes)) => Sent::All { snapshot, bytes },
        (sent, _) => sent,
    }
}

/// How the names of snapshots of this moment end. None of these volumes has such a name on either side.
pub(super) fn free_ending(volumes: &[(&str, &Both)], now: u64) -> String {
    let ending = format!("{MADE}{}", moment_name(now));
    let is_taken = |ending: &str| {
        volumes.iter().any(|(volume, both)| {
            let name = format!("{volume}{ending}");
            [&both.from, &both.to].iter().any(|side| side.points.iter().any(|one| one.name == name))
        })
    };
    (0..).map(|number| numbered(&ending, number)).find(|ending| !is_taken(ending)).unwrap_or(ending)
}

/// A name again, if it is taken.
pub fn numbered(name: &str, number: u32) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}.{number}") }
}
