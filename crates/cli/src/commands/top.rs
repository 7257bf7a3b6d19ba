//! `rowen top`: a full-screen view of the groups, or one frame of it as text.

use super::groups::known_group;
use super::tree::is_utf8;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use crate::top::draw;
use crate::top::face::Face;
use crate::top::model::{Event, Model};
use crate::top::run::{self, Sampler};
use rowen_control::names;
use std::io::IsTerminal;
use std::time::Duration;

/// The interval over which `--once` measures rates.
const SECOND: Duration = Duration::from_secs(1);
/// The columns of output that does not go to a terminal.
const USUAL: usize = 80;
/// The maximum of columns, whatever the environment says.
const MAX: usize = 1000;

pub fn top(session: &mut Session<'_>, args: &Args) -> Result {
    let mut wanted: Vec<String> = Vec::with_capacity(args.positionals.len());
    for word in &args.positionals {
        let group = known_group(word)?;
        if names::check_form(&group).is_err() {
            return Err(Failure::usage(format!("Invalid volume group name \"{group}\".")));
        }
        if !wanted.contains(&group) {
            wanted.push(group);
        }
    }
    let host = session.backend.host_name();
    if args.has(Opt::Once) {
        return once(session, host, wanted);
    }
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let refused = |why: &str| Failure::usage(format!("{why}: use rowen top --once, or rowen iostat for figures."));
    if !std::io::stdout().is_terminal() {
        return Err(refused("Standard output is not a terminal"));
    }
    if set("TERM").is_none_or(|kind| kind == "dumb") {
        return Err(refused("This terminal cannot show a full-screen view (TERM is \"dumb\" or not set)"));
    }
    session.console.flush();
    let face = Face { is_utf8: is_utf8(), has_colours: set("NO_COLOR").is_none() };
    run::run(session.backend.surveyor(), face, host, wanted)
}

/// One frame with all views, from two samples.
fn once(session: &mut Session<'_>, host: String, wanted: Vec<String>) -> Result {
    let columns = crossterm::terminal::size().ok().filter(|_| std::io::stdout().is_terminal());
    let columns = columns.map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0);
    let environment = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| (1..=MAX).contains(columns));
    let columns = columns.or_else(environment).unwrap_or(USUAL);
    let face = Face { is_utf8: is_utf8(), has_colours: false };
    let mut model = Model::new(face, host, wanted.clone(), (0, 0));
    let mut sampler = Sampler::new(wanted);
    for number in 0..2 {
        if number > 0 {
            session.backend.pause(SECOND);
        }
        let time = session.backend.now();
        let sample = sampler.sample(&mut |groups, depth| session.backend.survey_groups(groups, depth), time);
        let at = f64::from(number) * SECOND.as_secs_f64();
        model.update(Event::Sampled { sample, at }, &draw::shown);
    }
    session.console.raw_out(&draw::once(&model, columns));
    let is_missing = model.missing().next().is_some();
    if is_missing { Err(Failure::Told) } else { Ok(()) }
}
