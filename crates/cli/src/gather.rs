//! Runs programs that may hang, and collects their output, with limits on time and size.

use crate::backend::{End, Gathered, Probe};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// The number of programs that run at once.
const AT_ONCE: usize = 6;
/// The time to wait for a killed program. One that hangs in the kernel is abandoned.
const KILLED: Duration = Duration::from_millis(200);

/// The output of each program, in order. `own` is the path of this program, which a probe calls `rowen`.
pub fn gather(own: &Path, probes: &[Probe], together: Duration) -> Vec<Gathered> {
    let deadline = Instant::now() + together;
    let next = AtomicUsize::new(0);
    let found: Vec<Mutex<Gathered>> = probes.iter().map(|_| Mutex::default()).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(probe), Some(place)) = (probes.get(at), found.get(at)) else { return };
            let limit = probe.limit.min(deadline.saturating_duration_since(Instant::now()));
            let gathered = if limit.is_zero() {
                Gathered { text: Vec::new(), trouble: Some("there was no time left for it".to_owned()) }
            } else {
                run(own, probe, limit).unwrap_or_else(|e| Gathered { text: Vec::new(), trouble: Some(e.to_string()) })
            };
            *place.lock().unwrap_or_else(PoisonError::into_inner) = gathered;
        }
    };
    std::thread::scope(|threads| {
        (0..AT_ONCE.min(probes.len())).for_each(|_| drop(threads.spawn(work)));
    });
    found.into_iter().map(|one| one.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Writes a tar.gz of these files.
pub fn write_archive(file: File, time: u64, parts: Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, bytes) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(time);
        archive.append_data(&mut header, name, &bytes[..])?;
    }
    archive.into_inner()?.finish()?.sync_all()
}

/// The output so far.
#[derive(Default)]
struct Captured {
    bytes: Vec<u8>,
    is_cut: bool,
}

fn run(own: &Path, probe: &Probe, limit: Duration) -> io::Result<Gathered> {
    let Some((program, words)) = probe.words.split_first() else { return Ok(Gathered::default()) };
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(if program == "rowen" { own.as_os_str() } else { program.as_ref() });
    command.args(words).current_dir("/").stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    command.env("LC_ALL", "C.UTF-8");
    let child = command.spawn().map_err(|e| io::Error::new(e.kind(), format!("{program} cannot be run: {e}")))?;
    // Its ends of the pipe.
    drop(command);
    let captured = Arc::new(Mutex::new(Captured::default()));
    let (say, ended) = mpsc::channel();
    let (own_captured, most, end) = (captured.clone(), probe.most, probe.end);
    let listen = move || {
        listen(reader, &own_captured, most, end);
        drop(say);
    };
    std::thread::Builder::new().name("rowen-listen".into()).spawn(listen)?;
    let is_late = matches!(ended.recv_timeout(limit), Err::<(), _>(mpsc::RecvTimeoutError::Timeout));
    let trouble = end_of(child, is_late, limit);
    let mut captured = captured.lock().unwrap_or_else(PoisonError::into_inner);
    let is_cut = captured.is_cut.then(|| format!("only {most} bytes are kept"));
    Ok(Gathered { text: std::mem::take(&mut captured.bytes), trouble: trouble.or(is_cut) })
}

fn listen(mut reader: PipeReader, captured: &Mutex<Captured>, most: usize, end: End) {
    let mut part = vec![0; 64 << 10];
    loop {
        let count = match reader.read(&mut part) {
            Ok(0) => return,
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let mut captured = captured.lock().unwrap_or_else(PoisonError::into_inner);
        captured.bytes.extend_from_slice(&part[..count]);
        let over = captured.bytes.len().saturating_sub(most);
        captured.is_cut |= over > 0;
        match end {
            End::First => captured.bytes.truncate(most),
            End::Last => drop(captured.bytes.drain(..over)),
        }
    }
}

/// Kills a child that exceeds its time, and returns how it ended if it did not end well.
fn end_of(mut child: Child, is_late: bool, limit: Duration) -> Option<String> {
    if is_late {
        let _may_have_ended = child.kill();
    }
    let deadline = Instant::now() + KILLED;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) | Err(_) => break None,
        }
    };
    match status {
        _ if is_late => Some(format!("it did not end within {} s", limit.as_secs_f64().ceil())),
        Some(status) if !status.success() => Some(status.to_string()),
        Some(_) => None,
        // It has closed its output, but is still alive.
        None => {
            let _may_have_ended = child.kill();
            Some("it did not end".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(line: &str, most: usize, end: End) -> Probe {
        let words = ["sh", "-c", line].map(str::to_owned).to_vec();
        Probe { name: line.to_owned(), words, limit: Duration::from_millis(300), most, end }
    }

    #[test]
    fn what_hangs_is_left_out_and_the_rest_is_kept() {
        let lines = [
            ("echo one; echo two >&2", 100, End::First),
            // Its child has the pipe when it is killed.
            ("echo begun; sleep 5 & wait", 100, End::First),
            ("seq 1 100000", 12, End::First),
            ("seq 1 100000", 14, End::Last),
            ("echo gone; exit 3", 100, End::First),
            ("exec >&- 2>&-; sleep 5", 100, End::First),
            ("kill -9 $$", 100, End::First),
        ];
        let mut probes: Vec<Probe> = lines.into_iter().map(|(line, most, end)| probe(line, most, end)).collect();
        probes.push(Probe { words: vec!["/no/such/program".into()], ..probe("", 1, End::First) });
        let begun = Instant::now();
        let found = gather(Path::new("/bin/true"), &probes, Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(50), "it waited for what hangs");
        let parts: Vec<(String, bool)> =
            found.iter().map(|one| (String::from_utf8_lossy(&one.text).into_owned(), one.trouble.is_some())).collect();
        let expected = [
            ("one\ntwo\n", false),
            ("begun\n", true),
            ("1\n2\n3\n4\n5\n6\n", true),
            ("\n99999\n100000\n", true),
            ("gone\n", true),
            ("", true),
            ("", true),
            ("", true),
        ];
        assert_eq!(parts, expected.map(|(text, is_troubled)| (text.to_owned(), is_troubled)));
        let late = gather(Path::new("/bin/true"), &probes, Duration::ZERO);
        assert!(late.iter().all(|one| one.text.is_empty() && one.trouble.is_some()));
    }
}
