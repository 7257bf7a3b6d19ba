use super::draw;
use super::fixtures::*;
use super::keys::Key;
use super::model::{Effect, Event, Model, Work};
use super::view::View;
use rowen_control::protocol::{CheckedNodes, IoCounts, Rehoming};

fn chosen(model: &Model) -> Option<&str> {
    model.chosen().row.as_deref()
}

#[test]
fn keys_choose_rows_and_views() {
    let mut model = trouble(80, 24);
    assert_eq!(draw::shown(&model).ids, ["archive", "vmpool", "vg0"], "what is wrong comes first");
    type_in(&mut model, "j");
    assert_eq!(chosen(&model), Some("archive"));
    type_in(&mut model, "jjjj");
    assert_eq!(chosen(&model), Some("vg0"), "the last row is the last");
    type_in(&mut model, "E");
    assert_eq!((model.opened.as_deref(), model.view), (Some("vg0"), View::Volumes));
    assert_eq!(draw::shown(&model).ids, ["vg0/data", "vg0/root"], "by requests");
    type_in(&mut model, "r");
    assert_eq!(draw::shown(&model).ids, ["vg0/root", "vg0/data"]);
    type_in(&mut model, "X");
    assert_eq!((model.opened.as_deref(), model.view, chosen(&model)), (None, View::Groups, Some("vg0")));
    for (digit, view) in ["1", "2", "3", "4", "5"].into_iter().zip(View::ALL) {
        type_in(&mut model, digit);
        assert_eq!(model.view, view);
    }
    press(&mut model, Key::Next);
    assert_eq!(model.view, View::Groups);
    press(&mut model, Key::Previous);
    assert_eq!(model.view, View::Work);
}

#[test]
fn a_row_stays_chosen_when_it_moves() {
    let mut model = trouble(80, 24);
    type_in(&mut model, "2j");
    let before = chosen(&model).unwrap().to_owned();
    type_in(&mut model, "srs");
    assert_eq!(chosen(&model), Some(&*before));
    // It goes with what it named.
    see(&mut model, 5, vec![served("vg9")]);
    type_in(&mut model, "1j");
    assert_eq!(chosen(&model), Some("vg9"));
}

#[test]
fn sorting_goes_through_the_columns_that_are_shown() {
    let mut model = trouble(80, 24);
    let columns = draw::shown(&model).columns;
    let mut seen = vec![model.chosen().order.column];
    for _ in 1..columns.len() {
        type_in(&mut model, "s");
        seen.push(model.chosen().order.column);
    }
    assert_eq!(seen, columns.iter().map(|(column, _)| *column).collect::<Vec<_>>());
    type_in(&mut model, "s");
    assert_eq!(model.chosen().order.column, seen[0]);
}

#[test]
fn pause_interval_and_ends() {
    let mut model = trouble(80, 24);
    assert_eq!(type_in(&mut model, "  "), [Effect::Draw, Effect::LookNow]);
    let intervals: Vec<u64> = (0..6)
        .map(|_| {
            type_in(&mut model, "d");
            model.interval()
        })
        .collect();
    assert_eq!(intervals, [5, 10, 30, 60, 1, 2]);
    type_in(&mut model, "?");
    assert!(trimmed(&model).contains("Ctrl-L"));
    type_in(&mut model, "x");
    assert!(!trimmed(&model).contains("Ctrl-L"), "any key ends the help");
    assert_eq!(type_in(&mut model, "?q"), [Effect::Draw, Effect::Quit]);
    assert_eq!(press(&mut model, Key::Suspend), Effect::Suspend);
}

#[test]
fn a_group_that_goes_is_shown_no_more() {
    let mut model = trouble(80, 24);
    type_in(&mut model, "2GE");
    assert!(model.opened.is_some());
    see(&mut model, 5, vec![served("other")]);
    assert_eq!((model.opened.as_deref(), model.view), (None, View::Groups));
}

#[test]
fn rates_begin_again_with_another_server() {
    let mut model = model(80, 24);
    let seen = |seconds, requests| {
        let mut seen = served("vg0");
        count(&mut seen, seconds, &[("lv", IoCounts { write: op(requests, 9), ..IoCounts::default() })], &[]);
        seen
    };
    let rate =
        |model: &Model| model.groups[0].done.as_ref().map(|done| done.sum().write.requests as f64 / done.seconds());
    see(&mut model, 1, vec![seen(100, 1000)]);
    assert_eq!(rate(&model), None, "one sample tells no rate");
    see(&mut model, 3, vec![seen(102, 1500)]);
    assert_eq!(rate(&model), Some(250.0));
    see(&mut model, 5, vec![hung(served("vg0"))]);
    assert_eq!(rate(&model), None);
    // The rate is of the whole time since it answered.
    see(&mut model, 9, vec![seen(108, 1560)]);
    assert_eq!(rate(&model), Some(10.0));
    see(&mut model, 11, vec![seen(1, 5)]);
    assert_eq!(rate(&model), None, "it counts from zero");
    see(&mut model, 13, vec![seen(3, 25)]);
    assert_eq!(rate(&model), Some(10.0));
}

#[test]
fn work_has_a_time_to_go() {
    let mut model = model(80, 24);
    for second in 0..5 {
        let mut seen = served("vg0");
        let report = report(&mut seen);
        report.reclaim_left_blocks = 1000 - 100 * second;
        report.checks = 1;
        report.checked = Some(CheckedNodes { nodes: 50 * second, total: 1000 });
        report.rehoming = Some(Rehoming { name: "root".into(), done_blocks: 256 * second, blocks: 2560, waiting: 2 });
        see(&mut model, second, vec![seen]);
    }
    let paces = &model.groups[0].paces;
    let told = |work| {
        let pace = &paces[&work];
        (pace.share().map(|share| (share * 1000.0).round()), pace.seconds_left())
    };
    assert_eq!(told(Work::Removal), (Some(400.0), Some(6)));
    assert_eq!(told(Work::Check), (Some(200.0), Some(16)));
    assert_eq!(told(Work::Rehoming("root".into())), (Some(400.0), Some(6)));
    // What is done is gone.
    see(&mut model, 6, vec![served("vg0")]);
    assert!(model.groups[0].paces.is_empty());
}

#[test]
fn what_was_named_and_is_not_there_is_missing() {
    let mut model = Model::new(FACE, "h".into(), vec!["vg0".into(), "nosuch".into()], (80, 24));
    assert_eq!(model.missing().count(), 0, "nothing is known yet");
    see(&mut model, 1, vec![served("vg0")]);
    assert_eq!(model.missing().collect::<Vec<_>>(), ["nosuch"]);
    assert!(trimmed(&model).contains("nosuch: there is no such volume group"));
}

#[test]
fn a_look_that_does_not_come_is_said() {
    let mut model = trouble(80, 24);
    model.update(Event::Waits(7), &draw::shown);
    assert!(screen(&model)[0].contains("no answer for 7 s"), "{}", screen(&model)[0]);
    see(&mut model, 9, vec![served("vg0")]);
    assert!(!screen(&model)[0].contains("no answer"));
}
