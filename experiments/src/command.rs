//! Other programs, run so that they always end: after a limit of time (each alone, and all that are run [`within`]
//! one), or with this program when it is interrupted. If they fail, the error has their output.

use std::cell::Cell;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What goes wrong is said in a sentence.
pub type Result<T = ()> = std::result::Result<T, String>;

/// No command of an experiment takes longer; what does hangs.
const LIMIT: Duration = Duration::from_secs(900);

/// What a run that was interrupted ends with.
pub const INTERRUPTED: &str = "interrupted";

/// How the sentence begins that ends what ran into its limit.
const TOO_LONG: &str = "took longer than";

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

thread_local! {
    /// When what this thread does now must be over.
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs the body, whose commands are ended when it has taken this many seconds in all, or less if there is an outer limit. Then it
/// fails with a sentence of which [`is_too_long`] is true.
pub fn within<T>(seconds: f64, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let (begun, outer) = (Instant::now(), UNTIL.get());
    let own = begun + Duration::from_secs_f64(seconds);
    let until = outer.map_or(own, |outer| outer.min(own));
    UNTIL.set(Some(until));
    let outcome = body();
    UNTIL.set(outer);
    match outcome {
        Err(why) if why != INTERRUPTED && Instant::now() >= until => {
            Err(format!("{TOO_LONG} {:.0} s", until.saturating_duration_since(begun).as_secs_f64()))
        }
        outcome => outcome,
    }
}

/// Whether it was a limit that something failed for.
pub fn is_too_long(why: &str) -> bool {
    why.starts_with(TOO_LONG)
}

/// Fails when somebody asked the run to end, or when no time is left.
pub fn in_time() -> Result {
    go_on()?;
    if is_late() { Err("no time is left".to_owned()) } else { Ok(()) }
}

fn is_late() -> bool {
    UNTIL.get().is_some_and(|until| Instant::now() >= until)
}

/// From here on Ctrl-C, SIGTERM and SIGHUP end commands and the run, and everything is tidied up.
pub fn catch_signals() -> Result {
    let flag = STOP.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, flag.clone()).map_err(|e| format!("cannot catch signals: {e}"))?;
    }
    Ok(())
}

/// Fails when somebody asked the run to end.
pub fn go_on() -> Result {
    match STOP.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        true => Err(INTERRUPTED.to_owned()),
        false => Ok(()),
    }
}

/// A command with the administrator's directories in its path, and in a process group of its own.
pub fn command(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")).env("LC_ALL", "C");
    command.process_group(0).stdin(Stdio::null());
    command
}

/// Runs a program with words, and gives its standard output.
pub fn run(program: &str, words: &[&str]) -> Result<String> {
    let mut command = command(program);
    command.args(words);
    output(command)
}

/// Runs the command to its end and gives its standard output; it must succeed.
pub fn output(command: Command) -> Result<String> {
    in_time()?;
    finish(command, true)
}

/// The same for tidying up: goes on when the run was interrupted, and when no time is left.
pub fn output_always(command: Command) -> Result<String> {
    finish(command, false)
}

fn finish(mut command: Command, may_stop: bool) -> Result<String> {
    let name = words(&command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cannot run \"{name}\": {e}"))?;
    let gather = |from: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // What cannot be read is missing from the message below, and nothing else.
            let _ = from.map(|mut from| from.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let said = gather(child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    let complained = gather(child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| format!("cannot wait for \"{name}\": {e}"))? {
            break status;
        }
        if begun.elapsed() > LIMIT {
            end(&mut child);
            return Err(format!("\"{name}\" did not end within {} s", LIMIT.as_secs()));
        }
        if may_stop && go_on().is_err() {
            end(&mut child);
            return Err(INTERRUPTED.to_owned());
        }
        if may_stop && is_late() {
            end(&mut child);
            return Err(format!("\"{name}\" was ended: no time is left"));
        }
        std::thread::sleep(Duration::from_micros(300));
    };
    // A server that the command started must not keep these open; those of this project do not.
    let said = said.join().unwrap_or_default();
    if status.success() {
        return Ok(said);
    }
    let complained = complained.join().unwrap_or_default();
    let why = complained.split_whitespace().collect::<Vec<_>>().join(" ");
    Err(format!("\"{name}\" failed: {}", if why.is_empty() { status.to_string() } else { why }))
}

/// Ends a child with its whole group.
pub fn end(child: &mut Child) {
    // It may have ended by itself.
    let pid = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    let _ = child.wait();
}

fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Whether a program is installed.
pub fn is_installed(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin").split(':').any(|dir| Path::new(dir).join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_gives_what_it_said_or_why_it_failed() {
        let shell = |script| run("sh", &["-ec", script]);
        assert_eq!(shell("echo a; echo b >&2").unwrap(), "a\n");
        let why = shell("echo it is full >&2; exit 3").unwrap_err();
        assert!(why.contains("it is full"), "{why}");
        assert!(run("/no/such/program", &[]).unwrap_err().contains("cannot run"));
        assert!(is_installed("sh") && !is_installed("no-such-program"));
    }

    #[test]
    fn what_takes_too_long_is_ended_and_the_rest_is_not_begun() {
        let mut begun = 0;
        let sleep = |seconds: &str| run("sleep", &[seconds]).map(drop);
        let outcome = within(3.0, || {
            sleep("0.01")?;
            begun += 1;
            // The outer limit is the nearer one, and what is caught here does not help.
            assert!(is_too_long(&within(600.0, || sleep("600")).unwrap_err()));
            begun += 1;
            sleep("0")
        });
        assert!(is_too_long(&outcome.unwrap_err()));
        assert_eq!(begun, 2);
        // Limits end with their bodies; a failure in time stays what it is.
        assert_eq!(sleep("0.01"), Ok(()));
        assert_eq!(within(600.0, || Err::<(), _>("full".to_owned())), Err("full".to_owned()));
        assert_eq!(within(600.0, || sleep("0")), Ok(()));
    }
}
