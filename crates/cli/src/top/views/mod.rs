//! The tables of the views, made from the model.

mod cells;
mod disks;
mod groups;
mod snapshots;
mod volumes;
pub mod work;

use super::face::Tone;
use super::model::{Group, Model};
use super::table::Table;
use super::view::View;

/// The view's table, sorted as the user chose.
pub fn table(model: &Model, view: View) -> Table {
    let mut table = match view {
        View::Groups => groups::table(model),
        View::Volumes => volumes::table(model),
        View::Snapshots => snapshots::table(model),
        View::Disks => disks::table(model),
        View::Work => work::table(model),
    };
    if model.time.is_none() {
        table.empty = "Reading the groups.".to_owned();
    }
    table.sort(model.chosen[view as usize].order);
    table
}

/// The number of tasks that run or wait.
pub fn works(model: &Model) -> usize {
    work::table(model).rows.len()
}

/// Whether users notice the group's state.
pub fn is_bad(group: &Group) -> bool {
    groups::tone(group.status.state) == Tone::Bad
}
