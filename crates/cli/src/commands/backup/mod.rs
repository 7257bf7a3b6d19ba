//! `rowen backup`: snapshots by policies, their copies, and how well that goes.

mod calendar;
mod files;
mod run;
mod status;
mod verify;

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::backup::sanoid;

/// The options that only one of the forms has.
const ONLY: &[(Opt, &str)] =
    &[(Opt::DryRun, "run"), (Opt::RemoveAll, "run"), (Opt::StatusFormat, "status"), (Opt::Json, "status")];

pub fn backup(session: &mut Session<'_>, args: &Args) -> Result {
    let Some((form, words)) = args.positionals.split_first() else {
        return Err(Failure::usage("Please say what: run, status, list, verify or import-sanoid."));
    };
    for (option, of) in ONLY {
        let is_here = form == of || (*option == Opt::Json && matches!(form.as_str(), "list" | "verify"));
        if args.has(*option) && !is_here {
            return Err(Failure::OtherForm(option.spec().long));
        }
    }
    match form.as_str() {
        "run" => run::run(session, args, words),
        "status" => status::status(session, args, words),
        "list" => status::list(session, args, words),
        "verify" => verify::verify(session, args, words),
        "import-sanoid" => import(session, words),
        other => Err(Failure::usage(format!(
            "\"{}\" is none of run, status, list, verify and import-sanoid.",
            other.escape_debug()
        ))),
    }
}

/// Prints sanoid's configuration as policies; the file of policies is for a person to change.
fn import(session: &mut Session<'_>, words: &[String]) -> Result {
    let [path] = words else { return Err(Failure::usage("Please specify sanoid's file: /etc/sanoid/sanoid.conf.")) };
    let text = session.backend.read_text(path)?;
    let made = sanoid::import(&text);
    let made = made.map_err(|(line, why)| Failure::failed(format!("{path}: line {line}: {why}.")))?;
    session.console.raw_out(&made);
    Ok(())
}

#[cfg(test)]
#[path = "backup_test.rs"]
mod tests;
#[cfg(test)]
#[path = "verify_test.rs"]
mod verify_tests;
