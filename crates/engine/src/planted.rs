//! Planted bugs, for the tests that must find them. They exist only in the engine's own tests, and with the feature
//! `planted`.

#[cfg(any(test, feature = "planted"))]
mod chosen {
    use std::cell::Cell;
    use std::sync::OnceLock;

    thread_local! {
        pub static BUG: Cell<Option<&'static str>> = Cell::new(named());
    }

    /// `ROWEN_PLANTED=NAME` shows which tests find a bug.
    fn named() -> Option<&'static str> {
        static NAMED: OnceLock<Option<String>> = OnceLock::new();
        NAMED.get_or_init(|| std::env::var("ROWEN_PLANTED").ok()).as_deref()
    }
}

/// From now on the engine has that bug in this thread, or none.
#[cfg(any(test, feature = "planted"))]
pub fn plant(bug: Option<&'static str>) {
    chosen::BUG.set(bug);
}

/// Runs a test with that bug, in its own thread, and panics if the test passes.
///
/// # Panics
/// If the test does not find the bug.
#[cfg(any(test, feature = "planted"))]
#[track_caller]
#[allow(clippy::disallowed_methods)] // A test's thread, not one of the engine's.
pub fn must_be_found(bug: &'static str, test: impl FnOnce() + Send + 'static) {
    let with_it = move || {
        plant(Some(bug));
        test();
    };
    let outcome = std::thread::spawn(with_it).join();
    assert!(outcome.is_err(), "the planted bug {bug} was not found");
}

/// Whether this thread has that bug. Without the feature, none has.
#[inline]
pub fn is(bug: &str) -> bool {
    #[cfg(any(test, feature = "planted"))]
    return chosen::BUG.get() == Some(bug);
    #[cfg(not(any(test, feature = "planted")))]
    {
        let _ = bug;
        false
    }
}
