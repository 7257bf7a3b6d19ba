//! The rows of a report. A row about a group or a volume becomes one row for each part that the columns need.

use super::field::About;
use super::fields::{Lv, segments};
use super::index::{Indexed, Occupant};
use super::kind::Kind;
use super::row::Row;
use crate::backend::LabelledPv;

/// One row about the whole group.
pub fn of_group<'a>(group: &'a Indexed<'a>) -> Row<'a> {
    Row { group: Some(group), ..Row::default() }
}

/// One row for each of the volumes named.
pub fn of_volumes<'a>(group: &'a Indexed<'a>, names: &'a [String]) -> impl Iterator<Item = Row<'a>> {
    let all = &group.report.volumes;
    // Usually these are all volumes in order, and no search is needed.
    let named = names.iter().enumerate().filter_map(|(at, name)| match all.get(at) {
        Some(volume) if volume.name == *name => Some(volume),
        _ => group.volume(name),
    });
    named.map(|volume| Row { volume: Some(volume), ..of_group(group) })
}

/// The row of a labelled device, with the group that has been reported for it.
pub fn of_label<'a>(label: &'a LabelledPv, group: Option<&'a Indexed<'a>>) -> Row<'a> {
    let pv = group.and_then(|group| group.report.pvs.iter().find(|pv| Some(pv.uuid) == label.uuid));
    Row { group, pv, label: Some(label), ..Row::default() }
}

/// The rows of a part of a full report.
pub fn of_kind<'a>(kind: Kind, group: &'a Indexed<'a>) -> Vec<Row<'a>> {
    let whole = of_group(group);
    match kind {
        Kind::Group => vec![whole],
        Kind::Volume => refine(whole, About::Volume),
        Kind::Segment => refine(whole, About::Segment),
        Kind::Pv => refine(whole, About::Pv),
        Kind::Piece => refine(whole, About::Piece),
    }
}

/// Whether the row is as fine as that kind.
pub fn is_fine(row: &Row<'_>, about: About) -> bool {
    match about {
        _ if row.group.is_none() => true,
        About::Group | About::Nothing => true,
        About::Volume | About::Pv => row.volume.is_some() || row.pv.is_some(),
        About::Segment => row.segment.is_some(),
        About::Piece => row.piece.is_some(),
    }
}

/// The row's parts.
pub fn refine(row: Row<'_>, about: About) -> Vec<Row<'_>> {
    let Some(group) = row.group.filter(|_| !is_fine(&row, about)) else { return vec![row] };
    match about {
        About::Group | About::Nothing => vec![row],
        About::Volume => {
            let shown = group.report.volumes.iter().filter(|volume| !volume.is_waiting_to_merge());
            shown.map(|volume| Row { volume: Some(volume), ..row }).collect()
        }
        About::Segment => refine(row, About::Volume).into_iter().flat_map(of_segments).collect(),
        About::Pv => group.report.pvs.iter().map(|pv| Row { pv: Some(pv), ..row }).collect(),
        About::Piece => refine(row, About::Pv).into_iter().flat_map(of_pieces).collect(),
    }
}

fn of_segments(row: Row<'_>) -> Vec<Row<'_>> {
    let (Some(group), Some(volume)) = (row.group, row.volume) else { return vec![row] };
    segments(&Lv { group, volume }).into_iter().map(|segment| Row { segment: Some(segment), ..row }).collect()
}

/// The used extents of a physical volume in order, and then the free ones.
fn of_pieces(row: Row<'_>) -> Vec<Row<'_>> {
    let (Some(group), Some(pv)) = (row.group, row.pv) else { return vec![row] };
    group
        .pieces(pv)
        .into_iter()
        .map(|(piece, occupant)| {
            let volume = match occupant {
                Occupant::Volume(volume) => Some(volume),
                Occupant::Hidden | Occupant::Nobody => None,
            };
            let is_received = matches!(occupant, Occupant::Hidden);
            let segment = volume.and_then(|volume| {
                let parts = segments(&Lv { group, volume });
                parts.into_iter().find(|segment| segment.share == Some(piece))
            });
            Row { piece: Some(piece), volume, segment, is_received, ..row }
        })
        .collect()
}
