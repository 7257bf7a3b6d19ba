//! A group's part of the page.

use crate::facts::{BusyVolume, Facts, Group, Latency, Pv, Volume, Work};
use crate::html::Html;
use crate::plot;
use crate::words::{duration, percent, rate, size, time, times};

/// More volumes of a group are not on the page: a browser has to draw them.
const VOLUMES: usize = 300;
/// More busy volumes are not on the page.
const BUSY: usize = 20;
/// More are not shown at once where there are other groups.
const OPEN: usize = 50;
/// Deeper branches are indented as far as this one.
const DEEPEST: u64 = 12;
/// Volumes that are older than this, in seconds, are said to be.
const OLD: f64 = 60.0;

/// Whether a group is well, as a character with a colour.
pub fn sign(html: &mut Html, group: &Group) {
    html.raw(match (group.healthy, group.state.as_str()) {
        (false, _) => "<span class=\"sign bad\" title=\"something is wrong\">!</span>",
        (true, "not running") => "<span class=\"sign idle\" title=\"not in use\">–</span>",
        (true, _) => "<span class=\"sign ok\" title=\"healthy\">✓</span>",
    });
}

pub fn section(html: &mut Html, at: usize, group: &Group, facts: &Facts) {
    html.element("<section class=group aria-labelledby=g", at, ">\n<h2 id=g").element("", at, ">");
    sign(html, group);
    html.raw(" ").text(&group.name).element(" <span class=state>", &group.state, "</span></h2>\n");
    html.element("<p>", capital(&group.sentence), ".");
    if let Some(runs) = &group.runs {
        html.element(" <span class=more>", capital(runs), ".</span>");
    }
    html.raw("</p>\n");
    space(html, at, group);
    plot::latencies(html, at, group, facts);
    busy(html, group);
    work(html, &group.work);
    volumes(html, at, group, facts);
    disks(html, &group.physical_volumes);
    events(html, group);
    html.raw("</section>\n");
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// A bar of parts of a whole, and the same in words. Its title is the words, too.
fn bar(html: &mut Html, id: &str, name: &str, words: &str, parts: &[(&'static str, f64)]) {
    html.element("<div class=space><p id=\"", id, "\">");
    if !name.is_empty() {
        html.element("<b>", name, "</b>: ");
    }
    html.text(words).element("</p>\n<svg class=bar role=img aria-labelledby=\"", id, "\" viewBox=\"0 0 100 1\" ");
    html.raw("preserveAspectRatio=none>").element("<title>", words, "</title>");
    let mut begin = 0.0;
    for (class, share) in parts {
        let width = (share * 100.0).clamp(0.0, 100.0 - begin);
        html.raw("<rect class=\"").raw(class).element("\" x=\"", format_args!("{begin:.2}"), "\" y=0 ");
        html.element("width=\"", format_args!("{width:.2}"), "\" height=1 />");
        begin += width;
    }
    html.raw("</svg></div>\n");
}

fn space(html: &mut Html, at: usize, group: &Group) {
    let Some(space) = &group.space else { return };
    let (all, free) = (space.size_bytes as f64, space.free_bytes as f64);
    let used = (all - free).max(0.0);
    let metadata = (space.metadata_bytes as f64).min(used);
    html.raw("<h3>Space</h3>\n");
    let words = format!(
        "{} of {} in use ({}), {} of it metadata (at the left); {} free",
        size(used),
        size(all),
        percent(used, all),
        size(metadata),
        size(free)
    );
    let share = |part: f64| if all > 0.0 { part / all } else { 0.0 };
    bar(html, &format!("s{at}"), "", &words, &[("metadata", share(metadata)), ("used", share(used - metadata))]);
    for (number, pool) in group.pools.iter().enumerate() {
        let (all, used) = (pool.size_bytes as f64, pool.used_bytes as f64);
        let words = format!("{} of {} in use ({})", size(used), size(all), percent(used, all));
        let share = if all > 0.0 { used / all } else { 0.0 };
        bar(html, &format!("s{at}-{number}"), &format!("Thin pool {}", pool.name), &words, &[("used", share)]);
    }
    if let Some(load) = &group.load {
        html.element("<p class=load>Now: ", rate(load.requests), " requests, ");
        html.element("", size(load.read_bytes.round()), " read and ");
        html.element("", size(load.written_bytes.round()), " written in a second.</p>\n");
    }
}

/// The volumes with most requests, and how long 99 of 100 requests took at most.
fn busy(html: &mut Html, group: &Group) {
    if group.busy_volumes.is_empty() {
        return;
    }
    html.raw("<h3>Busy volumes</h3>\n<table><thead><tr><th scope=col>Volume, in the last minute</th>");
    html.raw("<th scope=col class=n>Requests/s</th>");
    for kind in ["Read", "Write", "Flush"] {
        html.element(
            "<th scope=col class=n><abbr title=\"99 of 100 were answered within this time\">",
            kind,
            "</abbr></th>",
        );
    }
    html.raw("</tr></thead><tbody>\n");
    for volume in group.busy_volumes.iter().take(BUSY) {
        let BusyVolume { name, seconds, read, write, flush } = volume;
        let requests: f64 = [read, write, flush].into_iter().flatten().map(|kind| kind.requests as f64).sum();
        let a_second = if *seconds > 0.0 { requests / seconds } else { 0.0 };
        html.element("<tr><th scope=row>", name, "</th>").element("<td class=n>", rate(a_second), "</td>");
        for kind in [read, write, flush] {
            let sound = |kind: &Latency| (kind.requests > 0 && kind.p99.is_finite()).then(|| time(kind.p99));
            html.element("<td class=n>", known(kind.as_ref().and_then(sound)), "</td>");
        }
        html.raw("</tr>\n");
    }
    html.raw("</tbody></table>\n");
    let left_out = group.busy_volumes.len().saturating_sub(BUSY);
    if left_out > 0 {
        html.element("<p class=next>And ", times(left_out, "more", "more"), ": <code>rowen iostat -l ");
        html.element("", &group.name, "</code></p>\n");
    }
}

fn work(html: &mut Html, all: &[Work]) {
    if all.is_empty() {
        return;
    }
    html.raw("<h3>Background work</h3>\n<table><thead><tr><th scope=col>Work</th><th scope=col class=n>Done</th>");
    html.raw("<th scope=col class=n>Time left</th><th scope=col class=wide>Why</th></tr></thead><tbody>\n");
    for Work { what, why, done, seconds_left, is_stuck } in all {
        html.raw("<tr><th scope=row>").raw(if *is_stuck { "<span class=\"sign bad\">!</span> " } else { "" });
        html.text(what).element("<small class=narrow>", why, "</small></th>");
        html.element("<td class=n>", known(done.map(|done| percent(done, 1.0))), "</td>");
        html.element("<td class=n>", known(seconds_left.map(|seconds| duration(seconds as f64))), "</td>");
        html.element("<td class=wide>", why, "</td></tr>\n");
    }
    html.raw("</tbody></table>\n");
}

fn known(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| "–".to_owned())
}

fn volumes(html: &mut Html, at: usize, group: &Group, facts: &Facts) {
    if group.volumes.is_empty() {
        return;
    }
    let left_out = usize::try_from(group.volumes_left_out).unwrap_or(usize::MAX);
    let count = group.volumes.len().saturating_add(left_out);
    html.raw("<h3>Volumes and snapshots</h3>\n");
    let age = group.volumes_uptime.map_or(0.0, |told| facts.uptime - told);
    if age >= OLD {
        html.element("<p class=next>As the server told them ", duration(age), " before.</p>\n");
    }
    // Without a script, too, who wants to see them all does.
    let is_open = count <= OPEN || facts.groups.len() == 1;
    html.raw(if is_open { "<details open id=v" } else { "<details id=v" })
        .element("", at, "><summary>")
        .text(times(count, "volume", "volumes"))
        .raw("</summary>\n");
    html.raw("<table class=tree><thead><tr><th scope=col>Name</th><th scope=col class=n>Size</th>");
    html.raw(
        "<th scope=col class=\"n wide\"><abbr title=\"what it maps, shared space included\">Referenced</abbr></th>",
    );
    html.raw("<th scope=col class=n><abbr title=\"what was written to it since its last snapshot\">Own</abbr></th>");
    html.raw("<th scope=col class=n><abbr title=\"what comes back if this one alone is removed\">Freed</abbr></th>");
    html.raw("<th scope=col class=wide>Created</th><th scope=col class=wide>State</th></tr></thead><tbody>\n");
    group.volumes.iter().take(VOLUMES).for_each(|one| volume(html, one));
    html.raw("</tbody></table>\n");
    let left_out = count - group.volumes.len().min(VOLUMES);
    if left_out > 0 {
        html.element("<p class=next>And ", left_out, " more: <code>rowen tree ").element(
            "",
            &group.name,
            "</code></p>\n",
        );
    }
    html.raw("</details>\n");
}

fn volume(html: &mut Html, volume: &Volume) {
    let mut state = volume.state.clone();
    state.extend(volume.tags.iter().map(|tag| format!("@{tag}")));
    let state = state.join(", ");
    html.element("<tr><th scope=row class=\"d", volume.depth.min(DEEPEST), "\">").raw(match volume.depth {
        0 => "",
        _ => "<span class=branch aria-hidden=true>└ </span>",
    });
    html.text(&volume.name);
    if let (Some(parent), 1..) = (&volume.parent, volume.depth) {
        html.element("<span class=unseen> of ", parent, "</span>");
    }
    let narrow = [state.as_str(), &volume.created].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
    html.element("<small class=narrow>", narrow.join("; "), "</small></th>");
    html.element("<td class=n>", size(volume.size_bytes as f64), "</td>");
    html.element("<td class=\"n wide\">", size(volume.referenced_bytes as f64), "</td>");
    html.element("<td class=n>", size(volume.own_bytes as f64), "</td>");
    html.element("<td class=n>", size(volume.freed_if_removed_bytes as f64), "</td>");
    html.element("<td class=wide>", &volume.created, "</td><td class=wide>").text(&state).raw("</td></tr>\n");
}

fn disks(html: &mut Html, all: &[Pv]) {
    if all.is_empty() {
        return;
    }
    html.raw("<h3>Disks</h3>\n<table><thead><tr><th scope=col>Physical volume</th><th scope=col>State</th>");
    html.raw("<th scope=col class=n>Size</th><th scope=col class=n>Failed requests</th></tr></thead><tbody>\n");
    for pv in all {
        let sign = if pv.state == "ok" { "" } else { "<span class=\"sign bad\">!</span> " };
        html.element("<tr><th scope=row>", &pv.path, "</th><td>").raw(sign).text(&pv.state).raw("</td>");
        html.element("<td class=n>", known(pv.size_bytes.map(|bytes| size(bytes as f64))), "</td>");
        html.element("<td class=n>", known(pv.failed.map(|count| count.to_string())), "</td></tr>\n");
    }
    html.raw("</tbody></table>\n");
}

fn events(html: &mut Html, group: &Group) {
    html.raw("<h3>Events</h3>\n");
    if group.events.is_empty() {
        html.raw("<p>None is known.</p>\n");
        return;
    }
    html.raw("<table class=events><thead><tr><th scope=col>When</th><th scope=col>What</th></tr></thead><tbody>\n");
    for event in &group.events {
        html.element("<tr><td><time>", &event.at, "</time></td><td>").element("<b>", &event.event, "</b> ");
        html.text(&event.message).raw("</td></tr>\n");
    }
    html.element("</tbody></table>\n<p class=next>All: <code>rowen events ", &group.name, "</code></p>\n");
}
