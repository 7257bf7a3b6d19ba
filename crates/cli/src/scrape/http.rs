//! The front: an HTTP server for Prometheus in an unprivileged process. [`rowen_web::http`] has the limits against
//! slow, frequent and invalid requests.

use rowen_web::http::{self, Asked, Bytes, CONNECTIONS, Reply};
use rustix::event::{PollFd, PollFlags};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Younger metrics are sent again, so that many clients cost no more than one.
const FRESH: Duration = Duration::from_millis(500);
/// The collection has its own limit below 2 s. This limit is for a process that does not answer at all.
const ANSWER: Duration = Duration::from_millis(1900);
/// The largest accepted size of metrics in bytes.
const MAX: usize = 1 << 30;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const HOME: &str = "<!doctype html><title>Rowen</title><p>Rowen: <a href=\"/metrics\">metrics</a>\n";

type Asking = mpsc::Sender<oneshot::Sender<Bytes>>;

/// Sends metrics to the front.
pub fn send(mut socket: impl Write, text: &[u8]) -> io::Result<()> {
    socket.write_all(&(text.len() as u64).to_le_bytes())?;
    socket.write_all(text)
}

/// Asks for metrics.
fn ask(mut socket: &UnixStream) -> io::Result<Bytes> {
    socket.write_all(b"?")?;
    let mut length = [0; 8];
    socket.read_exact(&mut length)?;
    let length = usize::try_from(u64::from_le_bytes(length)).ok().filter(|length| *length <= MAX);
    let mut text = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    socket.read_exact(&mut text)?;
    Ok(text.into())
}

/// Answers until the process at the other end of `socket` has ended.
pub fn serve(listener: std::net::TcpListener, socket: UnixStream) -> io::Result<()> {
    let watched = socket.try_clone()?;
    std::thread::Builder::new().name("rowen-end".into()).spawn(move || {
        while rustix::event::poll(&mut [PollFd::new(&watched, PollFlags::empty())], None).is_err() {}
        std::process::exit(0);
    })?;
    let (asking, asked) = mpsc::channel(CONNECTIONS);
    std::thread::Builder::new().name("rowen-ask".into()).spawn(move || ask_for_all(&socket, asked))?;
    http::serve(listener, move |asked| answer(asked, asking.clone()))
}

/// Asks once for all waiting requests, also for those that arrive while it asks.
fn ask_for_all(socket: &UnixStream, mut asked: mpsc::Receiver<oneshot::Sender<Bytes>>) {
    let mut last: Option<(Instant, Bytes)> = None;
    while let Some(first) = asked.blocking_recv() {
        last = last.filter(|(at, _)| at.elapsed() < FRESH);
        let fresh = || ask(socket).map(|text| (Instant::now(), text));
        let (_, text) = match last.take().map_or_else(fresh, Ok) {
            Ok(metrics) => last.insert(metrics),
            Err(e) => {
                let _nobody_reads = writeln!(io::stderr(), "Metrics are not served any more: {e}.");
                std::process::exit(1);
            }
        };
        let others = std::iter::from_fn(|| asked.try_recv().ok());
        for waiting in std::iter::once(first).chain(others) {
            let _may_have_gone = waiting.send(text.clone());
        }
    }
}

async fn answer(asked: Asked, asking: Asking) -> Reply {
    match asked.path.as_str() {
        "/metrics" | "/" if !asked.is_look => Reply::only_looks(TEXT),
        "/metrics" => match timeout(ANSWER, metrics(asking)).await {
            Ok(Some(text)) => Reply::new(200, TEXT, text),
            Ok(None) | Err(_) => Reply::new(503, TEXT, "This host does not answer in time.\n"),
        },
        "/" => Reply::new(200, "text/html; charset=utf-8", HOME),
        _ => Reply::new(404, TEXT, "Metrics are at /metrics.\n"),
    }
}

async fn metrics(asking: Asking) -> Option<Bytes> {
    let (answer, waiting) = oneshot::channel();
    asking.send(answer).await.ok()?;
    waiting.await.ok()
}
