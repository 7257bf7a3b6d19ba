//! The state of the groups and the user's choices. Only [`Model::update`] changes it.

use super::face::Face;
use super::keys::Key;
use super::pace::Pace;
use super::sample::{GroupSample, Sample};
use super::table::Order;
use super::view::View;
use crate::commands::iostat::Before;
use rowen_control::protocol::{GroupReport, IoReport, StatusReport};
use rowen_control::status::{GroupStatus, Problem, State};
use rowen_engine::units::BLOCK_SIZE;
use std::collections::BTreeMap;

/// The intervals between samples that the user can choose, in seconds.
const INTERVALS: [u64; 6] = [1, 2, 5, 10, 30, 60];
/// The first of them.
const USUAL: usize = 1;

/// Long work whose progress samples show.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Removal,
    Rehoming(String),
    Move(String),
    Check,
}

/// What is known of a group.
pub struct Group {
    pub status: GroupStatus,
    /// The report of its server, if it answered.
    pub report: Option<Box<StatusReport>>,
    /// The counters up to now...
    pub counted: Option<Before>,
    /// ... and since the previous sample.
    pub done: Option<IoReport>,
    /// Its volumes when they were last requested.
    pub volumes: Option<Box<GroupReport>>,
    pub paces: BTreeMap<Work, Pace>,
}

/// Rows of a view.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub order: Order,
    /// The selected row, by its name.
    pub row: Option<String>,
}

/// What changes the model.
pub enum Event {
    Key(Key),
    /// A sample was taken this many seconds after the start of the view.
    Sampled {
        sample: Sample,
        at: f64,
    },
    /// A sample has taken this many seconds and is not finished.
    Waits(u64),
    Resized(u16, u16),
}

/// What the caller must do after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Draw,
    Redraw,
    Quit,
    Suspend,
    /// Takes a sample without waiting for the interval.
    LookNow,
}

pub struct Model {
    pub face: Face,
    pub host: String,
    /// The named groups. Empty: all.
    pub wanted: Vec<String>,
    pub view: View,
    /// The group that is shown alone.
    pub opened: Option<String>,
    /// None: nothing is known yet.
    pub time: Option<u64>,
    pub groups: Vec<Group>,
    pub problems: Vec<Problem>,
    pub chosen: [Chosen; View::ALL.len()],
    pub is_paused: bool,
    pub shows_help: bool,
    pub size: (u16, u16),
    /// How long the present sample has taken, in seconds.
    pub waits: u64,
    interval: usize,
}

impl Model {
    pub fn new(face: Face, host: String, wanted: Vec<String>, size: (u16, u16)) -> Model {
        let ordered = |column, is_reversed| Chosen { order: Order { column, is_reversed }, row: None };
        Model {
            face,
            host,
            wanted,
            view: View::Groups,
            opened: None,
            time: None,
            groups: Vec::new(),
            problems: Vec::new(),
            // By name, by requests, by the space that a removal frees, by name, by name.
            chosen: [ordered(0, false), ordered(2, true), ordered(2, true), ordered(0, false), ordered(0, false)],
            is_paused: false,
            shows_help: false,
            size,
            waits: 0,
            interval: USUAL,
        }
    }

    /// Seconds between two samples.
    pub fn interval(&self) -> u64 {
        INTERVALS[self.interval]
    }

    pub fn chosen(&self) -> &Chosen {
        &self.chosen[self.view as usize]
    }

    /// The groups that are shown.
    pub fn shown(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| self.opened.as_ref().is_none_or(|name| *name == group.status.name))
    }

    pub fn opened_group(&self) -> Option<&Group> {
        let name = self.opened.as_ref()?;
        self.groups.iter().find(|group| group.status.name == *name)
    }

    /// Named groups that are unknown.
    pub fn missing(&self) -> impl Iterator<Item = &String> {
        let is_known = |name: &&String| self.groups.iter().any(|group| group.status.name == **name);
        self.wanted.iter().filter(move |name| self.time.is_some() && !is_known(name))
    }

    /// `shown` returns what the view shows of the model.
    pub fn update(&mut self, event: Event, shown: &dyn Fn(&Model) -> Shown) -> Effect {
        match event {
            Event::Key(key) => return self.pressed(key, shown),
            Event::Sampled { sample, at } => self.sampled(sample, at),
            Event::Waits(seconds) => self.waits = seconds,
            Event::Resized(width, height) => {
                self.size = (width, height);
                return Effect::Redraw;
            }
        }
        Effect::Draw
    }

    fn pressed(&mut self, key: Key, shown: &dyn Fn(&Model) -> Shown) -> Effect {
        match key {
            Key::Quit => return Effect::Quit,
            Key::Suspend => return Effect::Suspend,
            Key::Redraw => return Effect::Redraw,
            // Any other key closes the help.
            _ if self.shows_help => self.shows_help = false,
            Key::Help => self.shows_help = true,
            Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::First | Key::Last => {
                self.move_to(key, &shown(self));
            }
            Key::Open => self.open(&shown(self)),
            Key::Back => self.back(),
            Key::Next => self.view = self.view.other(1),
            Key::Previous => self.view = self.view.other(View::ALL.len() - 1),
            Key::Show(view) => self.view = view,
            Key::Sort => self.sort(&shown(self)),
            Key::Reverse => {
                let order = &mut self.chosen[self.view as usize].order;
                order.is_reversed = !order.is_reversed;
            }
            Key::Pause => {
                self.is_paused = !self.is_paused;
                return if self.is_paused { Effect::Draw } else { Effect::LookNow };
            }
            Key::Interval => self.interval = (self.interval + 1) % INTERVALS.len(),
            Key::Other => {}
        }
        Effect::Draw
    }

    fn move_to(&mut self, key: Key, shown: &Shown) {
        let Some(last) = shown.ids.len().checked_sub(1) else { return };
        let at = shown.at(self.chosen());
        // The first step selects the first row.
        let to = match (key, at) {
            (Key::First, _) | (Key::Down | Key::Up, None) => 0,
            (Key::Last, _) => last,
            (Key::Up, Some(at)) => at.saturating_sub(1),
            (Key::PageUp, at) => at.unwrap_or(0).saturating_sub(shown.page),
            (Key::PageDown, at) => at.unwrap_or(0) + shown.page,
            (_, Some(at)) => at + 1,
            (_, None) => 0,
        };
        self.chosen[self.view as usize].row = shown.ids.get(to.min(last)).cloned();
    }

    /// Opens the group of the selected row, or of the first one.
    fn open(&mut self, shown: &Shown) {
        let at = shown.at(self.chosen()).unwrap_or(0);
        let Some(id) = shown.ids.get(at) else { return };
        // A row's name begins with that of its group.
        let group = id.split('/').next().unwrap_or_default();
        if self.opened.is_none() && self.groups.iter().any(|known| known.status.name == group) {
            self.opened = Some(group.to_owned());
            if self.view == View::Groups {
                self.view = View::Volumes;
            }
        }
    }

    fn back(&mut self) {
        match self.opened.take() {
            Some(group) => {
                self.view = View::Groups;
                self.chosen[View::Groups as usize].row = Some(group);
            }
            None => self.view = View::Groups,
        }
    }

    /// By the next column that is shown.
    fn sort(&mut self, shown: &Shown) {
        let order = &mut self.chosen[self.view as usize].order;
        let at = shown.columns.iter().position(|(column, _)| *column == order.column);
        let next = at.map_or(0, |at| (at + 1) % shown.columns.len().max(1));
        if let Some((column, is_number)) = shown.columns.get(next) {
            // Numbers are sorted with the largest first.
            *order = Order { column: *column, is_reversed: *is_number };
        }
    }

    fn sampled(&mut self, sample: Sample, at: f64) {
        let mut before: BTreeMap<String, Group> =
            self.groups.drain(..).map(|group| (group.status.name.clone(), group)).collect();
        self.groups = sample.groups.into_iter().map(|now| Group::new(now, &mut before, at)).collect();
        self.problems = sample.problems;
        self.time = Some(sample.time);
        self.waits = 0;
        if self.opened.is_some() && self.opened_group().is_none() {
            self.back();
        }
    }
}

/// What a view shows now.
#[derive(Debug, Default)]
pub struct Shown {
    /// The names of its rows, in their order.
    pub ids: Vec<String>,
    /// The columns that fit, and whether they have numbers.
    pub columns: Vec<(usize, bool)>,
    /// The number of rows that fit.
    pub page: usize,
}

impl Shown {
    fn at(&self, chosen: &Chosen) -> Option<usize> {
        let row = chosen.row.as_ref()?;
        self.ids.iter().position(|id| id == row)
    }
}

impl Group {
    fn new(now: GroupSample, before: &mut BTreeMap<String, Group>, at: f64) -> Group {
        let GroupSample { status, report, counted, volumes } = now;
        let before = before.remove(&status.name);
        let (mut paces, old, known) =
            before.map_or_else(Default::default, |group| (group.paces, group.counted, group.volumes));
        let counted = counted.map(|(pid, io)| Before { pid, io });
        let done = match (&counted, &old) {
            (Some(now), Some(old)) => old.since(now.pid, &now.io),
            _ => None,
        };
        if let Some(report) = &report {
            see_work(&mut paces, report, at);
        }
        // If a server does not answer for a moment, its last report is kept.
        let is_silent = status.state == State::NotAnswering;
        let is_served = report.is_some() || is_silent;
        Group {
            volumes: volumes.or(known).filter(|_| is_served),
            counted: counted.or(old).filter(|_| is_served),
            status,
            report,
            done,
            paces,
        }
    }

    pub fn is_silent(&self) -> bool {
        self.status.state == State::NotAnswering
    }
}

fn see_work(paces: &mut BTreeMap<Work, Pace>, report: &StatusReport, at: f64) {
    let mut seen: Vec<(Work, u64, Option<u64>)> = Vec::new();
    if report.reclaim_left_blocks > 0 {
        seen.push((Work::Removal, report.reclaim_left_blocks, None));
    }
    if let Some(rehoming) = &report.rehoming {
        let left = rehoming.blocks.saturating_sub(rehoming.done_blocks);
        seen.push((Work::Rehoming(rehoming.name.clone()), left, Some(rehoming.blocks)));
    }
    if let Some(moving) = report.moving.as_ref().filter(|moving| moving.is_running) {
        let (done, whole) = (moving.copied_bytes / BLOCK_SIZE, moving.total_bytes / BLOCK_SIZE);
        seen.push((Work::Move(moving.path.clone()), whole.saturating_sub(done), Some(whole)));
    }
    if let Some(checked) = report.checked {
        seen.push((Work::Check, checked.total.saturating_sub(checked.nodes), Some(checked.total)));
    }
    paces.retain(|work, _| seen.iter().any(|(now, ..)| now == work));
    for (work, left, whole) in seen {
        paces.entry(work).or_insert_with(|| Pace::new(whole.unwrap_or(left), at)).see(left, whole, at);
    }
}
