//! Bugs that are put in on purpose, for this crate's own tests, which must find them.

#[cfg(test)]
std::thread_local! {
    static BUG: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// Whether this thread has that bug. Outside of tests, none has.
pub fn is(bug: &str) -> bool {
    #[cfg(test)]
    return BUG.get() == bug;
    #[cfg(not(test))]
    {
        let _ = bug;
        false
    }
}

/// Runs a test with that bug in a thread of its own. The test must fail.
#[cfg(test)]
#[track_caller]
pub fn must_be_found(bug: &'static str, test: fn()) {
    let with_it = move || {
        BUG.set(bug);
        test();
    };
    assert!(std::thread::spawn(with_it).join().is_err(), "the planted bug {bug} was not found");
}
