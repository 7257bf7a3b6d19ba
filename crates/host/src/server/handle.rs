//! Requests, each to what carries it out.

use super::failure::{Failure, Result};
use super::listen::Handler;
use super::log;
use super::state::Server;
use super::warnings::needs_free_space;
use rowen_control::protocol::{Caller, CheckOutcome, ErrorKind, Kind, Outcome, Request};
use rowen_engine::disk::PvIndex;

impl Handler for Server {
    fn handle(&self, request: Request, caller: &Caller, interim: &mut dyn FnMut(Outcome)) -> Outcome {
        let traits = request.traits();
        let is_report = matches!(request, Request::Report { .. });
        let may_merge =
            matches!(request, Request::Activate { .. }) && self.group.any_volume(|volume| volume.attributes.merging);
        let is_change = may_merge || traits.is_archived;
        let outcome = self.carry_out(request, caller, interim).unwrap_or_else(Outcome::from);
        // A request that failed may have done a part of its work.
        let goes_on = !self.end.is_destroyed() && !self.end.is_renamed() && self.end.leaving().is_none();
        if is_change && !caller.no_backup && goes_on {
            self.archive.changed(&caller.command);
            if let Some(message) = self.archive.trouble() {
                interim(Outcome::Notice { message });
            }
        }
        if traits.takes_space {
            self.warn(interim);
        }
        if is_report {
            self.missing_room().into_iter().for_each(|message| interim(Outcome::Notice { message }));
        }
        outcome
    }
}

impl Server {
    fn carry_out(&self, request: Request, caller: &Caller, tell: &mut dyn FnMut(Outcome)) -> Result<Outcome> {
        let traits = request.traits();
        // SV1: one change at a time; the order in which they come is the order in which they are done.
        let change = (traits.kind == Kind::Change).then(|| self.change.lock());
        if change.is_some() {
            if self.end.is_asked() {
                return Err(self.failure(&rowen_engine::error::Error::Closed, ""));
            }
            if !traits.is_for_exported {
                self.refuse_exported()?;
            }
        }
        let _lists = change.is_some().then(|| self.lists.heed(&caller.lists));
        match request {
            Request::Hello { .. } => Err(Failure::new(ErrorKind::Invalid, "A connection has one greeting only.")),
            Request::Report { with_use } => self.report(self.group.volumes(), with_use.then_some(None)),
            Request::ReportOf { volumes, with_members, with_use } => {
                let relatives = self.relatives(&volumes, with_members);
                self.report(relatives, with_use.then_some(Some(&volumes)))
            }
            Request::Places => self.places(),
            Request::FreeOn { on } => self.free_on(&on),
            Request::Stats => Ok(Outcome::Stats(self.group.stats().into())),
            Request::Check => self.check(false),
            Request::Repair => self.check(true),
            Request::CreateVolume { spec, activate, on } => self.create_volume(spec, activate, &on),
            Request::Snapshot { specs, freeze } => self.snapshot(specs, freeze),
            Request::Remove { names } => self.remove(&names),
            Request::Activate { names, ignore_skip, auto } => self.activate(names.as_deref(), ignore_skip, auto, tell),
            Request::Refresh { names } => self.refresh(&names),
            Request::Deactivate { names } => self.deactivate(names.as_deref()),
            Request::Resize { name, blocks, force, on, seen } => self.resize(&name, (seen, blocks), force, &on),
            Request::SetReserve { name, blocks, seen } => self.set_reserve(&name, (seen, blocks)),
            Request::Rename { from, to } => self.rename(&from, &to),
            Request::SetPermission { name, read_only } => self.set_permission(&name, read_only),
            Request::SetAttributes { name, change } => {
                let volume = self.find(&name)?;
                self.set_attributes(volume.id, &name, change.apply(&volume.attributes))?;
                Ok(Outcome::Ok)
            }
            Request::ChangeGroup { change } => self.change_group(&change),
            Request::TagPv { path, add, remove } => self.tag_pv(&path, &add, &remove),
            Request::SetAllocatable { path, allocatable } => self.set_allocatable(&path, allocatable),
            Request::RemovePv { path } => self.remove_pv(&path),
            Request::ResizePv { path, bytes } => self.resize_pv(&path, bytes),
            Request::RenameGroup { to } => self.rename_group(&to),
            Request::MakeNodes => self.make_nodes(),
            Request::SetFullPolicy { name, full } => self.set_full_policy(&name, full),
            Request::Merge { snapshot } => self.merge(&snapshot),
            Request::Revert { target, source } => self.revert(&target, &source),
            Request::AddPv { paths } => self.add_pvs(&paths),
            Request::Checkpoint => self.checkpoint().map(|()| Outcome::Ok),
            Request::Destroy { force } => self.destroy(force),
            Request::Stop => self.stop(),
        }
    }

    fn check(&self, repair: bool) -> Result<Outcome> {
        let group = self.group.clone();
        let report = self.run(async move {
            match repair {
                true => group.repair_open().await,
                false => group.check_open().await,
            }
        });
        Ok(Outcome::Check(CheckOutcome::from(self.told(report, "")?)))
    }

    /// Makes everything that was acknowledged part of the metadata proper.
    pub fn checkpoint(&self) -> Result<()> {
        let group = self.group.clone();
        let done = self.run(async move { group.checkpoint().await });
        self.told(done, "")
    }

    /// Closes the group and leaves a physical volume out of it. Where that cannot be, it is closed all the same.
    pub fn close_without(&self, pv: PvIndex) -> Result<()> {
        let group = self.group.clone();
        let done = self.run(async move {
            let left = group.close_without(pv).await;
            let closed = group.close().await;
            left.and(closed)
        });
        self.told(done, "")
    }

    /// What lacks room behind the group's disks, a sentence each.
    fn missing_room(&self) -> Vec<String> {
        let missing = self.group.missing_room();
        let group = &self.name;
        let device = |pv: PvIndex| {
            self.pvs.path(pv).map_or_else(|| format!("number {}", pv.0), |path| path.display().to_string())
        };
        let for_data = missing.for_data.map(|pv| {
            format!(
                "WARNING: There is no room behind physical volume {} of volume group {group}: new data waits or is refused, as \
                 each volume's policy says. Make room on the filesystem that it lies on, or remove snapshots.",
                device(pv)
            )
        });
        let for_metadata = missing.for_metadata.map(|pv| {
            format!(
                "WARNING: The journal and metadata of volume group {group} have too little room behind physical volume {}: \
                 the group may stop. Make room on the filesystem that it lies on.",
                device(pv)
            )
        });
        [for_data, for_metadata].into_iter().flatten().collect()
    }

    /// Tells what is filling up, to the log and to the client.
    pub fn warn(&self, interim: &mut dyn FnMut(Outcome)) {
        if let Err(error) = self.group.failed()
            && self.warnings.is_news_that_it_stopped()
        {
            log::line(self.failure(&error, "").message);
        }
        self.warnings.tell_failing(&self.name, self.group.out_of_patience());
        self.warnings.tell_bad_places(&self.name, self.group.bad_places());
        self.warnings.tell_missing_room(&self.name, self.missing_room());
        self.warnings.tell_filling(&self.name, self.group.stats().fills_without_room);
        let at_risk = self.group.any_volume(needs_free_space);
        let snapshots = self.group.reserved();
        for warning in self.warnings.look(&self.group.info(), at_risk, &self.group.pools(), &snapshots) {
            if warning.is_new {
                log::line(&warning.message);
                self.warnings.call(&self.name, &warning);
            }
            interim(Outcome::Notice { message: warning.message });
        }
    }
}
