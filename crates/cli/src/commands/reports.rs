//! pvs, vgs and lvs: which rows there are. What a row shows is the report module's.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::{Kind, Row, Shape};
use crate::session::{Session, no_group};
use rowen_control::paths::Target;
use rowen_control::wire::GroupReport;

pub fn lvs(session: &mut Session<'_>, args: &Args) -> Result {
    let shape = Shape::from(args, Kind::Volume)?;
    let mut selection = session.select(&args.positionals)?;
    selection.groups.sort_by(|a, b| a.report.name.cmp(&b.report.name));
    let mut rows = Vec::new();
    for selected in &selection.groups {
        let volumes = selected.volumes.iter().filter_map(|name| selected.report.volume(name));
        rows.extend(volumes.map(|volume| Row {
            group: Some(&selected.report),
            volume: Some(volume),
            ..Row::default()
        }));
    }
    session.console.raw_out(&shape.render(rows));
    selection.end()
}

pub fn vgs(session: &mut Session<'_>, args: &Args) -> Result {
    let shape = Shape::from(args, Kind::Group)?;
    let mut names = Vec::new();
    let mut is_incomplete = false;
    for word in &args.positionals {
        match Target::parse(word) {
            Some(Target::Group(name)) => names.push(name),
            Some(Target::Tag(tag)) => names.extend(session.tagged_groups(&tag)?),
            _ => {
                session.console.complain(no_group(word));
                is_incomplete = true;
            }
        }
    }
    let (mut reports, some_failed) = match names.is_empty() && !args.positionals.is_empty() {
        true => (Vec::new(), false),
        false => session.reports(&names)?,
    };
    is_incomplete |= some_failed;
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    let mut rows = Vec::new();
    for report in &reports {
        let whole = Row { group: Some(report), ..Row::default() };
        if shape.shows(Kind::Volume) && !report.volumes.is_empty() {
            rows.extend(report.volumes.iter().map(|volume| Row { volume: Some(volume), ..whole }));
        } else if shape.shows(Kind::Pv) {
            rows.extend(report.pvs.iter().map(|pv| Row { pv: Some(pv), ..whole }));
        } else {
            rows.push(whole);
        }
    }
    session.console.raw_out(&shape.render(rows));
    if is_incomplete { Err(Failure::Told) } else { Ok(()) }
}

pub fn pvs(session: &mut Session<'_>, args: &Args) -> Result {
    let shape = Shape::from(args, Kind::Pv)?;
    let labels = session.backend.labels()?;
    let wanted: Vec<String> = args.positionals.iter().map(|path| session.backend.absolute(path)).collect();
    let is_wanted = |path: &String| wanted.is_empty() || wanted.contains(path);

    let mut is_incomplete = false;
    let mut reports: Vec<GroupReport> = Vec::new();
    let mut failed: Vec<&str> = Vec::new();
    for group in labels.iter().filter(|label| is_wanted(&label.path)).filter_map(|label| label.group.as_deref()) {
        if reports.iter().any(|report| report.name == group) || failed.contains(&group) {
            continue;
        }
        match session.report(group) {
            Ok(report) => reports.push(report),
            Err(failure) => {
                session.tell(&failure);
                is_incomplete = true;
                failed.push(group);
            }
        }
    }
    let mut rows = Vec::new();
    for label in labels.iter().filter(|label| is_wanted(&label.path)) {
        if let Some(trouble) = &label.trouble {
            session.console.complain(format!("{}: {trouble}", label.path));
            is_incomplete = true;
            continue;
        }
        let report = reports.iter().find(|report| Some(&report.name) == label.group.as_ref());
        let pv = report.and_then(|report| report.pvs.iter().find(|pv| Some(pv.uuid) == label.uuid));
        rows.push(Row { group: report, pv, label: Some(label), volume: None });
    }
    for path in &wanted {
        if !labels.iter().any(|label| &label.path == path) {
            let told = match session.backend.exists(path) {
                false => format!("Failed to find device \"{path}\"."),
                true if args.has(Opt::Fields) => format!("No physical volume label read from {path}."),
                true => format!("Failed to find physical volume \"{path}\"."),
            };
            session.console.complain(told);
            is_incomplete = true;
        }
    }
    rows.sort_by(|a, b| a.label.map(|l| &l.path).cmp(&b.label.map(|l| &l.path)));
    session.console.raw_out(&shape.render(rows));
    if is_incomplete { Err(Failure::Told) } else { Ok(()) }
}
