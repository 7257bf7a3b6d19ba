//! How long requests took in the last hour: for each kind a plot, from the median to the 99th percentile, with a logarithmic
//! scale. Its numbers are HTML beside the picture, so that they are readable at any width.

use crate::facts::{Facts, Group, HOUR, Latency, POINT, Point};
use crate::html::Html;
use crate::words::{duration, rate, time};

/// The picture's own units.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;
/// No request is faster than this power of ten, in microseconds, and few are slower than that.
const LEAST: i32 = 0;
const MOST: i32 = 8;
/// Points that are further apart than this have nothing between them.
const GAP: f64 = 1.5;

type Of = fn(&Point) -> Option<&Latency>;
/// The kinds of requests that are shown.
const KINDS: [(&str, Of); 3] = [
    ("Reads", |point| point.read.as_ref()),
    ("Writes", |point| point.write.as_ref()),
    ("Flushes", |point| point.flush.as_ref()),
];

/// A point of one kind: where it begins and ends, in seconds before now.
struct Seen<'a> {
    from: f64,
    to: f64,
    seconds: f64,
    latency: &'a Latency,
}

pub fn latencies(html: &mut Html, at: usize, group: &Group, facts: &Facts) {
    html.raw("<h3>Latency, last hour</h3>\n");
    let mut is_quiet = true;
    html.raw("<div class=plots>\n");
    for (number, (name, of)) in KINDS.into_iter().enumerate() {
        let seen = seen(group, facts.uptime, of);
        if !seen.is_empty() {
            is_quiet = false;
            plot(html, &format!("l{at}-{number}"), name, &seen);
        }
    }
    html.raw("</div>\n");
    if is_quiet {
        html.raw("<p>No requests to its volumes are known of.</p>\n");
    } else {
        html.raw("<p class=legend><span class=line></span> 99 of 100 requests took no longer, ");
        html.raw("<span class=line-median></span> half of them. Each point is a minute.</p>\n");
    }
}

fn seen(group: &Group, now: f64, of: Of) -> Vec<Seen<'_>> {
    let one = |point| {
        let latency: &Latency = of(point)?;
        let to = now - point.uptime;
        let is_sound =
            latency.requests > 0 && latency.median.is_finite() && latency.p99.is_finite() && point.seconds > 0.0;
        let is_now = (0.0..=HOUR).contains(&to);
        (is_sound && is_now).then(|| Seen { from: (to + point.seconds).min(HOUR), to, seconds: point.seconds, latency })
    };
    group.latency.iter().filter_map(one).collect()
}

/// The powers of ten between which all of it lies.
fn decades(seen: &[Seen<'_>]) -> (i32, i32) {
    let power = |micros: f64| micros.max(1.0).log10();
    let least = seen.iter().map(|one| power(one.latency.median)).fold(f64::INFINITY, f64::min);
    let most = seen.iter().map(|one| power(one.latency.p99.max(one.latency.median))).fold(0.0, f64::max);
    let low = (least.floor() as i32).clamp(LEAST, MOST - 1);
    (low, (most.ceil() as i32).clamp(low + 1, MOST))
}

fn words(one: &Seen<'_>) -> String {
    format!(
        "{} a second, half of them within {}, 99 of 100 within {}",
        rate(one.latency.requests as f64 / one.seconds),
        time(one.latency.median),
        time(one.latency.p99)
    )
}

fn plot(html: &mut Html, id: &str, name: &'static str, seen: &[Seen<'_>]) {
    let (low, high) = decades(seen);
    let slowest = seen.iter().map(|one| one.latency.p99).fold(0.0, f64::max);
    let summary = seen.last().map_or_else(String::new, |last| {
        let when =
            if last.to < 2.0 * POINT { "in the last minute".to_owned() } else { format!("{} ago", duration(last.to)) };
        format!("{when} {}; slowest minute: {}", words(last), time(slowest))
    });
    html.element("<figure>\n<figcaption id=\"", id, "\"><b>")
        .element("", name, "</b> ")
        .text(&summary)
        .raw(".</figcaption>\n");
    html.raw("<div class=plot><div class=y aria-hidden=true>");
    for power in (low..=high).rev() {
        html.element("<span>", time(10_f64.powi(power)), "</span>");
    }
    html.element(
        "</div>\n<svg role=img aria-labelledby=\"",
        id,
        "\" viewBox=\"0 0 600 100\" preserveAspectRatio=none>\n",
    );
    html.element("<title>", format_args!("{name} {summary}"), "</title>\n");
    for power in low..=high {
        let y = y(10_f64.powi(power), low, high);
        html.element("<path class=grid d=\"M0 ", format_args!("{y:.1}H{WIDTH}"), "\" />\n");
    }
    curves(html, seen, low, high);
    for one in seen {
        let words = format!("{} ago: {}", duration(one.to), words(one));
        let (left, right) = (x(one.from), x(one.to));
        html.element("<rect class=point x=\"", format_args!("{left:.1}"), "\" y=0 ");
        html.element("width=\"", format_args!("{:.1}", right - left), "\" height=100><title>")
            .text(words)
            .raw("</title></rect>\n");
    }
    html.raw("</svg>\n<div class=x aria-hidden=true><span>60 min ago</span><span>30 min</span><span>now</span></div></div>\n</figure>\n");
}

fn x(before: f64) -> f64 {
    WIDTH * (1.0 - before / HOUR)
}

fn y(micros: f64, low: i32, high: i32) -> f64 {
    let share = (micros.max(1.0).log10() - f64::from(low)) / f64::from(high - low);
    HEIGHT * (1.0 - share.clamp(0.0, 1.0))
}

/// The area between median and 99th percentile, and a line for each. Where nothing was seen, they are interrupted.
fn curves(html: &mut Html, seen: &[Seen<'_>], low: i32, high: i32) {
    let mut parts: Vec<&[Seen<'_>]> = vec![seen];
    while let Some(last) = parts.pop() {
        let is_gap = |pair: &[Seen<'_>]| pair[0].to - pair[1].from > POINT * GAP;
        match last.windows(2).position(is_gap) {
            Some(at) => parts.extend([&last[..=at], &last[at + 1..]]),
            None => {
                parts.push(last);
                break;
            }
        }
    }
    for part in parts {
        // Steps: a point holds for its whole time.
        let steps = |of: fn(&Latency) -> f64| -> Vec<String> {
            let step =
                |one: &Seen<'_>| format!("{:.1} {:.1}H{:.1}", x(one.from), y(of(one.latency), low, high), x(one.to));
            part.iter().map(step).collect()
        };
        let back =
            |one: &Seen<'_>| format!("{:.1} {:.1}H{:.1}", x(one.to), y(one.latency.median, low, high), x(one.from));
        let below: Vec<String> = part.iter().rev().map(back).collect();
        let (upper, lower) = (steps(|latency| latency.p99).join("L"), steps(|latency| latency.median).join("L"));
        html.element("<path class=band d=\"M", &upper, "L").element("", below.join("L"), "Z\" />\n");
        html.element("<path class=p99 d=\"M", &upper, "\" />\n");
        html.element("<path class=median d=\"M", &lower, "\" />\n");
    }
}
