//! lvdisplay, vgdisplay and pvdisplay: a page for each thing, one line of colons, or a report in columns. The words and the
//! order of lines are LVM's.

use super::reports::{self, end_of_query, named_devices, named_reports, places};
use crate::backend::LabelledPv;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::Kind;
use crate::report::fields::{Lv, data_percent, is_active, layout, segments};
use crate::report::index::{Indexed, Occupant, Share};
use crate::report::row::Segment;
use crate::report::select::Criteria;
use crate::report::time::TimeFormat;
use crate::report::value::Value;
use crate::roles::{Role, extent_bytes, extents_of, is_mirror, is_sparse, role, shown_blocks};
use crate::session::Session;
use rowen_control::paths::node_path;
use rowen_control::protocol::{GroupReport, PvReport, VolumePlaces, VolumeState};
use rowen_control::units::{Units, percent};
use rowen_control::uuids::lvm_text;
use rowen_engine::units::BLOCK_SIZE;
use std::collections::HashSet;
use std::fmt::Write;

/// Bytes in a sector, as colon lines count.
const SECTOR: u64 = 512;

/// A page that grows line by line.
struct Page {
    text: String,
    units: Units,
}

impl Page {
    fn new(args: &Args) -> Page {
        Page { text: String::new(), units: args.units() }
    }

    fn line(&mut self, line: impl AsRef<str>) {
        let _infallible = writeln!(self.text, "  {}", line.as_ref());
    }

    /// A name and its value, in columns.
    fn item(&mut self, width: usize, name: &str, value: impl AsRef<str>) {
        self.line(format!("{name:<width$} {}", value.as_ref()));
    }

    fn size(&self, bytes: u64) -> String {
        self.units.words(bytes)
    }

    fn extents(&self, group: &GroupReport, extents: u64) -> String {
        self.size(extents.saturating_mul(extent_bytes(group)))
    }
}

/// At most one of the exclusive options is permitted. Options about columns need `--columns`.
fn check_forms(args: &Args, exclusive: &[(Opt, Opt, &str)]) -> Result {
    for (one, other, sentence) in exclusive {
        if args.has(*one) && args.has(*other) {
            return Err(Failure::usage(sentence));
        }
    }
    const OF_COLUMNS: &[Opt] =
        &[Opt::Fields, Opt::Sort, Opt::NoHeadings, Opt::Separator, Opt::Aligned, Opt::Unbuffered];
    if !args.has(Opt::Columns) && OF_COLUMNS.iter().any(|option| args.has(*option)) {
        return Err(Failure::usage("Incompatible options selected."));
    }
    Ok(())
}

// ---- volumes ----------------------------------------------------------------------------------------------------

pub fn lvdisplay(session: &mut Session<'_>, args: &Args) -> Result {
    check_forms(
        args,
        &[
            (Opt::Colon, Opt::Columns, "Incompatible options selected"),
            (Opt::Maps, Opt::Columns, "Incompatible options selected"),
            (Opt::Colon, Opt::Maps, "Options -c and -m are incompatible."),
        ],
    )?;
    if args.has(Opt::Columns) {
        return reports::lvs(session, args);
    }
    let mut selection = session.select_by(args, true)?;
    selection.groups.sort_by(|a, b| a.report.name.cmp(&b.report.name));
    let mut page = Page::new(args);
    for selected in &selection.groups {
        let places = places(session, &selected.report.name, !args.has(Opt::Colon))?;
        let group = placed(&selected.report, &places);
        // In the group's order, whatever the order on the command line.
        let names: HashSet<&String> = selected.volumes.iter().collect();
        let chosen = selected.report.volumes.iter().filter(|volume| names.contains(&volume.name));
        for volume in chosen {
            let lv = Lv { group: &group, volume };
            if args.has(Opt::Colon) {
                page.line(volume_colons(&lv));
                continue;
            }
            volume_page(&mut page, &lv);
            if args.has(Opt::Maps) {
                volume_maps(&mut page, &lv);
            }
        }
    }
    session.console.raw_out(&page.text);
    end_of_query(args, selection.is_incomplete)
}

fn placed<'a>(report: &'a GroupReport, places: &'a [VolumePlaces]) -> Indexed<'a> {
    let mut group = Indexed::new(report);
    group.place(places);
    group
}

fn volume_colons(lv: &Lv<'_>) -> String {
    let (group, volume) = (lv.group.report, lv.volume);
    let is_active = is_active(volume);
    // Readable; writable; made read-only by activation.
    let access = match (volume.read_only, is_active) {
        // In LVM a pool's device only reserves the pool; nobody writes to it.
        _ if role(volume) == Role::Pool => 7,
        (false, _) if volume.node.read_only => 5,
        (false, _) => 3,
        (true, true) => 5,
        (true, false) => 1,
    };
    let (major, minor) = match volume.node.active {
        true => (i64::from(volume.node.major), i64::from(volume.node.minor)),
        false => (-1, -1),
    };
    let blocks = shown_blocks(volume);
    format!(
        "{}:{}:{access}:{}:-1:{}:{}:{}:-1:0:-1:{major}:{minor}",
        node_path(&group.name, &volume.name),
        group.name,
        u8::from(is_active),
        u8::from(volume.node.open),
        blocks.saturating_mul(BLOCK_SIZE / SECTOR),
        extents_of(group, blocks),
    )
}

fn shown_percent(lv: &Lv<'_>) -> String {
    match data_percent(lv) {
        Value::Percent(part, whole) => format!("{}%", percent(part, whole)),
        _ => String::new(),
    }
}

fn volume_page(page: &mut Page, lv: &Lv<'_>) {
    const WIDTH: usize = 22;
    let (group, volume) = (lv.group.report, lv.volume);
    let role = role(volume);
    let is_active = is_active(volume);
    page.line("--- Logical volume ---");
    if role != Role::Pool {
        page.item(WIDTH, "LV Path", node_path(&group.name, &volume.name));
    }
    page.item(WIDTH, "LV Name", &volume.name);
    page.item(WIDTH, "VG Name", &group.name);
    page.item(WIDTH, "LV UUID", lvm_text(volume.uuid));
    let access = match (volume.read_only, volume.node.read_only) {
        (true, _) => "read only",
        (false, true) => "read/write (activated read only)",
        (false, false) => "read/write",
    };
    page.item(WIDTH, "LV Write Access", access);
    page.item(WIDTH, "LV Creation host, time", format!(", {}", TimeFormat::default().show(volume.attributes.created)));
    if role == Role::Thin && !volume.attributes.pool.is_empty() {
        page.item(WIDTH, "LV Pool name", &volume.attributes.pool);
    }
    match (role, volume.origin.as_deref()) {
        (Role::Thin, Some(origin)) => page.item(WIDTH, "LV Thin origin name", origin),
        (Role::Snapshot, Some(origin)) => {
            let is_usable = is_active && volume.state == VolumeState::Ok;
            let state = if is_usable { "active" } else { "INACTIVE" };
            page.item(WIDTH, "LV snapshot status", format!("{state} destination for {origin}"));
        }
        _ => {}
    }
    if lv.group.is_origin(&volume.name) {
        page.item(WIDTH, "LV snapshot status", "source of");
        for snapshot in
            lv.group.snapshots(&volume.name).filter(|snapshot| crate::roles::role(snapshot) == Role::Snapshot)
        {
            let is_usable = snapshot.node.active && snapshot.state == VolumeState::Ok;
            page.item(WIDTH, "", format!("{} [{}]", snapshot.name, if is_usable { "active" } else { "INACTIVE" }));
        }
    }
    page.item(WIDTH, "LV Status", if is_active { "available" } else { "NOT available" });
    if is_active {
        page.item(WIDTH, "# open", u8::from(volume.node.open).to_string());
    }
    page.item(WIDTH, "LV Size", page.size(volume.blocks.saturating_mul(BLOCK_SIZE)));
    match role {
        Role::Thin if is_active => page.item(WIDTH, "Mapped size", shown_percent(lv)),
        Role::Pool => {
            page.item(WIDTH, "Allocated pool data", shown_percent(lv));
            let metadata = percent(group.metadata_blocks, group.blocks);
            page.item(WIDTH, "Allocated metadata", format!("{metadata}%"));
        }
        _ => {}
    }
    page.item(WIDTH, "Current LE", extents_of(group, volume.blocks).to_string());
    if is_mirror(volume) {
        page.item(WIDTH, "Mirrored volumes", crate::roles::COPIES.to_string());
    }
    if role == Role::Snapshot {
        snapshot_lines(page, lv);
    }
    page.item(WIDTH, "Segments", segments(lv).len().to_string());
    page.item(WIDTH, "Allocation", "inherit");
    page.item(WIDTH, "Read ahead sectors", "auto");
    if volume.node.active {
        page.item(WIDTH, "Block device", format!("{}:{}", volume.node.major, volume.node.minor));
    }
    page.line(" ");
}

/// The lines about a snapshot's own space.
fn snapshot_lines(page: &mut Page, lv: &Lv<'_>) {
    const WIDTH: usize = 22;
    let (group, volume) = (lv.group.report, lv.volume);
    let reserve = shown_blocks(volume);
    page.item(WIDTH, "COW-table size", page.size(reserve.saturating_mul(BLOCK_SIZE)));
    page.item(WIDTH, "COW-table LE", extents_of(group, reserve).to_string());
    if is_active(volume) {
        page.item(WIDTH, "Allocated to snapshot", shown_percent(lv));
    }
    page.item(WIDTH, "Snapshot chunk size", page.size(u64::from(volume.chunk_blocks).saturating_mul(BLOCK_SIZE)));
}

fn volume_maps(page: &mut Page, lv: &Lv<'_>) {
    page.line("--- Segments ---");
    for segment in segments(lv) {
        let last = (segment.start + segment.extents).saturating_sub(1);
        let role = role(lv.volume);
        let is_thin = role == Role::Thin && !is_sparse(lv.volume);
        let kind = if is_thin { "Virtual" } else { "Logical" };
        page.line(format!("{kind} extents {} to {last}:", segment.start));
        match (role, segment.share) {
            (Role::Thin, _) if is_thin => {
                page.line("  Type\t\tthin");
                page.line(format!("  Device ID\t\t{}", lv.volume.id));
            }
            (Role::Pool, _) => {
                page.line("  Type\t\tthin-pool");
                page.line(format!("  Chunk size\t\t{}", page.size(u64::from(lv.volume.chunk_blocks) * BLOCK_SIZE)));
                page.line("  Discards\t\tpassdown");
                page.line(format!("  Thin count\t\t{}", lv.group.members(&lv.volume.name).count()));
                page.line("  Zero new blocks\tyes");
            }
            _ if segment.columns.is_some() => stripes(page, lv, &segment),
            (_, share) => {
                page.line(if is_mirror(lv.volume) { "  Type\t\traid1" } else { "  Type\t\tlinear" });
                for share in share.into_iter().flat_map(Share::copies) {
                    let Some(pv) = lv.group.report.pvs.get(share.pv) else { continue };
                    page.line(format!("  Physical volume\t{}", pv.path));
                    let last = (share.first_extent + segment.extents).saturating_sub(1);
                    page.line(format!("  Physical extents\t{} to {last}", share.first_extent));
                }
            }
        }
        page.line(" ");
    }
    page.line(" ");
}

/// The lines about a segment of a striped volume.
fn stripes(page: &mut Page, lv: &Lv<'_>, segment: &Segment) {
    let (Some((first, count)), Some(layout)) = (segment.columns, layout(lv.group.report, lv.volume)) else { return };
    page.line("  Type\t\tstriped");
    page.line(format!("  Stripes\t\t{}", layout.columns));
    page.line(format!("  Stripe size\t\t{}", page.size(layout.bytes())));
    for (number, share) in lv.group.shares(&lv.volume.name).iter().skip(first).take(count).enumerate() {
        let Some(pv) = lv.group.report.pvs.get(share.pv) else { continue };
        page.line(format!("  Stripe {number}:"));
        page.line(format!("    Physical volume\t{}", pv.path));
        let last = (share.first_extent + segment.extents / count as u64).saturating_sub(1);
        page.line(format!("    Physical extents\t{} to {last}", share.first_extent));
    }
}

// ---- groups -----------------------------------------------------------------------------------------------------

pub fn vgdisplay(session: &mut Session<'_>, args: &Args) -> Result {
    check_forms(
        args,
        &[
            (Opt::Colon, Opt::Columns, "Incompatible options selected"),
            (Opt::Short, Opt::Columns, "Incompatible options selected"),
            (Opt::Colon, Opt::Short, "Option -c is not allowed with option -s"),
        ],
    )?;
    if args.has(Opt::Columns) {
        return reports::vgs(session, args);
    }
    let criteria = Criteria::of_command(args, Kind::Group)?;
    let shows_use = !args.has(Opt::Short) || criteria.as_ref().is_some_and(Criteria::shows_use);
    let (reports, is_incomplete) = named_reports(session, &args.positionals, shows_use)?;
    let mut page = Page::new(args);
    let is_wanted = |report: &&GroupReport| {
        let has_active = report.volumes.iter().any(|volume| volume.node.active);
        (!args.has(Opt::ActiveGroups) || has_active)
            && criteria.as_ref().is_none_or(|criteria| criteria.takes_group(report))
    };
    for group in reports.iter().filter(is_wanted) {
        if args.has(Opt::Colon) {
            page.line(group_colons(group));
        } else if args.has(Opt::Short) {
            let used = page.extents(group, group.extents.saturating_sub(group.free_extents));
            let (size, free) = (page.extents(group, group.extents), page.extents(group, group.free_extents));
            page.line(format!("\"{}\" {size} [{used:<9} used / {free} free]", group.name));
        } else {
            group_page(&mut page, group);
            if args.has(Opt::Verbose) {
                let places = places(session, &group.name, true)?;
                let indexed = placed(group, &places);
                for volume in &group.volumes {
                    volume_page(&mut page, &Lv { group: &indexed, volume });
                }
                members_page(&mut page, group);
            }
        }
    }
    session.console.raw_out(&page.text);
    end_of_query(args, is_incomplete)
}

fn open_volumes(group: &GroupReport) -> usize {
    group.volumes.iter().filter(|volume| volume.node.open).count()
}

fn group_colons(group: &GroupReport) -> String {
    // Bits of LVM's: readable, writable, resizable, exported.
    let attributes = &group.attributes;
    let status = 0x300 | if attributes.resizeable { 4 } else { 0 } | if attributes.exported { 2 } else { 0 };
    let kib = |extents: u64| extents.saturating_mul(extent_bytes(group)) / 1024;
    format!(
        "{}:r/w:{status}:-1:{}:{}:{}:-1:{}:{count}:{count}:{}:{}:{}:{}:{}:{}",
        group.name,
        attributes.max_volumes,
        group.volumes.len(),
        open_volumes(group),
        attributes.max_pvs,
        kib(group.extents),
        kib(1),
        group.extents,
        group.extents.saturating_sub(group.free_extents),
        group.free_extents,
        lvm_text(group.uuid),
        count = group.pvs.len(),
    )
}

fn group_page(page: &mut Page, group: &GroupReport) {
    const WIDTH: usize = 21;
    let attributes = &group.attributes;
    page.line("--- Volume group ---");
    let mut item = |name: &str, value: &str| page.item(WIDTH, name, value);
    let status = match (attributes.exported, attributes.resizeable) {
        (false, true) => "resizable",
        (false, false) => "NOT resizable",
        (true, true) => "exported/resizable",
        (true, false) => "exported/NOT resizable",
    };
    let count = group.pvs.len().to_string();
    item("VG Name", &group.name);
    item("System ID", "");
    item("Format", "lvm2");
    item("Metadata Areas", &count);
    item("Metadata Sequence No", &group.sequence.to_string());
    item("VG Access", if group.stopped { "read" } else { "read/write" });
    item("VG Status", status);
    item("MAX LV", &attributes.max_volumes.to_string());
    item("Cur LV", &group.volumes.len().to_string());
    item("Open LV", &open_volumes(group).to_string());
    item("Max PV", &attributes.max_pvs.to_string());
    item("Cur PV", &count);
    item("Act PV", &count);
    let used = group.extents.saturating_sub(group.free_extents);
    let size = |page: &Page, extents: u64| page.extents(group, extents);
    page.item(WIDTH, "VG Size", size(page, group.extents));
    page.item(WIDTH, "PE Size", size(page, 1));
    page.item(WIDTH, "Total PE", group.extents.to_string());
    page.item(WIDTH, "Alloc PE / Size", format!("{used} / {}", size(page, used)));
    page.item(WIDTH, "Free  PE / Size", format!("{} / {}", group.free_extents, size(page, group.free_extents)));
    page.item(WIDTH, "VG UUID", lvm_text(group.uuid));
    page.line(" ");
}

/// The group's physical volumes, in short.
fn members_page(page: &mut Page, group: &GroupReport) {
    const WIDTH: usize = 21;
    page.line("--- Physical volumes ---");
    for pv in &group.pvs {
        page.item(WIDTH, "PV Name", format!("{}     ", pv.path));
        page.item(WIDTH, "PV UUID", lvm_text(pv.uuid));
        page.item(WIDTH, "PV Status", if pv.is_allocatable { "allocatable" } else { "NOT allocatable" });
        page.item(WIDTH, "Total PE / Free PE", format!("{} / {}", pv.extents, pv.free_extents));
        page.line(" ");
    }
}

// ---- physical volumes -------------------------------------------------------------------------------------------

pub fn pvdisplay(session: &mut Session<'_>, args: &Args) -> Result {
    check_forms(
        args,
        &[
            (Opt::Colon, Opt::Columns, "Incompatible options selected"),
            (Opt::Maps, Opt::Columns, "Incompatible options selected"),
            (Opt::Short, Opt::Columns, "Incompatible options selected"),
            (Opt::Colon, Opt::Maps, "Option -c not allowed with option -m"),
            (Opt::Colon, Opt::Short, "Option -c is not allowed with option -s"),
            (Opt::Short, Opt::Maps, "Option -s not allowed with option -m"),
        ],
    )?;
    if args.has(Opt::Columns) {
        return reports::pvs(session, args);
    }
    if args.has(Opt::All) {
        return Err(Failure::usage("Incompatible options selected"));
    }
    let criteria = Criteria::of_command(args, Kind::Pv)?;
    let shows_use = criteria.as_ref().is_some_and(Criteria::shows_use);
    let mut devices = named_devices(session, args, shows_use)?;
    let reports = std::mem::take(&mut devices.reports);
    let mut page = Page::new(args);
    for label in &devices.labels {
        let group = reports.iter().find(|report| Some(&report.name) == label.group.as_ref());
        let indexed = group.map(Indexed::new);
        if criteria.as_ref().is_some_and(|criteria| !criteria.takes_device(indexed.as_ref(), label)) {
            continue;
        }
        let pv = group.and_then(|group| group.pvs.iter().find(|pv| Some(pv.uuid) == label.uuid));
        // The server may know it by an old path.
        let pv = pv.map(|pv| PvReport { path: label.path.clone(), ..pv.clone() });
        match (group, pv) {
            (Some(group), Some(pv)) => {
                pv_page(&mut page, args, group, &pv);
                if args.has(Opt::Maps) {
                    let places = places(session, &group.name, true)?;
                    pv_maps(&mut page, &placed(group, &places), &pv);
                }
            }
            _ => free_pv_page(&mut page, args, label),
        }
    }
    session.console.raw_out(&page.text);
    end_of_query(args, devices.is_incomplete)
}

fn pv_page(page: &mut Page, args: &Args, group: &GroupReport, pv: &PvReport) {
    const WIDTH: usize = 21;
    let used = pv.extents.saturating_sub(pv.free_extents);
    let extent = extent_bytes(group);
    if args.has(Opt::Short) {
        let free = page.extents(group, pv.free_extents);
        page.line(format!("Device \"{}\" has a capacity of {free}", pv.path));
        return;
    }
    if args.has(Opt::Colon) {
        page.line(format!(
            "{}:{}:{}:-1:8:8:-1:{}:{}:{}:{used}:{}",
            pv.path,
            group.name,
            pv.size_bytes / SECTOR,
            extent / 1024,
            pv.extents,
            pv.free_extents,
            lvm_text(pv.uuid)
        ));
        return;
    }
    let unusable = pv.size_bytes.saturating_sub(pv.extents.saturating_mul(extent));
    let size = match unusable {
        0 => page.size(pv.size_bytes),
        _ => format!("{} / not usable {}", page.size(pv.size_bytes), page.size(unusable)),
    };
    page.line("--- Physical volume ---");
    page.item(WIDTH, "PV Name", &pv.path);
    page.item(WIDTH, "VG Name", &group.name);
    page.item(WIDTH, "PV Size", size);
    let allocatable = match (pv.is_allocatable, pv.free_extents) {
        (false, _) => "NO",
        (true, 0) => "yes (but full)",
        (true, _) => "yes ",
    };
    page.item(WIDTH, "Allocatable", allocatable);
    page.item(WIDTH, "PE Size", page.size(extent));
    page.item(WIDTH, "Total PE", pv.extents.to_string());
    page.item(WIDTH, "Free PE", pv.free_extents.to_string());
    page.item(WIDTH, "Allocated PE", used.to_string());
    page.item(WIDTH, "PV UUID", lvm_text(pv.uuid));
    page.line(" ");
}

fn pv_maps(page: &mut Page, group: &Indexed<'_>, pv: &PvReport) {
    page.line("--- Physical Segments ---");
    for (piece, occupant) in group.pieces(pv).into_iter().filter(|(piece, _)| piece.extents > 0) {
        let last = (piece.first_extent + piece.extents).saturating_sub(1);
        page.line(format!("Physical extent {} to {last}:", piece.first_extent));
        match occupant {
            Occupant::Volume(volume) => {
                page.line(format!("  Logical volume\t{}", node_path(&group.report.name, &volume.name)));
                let parts = segments(&Lv { group, volume });
                if let Some(segment) = parts.iter().find(|segment| segment.share == Some(piece)) {
                    let last = (segment.start + segment.extents).saturating_sub(1);
                    page.line(format!("  Logical extents\t{} to {last}", segment.start));
                }
            }
            Occupant::Hidden => page.line("  A logical volume that is being received"),
            Occupant::Nobody => page.line("  FREE"),
        }
    }
    page.line(" ");
}

/// A physical volume that belongs to no group, or to a group that does not answer.
fn free_pv_page(page: &mut Page, args: &Args, label: &LabelledPv) {
    const WIDTH: usize = 21;
    let size = page.size(label.usable);
    let uuid = label.uuid.map_or_else(String::new, lvm_text);
    if args.has(Opt::Short) {
        page.line(format!("Device \"{}\" has a capacity of {size}", label.path));
        return;
    }
    let group = label.group.as_deref().unwrap_or_default();
    if group.is_empty() {
        page.line(format!("\"{}\" is a new physical volume of \"{size}\"", label.path));
    }
    if args.has(Opt::Colon) {
        page.line(format!("{}:{group}:{}:-1:0:0:-1:0:0:0:0:{uuid}", label.path, label.usable / SECTOR));
        return;
    }
    // A group that could not be opened has extents all the same.
    let is_new = group.is_empty();
    let known = |value: String| if is_new { value } else { "unknown".to_owned() };
    page.line(if is_new { "--- NEW Physical volume ---" } else { "--- Physical volume ---" });
    page.item(WIDTH, "PV Name", &label.path);
    page.item(WIDTH, "VG Name", group);
    page.item(WIDTH, "PV Size", size);
    page.item(WIDTH, "Allocatable", known("NO".to_owned()));
    page.item(WIDTH, "PE Size", known(page.size(0)));
    for count in ["Total PE", "Free PE", "Allocated PE"] {
        page.item(WIDTH, count, known("0".to_owned()));
    }
    page.item(WIDTH, "PV UUID", uuid);
    page.line(" ");
    if args.has(Opt::Maps) {
        page.line(" ");
    }
}

#[cfg(test)]
#[path = "display_test.rs"]
mod tests;
