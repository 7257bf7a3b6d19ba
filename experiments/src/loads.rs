//! Programs that use a filesystem while its disk is pulled, and notice: a database that commits one row after another, and fio, which
//! reads again what it wrote.
//!
//! Promises: a pause that is not over yet counts, too; a program that ended by itself is an error; no program is left when a load is
//! dropped.

use crate::command::{self, Result};
use crate::context::MIB;
use crate::stack::text;
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a load has met between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Met {
    pub answered: u64,
    pub errors: u64,
    /// The longest time that one request took, in milliseconds.
    pub pause: f64,
    /// What was answered a second.
    pub rate: f64,
}

/// No load needs longer to end.
const ENDING: Duration = Duration::from_secs(30);
/// After an error the database is asked again after this time.
const AFTER_ERROR: Duration = Duration::from_millis(20);

/// What stands in a row, by its number.
fn value(number: &str) -> String {
    format!("printf('%0500d', {number})")
}

#[derive(Default)]
struct Answers {
    met: Met,
    /// When the request was made that has no answer yet.
    waits: Option<Instant>,
    committed: HashSet<u64>,
}

/// SQLite, which writes each row by a transaction of its own, with synchronous=FULL.
pub struct Database {
    file: PathBuf,
    server: Child,
    stop: Arc<AtomicBool>,
    answers: Arc<Mutex<Answers>>,
    client: Option<JoinHandle<()>>,
    begun: Instant,
}

fn lock(answers: &Mutex<Answers>) -> MutexGuard<'_, Answers> {
    // A number cannot be half changed.
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Database {
    /// Makes the database in the directory, and begins.
    pub fn start(dir: &Path) -> Result<Database> {
        let file = dir.join("database");
        command::run("sqlite3", &[&text(&file), "CREATE TABLE t (n INTEGER PRIMARY KEY, v TEXT)"])?;
        // Its answers come line by line.
        let mut shell = command::command("stdbuf");
        shell.args(["-oL", "sqlite3", "-batch", "-cmd", "PRAGMA synchronous=FULL", &text(&file)]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = shell.spawn().map_err(|e| format!("cannot start sqlite3: {e}"))?;
        let (input, output) = (server.stdin.take(), server.stdout.take());
        let (input, output) = input.zip(output).ok_or("sqlite3 has no input and output")?;
        let (stop, answers): (Arc<AtomicBool>, Arc<Mutex<Answers>>) = Default::default();
        let of_client = (stop.clone(), answers.clone());
        let client = std::thread::spawn(move || {
            // Without an answer it stays a request that waits.
            let _ = ask(input, output, &of_client.0, &of_client.1);
        });
        Ok(Database { file, server, stop, answers, client: Some(client), begun: Instant::now() })
    }

    /// What was met from here on is counted anew.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
        let mut answers = lock(&self.answers);
        answers.met = Met::default();
    }

    /// What was met since.
    pub fn end(&mut self) -> Met {
        let answers = lock(&self.answers);
        let mut met = answers.met;
        met.pause = met.pause.max(answers.waits.map_or(0.0, |since| since.elapsed().as_secs_f64() * 1e3));
        met.errors += u64::from(self.client.as_ref().is_some_and(JoinHandle::is_finished));
        met.rate = met.answered as f64 / self.begun.elapsed().as_secs_f64();
        met
    }

    /// Ends it, and gives the rows that were committed.
    pub fn stop(&mut self) -> HashSet<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + ENDING;
        while self.client.as_ref().is_some_and(|client| !client.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        command::end(&mut self.server);
        if let Some(client) = self.client.take() {
            // It has nothing to say, and its other side is gone.
            let _ = client.join();
        }
        std::mem::take(&mut lock(&self.answers).committed)
    }

    /// How many of these rows are not in the database as they were written.
    pub fn missing(&self, committed: &HashSet<u64>) -> u64 {
        let select = format!("SELECT n FROM t WHERE v = {}", value("n"));
        // One that cannot be read has none of them.
        let said = command::run("sqlite3", &["-readonly", &text(&self.file), &select]).unwrap_or_default();
        let there: HashSet<u64> = said.lines().filter_map(|line| line.parse().ok()).collect();
        committed.difference(&there).count() as u64
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The client: one row after another, until it is told to stop or the server has ended.
fn ask(mut input: ChildStdin, output: ChildStdout, stop: &AtomicBool, answers: &Mutex<Answers>) -> std::io::Result<()> {
    let mut lines = BufReader::new(output).lines();
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let since = Instant::now();
        lock(answers).waits = Some(since);
        // What was not committed is not the last one; the word at the end comes in any case.
        let row = value(&number.to_string());
        writeln!(
            input,
            "INSERT INTO t VALUES ({number}, {row});\nSELECT 'last', max(n) FROM t;\n.print done {number}"
        )?;
        let (last, done) = (format!("last|{number}"), format!("done {number}"));
        let mut is_kept = false;
        loop {
            let Some(line) = lines.next() else { return Ok(()) };
            let line = line?;
            is_kept |= line == last;
            if line == done {
                break;
            }
        }
        let mut now = lock(answers);
        now.waits = None;
        now.met.pause = now.met.pause.max(since.elapsed().as_secs_f64() * 1e3);
        if is_kept {
            now.met.answered += 1;
            now.committed.insert(number);
        } else {
            now.met.errors += 1;
            drop(now);
            std::thread::sleep(AFTER_ERROR);
        }
    }
    Ok(())
}

/// fio, which writes 4 KiB at random, 32 at once, and reads again what it wrote a moment before. It runs from `begin` to `end`.
pub struct Verify {
    target: PathBuf,
    bytes: u64,
    said: PathBuf,
    running: Option<Child>,
}

impl Verify {
    /// On a file that is there. `dir` is for what fio says.
    pub fn new(target: &Path, mib: u64, dir: &Path) -> Verify {
        Verify { target: target.to_owned(), bytes: mib * MIB, said: dir.join("verify.json"), running: None }
    }

    /// Starts it. When this returns it has its file open, and can be ended so that it says what it met.
    pub fn begin(&mut self) -> Result {
        let mut fio = command::command("fio");
        fio.args(["--name=verify", "--thread", "--rw=randwrite", "--bs=4k", "--iodepth=32", "--ioengine=libaio"]);
        fio.args(["--direct=1", "--time_based", "--runtime=3600", "--allow_file_create=0", "--disk_util=0"]);
        fio.args(["--verify=crc32c", "--verify_backlog=256", "--verify_fatal=0", "--continue_on_error=all"]);
        fio.arg(format!("--filename={}", text(&self.target))).arg(format!("--size={}", self.bytes));
        fio.arg("--output-format=json").arg(format!("--output={}", text(&self.said)));
        fio.stdout(Stdio::null()).stderr(Stdio::null());
        let fio = self.running.insert(fio.spawn().map_err(|e| format!("cannot start fio: {e}"))?);
        let files = format!("/proc/{}/fd", fio.id());
        let until = Instant::now() + ENDING;
        while !links_to(Path::new(&files), &self.target) {
            command::in_time()?;
            if Instant::now() > until {
                return Err(format!("fio did not open {} within {} s", self.target.display(), ENDING.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub fn end(&mut self) -> Result<Met> {
        let mut fio = self.running.take().ok_or("fio does not run")?;
        let pid = rustix::process::Pid::from_child(&fio);
        // It may have ended by itself; then it says why.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let until = Instant::now() + ENDING;
        while fio.try_wait().map_err(|e| format!("cannot wait for fio: {e}"))?.is_none() {
            if Instant::now() > until {
                command::end(&mut fio);
                return Err(format!("fio did not end within {} s", ENDING.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        met_by_fio(&std::fs::read_to_string(&self.said).map_err(|e| format!("{}: {e}", self.said.display()))?)
    }
}

impl Drop for Verify {
    fn drop(&mut self) {
        if let Some(fio) = &mut self.running {
            command::end(fio);
        }
    }
}

/// Whether one of a folder's links leads to a file.
fn links_to(folder: &Path, file: &Path) -> bool {
    let links = std::fs::read_dir(folder).into_iter().flatten().flatten();
    links.filter_map(|link| std::fs::read_link(link.path()).ok()).any(|to| to == file)
}

/// What fio says of writes and of the reads that verify them.
fn met_by_fio(said: &str) -> Result<Met> {
    let start = said.find('{').ok_or_else(|| format!("fio said no figures: {said:.200}"))?;
    let value: Value = serde_json::from_str(&said[start..]).map_err(|e| format!("fio's figures: {e}"))?;
    let job = &value["jobs"][0];
    let figure = |path: &str| {
        let found = job.pointer(path).and_then(Value::as_f64);
        found.ok_or_else(|| format!("fio says nothing of {path}"))
    };
    // Interrupted is no error.
    let ended_by = job["error"].as_i64().filter(|error| ![0, 4].contains(error));
    let errors = job["total_err"].as_u64().unwrap_or(0).max(u64::from(ended_by.is_some()));
    Ok(Met {
        answered: (figure("/write/total_ios")? + figure("/read/total_ios")?) as u64,
        errors,
        pause: figure("/write/clat_ns/max")?.max(figure("/read/clat_ns/max")?) / 1e6,
        rate: figure("/write/iops")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"fio: terminating on signal 2
{"jobs":[{"error":0,"total_err":3,"read":{"total_ios":10,"iops":1.0,"clat_ns":{"max":5000000}},
"write":{"total_ios":20,"iops":2000.0,"clat_ns":{"max":1000000}}}]}"#;

    #[test]
    fn errors_and_the_longest_pause_are_found_in_what_fio_says() {
        let met = met_by_fio(SAID).unwrap();
        assert_eq!(met, Met { answered: 30, errors: 3, pause: 5.0, rate: 2000.0 });
        let ended = SAID.replace("\"error\":0", "\"error\":5").replace("\"total_err\":3", "\"total_err\":0");
        assert_eq!(met_by_fio(&ended).unwrap().errors, 1);
        assert_eq!(met_by_fio(&SAID.replace("\"error\":0", "\"error\":4")).unwrap().errors, 3);
        assert!(met_by_fio("fio: no such file").unwrap_err().contains("no figures"));
    }

    #[test]
    fn an_open_file_is_found_among_the_links() {
        let path = std::env::temp_dir().join(format!("rowen-links-{}", std::process::id()));
        let (own, file) = (Path::new("/proc/self/fd"), std::fs::File::create(&path).unwrap());
        assert!(links_to(own, &path) && !links_to(own, Path::new("/no/such/file")));
        drop(file);
        std::fs::remove_file(&path).unwrap();
        assert!(!links_to(Path::new("/no/such/folder"), &path));
    }

    #[test]
    fn a_database_commits_and_what_is_lost_is_missed() {
        if !command::is_installed("sqlite3") {
            return;
        }
        let dir = crate::files::Scratch::new(&std::env::temp_dir().join("rowen-loads")).unwrap();
        let mut database = Database::start(&dir.0).unwrap();
        database.begin();
        while database.end().answered < 5 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let met = database.end();
        assert!(met.errors == 0 && met.pause > 0.0 && met.rate > 0.0, "{met:?}");
        let mut committed = database.stop();
        assert!(committed.len() >= 5 && database.missing(&committed) == 0);
        committed.insert(u64::MAX);
        assert_eq!(database.missing(&committed), 1);
        command::run("sqlite3", &[&text(&database.file), "UPDATE t SET v = 'x' WHERE n = 2"]).unwrap();
        assert_eq!(database.missing(&committed), 2);
        drop(database);
        drop(dir);
        std::fs::remove_dir(std::env::temp_dir().join("rowen-loads")).unwrap();
    }
}
