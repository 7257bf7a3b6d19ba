//! Planted bugs of this program, for the tests that must find them. The engine's would make this crate compile the engine once more.

#[cfg(test)]
thread_local! {
    static BUG: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Runs a test with that bug, in its own thread, and panics if the test passes.
#[cfg(test)]
pub fn must_be_found(bug: &'static str, test: impl FnOnce() + Send + 'static) {
    let with_it = move || {
        BUG.set(Some(bug));
        test();
    };
    assert!(std::thread::spawn(with_it).join().is_err(), "the planted bug {bug} was not found");
}

/// Whether this thread has that bug. Outside of tests none has.
pub fn is(bug: &str) -> bool {
    #[cfg(test)]
    return BUG.get() == Some(bug);
    #[cfg(not(test))]
    {
        let _ = bug;
        false
    }
}
