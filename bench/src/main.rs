//! `rowen-bench`: every figure that the project promises, measured and judged.

use rowen_bench::report::table;
use rowen_bench::world::{Bench, MIB, Settings};
use rowen_bench::{creation, device, layers, memory, plain, reading, recovery, redirect, removal, scattered, volumes};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
rowen-bench: measures Rowen against what is below it and judges each figure

Usage: rowen-bench [OPTION]...        (`make bench` runs it after a release build)

  --rounds N    rounds of each experiment (5); medians are judged
  --size MIB    size of the volumes that are measured (512)
  --only NAME   only experiments whose name contains NAME; may be given again
  --quick       small and short: for a look, not for a verdict
  --dir DIR     where the scratch files go (the temporary directory); takes up to 12 GiB
  --json FILE   writes one JSON object for each row
  --rowen FILE  the program under test (beside this one)
  --list        names the experiments

Raw and Rowen are measured in turn on the same disk, in slices of a fraction of a second. Experiments with
devices need root. Exit code: 0 all figures reached, 1 some missed, 2 something failed.
";

type Body = fn(&Bench) -> rowen_bench::world::Result;

/// Name, about how many seconds it takes, and what it does.
const EXPERIMENTS: [(&str, f64, Body); 13] = [
    ("steady", 50.0, plain::steady),
    ("filling", 60.0, plain::filling),
    ("passes", 180.0, redirect::passes),
    ("many", 90.0, redirect::many),
    ("reading", 200.0, reading::sequential),
    ("scattered", 240.0, scattered::origins),
    ("removal", 200.0, removal::latency),
    ("device", 90.0, device::through),
    ("layers", 180.0, layers::through),
    ("creation", 150.0, creation::snapshot),
    ("commands", 120.0, volumes::commands),
    ("memory", 400.0, memory::resident),
    ("recovery", 60.0, recovery::after_kill),
];

struct Args {
    settings: Settings,
    only: Vec<String>,
    json: Option<PathBuf>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("rowen")));
    let settings = Settings {
        rounds: 0,
        span: 0,
        quick: false,
        dir: std::env::temp_dir(),
        rowen: beside.unwrap_or_else(|| "rowen".into()),
    };
    let mut args = Args { settings, only: Vec::new(), json: None };
    let (mut rounds, mut size) = (None, None);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number =
            |text: String| text.parse::<u64>().ok().filter(|n| *n > 0).ok_or_else(|| format!("{text:?} is no number"));
        match word.as_str() {
            "--rounds" => rounds = Some(number(value()?)?),
            "--size" => size = Some(number(value()?)?),
            "--only" => args.only.push(value()?),
            "--quick" => args.settings.quick = true,
            "--dir" => args.settings.dir = value()?.into(),
            "--json" => args.json = Some(value()?.into()),
            "--rowen" => args.settings.rowen = value()?.into(),
            "--list" => {
                EXPERIMENTS.iter().for_each(|(name, ..)| println!("{name}"));
                return Ok(None);
            }
            "--help" | "-h" => {
                print!("{HELP}");
                return Ok(None);
            }
            _ => return Err(format!("unknown option {word}; --help lists them")),
        }
    }
    let quick = args.settings.quick;
    args.settings.rounds = rounds.unwrap_or(if quick { 3 } else { 5 }) as usize;
    args.settings.span = size.unwrap_or(if quick { 128 } else { 512 }).max(16) * MIB;
    Ok(Some(args))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = &words[..]
        && first == rowen_bench::world::CHILD
    {
        let outcome = match rest {
            [what, rest @ ..] if what == memory::CHILD => memory::child(rest),
            [what, rest @ ..] if what == recovery::CHILD => recovery::child(rest),
            _ => Err("this is no part of the bench".to_owned()),
        };
        return match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("rowen-bench: {why}");
                ExitCode::from(2)
            }
        };
    }
    let args = match parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => return ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("rowen-bench: {why}");
            return ExitCode::from(2);
        }
    };
    match run(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("rowen-bench: {why}");
            ExitCode::from(2)
        }
    }
}

/// Whether all figures were reached.
fn run(args: Args) -> Result<bool, String> {
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|part| name.contains(part.as_str()));
    let chosen: Vec<_> = EXPERIMENTS.into_iter().filter(|(name, ..)| wanted(name)).collect();
    if chosen.is_empty() {
        return Err("no experiment has such a name; --list names them".to_owned());
    }
    let work = chosen.iter().map(|(_, seconds, _)| seconds).sum();
    let bench = Bench::new(args.settings, work, std::io::stderr().is_terminal())?;
    let mut failed = Vec::new();
    for (name, seconds, body) in chosen {
        bench.go_on()?;
        bench.begin(seconds);
        bench.step(name, 0.0);
        if let Err(why) = body(&bench) {
            bench.clear_line();
            eprintln!("{name}: {why}");
            failed.push(name);
        }
    }
    bench.clear_line();
    let rows = bench.rows.borrow();
    print!("{}", table(&rows));
    if let Some(path) = args.json {
        let lines: String = rows.iter().map(|row| row.json() + "\n").collect();
        let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(lines.as_bytes()));
        written.map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if !failed.is_empty() {
        return Err(format!("experiments that failed: {}", failed.join(", ")));
    }
    Ok(rows.iter().all(|row| row.reached() != Some(false)))
}
