//! `rowen-experiments`: the experiments of five documents on snapshots, and some that nobody published, on the systems that
//! they measured and on Rowen, in one run; and a report of it.
//!
//! The same bodies ([`catalogue`]) run on the host and, for LVM, in user-mode-linux ([`uml`]); their I/O is recorded there and
//! replayed on calculated disks ([`model`]). Each figure is a JSON line ([`measurement`]); a page and tables are made from the
//! lines alone ([`report`]).

mod book;
mod catalogue;
mod command;
mod compare;
mod context;
mod files;
mod fio;
mod in_world;
mod loads;
mod measurement;
mod mirror;
mod model;
mod plugs;
mod progress;
// The figures of a document that the demo shows, too. As a dependency, that crate would have all of the simulator and of the host
// compiled for it.
#[allow(dead_code, reason = "the demo shows more of it")]
#[path = "../../bench/src/published.rs"]
mod published;
mod report;
mod runner;
mod stack;
mod stats;
mod store;
mod streams;
mod trace;
mod uml;
mod writes;

use catalogue::Experiment;
use command::Result;
use context::Form;
use progress::Progress;
use runner::{Options, Pass};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

const HELP: &str = "\
rowen-experiments: published experiments on snapshots, side by side with the systems that they measured

Usage: rowen-experiments [OPTION]... [EXPERIMENT]...   (`make experiments` runs it after a release build)
       rowen-experiments report LINES... [--out DIR]   make the page and the tables from lines again
       rowen-experiments compare BEFORE AFTER          say what changed beyond the noise, from lines of two runs

  --full          the documents' sizes, up to 90 minutes (without it: 10 minutes, in which some parts are left out
                  of experiments that are not named)
  --rounds N      rounds of each experiment (5)
  --mib N         size of large writes
  --pass PASS     only this pass: host, uml (user-mode-linux) or model; may be given again
  --dir DIR       where the scratch files go (/var/tmp); they are removed
  --out DIR       where lines, page and tables go (experiments-results); the lines of other parts stay there
  --records DIR   keeps there what was recorded for the modelled disks: of each experiment the systems' requests, and
                  events.jsonl with when each row began and ended
  --rowen FILE    the program that is measured (beside this one)
  --revision REV  what the lines say of the sources
  --resume        leaves out the parts that a run of this revision and form has found in DIR already
  --smoke         touches everything; the figures mean nothing
  --list          names the experiments

Needs root. Exit code: 0 done, 1 something failed (what was found is kept), 2 wrong usage.
";

struct Words {
    options: Options,
    chosen: Vec<&'static Experiment>,
}

fn parse(words: &[String]) -> Result<Option<Words>> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("rowen")));
    let mut form = Form { quick: true, smoke: false, rounds: 0, mib: 0 };
    let (mut mib, mut rounds, mut resume) = (None, None, false);
    let mut dir = PathBuf::from("/var/tmp");
    let mut out = PathBuf::from("experiments-results");
    let mut rowen = beside.unwrap_or_else(|| "rowen".into());
    let (mut revision, mut records, mut passes, mut chosen) = (None, None, Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number =
            |text: &str| text.parse::<u64>().ok().filter(|n| *n > 0).ok_or_else(|| format!("{text:?} is no number"));
        match word.as_str() {
            "--full" => form.quick = false,
            "--smoke" => form.smoke = true,
            "--resume" => resume = true,
            "--rounds" => rounds = Some(number(value()?)? as usize),
            "--mib" => mib = Some(number(value()?)?),
            "--pass" => {
                let name = value()?;
                let pass = Pass::ALL.into_iter().find(|pass| pass.name() == name);
                passes.push(pass.ok_or_else(|| format!("{name:?} is no pass: host, uml, model"))?);
            }
            "--dir" => dir = value()?.into(),
            "--out" => out = value()?.into(),
            "--records" => records = Some(value()?.into()),
            "--rowen" => rowen = value()?.into(),
            "--revision" => revision = Some(value()?.clone()),
            "--list" => {
                catalogue::ALL.iter().for_each(|experiment| println!("{:14} {}", experiment.name, experiment.title));
                return Ok(None);
            }
            "--help" | "-h" => {
                print!("{HELP}");
                return Ok(None);
            }
            name if !name.starts_with('-') => {
                chosen.push(catalogue::find(name).ok_or_else(|| format!("no experiment {name:?}; --list names them"))?);
            }
            _ => return Err(format!("unknown option {word}; --help lists them")),
        }
    }
    form.rounds = rounds.unwrap_or(if form.smoke { 1 } else { catalogue::ROUNDS });
    let by_name = !chosen.is_empty();
    if !by_name {
        chosen = catalogue::ALL.iter().collect();
    }
    if passes.is_empty() {
        passes = Pass::ALL.to_vec();
    }
    let revision = revision.unwrap_or_else(git_revision);
    let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
    let options = Options { form, mib, dir, rowen, out, records, revision, passes, by_name, resume };
    Ok(Some(Words { options, chosen }))
}

/// The revision of the sources around, and whether they were changed since; what earlier runs found is no source.
fn git_revision() -> String {
    let revision = command::run("git", &["rev-parse", "--short=12", "HEAD"]);
    let changed = command::run(
        "git",
        &["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)docs/experiments"],
    );
    match (revision, changed) {
        (Ok(revision), Ok(changed)) => revision.trim().to_owned() + if changed.is_empty() { "" } else { "+changes" },
        _ => "unknown".to_owned(),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.first().map(String::as_str) {
        Some("inside") => inside(&words[1..]).map(|()| true),
        Some("report") => report_again(&words[1..]).map(|()| true),
        Some("compare") => compare::main(&words[1..]),
        _ => match parse(&words) {
            Ok(None) => Ok(true),
            Ok(Some(words)) => measure(&words),
            Err(why) => {
                eprintln!("rowen-experiments: {why}");
                return ExitCode::from(2);
            }
        },
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("rowen-experiments: {why}");
            ExitCode::FAILURE
        }
    }
}

fn inside(words: &[String]) -> Result {
    let [plan] = words else { return Err("a plan is wanted".to_owned()) };
    runner::run_inside(&uml::read_plan(Path::new(plan))?)
}

fn report_again(words: &[String]) -> Result {
    let mut out = PathBuf::from("experiments-results");
    let mut lines = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" => out = words.next().ok_or("--out needs a value")?.into(),
            path => lines.extend(measurement::read_lines(Path::new(path))?),
        }
    }
    report::write(&lines, &out)
}

/// Whether nothing failed.
fn measure(words: &Words) -> Result<bool> {
    if !rustix::process::geteuid().is_root() {
        return Err("block devices and filesystems are made and mounted: run this as root".to_owned());
    }
    let options = &words.options;
    if !options.rowen.exists() {
        return Err(format!("{} is not built: cargo build --release -p rowen-cli", options.rowen.display()));
    }
    command::catch_signals()?;
    std::fs::create_dir_all(&options.out).map_err(|e| format!("cannot make {}: {e}", options.out.display()))?;
    let parts = words.chosen.iter().flat_map(|e| options.passes.iter().map(move |pass| (e, *pass)));
    let made = parts.filter(|(e, pass)| e.has(*pass, &options.form, options.by_name));
    let seconds = made.map(|(e, pass)| e.seconds_of(pass, &options.form)).sum();
    let progress = Rc::new(RefCell::new(Progress::new(seconds)));
    let failures = runner::run(options, &words.chosen, &progress)?;
    eprintln!("the report: {}", options.out.join("report.html").display());
    for why in &failures {
        eprintln!("FAILED {why}");
    }
    Ok(failures.is_empty())
}
