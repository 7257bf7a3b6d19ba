//! The page: what is wrong first, then each group. It is whole without a script.

use crate::facts::{Facts, Group, Problem};
use crate::group;
use crate::html::Html;
use crate::planted;
use crate::words::{duration, times};

/// Facts are called old when the last report is later than this many seconds and two intervals (WB3).
const LATE: f64 = 5.0;

/// What there is to show.
pub enum Known {
    Facts {
        facts: Box<Facts>,
        /// In seconds.
        age: f64,
    },
    /// Why nothing is known, and what to do.
    Nothing { what: String, next: String },
}

/// Something that is wrong, and with which group.
struct Wrong<'a> {
    group: Option<(usize, &'a Group)>,
    what: &'a str,
    next: &'a str,
}

/// The page as it is sent.
pub fn page(known: &Known) -> String {
    let mut html = Html::default();
    match known {
        Known::Facts { facts, age } => of_facts(&mut html, facts, *age),
        Known::Nothing { what, next } => {
            head(&mut html, "", 1, true);
            html.raw("<div class=top><h1>Rowen</h1></div>\n");
            let wrong = Wrong { group: None, what, next };
            list(&mut html, &[wrong]);
        }
    }
    html.raw(
        "</main>\n<footer><p>Read-only. The same in a terminal: <code>rowen top</code>, <code>rowen status</code>, ",
    );
    html.raw("<code>rowen tree</code>, <code>rowen events</code>. For programs: <a href=\"/facts.json\">facts.json</a>.</p></footer>\n");
    html.raw("</body>\n</html>\n");
    html.finish()
}

/// Whether facts are older than they should be.
pub fn is_old(facts: &Facts, age: f64) -> bool {
    // A clock that goes backwards is that of another start of the host.
    !planted::is("always_young") && !(0.0..=facts.every as f64 * 3.0 + LATE).contains(&age)
}

fn of_facts(html: &mut Html, facts: &Facts, age: f64) {
    let old = is_old(facts, age).then(|| old(age));
    let wrong = wrong(facts, old.as_ref());
    head(html, &facts.host, wrong.len(), old.is_some());
    html.element("<div class=top><h1>Rowen on ", &facts.host, "</h1>\n<p class=age>");
    html.element("As of <time>", &facts.at, "</time>, ");
    if age >= 0.0 {
        html.element("<span id=age>", duration(age), "</span> ago.");
    } else {
        html.raw("before the host was started.");
    }
    html.raw(" <span id=stale role=status></span></p></div>\n");
    if wrong.is_empty() {
        html.raw("<p class=\"well ok\"><span class=sign>✓</span> ");
        html.text(match facts.groups.len() {
            0 => "No volume groups are known.".to_owned(),
            1 => "The group is healthy.".to_owned(),
            count => format!("All {count} groups are healthy."),
        });
        html.raw("</p>\n");
    } else {
        list(html, &wrong);
    }
    if facts.groups.len() > 1 {
        contents(html, &facts.groups);
    }
    for (at, one) in facts.groups.iter().enumerate() {
        group::section(html, at, one, facts);
    }
}

fn old(age: f64) -> Problem {
    let what = match age {
        0.0.. => format!("nobody has looked at the groups for {}: all below is as it was then", duration(age)),
        _ => "nobody has looked at the groups since the host was started: all below is as it was before".to_owned(),
    };
    Problem { what, next: "systemctl status rowen-web-facts; rowen status, in a terminal".to_owned() }
}

/// All that is wrong: first what makes the rest doubtful, then the groups, then the host.
fn wrong<'a>(facts: &'a Facts, old: Option<&'a Problem>) -> Vec<Wrong<'a>> {
    let of_host = |problem: &'a Problem| Wrong { group: None, what: &problem.what, next: &problem.next };
    let of_group = |(at, group): (usize, &'a Group)| {
        let of =
            move |problem: &'a Problem| Wrong { group: Some((at, group)), what: &problem.what, next: &problem.next };
        group.problems.iter().map(of)
    };
    let groups = facts.groups.iter().enumerate().flat_map(of_group);
    old.into_iter().map(of_host).chain(groups).chain(facts.problems.iter().map(of_host)).collect()
}

fn head(html: &mut Html, host: &str, wrong: usize, is_old: bool) {
    html.raw("<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n");
    html.raw("<meta name=viewport content=\"width=device-width, initial-scale=1\">\n");
    html.raw("<meta name=color-scheme content=\"light dark\">\n<title>");
    if is_old {
        html.raw("? ");
    }
    if wrong > 0 {
        html.text(format_args!("! {wrong} wrong · "));
    }
    html.text(if host.is_empty() { "Rowen".to_owned() } else { format!("{host} · Rowen") });
    html.raw("</title>\n<link rel=stylesheet href=\"/style.css\">\n<link rel=icon href=\"/icon.svg\" type=\"image/svg+xml\">\n");
    html.raw("<script src=\"/refresh.js\" defer></script>\n</head>\n<body>\n<main id=all>\n");
}

fn list(html: &mut Html, wrong: &[Wrong<'_>]) {
    html.raw("<section class=wrong aria-labelledby=wrong>\n<h2 id=wrong><span class=sign>!</span> ");
    html.text(times(wrong.len(), "thing is wrong", "things are wrong")).raw("</h2>\n<ul>\n");
    for Wrong { group, what, next } in wrong {
        html.raw("<li>");
        if let Some((at, group)) = group {
            html.element("<a href=\"#g", at, "\">").element("<b>", &group.name, "</b></a>");
            html.element(" <span class=state>", &group.state, "</span>: ");
        }
        html.element("<span>", what, "</span>").element("<br><span class=next>Next: ", next, "</span></li>\n");
    }
    html.raw("</ul>\n</section>\n");
}

fn contents(html: &mut Html, groups: &[Group]) {
    html.raw("<nav aria-label=\"Volume groups\"><ul>\n");
    for (at, group) in groups.iter().enumerate() {
        html.element("<li><a href=\"#g", at, "\">");
        group::sign(html, group);
        html.raw(" ").text(&group.name);
        if let Some(space) = &group.space {
            let used = space.size_bytes.saturating_sub(space.free_bytes) as f64;
            html.element(" <small>", crate::words::percent(used, space.size_bytes as f64), "</small>");
        }
        html.raw("</a></li>\n");
    }
    html.raw("</ul></nav>\n");
}
