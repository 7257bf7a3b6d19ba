//! `rowen-sim` runs worlds from the command line. See `rowen-sim --help`.
#![forbid(unsafe_code)]

use rowen_sim::crash::Setup;
use rowen_sim::hostile::{Hostile, ImageOutcome};
use rowen_sim::progress::Progress;
use rowen_sim::worlds::shrink::{parse_list, shrink};
use rowen_sim::worlds::tally::Tally;
use rowen_sim::worlds::{Options, run};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "\
usage: rowen-sim SEED [--keep LIST] [--trace]
       rowen-sim --worlds N [--from S] [--minutes M]
       rowen-sim --minutes M [--from S]
       rowen-sim --images N [--from S] [--minutes M]

Simulates worlds: a volume group on simulated disks, with clients, commands, power cuts, deaths and faults. One seed
decides everything, so a seed that fails is replayed by its number.

  SEED         run this world twice and compare the traces
  --keep LIST  only these items of the world's plan, as a failure prints them (0-3,7)
  --trace      print each event
  --worlds N   run N worlds, from seed S (1) on
  --from S     the first seed
  --minutes M  run worlds for M minutes
  --images N   make N hostile images of a group instead, and do to each what a user would
  --planted B  with a bug planted in the engine, until it is found

A world that fails is made smaller, and the line that replays it is printed. The exit code is 1 then.
At the end, also at Ctrl-C, a tally is printed: worlds, crash states, each kind of fault, and the rate per minute of one
core. Each minute it reports its progress to stderr.
";

#[derive(Default)]
struct Arguments {
    seed: Option<u64>,
    worlds: Option<u64>,
    from: Option<u64>,
    minutes: Option<u64>,
    images: Option<u64>,
    options: Options,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        match word.as_str() {
            "--keep" => arguments.options.keep = Some(parse_list(&value()?)?),
            "--trace" => arguments.options.trace = true,
            "--worlds" => arguments.worlds = Some(number(value()?)?),
            "--from" => arguments.from = Some(number(value()?)?),
            "--images" => arguments.images = Some(number(value()?)?),
            "--minutes" => arguments.minutes = Some(number(value()?)?),
            // The name is never freed: the program is short.
            "--planted" => arguments.options.planted = Some(Box::leak(value()?.into_boxed_str())),
            seed if !seed.starts_with('-') && arguments.seed.is_none() => {
                arguments.seed = Some(number(seed.to_string())?);
            }
            other => return Err(format!("`{other}` is not known")),
        }
    }
    match (arguments.seed, arguments.worlds.or(arguments.minutes).or(arguments.images)) {
        (None, None) => Err("a seed, --worlds, --images or --minutes is needed".into()),
        (Some(_), Some(_)) => Err("a seed is one world: --worlds and --minutes are for many".into()),
        _ => Ok(arguments),
    }
}

/// One world, twice.
fn one(seed: u64, options: &Options) -> bool {
    let first = match run(seed, options) {
        Ok(seen) => seen,
        Err(broken) => {
            println!("{broken}");
            if options.keep.is_none() && !options.trace {
                println!("made smaller: {}", shrink(&broken, options));
            }
            return false;
        }
    };
    let again = run(seed, &Options { trace: false, ..options.clone() });
    print!("{}", first.tally);
    println!("trace {:016x}", first.trace);
    let is_same = again.is_ok_and(|again| again == first);
    if !is_same {
        println!("world {seed} is not the same when it is run again");
    }
    is_same
}

/// Processor time of this process; elapsed time where the system does not report it.
fn on_core(begun: Instant) -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanos = stat.and_then(|text| text.split_whitespace().next().and_then(|word| word.parse().ok()));
    nanos.map_or_else(|| begun.elapsed(), Duration::from_nanos)
}

/// Many worlds, on one core.
fn many(arguments: &Arguments) -> bool {
    let mut progress = Progress::new("worlds", arguments.worlds, arguments.minutes);
    let begun = progress.begun();
    let from = arguments.from.unwrap_or(1);
    let count = arguments.worlds.unwrap_or(u64::MAX - from);
    let (mut tally, mut failures) = (Tally::default(), 0u64);
    for seed in from..from + count {
        if !progress.continues(seed - from, failures) {
            break;
        }
        match run(seed, &arguments.options) {
            Ok(seen) => tally.add(&seen.tally),
            Err(broken) => {
                failures += 1;
                if arguments.options.planted.is_some() {
                    println!("found after {:.1} s: {broken}", begun.elapsed().as_secs_f64());
                    break;
                }
                println!("{}", shrink(&broken, &arguments.options));
            }
        }
    }
    let minutes = on_core(begun).as_secs_f64() / 60.0;
    print!("{tally}");
    for what in ["worlds", "crash states"] {
        println!("{:>12.0}  {what} per minute of one core", tally.of(what) as f64 / minutes);
    }
    println!("{failures:>12}  failures");
    failures == 0
}

/// Many hostile images, on one core.
fn images(arguments: &Arguments, count: u64) -> bool {
    let mut progress = Progress::new("images", Some(count), arguments.minutes);
    let begun = progress.begun();
    let hostile = match Hostile::new(Setup::small(2, 24)) {
        Ok(hostile) => hostile,
        Err(why) => {
            println!("the images cannot be made: {why}");
            return false;
        }
    };
    // The report names the image's number. This line names the place of the panic.
    std::panic::set_hook(Box::new(|panic| {
        if let Some(place) = panic.location() {
            println!("panic at {place}");
        }
    }));
    let (mut opened, mut refused, mut failures) = (0u64, 0u64, 0u64);
    let from = arguments.from.unwrap_or(1);
    for seed in from..from + count {
        if !progress.continues(seed - from, failures) {
            break;
        }
        match hostile.judge(seed) {
            Ok(ImageOutcome::Opened) => opened += 1,
            Ok(ImageOutcome::Refused) => refused += 1,
            Err(what) => {
                failures += 1;
                println!("{what}");
            }
        }
    }
    let minutes = on_core(begun).as_secs_f64() / 60.0;
    let all = opened + refused + failures;
    println!("{all:>12}  hostile images: {opened} opened, {refused} refused in words");
    println!("{:>12.0}  images per minute of one core", all as f64 / minutes);
    println!("{:>12}  MiB of address space at the most", peak_mib());
    println!("{failures:>12}  failures");
    failures == 0
}

/// The most address space that this process ever had; 0 where the system does not report it.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let arguments = match parse(words.into_iter()) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("rowen-sim: {why}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let is_well = match (arguments.seed, arguments.images) {
        (Some(seed), _) => one(seed, &arguments.options),
        (None, Some(count)) => images(&arguments, count),
        (None, None) => many(&arguments),
    };
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
