//! What no two runs have in common, made equal: identifiers, times, and the names by which device-mapper shows the parts that
//! LVM2 makes volumes of. Every replacement has the width of what it replaces, so that columns stay where they are.

use crate::transcript::{Outcome, Stream};
use regex::{Captures, Regex};

/// Takes what differs between any two runs out of outcomes.
pub struct Normaliser {
    uuid: Regex,
    /// As device-mapper's names have it, without dashes.
    joined_uuid: Regex,
    time: Regex,
    parts: Regex,
}

impl Default for Normaliser {
    fn default() -> Normaliser {
        Normaliser::new()
    }
}

impl Normaliser {
    /// Compiles its patterns.
    pub fn new() -> Normaliser {
        let pattern = |text: &str| Regex::new(text).expect("the pattern is written correctly");
        Normaliser {
            uuid: pattern(r"\b[A-Za-z0-9]{6}-[A-Za-z0-9]{4}(-[A-Za-z0-9]{4}){4}-[A-Za-z0-9]{6}\b"),
            joined_uuid: pattern(r"\b[A-Za-z0-9]{64}\b"),
            time: pattern(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}\b"),
            parts: pattern(r"(?m)^[+-]/dev/mapper/\S+(-real|-cow|-tpool|_tdata|_tmeta|_pmspare|_vorigin) .*\n"),
        }
    }

    /// The outcome without them.
    pub fn apply(&self, outcome: &Outcome) -> Outcome {
        let mut outcome = outcome.clone();
        for stream in [Stream::Out, Stream::Err] {
            let text = outcome.get_mut(stream);
            for pattern in [&self.uuid, &self.joined_uuid] {
                *text = pattern.replace_all(text, |found: &Captures<'_>| same_shape(&found[0], 'u')).into_owned();
            }
            *text = self.time.replace_all(text, |found: &Captures<'_>| same_shape(&found[0], '0')).into_owned();
        }
        outcome.nodes = self.parts.replace_all(&outcome.nodes, "").into_owned();
        // LVM2 writes the target in full, Rowen from the link's directory: both lead to the same node.
        outcome.nodes = outcome.nodes.replace(" ../mapper/", " /dev/mapper/");
        outcome
    }
}

fn same_shape(text: &str, letter: char) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { letter } else { c }).collect()
}
