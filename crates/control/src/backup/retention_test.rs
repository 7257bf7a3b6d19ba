//! Retention, over random histories of points, policies and clocks.
//!
//! Rules BK1 to BK3.

use super::*;
use rowen_engine::planted::must_be_found;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn bucket(period: Period, made: u64) -> i64 {
    (made / period.seconds()) as i64
}

fn keep(text: &str) -> Keep {
    Keep::parse(text).unwrap()
}

fn shots(made: &[u64]) -> Vec<Shot> {
    made.iter().map(|made| Shot { made: *made, is_held: false }).collect()
}

fn removed(made: &[u64], text: &str) -> Vec<usize> {
    removable(&shots(made), &keep(text), true, bucket)
}

#[test]
fn each_period_keeps_the_newest_point_of_its_newest_ones() {
    let hour = 3600;
    let hours: Vec<u64> = (0..48).map(|at| at * hour + 5).collect();
    assert_eq!(removed(&hours, "hourly:48"), Vec::<usize>::new());
    assert_eq!(removed(&hours, "hourly:3"), (0..45).collect::<Vec<_>>());
    // The last one of each day, and the newest.
    assert_eq!(removed(&hours, "daily:5"), (0..47).filter(|at| *at != 23).collect::<Vec<_>>());
    assert_eq!(removed(&hours, "hourly:2 daily:2"), (0..46).filter(|at| *at != 23).collect::<Vec<_>>());
    assert_eq!(removed(&hours, "frequent:2"), (0..46).collect::<Vec<_>>());
    // Days without a point are not counted.
    assert_eq!(removed(&[0, 5 * 86400, 300 * 86400], "daily:3"), Vec::<usize>::new());
    // What keeps nothing keeps the newest.
    assert_eq!(removed(&hours[..3], ""), [0, 1]);
    assert_eq!(removed(&[], "hourly:3"), Vec::<usize>::new());
}

#[test]
fn what_is_kept_is_written_as_it_is_read() {
    assert_eq!(keep(" hourly:36  daily:30 ").to_string(), "hourly:36 daily:30");
    assert_eq!(keep("yearly:1 frequent:4").to_string(), "frequent:4 yearly:1");
    assert_eq!((keep("weekly:2").shortest(), keep("").shortest()), (Some(Period::Weekly), None));
    for (bad, why) in [
        ("hourly", "has no number"),
        ("hourly:x", "has no number"),
        ("hourly:-1", "has no number"),
        ("minutely:3", "is no period"),
        ("daily:1 daily:2", "twice"),
        ("daily:9999999", "room"),
    ] {
        assert!(Keep::parse(bad).unwrap_err().contains(why), "{bad}");
    }
}

fn any_keep(random: &mut Random) -> Keep {
    let mut keep = Keep::default();
    for period in PERIODS {
        if random.below(2) == 0 {
            keep.set(period, random.below(6));
        }
    }
    keep
}

/// Hours, days or weeks pass between points; now and then the clock jumps by years, ahead or back.
fn any_step(random: &mut Random, clock: u64) -> u64 {
    const YEAR: u64 = 365 * 86400;
    let step = [60, 900, 3600, 86400, 7 * 86400][random.below(5) as usize] * (1 + random.below(3));
    match random.below(25) {
        0 => clock + random.below(10) * YEAR,
        1 => clock.saturating_sub(random.below(10) * YEAR),
        _ => clock + step,
    }
}

/// Runs of a policy, one after the other: what must hold after each, whatever the clock does.
fn histories() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut keep = any_keep(&mut random);
        let mut clock = 50 * 365 * 86400;
        let mut all: Vec<Shot> = Vec::new();
        for _ in 0..60 {
            clock = any_step(&mut random, clock);
            if random.below(30) == 0 {
                keep = any_keep(&mut random);
            }
            let before = kept(&all, &keep, bucket);
            all.push(Shot { made: clock, is_held: random.below(12) == 0 });
            let after = kept(&all, &keep, bucket);
            // BK1: one more point, whatever its time, takes one point of each period at most.
            for period in PERIODS {
                let lost = before.iter().zip(&after).filter(|(b, a)| b.contains(&period) && !a.contains(&period));
                assert!(lost.count() <= 1, "seed {seed}: {period:?} of {keep}");
                let count = after.iter().filter(|kept| kept.contains(&period)).count() as u64;
                assert!(count <= keep.count(period), "seed {seed}");
            }
            let count = |period| after.iter().filter(|kept| kept.contains(&period)).count() as u64;
            assert_eq!(
                count(Period::Frequent),
                keep.count(Period::Frequent).min(all.len() as u64),
                "seed {seed}: points are counted"
            );
            let gone = removable(&all, &keep, false, bucket);
            // BK3, BK2.
            assert!(gone.len() <= all.len() / 2, "seed {seed}: half of them at most");
            assert!(gone.iter().all(|at| !all[*at].is_held), "seed {seed}: a base is removed");
            assert!(gone.iter().all(|at| *at + 1 < all.len()), "seed {seed}: the newest one is removed");
            assert!(gone.iter().all(|at| after[*at].is_empty()), "seed {seed}: what a period keeps is removed");
            // A removal of points that may go changes nothing for the others.
            let left: Vec<Shot> = (0..all.len()).filter(|at| !gone.contains(at)).map(|at| all[at]).collect();
            let counted: usize = after.iter().map(BTreeSet::len).sum();
            assert!(kept(&left, &keep, bucket).iter().map(BTreeSet::len).sum::<usize>() >= counted, "seed {seed}");
            all = left;
        }
    }
}

#[test]
fn a_clock_that_jumps_costs_a_point_and_no_history() {
    histories();
    must_be_found("kept_by_age", histories);
    must_be_found("base_is_removed", histories);
    must_be_found("removes_all_at_once", histories);
}
