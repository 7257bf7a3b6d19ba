use crate::facts::{Facts, Group, Problem};
use crate::page::{Known, page};
use crate::planted::must_be_found;
use crate::sample::{HOSTILE, busy, facts, hostile, minute, silent, volume};
use std::collections::BTreeSet;

fn of(facts: Facts, age: f64) -> String {
    page(&Known::Facts { facts: Box::new(facts), age })
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

/// The elements of a page, each begun and ended as it should be; their names.
fn elements(page: &str) -> BTreeSet<String> {
    const ALONE: [&str; 4] = ["!doctype", "meta", "link", "br"];
    let (mut open, mut seen): (Vec<String>, _) = (Vec::new(), BTreeSet::new());
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("<{part}"));
        let name = tag.split([' ', '\n']).next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "{open:?}");
        } else if !ALONE.contains(&name) {
            seen.insert(name.to_owned());
            if !tag.ends_with('/') {
                open.push(name.to_owned());
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    seen
}

#[test]
fn what_is_wrong_comes_first_with_what_to_do() {
    let page = of(facts(vec![silent(), busy()]), 4.0);
    let wrong = page.find("1 thing is wrong").unwrap();
    assert!(wrong < page.find("<section class=group").unwrap());
    assert!(page[wrong..].contains("kill -CONT 1234"));
    assert!(page.contains("<title>! 1 wrong · backup1 · Rowen</title>"), "{page}");
    assert!(page.contains("not answering"));
    elements(&page);
}

#[test]
fn a_group_has_all_that_is_known_of_it() {
    let page = of(facts(vec![busy()]), 4.0);
    for words in [
        "The group is healthy.",
        "4 GiB of 10 GiB in use (40.0%), 24 MiB of it metadata (at the left); 6 GiB free",
        "<b>Thin pool pool</b>: 1 GiB of 2 GiB in use (50.0%)",
        "<b>Reads</b> in the last minute 50 a second, half of them within 90 µs, 99 of 100 within 800 µs; slowest minute: 2.80 ms.",
        "<title>60 s ago: 50 a second, half of them within 90 µs, 99 of 100 within 800 µs</title>",
        "<th scope=row>data</th><td class=n>60</td><td class=n>800 µs</td><td class=n>4 ms</td><td class=n>–</td>",
        "class=\"d2\"",
        "<td class=n>25.0%</td><td class=n>4 min</td>",
        "<td>ok</td>",
        "is 80% full.",
        "2026-11-24 13:12",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // A picture for each kind of request that there was, and one for each whole.
    assert_eq!(count(&page, "<figure>"), 2);
    assert_eq!(count(&page, "<svg"), count(&page, "aria-labelledby=\"s") + count(&page, "aria-labelledby=\"l"));
    assert_eq!(count(&page, "<svg"), count(&page, "role=img"));
    // Each heading of a table says of what it is one.
    assert_eq!(count(&page, "<th ") + count(&page, "<th>"), count(&page, "<th scope="));
    elements(&page);
}

#[test]
fn nothing_that_comes_from_outside_is_markup() {
    let page = of(hostile(), 4.0);
    let clean = of(facts(vec![busy(), silent()]), 4.0);
    let known = elements(&clean);
    let seen = elements(&page);
    assert!(seen.is_subset(&known), "WB2: {:?}", seen.difference(&known));
    assert_eq!((count(&page, "<script"), count(&page, "onerror=\"")), (1, 0), "WB2");
    assert!(!page.contains(HOSTILE) && !page.contains('\u{202e}'), "WB2");
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(page.contains("@&lt;script&gt;"), "a tag");
    let numbers = page.split(['"', ' ', 'H', 'L']).filter(|word| word.contains("NaN") || word.contains("inf"));
    let numbers: Vec<_> = numbers.filter(|word| !word.contains('%')).collect();
    assert!(numbers.is_empty(), "{numbers:?}");
    // No style, no handler and no address of somebody else's in the page: the header forbids them.
    for word in [" style=", "javascript:", "http:", "https:"] {
        assert_eq!(count(&clean, word), 0, "{word}");
    }
}

#[test]
fn facts_have_an_age_and_old_ones_are_wrong() {
    let page = of(facts(vec![busy()]), 34.0);
    assert!(page.contains("<span id=age>34 s</span> ago"), "WB3: {page}");
    assert!(page.contains("The group is healthy."));
    let page = of(facts(vec![busy()]), 600.0);
    assert!(page.contains("nobody has looked at the groups for 10 min"), "WB3");
    assert!(page.contains("<title>? ! 1 wrong") && !page.contains("is healthy."), "WB3");
    // Facts of another start of the host.
    let page = of(facts(vec![busy()]), -3.0);
    assert!(page.contains("since the host was started") && !page.contains("id=age"), "WB3");
}

#[test]
fn without_facts_it_says_why_and_what_to_do() {
    let page = page(&Known::Nothing { what: "nobody <looked>".into(), next: "start it".into() });
    assert!(page.contains("nobody &lt;looked&gt;") && page.contains("Next: start it"));
    elements(&page);
    let none = of(facts(Vec::new()), 1.0);
    assert!(none.contains("No volume groups are known."));
    elements(&none);
}

#[test]
fn what_is_not_known_is_left_out() {
    let group = Group { name: "vg0".into(), state: "not running".into(), healthy: true, ..Group::default() };
    let page = of(facts(vec![group]), 1.0);
    assert!(!page.contains("Space") && !page.contains("<svg") && !page.contains("<table"), "{page}");
    assert!(page.contains("No requests to its volumes are known of.") && page.contains("not in use"));
    let page = of(facts(vec![silent()]), 1.0);
    assert!(page.contains("As the server told them 17 min before."), "{page}");
}

#[test]
fn a_large_group_is_cut_and_says_so() {
    let volumes = (0..1000).map(|at| volume(&format!("lv{at}"), None, 0)).collect();
    let large = Group { volumes, volumes_left_out: 234, ..busy() };
    let page = of(facts(vec![large.clone(), silent()]), 1.0);
    assert!(page.contains("<details id=v0>") && page.contains("<details open id=v1>"));
    let page = of(facts(vec![large]), 1.0);
    assert!(page.contains("<details open id=v0>"));
    assert!(page.contains("1234 volumes") && page.contains("And 934 more: <code>rowen tree vg0</code>"));
    assert!(page.len() < 400_000, "{}", page.len());
}

#[test]
fn lines_are_interrupted_where_nothing_is_known() {
    let one = |before| minute(before, Some(crate::facts::Latency { requests: 60, median: 10.0, p99: 100.0 }), None);
    let whole = Group { latency: [300.0, 240.0, 180.0].map(one).to_vec(), ..busy() };
    let torn = Group { latency: [900.0, 240.0, 180.0].map(one).to_vec(), ..busy() };
    assert_eq!(count(&of(facts(vec![whole]), 1.0), "class=p99"), 1);
    let torn = of(facts(vec![torn]), 1.0);
    assert_eq!(count(&torn, "class=p99"), 2);
    // A decade from the median to the 99th percentile: from the bottom to the top.
    assert!(
        torn.contains("M540.0 0.0H550.0L550.0 0.0H560.0") || torn.contains("M550.0 0.0H560.0L560.0 0.0H570.0"),
        "{torn}"
    );
}

#[test]
fn problems_of_the_host_are_there() {
    let mut facts = facts(vec![busy()]);
    facts.problems = vec![Problem { what: "/dev/sdx does not answer".into(), next: "look at it".into() }];
    let page = of(facts, 1.0);
    assert!(page.contains("/dev/sdx does not answer") && page.contains("1 thing is wrong"));
}

#[test]
fn planted_bugs_are_found() {
    must_be_found("text_is_markup", nothing_that_comes_from_outside_is_markup);
    must_be_found("always_young", facts_have_an_age_and_old_ones_are_wrong);
}
