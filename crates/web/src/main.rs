//! The program: it takes a socket, and answers there until it is ended.
#![forbid(unsafe_code)]

use rowen_web::arguments::{self, Place, Wanted};
use rowen_web::{http, site::Site};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;

/// The command line makes no sense, and: it failed. As in LVM.
const USAGE: u8 = 3;
const FAILED: u8 = 5;

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let (code, text) = match arguments::understand(words) {
        Ok(Wanted::Help) => (0, arguments::help()),
        Ok(Wanted::Version) => (0, format!("  rowen-web {}\n", env!("CARGO_PKG_VERSION"))),
        Ok(Wanted::Serve { place, facts, names }) => match serve(place, Site::new(facts, names)) {
            Ok(()) => (0, String::new()),
            Err(why) => (FAILED, format!("  {why}\n")),
        },
        Err(why) => (USAGE, format!("  {why}\n  Run `rowen-web --help' for more information.\n")),
    };
    let _nobody_reads = if code == 0 { write!(io::stdout(), "{text}") } else { write!(io::stderr(), "{text}") };
    ExitCode::from(code)
}

fn serve(place: Place, site: Site) -> Result<(), String> {
    let listener = match place {
        Place::At(at) => TcpListener::bind(at).map_err(|e| format!("Cannot listen at {at}: {e}."))?,
        Place::HandedOver => handed_over().map_err(|e| {
            format!(
                "Cannot take the socket that is standard input: {e}. To listen somewhere: rowen-web --listen 10859."
            )
        })?,
    };
    let at = listener.local_addr().map_err(|e| format!("Cannot listen: {e}."))?;
    let _nobody_reads = writeln!(io::stdout(), "  The page is at http://{at}/.");
    let site = Arc::new(site);
    let answer = move |asked: http::Asked| {
        let site = site.clone();
        async move { site.answer(&asked) }
    };
    http::serve(listener, answer).map_err(|e| format!("Cannot answer any more: {e}."))
}

/// systemd puts the socket there: `StandardInput=socket`.
fn handed_over() -> io::Result<TcpListener> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    if !rustix::net::sockopt::socket_acceptconn(&socket)? {
        return Err(io::Error::other("it does not listen"));
    }
    let listener = TcpListener::from(socket);
    // That it is one of TCP.
    listener.local_addr()?;
    Ok(listener)
}
