//! The effort of the tests. `ROWEN_SIM_SEEDS` is the percentage of the usual: 100 alone, 5 in `make test`, more in
//! long runs.

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Percent of the usual. Tests require rare events, which only all seeds together meet, from 100 on.
pub fn percent() -> u64 {
    setting("ROWEN_SIM_SEEDS").unwrap_or(100)
}

/// This part of the usual number, and at least one.
pub fn scaled(usual: u64) -> u64 {
    (usual * percent() / 100).max(1)
}

/// The number of worlds to run: `ROWEN_SIM_WORLDS`, or the usual number.
pub fn worlds(usual: u64) -> u64 {
    setting("ROWEN_SIM_WORLDS").unwrap_or_else(|| scaled(usual))
}

/// The divisor of 'one in N', where one in `usual` is usual.
pub fn one_in(usual: u64) -> u64 {
    usual * 100 / percent().clamp(1, 100)
}
