//! The last events of each group.

use crate::report::time::TimeFormat;
use rowen_control::history::{Event, read};
use rowen_web::facts;
use std::collections::{BTreeMap, VecDeque};

/// The number of events kept for a group.
const KEPT: usize = 30;

/// By the group's identifier.
#[derive(Default)]
pub struct Events(BTreeMap<String, VecDeque<Event>>);

impl Events {
    /// Adds lines of a group, in the order in which they were written.
    pub fn add(&mut self, uuid: &str, lines: &[u8]) {
        let kept = self.0.entry(uuid.to_owned()).or_default();
        kept.extend(read::<Event>(lines).lines);
        kept.drain(..kept.len().saturating_sub(KEPT));
    }

    /// The events of the group that had this name last, the newest first.
    pub fn of(&self, group: &str, form: &TimeFormat) -> Vec<facts::Event> {
        let is_it = |kept: &&VecDeque<Event>| kept.back().is_some_and(|last| last.group == group);
        // Other groups may have had its name before.
        let newest = self.0.values().filter(is_it).max_by_key(|kept| kept.back().map(|last| last.time));
        let event_of = |event: &Event| facts::Event {
            time: event.time,
            at: form.show(event.time),
            event: event.event.clone(),
            message: event.message.clone(),
        };
        newest.into_iter().flat_map(|kept| kept.iter().rev().map(event_of)).collect()
    }
}
