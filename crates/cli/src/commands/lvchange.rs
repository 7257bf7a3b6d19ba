//! lvchange: activation, permission, tags and flags.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::{Activation, Args};
use crate::session::{SelectedGroup, Session};
use rowen_control::wire::{AttributeChange, Request, VolumeReport};

/// What the command line asks for besides activation.
struct Change {
    read_only: Option<bool>,
    attributes: AttributeChange,
}

impl Change {
    fn from(args: &Args) -> Change {
        let attributes = AttributeChange {
            autoactivate: args.yes_no(Opt::SetAuto),
            skip_activation: args.yes_no(Opt::SetSkip),
            add_tags: args.tags(Opt::AddTag),
            remove_tags: args.tags(Opt::DelTag),
            pool: None,
            merging: None,
        };
        Change { read_only: args.read_only(), attributes }
    }

    fn has_attributes(&self) -> bool {
        self.attributes != AttributeChange::default()
    }

    fn is_nothing(&self) -> bool {
        self.read_only.is_none() && !self.has_attributes()
    }
}

pub fn run(session: &mut Session<'_>, args: &Args) -> Result {
    let change = Change::from(args);
    let activation = args.activation();
    if (change.is_nothing() && activation.is_none() && !args.has(Opt::Refresh)) || !args.names_something() {
        return Err(Failure::NoForm);
    }
    let mut selection = session.select_by(args)?;
    for selected in &selection.groups {
        let outcome = if change.is_nothing() { Ok(()) } else { change_all(session, selected, &change) };
        let outcome = outcome.and_then(|()| match activation {
            Some(activation) => activate(session, selected, activation, args.has(Opt::IgnoreSkip)),
            None => Ok(()),
        });
        if let Err(failure) = outcome {
            session.tell(&failure);
            selection.is_incomplete = true;
        }
    }
    selection.end()
}

fn change_all(session: &mut Session<'_>, selected: &SelectedGroup, change: &Change) -> Result {
    let mut end = Ok(());
    for volume in selected.volumes.iter().filter_map(|name| selected.report.volume(name)) {
        if let Err(failure) = change_one(session, &selected.report.name, volume, change) {
            session.tell(&failure);
            end = Err(Failure::Told);
        }
    }
    end
}

fn change_one(session: &mut Session<'_>, group: &str, volume: &VolumeReport, change: &Change) -> Result {
    let name = &volume.name;
    let mut is_changed = false;
    let mut is_refused = false;
    match change.read_only {
        Some(wanted) if wanted == volume.read_only => {
            let state = if wanted { "read only" } else { "writable" };
            session.console.complain(format!("Logical volume \"{group}/{name}\" is already {state}."));
            is_refused = true;
        }
        Some(read_only) => {
            session.change(group, Request::SetPermission { name: name.clone(), read_only })?;
            is_changed = true;
        }
        None => {}
    }
    if change.has_attributes() {
        session.change(group, Request::SetAttributes { name: name.clone(), change: change.attributes.clone() })?;
        is_changed = true;
    }
    if is_changed {
        session.console.say(format!("Logical volume {group}/{name} changed."));
    }
    if is_refused { Err(Failure::Told) } else { Ok(()) }
}

fn activate(session: &mut Session<'_>, selected: &SelectedGroup, activation: Activation, ignore_skip: bool) -> Result {
    // A pool has no device of its own.
    let is_pool = |name: &String| selected.report.volume(name).is_some_and(VolumeReport::is_pool);
    let names: Vec<String> = selected.volumes.iter().filter(|name| !is_pool(name)).cloned().collect();
    if names.is_empty() {
        return Ok(());
    }
    let names = Some(names);
    let request = match activation {
        Activation::No => Request::Deactivate { names },
        Activation::Yes => Request::Activate { names, ignore_skip, auto: false },
        Activation::Auto => Request::Activate { names, ignore_skip, auto: true },
    };
    session.change(&selected.report.name, request)?;
    Ok(())
}
