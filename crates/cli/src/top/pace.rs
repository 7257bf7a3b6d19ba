//! Estimates the rate of work from the remaining amount in each sample.

/// The weight of the newest rate.
const WEIGHT: f64 = 0.3;

/// Work whose remaining amount each sample has.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// The largest remaining amount, and the work that was added since.
    whole: u64,
    left: u64,
    /// The time of the last sample, in seconds.
    at: f64,
    /// The work done in a second.
    rate: Option<f64>,
}

impl Pace {
    pub fn new(left: u64, at: f64) -> Pace {
        Pace { whole: left, left, at, rate: None }
    }

    /// Adds a sample: the remaining amount, and the whole if it is known.
    pub fn see(&mut self, left: u64, whole: Option<u64>, at: f64) {
        let time = at - self.at;
        // Work was added, so the work done in between is unknown.
        let done = self.left.checked_sub(left);
        match done {
            Some(done) if time > 0.0 => {
                let rate = done as f64 / time;
                self.rate = Some(self.rate.map_or(rate, |before| before * (1.0 - WEIGHT) + rate * WEIGHT));
            }
            Some(_) => {}
            None => self.whole = self.whole.saturating_add(left - self.left),
        }
        self.whole = whole.unwrap_or(self.whole);
        (self.left, self.at) = (left, at);
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    /// The known share that is done.
    pub fn share(&self) -> Option<f64> {
        (self.whole > 0).then(|| 1.0 - self.left as f64 / self.whole.max(self.left) as f64)
    }

    /// The work done in a second, after two samples.
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Seconds to the end at this rate. None: the rate is unknown or zero.
    pub fn seconds_left(&self) -> Option<u64> {
        let rate = self.rate.filter(|rate| *rate > 0.0)?;
        Some((self.left as f64 / rate).ceil() as u64).filter(|seconds| *seconds < 100 * 86_400)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_from_two_looks() {
        let mut pace = Pace::new(1000, 10.0);
        assert_eq!((pace.share(), pace.rate(), pace.seconds_left()), (Some(0.0), None, None));
        pace.see(800, None, 12.0);
        assert_eq!((pace.share(), pace.rate(), pace.seconds_left()), (Some(1.0 - 0.8), Some(100.0), Some(8)));
        // At the same instant nothing follows.
        pace.see(800, None, 12.0);
        assert_eq!(pace.rate(), Some(100.0));
        // More came.
        pace.see(1600, None, 13.0);
        assert_eq!(
            (pace.share(), pace.rate(), pace.seconds_left()),
            (Some(1.0 - 1600.0 / 1800.0), Some(100.0), Some(16))
        );
        // There is no progress, and the rate falls.
        for second in 14..80 {
            pace.see(1600, None, f64::from(second));
        }
        assert_eq!(pace.seconds_left(), None, "{pace:?}");
    }

    #[test]
    fn a_known_whole_is_the_whole() {
        let mut pace = Pace::new(50, 0.0);
        pace.see(50, Some(200), 1.0);
        assert_eq!((pace.share(), pace.rate(), pace.seconds_left()), (Some(0.75), Some(0.0), None));
        pace.see(0, Some(0), 2.0);
        assert_eq!((pace.share(), pace.seconds_left()), (None, Some(0)));
    }
}
