//! What a report has a line about.

use super::index::{Indexed, Share};
use crate::backend::LabelledPv;
use rowen_control::protocol::{PvReport, VolumeReport};

/// A part of a volume that is on one physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where in the volume it begins, in extents.
    pub start: u64,
    pub extents: u64,
    /// Where it lies; nothing for what LVM would not place either.
    pub share: Option<Share>,
}

/// What a row can draw on.
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
