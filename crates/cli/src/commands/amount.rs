//! Sizes on the command line of `lvcreate`, in extents, and the room for them.

use super::{mirrors, places, stripes};
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::roles::extent_bytes;
use crate::session::Session;
use rowen_control::protocol::{GroupReport, PvPart, SegmentType};
use rowen_control::sizes::{self, ShareOf};
use rowen_control::units::{Units, sentence};
use rowen_engine::units::BLOCK_SIZE;

/// LVM's maximum.
const MAX_EXTENTS: u64 = u32::MAX as u64;

/// Where a volume takes its space.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub segment: SegmentType,
    /// The stripes of a striped volume, of which it has whole rows. 1 for others, and for what a snapshot sets aside.
    pub columns: u64,
    /// Anywhere, if there are none.
    pub on: &'a [PvPart],
}

impl Source<'_> {
    /// The stripes of the space.
    fn stripes(self, report: &GroupReport) -> u64 {
        match report.stripes {
            Some(own) if self.columns == 1 => own.layout.columns.into(),
            _ => self.columns,
        }
    }

    /// The extents that such a volume can have there.
    fn free(self, session: &mut Session<'_>, report: &GroupReport, wanted: u64) -> Result<u64> {
        match self.segment {
            SegmentType::Striped => stripes::free_for(session, report, self.stripes(report), self.on, wanted),
            _ => mirrors::free_for(session, report, self.segment, self.on, wanted),
        }
    }

    /// What is free in the whole group, also on physical volumes that are not allocatable.
    fn all(self, session: &mut Session<'_>, report: &GroupReport, wanted: u64) -> Result<u64> {
        match self.segment {
            SegmentType::Linear => session.free_extents(report, wanted),
            SegmentType::Raid1 | SegmentType::Striped => Source { on: &[], ..self }.free(session, report, wanted),
        }
    }

    /// Refuses a volume of this name that needs more than there is.
    pub fn check_room(self, session: &mut Session<'_>, report: &GroupReport, name: &str, extents: u64) -> Result {
        match self.segment {
            SegmentType::Linear => {}
            SegmentType::Raid1 => return mirrors::check_room(session, report, (name, extents), self.on),
            SegmentType::Striped => {
                return stripes::check_room(session, report, self.stripes(report), (name, extents), self.on);
            }
        }
        let (group, free) = (&report.name, session.free_extents(report, extents)?);
        if extents > free.saturating_add(places::to_dissolve(report)) {
            return Err(Failure::failed(format!(
                "Volume group \"{group}\" has insufficient free space ({free} extents): {extents} required."
            )));
        }
        places::check_room(session, report, self.on, extents)
    }
}

/// Bytes as extents, rounded up. Reports the rounding if asked to.
pub fn rounded(session: &mut Session<'_>, report: &GroupReport, bytes: u64) -> Result<u64> {
    let extent = extent_bytes(report);
    let extents = bytes.div_ceil(extent);
    if extents > MAX_EXTENTS {
        return Err(Failure::failed(format!(
            "Volume too large ({}) for extent size {}. Upper limit is less than {}.",
            sentence(bytes),
            sentence(extent),
            sentence(MAX_EXTENTS.saturating_mul(extent))
        )));
    }
    if bytes % extent != 0 {
        let size = sentence(extents.saturating_mul(extent));
        session.console.say(format!("Rounding up size to full physical extent {size}"));
    }
    Ok(extents)
}

/// The base of `%ORIGIN`.
pub struct OriginExtents {
    pub extents: u64,
    /// The most that a snapshot of it can use.
    pub most_useful: u64,
}

/// The size of the new volume in extents. A percentage is limited to the free space of the chosen places.
pub fn size_in_extents(
    session: &mut Session<'_>,
    args: &Args,
    report: &GroupReport,
    origin: Option<OriginExtents>,
    source: Source<'_>,
) -> Result<u64> {
    let columns = source.columns;
    if let Some(size) = args.size(Opt::Size) {
        let extents = rounded(session, report, size.bytes)?;
        return stripes::whole_rows(session, report, extents, columns, true);
    }
    let extents = args.extents(Opt::Extents).ok_or(Failure::NoForm)?;
    let count = match (extents.of, origin) {
        (None, _) => extents.count.min(MAX_EXTENTS),
        (Some(ShareOf::Group), _) => {
            let wanted = sizes::share(extents.count, report.extents);
            let free = source.all(session, report, wanted)?;
            if wanted > free {
                let left = Units::default().words(free.saturating_mul(extent_bytes(report)));
                let asked = extents.count;
                session.console.say(format!("Reducing {asked}%VG to remaining free space {left} in VG."));
            }
            wanted.min(free).min(source.free(session, report, wanted)?)
        }
        // A percentage above 100 of the free space means all of it.
        (Some(ShareOf::Free), _) => {
            let free = source.all(session, report, report.extents)?;
            sizes::share(extents.count, free).min(source.free(session, report, report.extents)?)
        }
        (Some(ShareOf::Pvs), _) => {
            let free = source.free(session, report, report.extents)?;
            sizes::share(extents.count, if source.on.is_empty() { report.extents } else { free }).min(free)
        }
        // The percentage is of the contents. The store's table needs additional space.
        (Some(ShareOf::Origin), Some(origin)) => {
            sizes::share_up(extents.count, origin.extents).saturating_add(origin.most_useful - origin.extents)
        }
        (Some(ShareOf::Origin), None) => {
            return Err(Failure::usage("Percentage of the origin makes sense for a snapshot only."));
        }
        (Some(ShareOf::Volume), _) => {
            return Err(Failure::usage("A new volume has no size that a percentage could refer to."));
        }
    };
    match count {
        0 if matches!(extents.of, Some(ShareOf::Group | ShareOf::Free | ShareOf::Pvs)) => {
            Err(Failure::failed("Calculated size of logical volume is 0 extents. Needs to be larger."))
        }
        0 => Err(Failure::failed("Unable to create new logical volume with no extents.")),
        count => stripes::whole_rows(session, report, count, columns, extents.of.is_none()),
    }
}

pub fn blocks(report: &GroupReport, extents: u64) -> Result<u64> {
    extents
        .checked_mul(report.extent_blocks)
        .filter(|blocks| *blocks <= sizes::MAX_BYTES / BLOCK_SIZE)
        .ok_or_else(|| Failure::failed(format!("A logical volume of {extents} extents is too large.")))
}
