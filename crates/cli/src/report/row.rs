//! A row of a report.

use super::index::{Indexed, Share};
use crate::backend::LabelledPv;
use rowen_control::protocol::{PvReport, VolumeReport};

/// A part of a volume that is on one physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where in the volume it begins, in extents.
    pub start: u64,
    pub extents: u64,
    /// Its place. None for kinds that have no place in LVM.
    pub share: Option<Share>,
    /// Of a striped volume: how many of the volume's places it has, from this number on. Otherwise it is one place.
    pub columns: Option<(usize, usize)>,
}

/// The objects of a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row<'a> {
    pub group: Option<&'a Indexed<'a>>,
    pub volume: Option<&'a VolumeReport>,
    pub segment: Option<Segment>,
    pub pv: Option<&'a PvReport>,
    pub label: Option<&'a LabelledPv>,
    pub piece: Option<Share>,
    /// A volume that is being received has the piece.
    pub is_received: bool,
    /// It meets the criteria.
    pub is_selected: bool,
}
