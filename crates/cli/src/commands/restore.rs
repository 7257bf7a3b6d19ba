//! `rowen restore`: a volume as it was at some time, from the newest snapshot that was taken until then.
//!
//! The volume stays as it is, and a new volume has the earlier contents. With `--replace` the volume gets them itself, and a
//! snapshot keeps what it had.

use super::lvcreate::new_snapshot;
use super::replicate::numbered;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::select::moment;
use crate::report::time::TimeFormat;
use crate::session::{Session, no_volume};
use rowen_control::names;
use rowen_control::points::{Point, Points};
use rowen_control::protocol::{GroupReport, Outcome, Request, SnapshotSpec, VolumeReport};

/// What is restored.
struct Wanted {
    report: GroupReport,
    volume: VolumeReport,
    /// The snapshot with the contents.
    source: VolumeReport,
    taken: String,
}

pub fn restore(session: &mut Session<'_>, args: &Args) -> Result {
    let [word] = &args.positionals[..] else {
        return Err(Failure::usage("Please specify one logical volume: VG/LV."));
    };
    if args.has(Opt::ReplaceContents) && args.has(Opt::RestoredName) {
        return Err(Failure::usage("With --replace no new volume is made, so --name has no meaning."));
    }
    let (report, volume) = session.one_volume(word, no_volume)?;
    let (source, taken) = find(&report, &volume, args.text(Opt::At))?;
    let wanted = Wanted { report, volume, source, taken };
    if args.has(Opt::DryRun) {
        let Wanted { report, volume, source, taken } = &wanted;
        let (group, name, from) = (&report.name, &volume.name, &source.name);
        session.console.say(format!("Would restore {group}/{name} from {group}/{from}, taken {taken}."));
        return Ok(());
    }
    if args.has(Opt::ReplaceContents) { wanted.replace(session, args) } else { wanted.beside(session, args) }
}

/// The newest snapshot of the volume that was taken until then, and when that was.
fn find(report: &GroupReport, volume: &VolumeReport, at: Option<&str>) -> Result<(VolumeReport, String)> {
    let full = format!("{}/{}", report.name, volume.name);
    let until = at.map(|text| {
        let last = moment::parse(text).map(|(_, last)| u64::try_from(last).unwrap_or(0));
        let why = format!(
            "\"{}\" is no time: \"2026-11-22 09:00\", \"yesterday\" or \"2 hours ago\", for instance.",
            text.escape_debug()
        );
        last.ok_or_else(|| Failure::usage(why))
    });
    let until = until.transpose()?;
    let points = Points::of(report, &volume.name, &[]);
    let shown = |point: &Point| TimeFormat::default().show(point.made);
    let Some(oldest) = points.snapshots().next() else {
        return Err(Failure::failed(format!(
            "Logical volume {full} has no snapshots that still have the contents with which they were taken."
        )));
    };
    // The last in their order: a clock may have been set back between two of them.
    let Some(found) = points.snapshots().rfind(|point| until.is_none_or(|until| point.made <= until)) else {
        return Err(Failure::failed(format!(
            "Logical volume {full} has no snapshot from so early: its oldest one, {}, was taken {}.",
            oldest.name,
            shown(oldest)
        )));
    };
    let source = report.volume(&found.name).cloned();
    source.map(|source| (source, shown(found))).ok_or_else(|| Failure::failed(no_volume(&report.name, &found.name)))
}

impl Wanted {
    /// A name that is free: `stem`, or `stem` with a number.
    fn free_name(&self, session: &mut Session<'_>, stem: &str) -> Result<String> {
        let all = session.report(&self.report.name)?;
        let is_free = |name: &String| all.volume(name).is_none();
        let name = (0..).map(|number| numbered(stem, number)).find(is_free).unwrap_or_else(|| stem.to_owned());
        let refusal = names::check_volume(&name).err().map(|why| format!("Name \"{name}\" is invalid: {why}"));
        match refusal.or_else(|| names::pair_too_long(&self.report.name, &name)) {
            Some(refusal) => Err(Failure::failed(format!("{refusal} Choose another one with --name."))),
            None => Ok(name),
        }
    }

    /// A new volume with the earlier contents.
    fn beside(&self, session: &mut Session<'_>, args: &Args) -> Result {
        let (group, volume, source) = (&self.report.name, &self.volume.name, &self.source.name);
        let name = match args.text(Opt::RestoredName) {
            Some(name) => {
                names::check_volume(name)
                    .map_err(|why| Failure::usage(format!("Name \"{}\" is invalid: {why}", name.escape_debug())))?;
                name.to_owned()
            }
            None => self.free_name(session, &format!("{volume}-restored"))?,
        };
        let mut spec = new_snapshot(session, args, &self.source, name.clone(), None, self.source.chunk_blocks);
        // Somebody is waiting for it.
        (spec.activate, spec.attributes.skip_activation) = (true, false);
        take(session, group, spec)?;
        session.console.say(format!(
            "Logical volume {group}/{name} is {group}/{volume} as it was when {source} was taken, {}.",
            self.taken
        ));
        Ok(())
    }

    /// The volume gets the earlier contents, and a snapshot keeps those that it had.
    fn replace(&self, session: &mut Session<'_>, args: &Args) -> Result {
        let (group, volume, source) = (&self.report.name, &self.volume.name, &self.source.name);
        let question = format!(
            "Do you really want to replace the contents of {group}/{volume} with those of {group}/{source}, taken {}?",
            self.taken
        );
        if !args.assumes_yes() && !session.is_test && !session.console.asks(&question) {
            return Err(Failure::failed(format!("Logical volume {group}/{volume} not restored.")));
        }
        let kept = self.free_name(session, &format!("{volume}-before-restore"))?;
        let spec = new_snapshot(session, args, &self.volume, kept.clone(), None, self.volume.chunk_blocks);
        take(session, group, SnapshotSpec { read_only: true, activate: false, ..spec })?;
        let revert = Request::Revert { target: volume.clone(), source: source.clone() };
        if let Err(failure) = session.change(group, revert) {
            let unused = session.change(group, Request::Remove { names: vec![kept.clone()] });
            if unused.is_err() {
                session.console.complain(format!("Logical volume {group}/{kept} has the same contents; remove it."));
            }
            return Err(failure);
        }
        session.console.say(format!(
            "Logical volume {group}/{volume} is as it was when {source} was taken, {}. What it had until now is {group}/{kept}.",
            self.taken
        ));
        Ok(())
    }
}

fn take(session: &mut Session<'_>, group: &str, spec: SnapshotSpec) -> Result<Outcome> {
    session.change(group, Request::Snapshot { specs: vec![spec], freeze: true })
}

#[cfg(test)]
#[path = "restore_test.rs"]
mod tests;
