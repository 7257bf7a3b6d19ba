//! The front: HTTP for Prometheus, in a process without rights. Whoever reaches the socket may ask; limits are for those who ask
//! slowly, much, or nonsense.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::event::{PollFd, PollFlags};
use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

/// Connections at once. More wait until one of these has ended.
const CONNECTIONS: usize = 32;
/// Within this time a client has sent its request, or is closed.
const REQUEST: Duration = Duration::from_secs(3);
/// Within this time a client has taken its answer, or is closed.
const CONNECTION: Duration = Duration::from_secs(8);
/// Bytes of a request's line and headers.
const HEADERS: usize = 16 << 10;
/// What is younger is told again: each look costs the host the same, however many ask.
const FRESH: Duration = Duration::from_millis(500);
/// A look has its own limit below 2 s. This is for a host that does not even look.
const ANSWER: Duration = Duration::from_millis(1900);
/// So many bytes of metrics are not believed.
const MOST: usize = 1 << 30;

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
    let length = usize::try_from(u64::from_le_bytes(length)).ok().filter(|length| *length <= MOST);
    let mut text = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    socket.read_exact(&mut text)?;
    Ok(text.into())
}

/// Answers until the process at the other end of `socket` is gone.
pub fn serve(listener: std::net::TcpListener, socket: UnixStream) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let watched = socket.try_clone()?;
    std::thread::Builder::new().name("rowen-end".into()).spawn(move || {
        while rustix::event::poll(&mut [PollFd::new(&watched, PollFlags::empty())], None).is_err() {}
        std::process::exit(0);
    })?;
    let (asking, asked) = mpsc::channel(CONNECTIONS);
    std::thread::Builder::new().name("rowen-ask".into()).spawn(move || ask_for_all(&socket, asked))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(take_in(listener, asking))
}

/// Asks once for all that wait: also for those who came while it was asked.
fn ask_for_all(socket: &UnixStream, mut asked: mpsc::Receiver<oneshot::Sender<Bytes>>) {
    let mut last: Option<(Instant, Bytes)> = None;
    while let Some(first) = asked.blocking_recv() {
        last = last.filter(|(at, _)| at.elapsed() < FRESH);
        let fresh = || ask(socket).map(|text| (Instant::now(), text));
        let (_, text) = match last.take().map_or_else(fresh, Ok) {
            Ok(told) => last.insert(told),
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

async fn take_in(listener: std::net::TcpListener, asking: Asking) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left, or the client has gone already.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let asking = asking.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, asking.clone()));
            let mut how = http1::Builder::new();
            how.timer(TokioTimer::new()).header_read_timeout(REQUEST).max_buf_size(HEADERS).keep_alive(false);
            // What goes wrong on a connection is its client's to know.
            let _served = timeout(CONNECTION, how.serve_connection(TokioIo::new(stream), service)).await;
            drop(place);
        });
    }
}

async fn answer(request: Request<Incoming>, asking: Asking) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_look = matches!(*request.method(), Method::GET | Method::HEAD);
    Ok(match request.uri().path() {
        "/metrics" | "/" if !is_look => {
            let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Only GET and HEAD.\n".into());
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            refusal
        }
        "/metrics" => match timeout(ANSWER, metrics(asking)).await {
            Ok(Some(text)) => response(StatusCode::OK, TEXT, text),
            Ok(None) | Err(_) => {
                response(StatusCode::SERVICE_UNAVAILABLE, TEXT, "This host does not answer in time.\n".into())
            }
        },
        "/" => response(StatusCode::OK, "text/html; charset=utf-8", HOME.into()),
        _ => response(StatusCode::NOT_FOUND, TEXT, "Metrics are at /metrics.\n".into()),
    })
}

async fn metrics(asking: Asking) -> Option<Bytes> {
    let (answer, waiting) = oneshot::channel();
    asking.send(answer).await.ok()?;
    waiting.await.ok()
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
