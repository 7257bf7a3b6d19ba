//! pvcreate and pvremove: physical volumes that belong to no group.

use crate::backend::{Answer, Consent, Trouble};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::units::sentence;
use rowen_control::uuids;

pub fn consent(args: &Args) -> Consent {
    Consent { force: u8::try_from(args.count(Opt::Force)).unwrap_or(u8::MAX), yes: args.has(Opt::Yes) }
}

/// Runs an action that may need confirmation: asks, and runs it again with the answer.
pub fn with_questions<T>(
    session: &mut Session<'_>,
    mut consent: Consent,
    mut act: impl FnMut(&mut Session<'_>, Consent) -> Answer<T>,
) -> Result<T> {
    match act(session, consent) {
        Err(Trouble::Confirm { question, refused }) => {
            if !session.console.asks_exactly(&question) {
                return Err(Failure::failed(refused));
            }
            consent.yes = true;
            Ok(act(session, consent)?)
        }
        other => Ok(other?),
    }
}

/// Acts on each path. A failure does not stop the others.
fn each(session: &mut Session<'_>, args: &Args, act: impl Fn(&mut Session<'_>, &str) -> Result) -> Result {
    if args.positionals.is_empty() {
        return Err(Failure::NoForm);
    }
    let mut end = Ok(());
    for path in &args.positionals {
        let is_there = super::groups::refuse_missing(session, std::slice::from_ref(path));
        if let Err(failure) = is_there.and_then(|()| act(session, path)) {
            session.tell(&failure);
            end = Err(Failure::Told);
        }
    }
    end
}

pub fn create(session: &mut Session<'_>, args: &Args) -> Result {
    each(session, args, |session, path| {
        if !session.is_test {
            let notes =
                with_questions(session, consent(args), |session, consent| session.backend.pvcreate(path, consent))?;
            notes.iter().for_each(|note| session.console.say(note));
        }
        session.console.say(format!("Physical volume \"{path}\" successfully created."));
        match args.has(Opt::WriteOut) {
            true if session.is_test => Ok(()),
            true => write_out(session, path),
            false => {
                warn_of_sparse(session, path);
                Ok(())
            }
        }
    })
}

/// A file without holes is written faster.
fn warn_of_sparse(session: &mut Session<'_>, path: &str) {
    let missing = session.backend.without_room(path);
    if missing > 0 {
        session.console.say(format!(
            "{path} is a sparse file: {} of it have no room yet, and first writes there cost about a quarter more (\"pvcreate \
             --writeout\" writes it out).",
            sentence(missing)
        ));
    }
}

/// The physical volume exists by then and can be used, even if this fails.
fn write_out(session: &mut Session<'_>, path: &str) -> Result {
    let what = format!("Writing out {path}");
    let console = &mut session.console;
    let written = session.backend.write_out(path, &mut |done, total| console.progress(done, total, &what));
    match written {
        Ok(0) => session.console.say(format!("{path} has all of its room already.")),
        Ok(bytes) => session.console.say(format!("{} of {path} written out.", sentence(bytes))),
        Err(trouble) => {
            session.tell(&Failure::from(trouble));
            return Err(Failure::failed(format!(
                "{path} is a physical volume, but not all of it is written out. It can be used now; the same command writes out the rest."
            )));
        }
    }
    if session.backend.without_room(path) > 0 {
        session.console.say(format!("Its filesystem stores zeros without space: {path} is still sparse."));
    }
    Ok(())
}

pub fn remove(session: &mut Session<'_>, args: &Args) -> Result {
    each(session, args, |session, path| {
        if !session.is_test {
            let removed =
                with_questions(session, consent(args), |session, consent| session.backend.pvremove(path, consent));
            match removed {
                Ok(notes) => notes.iter().for_each(|note| session.console.complain(note)),
                // As LVM: with `--force`, a device without a label is no error.
                Err(failure)
                    if args.has(Opt::Force) && failure == Failure::failed(format!("No PV found on device {path}.")) => {
                }
                Err(failure) => return Err(failure),
            }
        }
        session.console.say(format!("Labels on physical volume \"{path}\" successfully wiped."));
        Ok(())
    })
}

/// lvmdevices: the devices file. Devices are also found by their labels; files are found only by this list.
pub fn devices(session: &mut Session<'_>, args: &Args) -> Result {
    if !args.positionals.is_empty() || (args.has(Opt::AddDev) && args.has(Opt::DelDev)) {
        return Err(Failure::NoForm);
    }
    if let Some(path) = args.text(Opt::AddDev) {
        let path = session.backend.absolute(path);
        session.backend.know(&path, !session.is_test)?;
        return Ok(());
    }
    if let Some(path) = args.text(Opt::DelDev) {
        let path = session.backend.absolute(path);
        session.backend.forget(&path, !session.is_test)?;
        return Ok(());
    }
    for (path, uuid) in session.backend.known()? {
        let pvid: String = uuids::lvm_text(uuid).chars().filter(|c| *c != '-').collect();
        session.console.say(format!("Device {path} IDTYPE=devname IDNAME={path} DEVNAME={path} PVID={pvid}"));
    }
    Ok(())
}
