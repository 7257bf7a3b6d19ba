//! Planted bugs, for the tests that must find them (feature `planted`, only for tests). Without the feature there are
//! none.

#[cfg(feature = "planted")]
mod chosen {
    use parking_lot::RwLock;
    use std::sync::LazyLock;

    /// `ROWEN_PLANTED=NAME` plants a bug in a test and in all programs that it starts.
    pub static BUG: LazyLock<RwLock<Option<String>>> =
        LazyLock::new(|| RwLock::new(std::env::var("ROWEN_PLANTED").ok()));
    pub static REACHED: RwLock<fn(&str)> = RwLock::new(|_| {});
}

/// This process has these bugs from now on; commas separate their names. `reached` gets the helper's steps if the bug
/// is that the work runs in no helper.
#[cfg(feature = "planted")]
pub fn plant(bug: &str, reached: fn(&str)) {
    *chosen::BUG.write() = Some(bug.to_owned());
    *chosen::REACHED.write() = reached;
}

/// Whether this process has that bug.
pub(crate) fn is(bug: &str) -> bool {
    #[cfg(feature = "planted")]
    return chosen::BUG.read().as_deref().is_some_and(|bugs| bugs.split(',').any(|one| one == bug));
    #[cfg(not(feature = "planted"))]
    {
        let _ = bug;
        false
    }
}

pub(crate) fn reached() -> fn(&str) {
    #[cfg(feature = "planted")]
    return *chosen::REACHED.read();
    #[cfg(not(feature = "planted"))]
    {
        |_| {}
    }
}
