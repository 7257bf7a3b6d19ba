//! The experiments. Each is one file that names its source, its question, what is expected and how to run it alone.

mod aging;
mod byrne;
mod engine;
mod failure;
mod hp_ux;
mod latency;
mod lifecycle;
mod lxd;
mod mylvmbackup;
mod transfer;
mod van_dok;

use crate::command::Result;
use crate::context::{Context, Form};
use crate::runner::Pass;
use crate::stack::System;

/// Sizes of the disks in MiB: each system gets one of its own, a mirror a second one (LVM's and Rowen's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub raw: u64,
    pub lvm: u64,
    pub mirror: u64,
    pub rowen: u64,
    pub rowen_mirror: u64,
}

/// Why LVM's snapshots of two kinds have no figures of many.
const CLASSIC_LIMIT: &str = "each classic snapshot needs room of its own for all that is written, and each first write is copied once for \
                             each: one write takes as long as so many copies";
const THIN_LIMIT: &str =
    "lvcreate of a thin snapshot takes half a second in user-mode-linux, a thousand of them minutes of each round";

/// How often each figure is measured.
pub const ROUNDS: usize = 5;

/// A disk that is there and not used.
pub const UNUSED: u64 = 8;

/// Where an experiment comes from.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub title: &'static str,
    pub author: &'static str,
    pub year: &'static str,
}

/// A figure of a document: the only ones that are typed in.
#[derive(Clone, Debug)]
pub struct Published {
    pub system: &'static str,
    pub metric: &'static str,
    pub unit: &'static str,
    pub parameters: Vec<(&'static str, String)>,
    pub figure: f64,
}

/// The reason of a figure: shown below every table that has it and in which it is worse than the raw disk's.
#[derive(Clone, Copy, Debug)]
pub struct Remark {
    pub system: &'static str,
    pub metric: &'static str,
    /// What the row's parameters have among them.
    pub parameters: &'static [(&'static str, &'static str)],
    pub why: &'static str,
}

/// One experiment. The same body is run on the host and in user-mode-linux, timed and recorded.
#[derive(Clone, Copy)]
pub struct Experiment {
    pub name: &'static str,
    pub title: &'static str,
    pub source: Option<Source>,
    pub question: &'static str,
    /// The shape that is expected, in words.
    pub expected: &'static str,
    /// What the document did, as commands.
    pub steps: &'static str,
    /// What is done differently here, and what must be known to read the figures.
    pub notes: &'static str,
    pub systems: &'static [System],
    /// The parameter that is drawn from left to right.
    pub axis: &'static str,
    /// Parameters that a row shares with the row of the raw disk that it is compared with.
    pub base: &'static [&'static str],
    pub body: fn(&Context) -> Result,
    pub published: fn() -> Vec<Published>,
    /// How large the disks are.
    pub sizes: fn(&Form) -> Sizes,
    /// Where it is run.
    pub passes: &'static [Pass],
    /// Where the quick form runs it when it is not asked for by name; the report says that the others were left out.
    pub quick_passes: &'static [Pass],
    /// Whether it takes so long that it is run only when it is asked for by name.
    pub is_long: bool,
    /// Why a figure is as it is, where it is bad.
    pub remarks: &'static [Remark],
    /// MiB that a large write moves: smoke, quick, full.
    pub mib: [u64; 3],
    /// About how many seconds its passes take on a quiet machine with two cores, in their order: quick, and full.
    pub seconds: [[f64; 3]; 2],
}

impl Experiment {
    /// Whether this pass is made: the quick form leaves some out, every form what is long, unless the experiment was asked for by name.
    pub fn has(&self, pass: Pass, form: &Form, by_name: bool) -> bool {
        let is_quick = form.quick && !form.smoke && !by_name;
        let is_left_out = self.is_long && !form.smoke && !by_name;
        self.passes.contains(&pass) && !is_left_out && (!is_quick || self.quick_passes.contains(&pass))
    }

    /// MiB that a large write moves. In user-mode-linux it is less; and records are of little: every request goes through a server,
    /// and the model knows its disk.
    pub fn mib_of(&self, pass: Pass, form: &Form) -> u64 {
        let [smoke, quick, full] = self.mib;
        match (form, pass) {
            (Form { smoke: true, .. }, _) | (Form { quick: true, .. }, Pass::Model) => smoke,
            (Form { quick: true, .. }, _) => quick,
            (_, Pass::Model) => full.min(2 * quick),
            (_, Pass::Inside) => full.min(4 * quick),
            _ => full,
        }
    }

    /// About how many seconds a pass of it takes, by the number of rounds, of which a record has one; none if it has no such pass.
    pub fn seconds_of(&self, pass: Pass, form: &Form) -> f64 {
        let at = Pass::ALL.into_iter().position(|other| other == pass && self.passes.contains(&other));
        let rounds = if pass == Pass::Model { 1.0 } else { form.rounds as f64 / ROUNDS as f64 };
        at.map_or(0.0, |at| self.seconds[usize::from(!form.quick)][at] * rounds)
    }
}

/// All of them, in the order of their running.
pub const ALL: [Experiment; 11] = [
    van_dok::EXPERIMENT,
    byrne::EXPERIMENT,
    hp_ux::EXPERIMENT,
    mylvmbackup::EXPERIMENT,
    lxd::EXPERIMENT,
    latency::EXPERIMENT,
    lifecycle::EXPERIMENT,
    engine::EXPERIMENT,
    aging::EXPERIMENT,
    transfer::EXPERIMENT,
    failure::EXPERIMENT,
];

pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_experiment_is_that_of_its_passes() {
        let form = Form { quick: true, smoke: false, rounds: 2 * ROUNDS, mib: 1 };
        let [quick, _] = van_dok::EXPERIMENT.seconds;
        let found = Pass::ALL.map(|pass| van_dok::EXPERIMENT.seconds_of(pass, &form));
        assert_eq!(found, [2.0 * quick[0], 2.0 * quick[1], quick[2]]);
        assert_eq!(lxd::EXPERIMENT.seconds_of(Pass::Inside, &form), 0.0);
        // Ten minutes, of parts that were timed alone; and ninety, with room.
        assert!(lxd::EXPERIMENT.has(Pass::Host, &form, true) && !lxd::EXPERIMENT.has(Pass::Host, &form, false));
        for (n, most) in [(0, 570.0), (1, 5100.0)] {
            let form = Form { quick: n == 0, rounds: ROUNDS, ..form };
            let of = |experiment: &Experiment| -> f64 {
                let made = Pass::ALL.into_iter().filter(|pass| experiment.has(*pass, &form, false));
                made.map(|pass| experiment.seconds_of(pass, &form)).sum()
            };
            let all: f64 = ALL.iter().map(of).sum();
            assert!(all <= most, "form {n} takes {all} s");
        }
    }
}
