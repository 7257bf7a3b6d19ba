//! Commands of Rowen's that another one runs, here or on other hosts, and streams that pass from one into another.
//!
//! Here it is this very program. On another host the words go through `ssh`, whose shell reads nothing in them but words: other signs
//! are refused before anything runs.

use crate::backend::{Answer, Pipe, Piped, Said, Trouble, Where};
use rowen_control::protocol::ErrorKind;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind as Kind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is kept of what a command says.
const MOST_SAID: u64 = 1 << 20;
/// Bytes that pass at a time.
const PIECE: usize = 256 << 10;
/// How often the progress is reported.
const TELL: Duration = Duration::from_millis(200);

/// Whether no shell reads anything but words.
fn is_plain(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.-+=:@,".contains(&byte);
    !word.is_empty() && word.bytes().all(is_plain)
}

fn command(at: &Where, words: &[String]) -> Answer<Command> {
    match at {
        Where::Here => {
            let mut command = Command::new("/proc/self/exe");
            // The words name their groups; a lone word is one, and not a volume of the default group.
            command.arg0("rowen").args(words).env_remove("LVM_VG_NAME");
            Ok(command)
        }
        Where::There { ssh, host } => {
            if let Some(word) = words.iter().find(|word| !is_plain(word)) {
                let message = format!("\"{}\" cannot be given to a command on another host.", word.escape_debug());
                return Err(Trouble::other(ErrorKind::Invalid, message));
            }
            let (program, options) = ssh.split_first().expect("the caller names a program");
            let mut command = Command::new(program);
            command.args(options).arg(host).arg("rowen").args(words);
            Ok(command)
        }
    }
}

fn start(at: &Where, words: &[String], input: Stdio) -> Answer<Child> {
    let started = command(at, words)?.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    started.map_err(|e| {
        let message = match at {
            Where::Here => format!("This program cannot be started again: {e}."),
            Where::There { ssh, host } => format!("Cannot run {} to reach {host}: {e}.", ssh[0]),
        };
        Trouble::other(ErrorKind::Internal, message)
    })
}

/// Reads what a command says, all of it, and keeps the beginning.
fn listen(from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut from, mut said) = (from, Vec::new());
        let _what_there_is = from.by_ref().take(MOST_SAID).read_to_end(&mut said);
        let _rest = io::copy(&mut from, &mut io::sink());
        String::from_utf8_lossy(&said).into_owned()
    })
}

fn end(mut child: Child, out: Option<JoinHandle<String>>, err: JoinHandle<String>) -> Answer<Said> {
    let heard = |thread: JoinHandle<String>| thread.join().unwrap_or_default();
    let (out, err) = (out.map(heard).unwrap_or_default(), heard(err));
    let ended = child.wait().map_err(|e| Trouble::other(ErrorKind::Internal, format!("A process is lost: {e}.")))?;
    // Who was killed by a signal has no code.
    let code = ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
    Ok(Said { code, out, err })
}

pub fn run(at: &Where, words: &[String]) -> Answer<Said> {
    let mut child = start(at, words, Stdio::null())?;
    let out = child.stdout.take().map(listen);
    let err = listen(child.stderr.take().expect("it is piped"));
    end(child, out, err)
}

/// A stream on its way.
struct Passing<'a> {
    from: ChildStdout,
    to: ChildStdin,
    limit: Option<u64>,
    tell: &'a mut dyn FnMut(u64),
    bytes: u64,
}

impl Passing<'_> {
    /// All of it. True: the reader was gone before its end.
    fn all(&mut self) -> io::Result<bool> {
        let (begun, mut told) = (Instant::now(), Instant::now());
        // Small pieces, where a second has few bytes.
        let most =
            self.limit.map_or(PIECE, |limit| usize::try_from(limit / 10).map_or(PIECE, |most| most.clamp(1, PIECE)));
        let mut piece = vec![0; most];
        loop {
            let read = match self.from.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(read) => read,
                Err(e) if e.kind() == Kind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            match self.to.write_all(&piece[..read]) {
                Ok(()) => self.bytes += read as u64,
                Err(e) if e.kind() == Kind::BrokenPipe => return Ok(true),
                Err(e) => return Err(e),
            }
            if told.elapsed() >= TELL {
                (self.tell)(self.bytes);
                told = Instant::now();
            }
            if let Some(limit) = self.limit.filter(|limit| *limit > 0) {
                let due = Duration::from_secs_f64(self.bytes as f64 / limit as f64);
                std::thread::sleep(due.saturating_sub(begun.elapsed()));
            }
        }
    }
}

pub fn pass(pipe: &Pipe<'_>, tell: &mut dyn FnMut(u64)) -> Answer<Piped> {
    let mut receiver = start(pipe.to.0, pipe.to.1, Stdio::piped())?;
    let to = receiver.stdin.take().expect("it is piped");
    let (out, err) = (receiver.stdout.take().map(listen), listen(receiver.stderr.take().expect("it is piped")));
    // Without a sender the receiver's input ends here.
    let mut sender = start(pipe.from.0, pipe.from.1, Stdio::null())?;
    let said = listen(sender.stderr.take().expect("it is piped"));
    let from = sender.stdout.take().expect("it is piped");
    let mut passing = Passing { from, to, limit: pipe.limit, tell, bytes: 0 };
    let is_cut = passing.all();
    let bytes = passing.bytes;
    // Both ends are closed before anybody is waited for.
    drop(passing);
    let (sent, received) = (end(sender, None, said)?, end(receiver, out, err)?);
    let is_cut = is_cut.map_err(|e| Trouble::other(ErrorKind::Io, format!("The stream does not pass: {e}.")))?;
    Ok(Piped { bytes, is_cut, sent, received })
}

pub fn only_one(name: &str) -> Answer<File> {
    let failed = |what: String| Trouble::other(ErrorKind::InUse, what);
    let dir = rowen_host::paths::run_dir();
    rowen_host::paths::make_private_dir(&dir).map_err(|e| failed(format!("Cannot make {}: {e}.", dir.display())))?;
    let path = dir.join(format!("{name}.lock"));
    let lock = File::options().create(true).write(true).truncate(false).mode(0o600).open(&path);
    let lock = lock.map_err(|e| failed(format!("Cannot lock {}: {e}.", path.display())))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(failed("Another run of the command does this already.".to_owned())),
        Err(TryLockError::Error(e)) => Err(failed(format!("Cannot lock {}: {e}.", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_shell_reads_anything_but_words() {
        for plain in ["vg0/db-mon", "--hold", "replicate-vg0.db-1a", "rowen1-00ff", "a+b_c"] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in ["", "a b", "a;id", "$(id)", "`id`", "a|b", "a>b", "'", "\"", "\\", "a\nb", "*", "~"] {
            assert!(!is_plain(other), "{other:?}");
        }
        let there = Where::There { ssh: vec!["/nowhere/ssh".into()], host: "h".into() };
        assert!(run(&there, &["a;id".to_owned()]).is_err());
        let Err(Trouble::Other { message, .. }) = run(&there, &["version".to_owned()]) else { panic!("it ran") };
        assert!(message.contains("Cannot run /nowhere/ssh to reach h"), "{message}");
    }
}
