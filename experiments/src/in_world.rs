//! Programs that nobody here wrote, timed on Rowen in the world that the clients' tests run them in: namespaces in which Rowen
//! stands where LVM's commands are, and which leave nothing behind.
//!
//! Promise: what the script says in lines that begin with `FIGURE` becomes figures, also when it fails later; what it said last
//! is reported when it fails.

use crate::command::{self, Result};
use crate::context::{Context, Key};
use crate::stack::text;
use std::path::Path;

/// `clients/world` of the sources that this was built from.
const WORLD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/world");

/// One line: metric, unit, figure, round, and pairs.
#[derive(Debug, PartialEq)]
pub struct Line<'a> {
    pub metric: &'a str,
    pub unit: &'a str,
    pub figure: f64,
    pub round: usize,
    pub pairs: Vec<(&'a str, &'a str)>,
}

/// What a line says that begins with `FIGURE`, after that word.
pub fn parse<'a>(words: &[&'a str]) -> Option<Line<'a>> {
    let [metric, unit, figure, round, pairs @ ..] = words else { return None };
    let pairs = pairs.chunks(2).map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect::<Option<Vec<_>>>()?;
    Some(Line { metric, unit, figure: figure.parse().ok()?, round: round.parse().ok()?, pairs })
}

/// Why such a script cannot run here, if it cannot.
pub fn missing(programs: &[&str]) -> Option<String> {
    let lacking: Vec<&str> = programs.iter().copied().filter(|name| !command::is_installed(name)).collect();
    (!lacking.is_empty()).then(|| format!("not installed: {} (`.ci/packages clients` does)", lacking.join(", ")))
}

/// Runs `experiments/in-world/NAME.client`, and gives the words of each line of figures.
pub fn run(context: &Context, name: &str, mib: u64, figures: &mut dyn FnMut(&[&str]) -> Result) -> Result {
    let scratch = context.dir.join(format!("world-{name}"));
    std::fs::create_dir_all(&scratch).map_err(|e| format!("cannot make {}: {e}", scratch.display()))?;
    let rowen = context.rowen.canonicalize().map_err(|e| format!("{}: {e}", context.rowen.display()))?;
    let group = format!("xworld-{}", std::process::id());
    let log = scratch.join("log");
    let script =
        "exec unshare --mount --net --pid --fork --mount-proc --kill-child --propagation private \"$@\" >\"$LOG\" 2>&1";
    let mut world = command::command("bash");
    world.args([
        "-c",
        script,
        "bash",
        WORLD,
        &format!("../experiments/in-world/{name}"),
        &text(&scratch),
        &text(&rowen),
        &group,
    ]);
    world.env("LOG", &log).env("MIB", mib.to_string()).env("ROUNDS", context.form.rounds.to_string());
    let outcome = command::output(world);
    sweep(&group);
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    for line in said.lines() {
        let mut words = line.split('\t');
        if words.next() == Some("FIGURE") {
            figures(&words.collect::<Vec<_>>())?;
        }
    }
    let last = || said.lines().rev().take(6).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(" | ");
    outcome.map(drop).map_err(|why| if why == command::INTERRUPTED { why } else { format!("{name}: {}", last()) })
}

/// The pair as a figure of a system.
pub fn figure(context: &Context, system: crate::stack::System, line: &Line<'_>) {
    context.figure(Key::new(system, line.metric, &line.pairs, line.round), line.unit, line.figure);
}

/// Loop devices and nodes that a script left which was cut short.
fn sweep(group: &str) {
    let mut list = command::command("losetup");
    list.args(["--noheadings", "--list", "--output", "NAME,BACK-FILE"]);
    for line in command::output_always(list).unwrap_or_default().lines().filter(|line| line.contains(group)) {
        if let Some(name) = line.split_whitespace().next() {
            let mut detach = command::command("losetup");
            detach.args(["--detach", name]);
            // It may have ended by itself meanwhile.
            let _ = command::output_always(detach);
        }
    }
    for name in [group.to_owned(), format!("{group}-b"), format!("{group}-c")] {
        let _ = std::fs::remove_dir_all(Path::new("/dev").join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_figures_are_read_and_others_are_not() {
        let line = parse(&["dd", "MB/s", "12.5", "3", "place", "host"]).unwrap();
        assert_eq!(line, Line { metric: "dd", unit: "MB/s", figure: 12.5, round: 3, pairs: vec![("place", "host")] });
        assert_eq!(parse(&["dd", "MB/s", "fast", "3"]), None);
        assert_eq!(parse(&["dd", "MB/s", "1", "3", "place"]), None);
        assert_eq!(parse(&["dd"]), None);
    }
}
