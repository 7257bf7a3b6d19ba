//! pvs, vgs, lvs and fullreport: which groups, volumes and devices a report shows. The module `report` decides what it
//! shows of them.

use super::groups::known_group;
use crate::backend::LabelledPv;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::fields::UNKNOWN;
use crate::report::index::Indexed;
use crate::report::{Kind, Shape, rows};
use crate::roles::MOVE;
use crate::session::{Detail, SelectedGroup, Session, unexpected};
use rowen_control::paths::Target;
use rowen_control::protocol::{
    Attributes, FullPolicy, GroupReport, Index, Legs, NodeState, Outcome, PvReport, Request, SegmentType, VolumeKind,
    VolumePlaces, VolumeReport, VolumeState,
};
use rowen_engine::units::{BLOCK_SIZE, Uuid};

/// The kind of report, by `--segments`.
fn kind(args: &Args, whole: Kind, parts: Kind) -> Kind {
    if args.has(Opt::Segments) { parts } else { whole }
}

/// Prints the text, unless only the command log is wanted, which is empty.
fn show(session: &mut Session<'_>, args: &Args, text: &str) {
    if !args.has(Opt::LogOnly) {
        session.console.raw_out(text);
    }
}

/// The places of the blocks of the group's volumes, if the report shows them.
pub fn places(session: &mut Session<'_>, group: &str, is_needed: bool) -> Result<Vec<VolumePlaces>> {
    if !is_needed {
        return Ok(Vec::new());
    }
    match session.ask(group, Request::Places)? {
        Outcome::Places(places) => Ok(places),
        other => Err(unexpected(group, &other)),
    }
}

/// The same for many groups.
fn all_places(session: &mut Session<'_>, reports: &[&GroupReport], is_needed: bool) -> Result<Vec<Vec<VolumePlaces>>> {
    reports.iter().map(|report| places(session, &report.name, is_needed)).collect()
}

/// The groups' indexes, with the places of their blocks.
fn indexed<'a>(reports: &[&'a GroupReport], places: &'a [Vec<VolumePlaces>]) -> Vec<Indexed<'a>> {
    let indexed = reports.iter().zip(places).map(|(report, places)| {
        let mut group = Indexed::new(report);
        group.place(places);
        group
    });
    indexed.collect()
}

/// The result of a reporting command. A named object that does not exist is a failure. If the command lists all groups,
/// a group that cannot be opened is reported and is no failure, as in LVM. A missing disk of one group must not hide
/// the others from programs that list everything.
pub fn end_of_query(args: &Args, is_incomplete: bool) -> Result {
    match is_incomplete && args.positionals.iter().any(|word| !word.starts_with('@')) {
        true => Err(Failure::Told),
        false => Ok(()),
    }
}

pub fn lvs(session: &mut Session<'_>, args: &Args) -> Result {
    let shape = Shape::from(args, kind(args, Kind::Volume, Kind::Segment))?;
    let detail = Detail { all_volumes: shape.counts_all(), with_use: shape.shows_use() };
    let mut selection = match args.has(Opt::All) {
        true => session.select_all(&args.positionals, detail)?,
        false => session.select(&args.positionals, detail)?,
    };
    if args.has(Opt::All) {
        selection.groups.iter_mut().filter(|group| group.is_whole).for_each(show_move);
    }
    selection.groups.sort_by(|a, b| a.report.name.cmp(&b.report.name));
    let text = of_volumes(session, &shape, &selection.groups)?;
    show(session, args, &text);
    end_of_query(args, selection.is_incomplete)
}

/// A move of extents is a volume, as LVM has it.
fn show_move(group: &mut SelectedGroup) {
    let report = &mut group.report;
    let Some(moving) = report.moving.as_deref() else { return };
    // Another one than those of all volumes and physical volumes, and the same as long as it is moved from there.
    let source = report.pvs.iter().find(|pv| pv.path == moving.path).map_or(Uuid([0; 16]), |pv| pv.uuid);
    report.volumes.push(VolumeReport {
        id: u64::MAX,
        name: MOVE.to_owned(),
        uuid: Uuid(source.0.map(|byte| !byte)),
        kind: VolumeKind::Thick,
        segment: SegmentType::Linear,
        state: VolumeState::Ok,
        blocks: moving.total_bytes / BLOCK_SIZE,
        sector: 512,
        chunk_blocks: 1,
        read_only: false,
        full: FullPolicy::Fail,
        origin: None,
        reserve_blocks: None,
        attributes: Attributes::default(),
        referenced_blocks: 0,
        exclusive_blocks: 0,
        freed_if_removed_blocks: 0,
        snapshot_used_blocks: 0,
        is_partial: false,
        legs: Legs::Whole,
        scrub: None,
        point_uuid: None,
        moment: None,
        node: NodeState { active: true, open: true, ..NodeState::default() },
    });
    report.index = Index::default();
    group.volumes.push(MOVE.to_owned());
}

fn of_volumes(session: &mut Session<'_>, shape: &Shape, selected: &[SelectedGroup]) -> Result<String> {
    let reports: Vec<&GroupReport> = selected.iter().map(|selected| &selected.report).collect();
    let places = all_places(session, &reports, shape.needs_places())?;
    let groups = indexed(&reports, &places);
    let volumes = groups.iter().zip(selected).flat_map(|(group, selected)| rows::of_volumes(group, &selected.volumes));
    Ok(shape.render(shape.rows(volumes)))
}

/// The reports of the named groups, sorted, and whether something was missing. `with_use`: they include whether devices
/// are open.
pub fn named_reports(session: &mut Session<'_>, words: &[String], with_use: bool) -> Result<(Vec<GroupReport>, bool)> {
    let mut names = Vec::new();
    for word in words {
        match Target::parse(word) {
            Some(Target::Tag(tag)) => names.extend(session.tagged_groups(&tag)?),
            Some(Target::Group(name)) => names.push(name),
            _ => names.push(known_group(word)?),
        }
    }
    let (mut reports, is_incomplete) = match names.is_empty() && !words.is_empty() {
        true => (Vec::new(), false),
        false => session.reports(&names, with_use)?,
    };
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((reports, is_incomplete))
}

pub fn vgs(session: &mut Session<'_>, args: &Args) -> Result {
    let shape = Shape::from(args, Kind::Group)?;
    let (reports, is_incomplete) = named_reports(session, &args.positionals, shape.shows_use())?;
    let reports: Vec<&GroupReport> = reports.iter().collect();
    let places = all_places(session, &reports, shape.needs_places())?;
    let groups = indexed(&reports, &places);
    let text = shape.render(shape.rows(groups.iter().map(rows::of_group)));
    show(session, args, &text);
    end_of_query(args, is_incomplete)
}

/// Labelled devices, and the reports of their groups.
pub struct Devices {
    pub labels: Vec<LabelledPv>,
    pub reports: Vec<GroupReport>,
    /// Something that was named does not exist or could not be read. The message has been printed.
    pub is_incomplete: bool,
    /// A group of these devices could not be opened. The message has been printed.
    pub has_closed_groups: bool,
}

impl Devices {
    /// The report of the label's group.
    pub fn report(&self, label: &LabelledPv) -> Option<&GroupReport> {
        self.reports.iter().find(|report| Some(&report.name) == label.group.as_ref())
    }
}

/// The devices that the words name, by path or by the tag of a physical volume; without words all devices. `with_use`:
/// the reports of their groups include whether the volumes' devices are open.
pub fn named_devices(session: &mut Session<'_>, args: &Args, with_use: bool) -> Result<Devices> {
    let mut labels = session.backend.labels()?;
    labels.sort_by(|a, b| a.path.cmp(&b.path));
    let (tags, paths): (Vec<&String>, Vec<&String>) = args.positionals.iter().partition(|word| word.starts_with('@'));
    let words = paths;
    let paths: Vec<String> = words.iter().map(|path| session.backend.absolute(path)).collect();
    let mut devices =
        Devices { labels: Vec::new(), reports: Vec::new(), is_incomplete: false, has_closed_groups: false };
    for (path, word) in paths.iter().zip(words) {
        if !labels.iter().any(|label| &label.path == path) {
            let message = match session.backend.exists(path) {
                // LVM has this message if there is no physical volume at all.
                false if labels.is_empty() => format!("Failed to find device \"{word}\"."),
                false => format!("Cannot use {word}: device not found"),
                true if args.has(Opt::Fields) => format!("No physical volume label read from {path}."),
                true => format!("Failed to find physical volume \"{path}\"."),
            };
            session.console.complain(message);
            devices.is_incomplete = true;
        }
    }
    let is_all = args.positionals.is_empty();
    let is_named = |label: &LabelledPv| is_all || paths.contains(&label.path);
    labels.retain(|label| !tags.is_empty() || is_named(label));
    let mut names: Vec<String> = labels.iter().filter_map(|label| label.group.clone()).collect();
    if is_all || !tags.is_empty() {
        // Devices whose label cannot be read any more: their servers report them. No server is started for that.
        names.extend(session.backend.served_groups());
    }
    for (name, report) in session.reports_of_all(names, with_use) {
        match report {
            Ok(report) => devices.reports.push(report),
            Err(_) if session.is_gone(&name) => {}
            Err(failure) => {
                session.tell(&failure);
                devices.has_closed_groups = true;
            }
        }
    }
    labels.iter_mut().for_each(|label| leave_group(label, &devices.reports));
    show_missing(&devices.reports, &mut labels, is_all || !tags.is_empty());
    let has_tag = |label: &LabelledPv| {
        let report = devices.reports.iter().find(|report| Some(&report.name) == label.group.as_ref());
        let pv = report.and_then(|report| report.pvs.iter().find(|pv| Some(pv.uuid) == label.uuid));
        pv.is_some_and(|pv| pv.tags.iter().any(|own| tags.iter().any(|tag| tag.strip_prefix('@') == Some(own))))
    };
    labels.retain(|label| is_named(label) || has_tag(label));
    for label in labels {
        match &label.trouble {
            Some(trouble) => {
                session.console.complain(format!("{}: {trouble}", label.path));
                devices.is_incomplete = true;
            }
            None => devices.labels.push(label),
        }
    }
    if is_all && args.has(Opt::All) {
        let others = session.backend.other_devices()?.into_iter();
        let unlabelled = |(path, size)| LabelledPv { path, uuid: None, size, usable: size, group: None, trouble: None };
        devices.labels.extend(others.map(unlabelled));
        devices.labels.sort_by(|a, b| a.path.cmp(&b.path));
    }
    Ok(devices)
}

/// A disk that was removed from its group while it was missing still names the group. It is not a member.
fn leave_group(label: &mut LabelledPv, reports: &[GroupReport]) {
    let report = reports.iter().find(|report| Some(&report.name) == label.group.as_ref());
    if report.is_some_and(|report| report.pvs.iter().all(|pv| Some(pv.uuid) != label.uuid)) {
        label.group = None;
    }
}

/// Missing physical volumes have no valid or readable label. They get LVM's name for missing ones.
fn show_missing(reports: &[GroupReport], labels: &mut Vec<LabelledPv>, is_all: bool) {
    for report in reports {
        let is_labelled = |pv: &PvReport| labels.iter().any(|label| label.uuid == Some(pv.uuid));
        let gone: Vec<&PvReport> =
            report.pvs.iter().filter(|pv| pv.is_missing || (is_all && !is_labelled(pv))).collect();
        for pv in gone {
            labels.retain(|label| label.uuid != Some(pv.uuid));
            labels.push(LabelledPv {
                path: UNKNOWN.to_owned(),
                uuid: Some(pv.uuid),
                size: 0,
                usable: 0,
                group: Some(report.name.clone()),
                trouble: None,
            });
        }
    }
}

pub fn pvs(session: &mut Session<'_>, args: &Args) -> Result {
    let shape = Shape::from(args, kind(args, Kind::Pv, Kind::Piece))?;
    let devices = named_devices(session, args, shape.shows_use())?;
    let reports: Vec<&GroupReport> = devices.reports.iter().collect();
    let places = all_places(session, &reports, shape.needs_places())?;
    let groups = indexed(&reports, &places);
    let labelled = devices.labels.iter().map(|label| {
        let group = groups.iter().find(|group| Some(&group.report.name) == label.group.as_ref());
        rows::of_label(label, group)
    });
    let text = shape.render(shape.rows(labelled));
    show(session, args, &text);
    end_of_query(args, devices.is_incomplete)
}

/// All parts of each group, then the devices that belong to no group.
pub fn full(session: &mut Session<'_>, args: &Args) -> Result {
    const PARTS: [Kind; 5] = [Kind::Group, Kind::Pv, Kind::Volume, Kind::Piece, Kind::Segment];
    let shapes: Vec<(Kind, Shape)> =
        PARTS.into_iter().map(|kind| Ok((kind, Shape::of_part(args, kind)?))).collect::<Result<_>>()?;
    let shows_use = shapes.iter().any(|(_, shape)| shape.shows_use());
    let (reports, is_incomplete) = named_reports(session, &args.positionals, shows_use)?;
    let reports: Vec<&GroupReport> = reports.iter().collect();
    let needs_places = shapes.iter().any(|(_, shape)| shape.needs_places());
    let places = all_places(session, &reports, needs_places)?;
    let groups = indexed(&reports, &places);
    let mut documents = Vec::new();
    for group in &groups {
        let parts = shapes.iter().map(|(kind, shape)| shape.render_part(shape.rows(rows::of_kind(*kind, group))));
        documents.push(parts.collect());
    }
    if args.positionals.is_empty() {
        let labels = session.backend.labels()?;
        let free: Vec<&LabelledPv> =
            labels.iter().filter(|label| label.group.is_none() && label.trouble.is_none()).collect();
        if !free.is_empty() {
            let of_devices = shapes.iter().filter(|(kind, _)| matches!(kind, Kind::Pv | Kind::Piece));
            let parts = of_devices
                .map(|(_, shape)| shape.render_part(shape.rows(free.iter().map(|label| rows::of_label(label, None)))));
            documents.push(parts.collect());
        }
    }
    if let Some((_, shape)) = shapes.first() {
        let text = shape.join(documents);
        show(session, args, &text);
    }
    end_of_query(args, is_incomplete)
}
