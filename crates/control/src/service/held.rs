//! How long volumes have had writes that wait for room. The engine has no clock, so the precision is the interval of
//! the samples.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// A woken write that finds no room waits again soon. A volume that was not seen waiting for this long does not wait.
const MOMENT: Duration = Duration::from_millis(200);

/// For each volume, when it was first and last seen waiting.
#[derive(Default)]
pub struct Held(Mutex<BTreeMap<String, (Duration, Duration)>>);

impl Held {
    /// A sample: these volumes have waiting writes now.
    pub fn observe(&self, held: Vec<String>, now: Duration) {
        let mut seen = self.0.lock();
        seen.retain(|name, (_, last)| held.contains(name) || now.saturating_sub(*last) < MOMENT);
        for name in held {
            seen.entry(name).or_insert((now, now)).1 = now;
        }
    }

    /// The volumes, and for how long each has waited.
    pub fn since(&self, now: Duration) -> Vec<(String, Duration)> {
        self.0.lock().iter().map(|(name, (first, _))| (name.clone(), now.saturating_sub(*first))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_waits_until_it_is_not_seen_to() {
        let held = Held::default();
        let at = |millis| Duration::from_millis(millis);
        let names = |held: &Held| held.since(at(0)).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        held.observe(vec!["a".into(), "b".into()], at(1000));
        held.observe(vec!["b".into()], at(1100));
        assert_eq!(names(&held), ["a", "b"], "woken for a moment");
        held.observe(vec!["b".into()], at(1400));
        assert_eq!(held.since(at(3000)), [("b".to_owned(), at(2000))]);
        held.observe(Vec::new(), at(1800));
        assert!(names(&held).is_empty());
    }
}
