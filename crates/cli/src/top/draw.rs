//! Draws frames of the model. Problems come first.

use super::face::{Tone, shorten, width, wrap};
use super::model::{Group, Model, Shown};
use super::table::{Form, Table};
use super::view::View;
use super::views;
use crate::commands::iostat::layout;
use crate::commands::status;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::Modifier;
use ratatui_core::text::{Line, Span};
use rowen_control::status::Problem;
use rowen_control::time;
use rowen_engine::units::BLOCK_SIZE;
use std::ops::Range;

/// With fewer lines there are only the title and rows.
const LOW: usize = 8;

const HELP: &[(&str, &str)] = &[
    ("1-5, Tab", "groups, volumes, snapshots, disks, work"),
    ("arrows, j, k", "choose a row; PgUp and PgDn go by pages, g and G to the ends"),
    ("Enter", "show the group of the row alone; Esc shows all groups again"),
    ("s, r", "sort by the next column; the other way round"),
    ("space", "pause, and continue"),
    ("d", "the next interval: 1, 2, 5, 10, 30 or 60 seconds"),
    ("Ctrl-L, Ctrl-Z", "draw all again; leave for the shell (fg comes back)"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("! and *", "wrong; needs attention. These rows come first in every order"),
    ("REQ/S, READ/S", "requests and bytes a second, since the previous sample"),
    ("P99, MAX", "99 of 100 requests took no longer; none took longer"),
    ("UNDER WAY", "requests that are not answered yet"),
    ("FREED", "what comes back if this snapshot alone is removed"),
    ("TIME LEFT", "at the rate of the last samples"),
    ("", ""),
    ("More", "rowen status, rowen iostat -l, rowen tree, man rowen-top"),
];

/// The parts of the screen.
struct Parts {
    /// Everything above the rows.
    top: Vec<Line<'static>>,
    /// Lines for the table, headings included.
    rows: usize,
    has_foot: bool,
}

/// Draws the whole frame.
pub fn frame(model: &Model, buffer: &mut Buffer) {
    buffer.reset();
    let area = *buffer.area();
    let (across, down) = (usize::from(area.width), usize::from(area.height));
    let table = views::table(model, model.view);
    let parts = parts(model, (across, down));
    let mut lines = parts.top;
    if model.shows_help {
        lines.extend(help(model, across, parts.rows));
    } else {
        let body = rows(model, &table, across, parts.rows);
        let room = parts.rows - body.len();
        lines.extend(body);
        if model.view == View::Groups {
            lines.extend(below(model, across, room));
        }
    }
    if parts.has_foot {
        lines.resize(down - 1, Line::default());
        lines.push(foot(model, &table, across, parts.rows));
    }
    for (y, line) in (area.y..area.bottom()).zip(&lines) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// What the frame shows of the view, for keys that depend on it.
pub fn shown(model: &Model) -> Shown {
    let table = views::table(model, model.view);
    let (across, down) = (usize::from(model.size.0), usize::from(model.size.1));
    let fitted = table.fit(across, model.chosen().order);
    let is_number = |column: usize| table.columns[column].form == Form::Number;
    Shown {
        columns: fitted.iter().map(|fitted| (fitted.column, is_number(fitted.column))).collect(),
        page: parts(model, (across, down)).rows.saturating_sub(1).max(1),
        ids: table.rows.into_iter().map(|row| row.id).collect(),
    }
}

/// All views in sequence, as text.
pub fn once(model: &Model, across: usize) -> String {
    let (left, right) = title_words(model);
    let mut lines = vec![Line::raw(left), Line::raw(right)];
    let problems = problems(model, across, usize::MAX);
    if !problems.is_empty() {
        lines.push(Line::default());
        lines.extend(problems);
    }
    // Long text comes last.
    for view in [View::Groups, View::Work, View::Disks, View::Volumes, View::Snapshots] {
        let table = views::table(model, view);
        let order = model.chosen[view as usize].order;
        lines.push(Line::default());
        lines.push(Line::raw(view.title()));
        if table.rows.is_empty() {
            lines.push(Line::raw(format!("  {}", table.empty)));
        } else {
            lines.extend(table.lines((across, model.face), order, 0..table.rows.len(), None));
        }
    }
    lines.iter().map(|line| format!("{}\n", text_of(line).trim_end())).collect()
}

fn text_of(line: &Line<'_>) -> String {
    line.spans.iter().map(|span| span.content.as_ref()).collect()
}

fn parts(model: &Model, (across, down): (usize, usize)) -> Parts {
    let mut top = vec![title(model, across)];
    if down >= LOW {
        let part = if model.opened.is_some() { 2 } else { 3 };
        top.extend(problems(model, across, down / part));
        top.push(tabs(model, across));
        if let Some(group) = model.opened_group() {
            // The table gets at least a third.
            top.extend(details(model, group, across).into_iter().take((down * 2 / 3).saturating_sub(top.len())));
        }
    }
    top.truncate(down);
    let has_foot = down >= LOW;
    Parts { rows: down - top.len() - usize::from(has_foot), top, has_foot }
}

/// The program and the state; the time and the interval of samples.
fn title_words(model: &Model) -> (String, String) {
    let all = model.groups.len();
    let unhealthy = model.groups.iter().filter(|group| !group.status.healthy).count() + model.missing().count();
    let mut verdict = match (model.time, all, unhealthy) {
        (None, ..) => "reading the groups".to_owned(),
        (_, 0, 0) => "no groups".to_owned(),
        (_, 1, 0) => "1 group, healthy".to_owned(),
        (_, all, 0) => format!("{all} groups, all healthy"),
        (_, all, 1) => format!("1 of {} needs attention", groups(all.max(1))),
        (_, all, unhealthy) => format!("{unhealthy} of {} need attention", groups(all.max(unhealthy))),
    };
    if !model.problems.is_empty() {
        verdict += ", other problems";
    }
    let time = model.time.map_or_else(String::new, time::long);
    (format!("rowen top  {}  {verdict}", model.host), time)
}

fn groups(number: usize) -> String {
    if number == 1 { "1 group".to_owned() } else { format!("{number} groups") }
}

fn is_well(model: &Model) -> bool {
    let is_healthy = model.groups.iter().all(|group| group.status.healthy);
    is_healthy && model.problems.is_empty() && model.missing().next().is_none()
}

fn title(model: &Model, across: usize) -> Line<'static> {
    let (left, time) = title_words(model);
    let clock = time.get(11..19).unwrap_or_default();
    let right = match (model.is_paused, model.waits) {
        (true, _) => format!("PAUSED at {clock} "),
        (false, 3..) => format!("no answer for {} s ", model.waits),
        (false, _) => format!("{clock}  every {} s ", model.interval()),
    };
    let left = format!(" {}", shorten(&left, across.saturating_sub(2), model.face, false));
    let blanks = across.checked_sub(width(&left) + width(&right));
    let text = match blanks {
        Some(blanks) => left + &" ".repeat(blanks) + &right,
        None => format!("{left:across$}"),
    };
    let tone = if is_well(model) { Tone::Strong } else { Tone::Bad };
    Line::styled(text, model.face.style(tone).add_modifier(Modifier::REVERSED))
}

/// Problems and what to do about them, in at most this many lines.
fn problems(model: &Model, across: usize, most: usize) -> Vec<Line<'static>> {
    let mut all: Vec<(Tone, Vec<Line<'static>>)> = Vec::new();
    for group in model.shown() {
        let tone = if views::is_bad(group) { Tone::Bad } else { Tone::Warn };
        all.extend(
            problems_of(group).into_iter().map(|(what, next)| (tone, problem(model, &what, next, tone, across))),
        );
    }
    for name in model.missing() {
        let next = Some("rowen vgs lists all groups; rowen pvs lists all disks");
        all.push((
            Tone::Bad,
            problem(model, &format!("{name}: there is no such volume group"), next, Tone::Bad, across),
        ));
    }
    for Problem { what, next } in &model.problems {
        all.push((Tone::Warn, problem(model, what, Some(next), Tone::Warn, across)));
    }
    all.sort_by_key(|(tone, _)| std::cmp::Reverse(*tone));
    let mut lines: Vec<Line<'static>> = Vec::new();
    let count = all.len();
    for (number, (_, of_one)) in all.into_iter().enumerate() {
        let is_last = number + 1 == count;
        if lines.len() + of_one.len() + usize::from(!is_last) > most {
            // At least the beginning of the first one is shown.
            let begun = if number == 0 { most.saturating_sub(usize::from(!is_last)) } else { 0 };
            lines.extend(of_one.into_iter().take(begun));
            let rest = count - number - usize::from(begun > 0);
            if rest == 0 {
                break;
            }
            let more = if rest == 1 { "1 more problem".to_owned() } else { format!("{rest} more problems") };
            lines.truncate(most.saturating_sub(1));
            lines.push(Line::styled(format!("  {more}: rowen status"), model.face.style(Tone::Warn)));
            break;
        }
        lines.extend(of_one);
    }
    lines
}

/// The problems of a group, with its state if no problem implies it.
fn problems_of(group: &Group) -> Vec<(String, Option<&str>)> {
    let status = &group.status;
    let name = &status.name;
    let mut all: Vec<(String, Option<&str>)> = Vec::new();
    let is_said = status.problems.iter().any(|problem| problem.what == status.sentence);
    if views::is_bad(group) && !is_said {
        all.push((format!("{name} {}: {}", status.state.word(), status.sentence), None));
    }
    for problem in &status.problems {
        let what = match problem.what == status.sentence {
            true => format!("{name} {}: {}", status.state.word(), problem.what),
            false => format!("{name}: {}", problem.what),
        };
        all.push((what, Some(&problem.next)));
    }
    all
}

fn problem(model: &Model, what: &str, next: Option<&str>, tone: Tone, across: usize) -> Vec<Line<'static>> {
    let clean = |text: &str| -> String { text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect() };
    let mark = if tone == Tone::Bad { "! " } else { "* " };
    let what = wrap(&format!("{mark}{}", clean(what)), across, 2);
    let style = model.face.style(tone);
    let mut lines: Vec<Line<'static>> = what.into_iter().map(|line| Line::styled(line, style)).collect();
    let next = next.map(|next| wrap(&format!("  next: {}", clean(next)), across, 8));
    lines.extend(next.into_iter().flatten().map(Line::raw));
    lines
}

fn tabs(model: &Model, across: usize) -> Line<'static> {
    let name = |view: View| match view {
        View::Work => match views::works(model) {
            0 => view.title().to_owned(),
            works => format!("{} ({works})", view.title()),
        },
        view => view.title().to_owned(),
    };
    let whose = model.opened.as_ref().map(|group| format!("of {group}"));
    let mut spans = Vec::new();
    let mut used = 0;
    for view in View::ALL {
        let text = format!(" {} {} ", view as usize + 1, name(view));
        used += width(&text) + 1;
        let is_at = view == model.view;
        let style = model.face.style(if is_at { Tone::Strong } else { Tone::Plain });
        spans.push(Span::styled(text, if is_at { style.add_modifier(Modifier::REVERSED) } else { style }));
        spans.push(Span::raw(" "));
    }
    if used > across {
        let text = format!(" {} {} ", model.view as usize + 1, name(model.view));
        used = width(&text) + 1;
        let style = model.face.style(Tone::Strong).add_modifier(Modifier::REVERSED);
        spans = vec![Span::styled(text, style), Span::raw(" ")];
    }
    if let Some(whose) = whose {
        spans.push(Span::styled(
            shorten(&whose, across.saturating_sub(used), model.face, false),
            model.face.style(Tone::Strong),
        ));
    }
    Line::from(spans)
}

/// Details of a group that is shown alone.
fn details(model: &Model, group: &Group, across: usize) -> Vec<Line<'static>> {
    let status = &group.status;
    let mut lines = Vec::new();
    let mut say = |text: String, tone: Tone| {
        let style = model.face.style(tone);
        lines.extend(wrap(&format!("  {text}"), across, 4).into_iter().map(|line| Line::styled(line, style)));
    };
    if !views::is_bad(group) {
        say(format!("{}: {}", status.state.word(), status.sentence), Tone::Plain);
    }
    if let Some(report) = &group.report {
        let size = |blocks: u64| layout::size(blocks.saturating_mul(BLOCK_SIZE));
        let share = |used: u64, whole: u64| if whole == 0 { 0.0 } else { used as f64 / whole as f64 };
        let bar = |name: &str, used: u64, whole: u64| {
            let share = share(used, whole);
            format!("{} {:5.1}% of {name}", model.face.bar(share, 20), share * 100.0)
        };
        let used = report.blocks.saturating_sub(report.available_blocks);
        let (free, whole) = (size(report.available_blocks), size(report.blocks));
        let metadata = size(report.metadata_blocks);
        say(
            format!("{}: {free} free of {whole}, {metadata} metadata", bar("the group", used, report.blocks)),
            Tone::Plain,
        );
        for pool in report.pools.iter().take(4) {
            let text = bar(&format!("thin pool {}", pool.name), pool.used_blocks, pool.blocks);
            say(format!("{text}: {} of {}", size(pool.used_blocks), size(pool.blocks)), Tone::Plain);
        }
    }
    if let Some(runs) = status::runs(status) {
        say(runs, Tone::Dim);
    }
    lines
}

/// The rows around the selected one.
fn rows(model: &Model, table: &Table, across: usize, room: usize) -> Vec<Line<'static>> {
    if room == 0 {
        return Vec::new();
    }
    let chosen = model.chosen();
    let at = chosen.row.as_ref().and_then(|row| table.rows.iter().position(|known| known.id == *row));
    table.lines((across, model.face), chosen.order, page(at, table.rows.len(), room - 1), at)
}

/// Below the groups, if there is room: background work, the busiest volumes, the disks.
fn below(model: &Model, across: usize, mut room: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let disks = views::table(model, View::Disks);
    for view in [View::Work, View::Volumes, View::Disks] {
        let table = views::table(model, view);
        // The disks get at least some lines.
        let kept = if view == View::Disks { 0 } else { (disks.rows.len() + 2).min(room / 2) };
        let most = table.rows.len().min(room.saturating_sub(2 + kept));
        if most == 0 {
            continue;
        }
        lines.push(Line::default());
        lines.extend(table.lines((across, model.face), model.chosen[view as usize].order, 0..most, None));
        room -= 2 + most;
    }
    lines
}

/// The visible rows. The selected one is in the middle if possible.
fn page(at: Option<usize>, rows: usize, room: usize) -> Range<usize> {
    let first = at.unwrap_or(0).saturating_sub(room / 2).min(rows.saturating_sub(room));
    first..(first + room).min(rows)
}

fn help(model: &Model, across: usize, room: usize) -> Vec<Line<'static>> {
    let line = |(key, what): &(&str, &str)| {
        let key = Span::styled(format!("  {key:<16}"), model.face.style(Tone::Strong));
        Line::from(vec![key, Span::raw((*what).to_owned())])
    };
    let mut lines: Vec<Line<'static>> = HELP.iter().map(line).collect();
    if lines.len() > room {
        lines.retain(|line| line.width() > 18);
    }
    lines.into_iter().filter(|_| across > 0).take(room).collect()
}

fn foot(model: &Model, table: &Table, across: usize, room: usize) -> Line<'static> {
    let rows = table.rows.len();
    let shown = room.saturating_sub(1);
    let at = model.chosen().row.as_ref().and_then(|row| table.rows.iter().position(|known| known.id == *row));
    let place = match page(at, rows, shown) {
        _ if rows <= shown || model.shows_help => String::new(),
        page => format!("{}-{} of {rows} ", page.start + 1, page.end),
    };
    let keys: &[(&str, &str)] = match (model.shows_help, model.opened.is_some()) {
        (true, _) => &[("any key", "back"), ("q", "quit")],
        (false, true) => &[("q", "quit"), ("?", "help"), ("Esc", "all groups"), ("Tab", "view")],
        (false, false) => &[("q", "quit"), ("?", "help"), ("Tab", "view"), ("Enter", "open")],
    };
    let pause = if model.is_paused { "go on" } else { "pause" };
    let others = [("s", "sort"), ("r", "reverse"), ("space", pause), ("d", "interval"), (model.face.arrows(), "row")];
    let others = others.iter().filter(|_| !model.shows_help);
    let mut spans = vec![Span::raw(" ")];
    let mut used = 1;
    for (key, what) in keys.iter().chain(others) {
        let wide = width(key) + 1 + width(what) + 2;
        if used + wide + width(&place) > across {
            continue;
        }
        used += wide;
        spans.push(Span::styled((*key).to_owned(), model.face.style(Tone::Strong)));
        spans.push(Span::styled(format!(" {what}  "), model.face.style(Tone::Dim)));
    }
    if let Some(blanks) = across.checked_sub(used + width(&place)) {
        spans.push(Span::raw(" ".repeat(blanks)));
        spans.push(Span::styled(place, model.face.style(Tone::Strong)));
    }
    Line::from(spans)
}
