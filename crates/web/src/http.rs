//! HTTP for readers only. Everybody who reaches the socket may ask. Limits hold for slow, large and malformed requests.
//! Nothing of a request's body is read, and a connection has one request.

use http_body_util::Full;
pub use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections at once. More wait until one of these has ended.
pub const CONNECTIONS: usize = 32;
/// Within this time a client has sent its request, or is closed.
const REQUEST: Duration = Duration::from_secs(3);
/// Within this time a client has taken its answer, or is closed.
const CONNECTION: Duration = Duration::from_secs(8);
/// Bytes of a request's line and headers.
const HEADERS: usize = 16 << 10;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub path: String,
    /// GET or HEAD.
    pub is_look: bool,
    /// Whom the client wants to speak to: each of what its request names.
    pub hosts: Vec<String>,
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    /// Names in small letters.
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Bytes,
}

impl Reply {
    pub fn new(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Reply {
        Reply { status, headers: vec![("content-type", kind)], body: body.into() }
    }

    /// To who wants to do something else than look.
    pub fn only_looks(kind: &'static str) -> Reply {
        let mut reply = Reply::new(405, kind, "Only GET and HEAD.\n");
        reply.headers.push(("allow", "GET, HEAD"));
        reply
    }
}

/// Answers every connection, without an end. All of it happens in the calling thread.
pub fn serve<A, F>(listener: TcpListener, answer: A) -> io::Result<()>
where
    A: Fn(Asked) -> F + Clone + Send + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(take_in(listener, answer))
}

async fn take_in<A, F>(listener: TcpListener, answer: A) -> io::Result<()>
where
    A: Fn(Asked) -> F + Clone + Send + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left, or the client has gone already.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let replying = answer(asked(&request));
                async move { Ok::<_, Infallible>(response(replying.await)) }
            });
            let mut how = http1::Builder::new();
            how.timer(TokioTimer::new()).header_read_timeout(REQUEST).max_buf_size(HEADERS).keep_alive(false);
            // What goes wrong on a connection is its client's to know.
            let _served = timeout(CONNECTION, how.serve_connection(TokioIo::new(stream), service)).await;
            drop(place);
        });
    }
}

fn asked(request: &Request<Incoming>) -> Asked {
    let named =
        request.headers().get_all(HOST).iter().map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    let hosts = named.chain(request.uri().authority().map(ToString::to_string)).collect();
    let is_look = matches!(*request.method(), Method::GET | Method::HEAD);
    Asked { path: request.uri().path().to_owned(), is_look, hosts }
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}
