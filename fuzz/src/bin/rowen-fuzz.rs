//! `rowen-fuzz [TARGET...] [--seconds S] [--from SEED]`: hostile bytes for each target, S seconds (60) for each.

use rowen_fuzz::driver::{Fuzzer, corpus};
use rowen_fuzz::targets::TARGETS;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "usage: rowen-fuzz [TARGET...] [--seconds S] [--from SEED]";

fn main() -> ExitCode {
    let (mut names, mut seconds, mut seed) = (Vec::new(), 60, 1);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = |value: Option<String>| value.and_then(|value| value.parse::<u64>().ok());
        let is_target = TARGETS.iter().any(|target| target.name == word);
        let is_known = match word.as_str() {
            "--seconds" => number(words.next()).map(|value| seconds = value).is_some(),
            "--from" => number(words.next()).map(|value| seed = value).is_some(),
            _ => is_target,
        };
        if is_target {
            names.push(word);
        }
        if !is_known {
            let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!("{HELP}\ntargets: {}", all.join(" "));
            return ExitCode::from(2);
        }
    }
    // A panic is reported with its input.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let mut failures = 0;
    for target in TARGETS.iter().filter(|target| names.is_empty() || names.iter().any(|name| name == target.name)) {
        let begun = Instant::now();
        let mut slowest = Duration::ZERO;
        let outcome = Fuzzer::new(*target, corpus(target.name), seed).and_then(|mut fuzzer| {
            while begun.elapsed() < Duration::from_secs(seconds) {
                let step = Instant::now();
                fuzzer.step()?;
                slowest = slowest.max(step.elapsed());
            }
            Ok(fuzzer)
        });
        match outcome {
            Ok(fuzzer) => println!(
                "{:>14}  {:>10} inputs, {:>8.0} a second, {:>5} answers, the slowest took {slowest:.1?}",
                target.name,
                fuzzer.runs,
                fuzzer.runs as f64 / begun.elapsed().as_secs_f64(),
                fuzzer.answers()
            ),
            Err(failure) => {
                failures += 1;
                let path = std::env::temp_dir().join(format!("rowen-fuzz-{}-{seed}", target.name));
                let kept = std::fs::write(&path, &failure.input).map_or_else(|e| e.to_string(), |()| String::new());
                println!("{:>14}  FAILED: {}: {} {kept}", target.name, path.display(), failure.what);
            }
        }
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
