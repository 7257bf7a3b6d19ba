//! How long this process waits for what may never answer: devices and servers.
//!
//! * PA1 A command that only shows what there is ends in the time of [`limit`], whatever hangs, and names it. A search for
//!   devices takes at most two thirds of what is left, so that there is time for servers, too. A command that
//!   changes something waits for a server as long as it takes: nobody knows how much of it is done.

use parking_lot::Mutex;
use rowen_engine::planted;
use std::time::{Duration, Instant};

/// What is left at least, so that healthy devices and servers have the time to answer after something hung.
const LEAST: Duration = Duration::from_millis(100);

/// When the command that only shows something has to end.
static END: Mutex<Option<Instant>> = Mutex::new(None);

/// How long a device may take to answer. A disk takes ten seconds to spin up. The environment may change it, for tests and
/// unusual hosts: `ROWEN_PROBE_SECONDS`.
pub fn limit() -> Duration {
    let seconds = std::env::var("ROWEN_PROBE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

/// A command begins. `only_shows`: it changes nothing (PA1).
pub fn begin(only_shows: bool) {
    *END.lock() = (only_shows && !planted::is("looks_wait")).then(|| Instant::now() + limit());
}

/// How long to wait for the next answer of a device.
pub fn for_devices() -> Duration {
    left().map_or_else(limit, |left| (left * 2 / 3).max(LEAST))
}

/// How long to wait for a server; none: as long as it takes.
pub fn for_server() -> Option<Duration> {
    left().map(|left| left.max(LEAST))
}

/// Whether the time of the command is up: what is not found from now on may be there.
pub fn is_over() -> bool {
    left() == Some(Duration::ZERO)
}

fn left() -> Option<Duration> {
    END.lock().map(|end| end.saturating_duration_since(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_shows_something_has_an_end() {
        assert_eq!((for_devices(), for_server()), (limit(), None));
        begin(true);
        assert!(!is_over());
        assert!(for_devices() <= limit() * 2 / 3 && for_devices() >= LEAST);
        assert!(for_server().is_some_and(|left| left <= limit() && left > limit() / 2));
        *END.lock() = Some(Instant::now());
        assert_eq!((for_devices(), for_server(), is_over()), (LEAST, Some(LEAST), true));
        begin(false);
        assert_eq!((for_devices(), for_server()), (limit(), None));
    }
}
