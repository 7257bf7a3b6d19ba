use super::face::Face;
use super::fixtures::*;
use super::model::{Event, Model};
use super::view::View;
use super::{draw, keys::Key};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Color;
use rowen_control::protocol::IoCounts;
use rowen_control::time;

/// Compares text with a file of `src/top/frames`. `ROWEN_FRAMES=write` writes the files: look at what changed before it stays.
fn is_frame(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/frames").join(name);
    // The clock is that of this machine's time zone.
    let clock = time::long(TIME + 3);
    let text = text.replace(&clock, "2026-11-25 03:00:03 +0000").replace(&clock[11..19], "03:00:03");
    if std::env::var("ROWEN_FRAMES").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(text == expected, "{name} shows:\n{text}\ninstead of:\n{expected}");
}

#[test]
fn frames_are_as_they_were_looked_at() {
    let mut model = trouble(80, 24);
    let views = ["groups", "volumes", "snapshots", "disks", "work", "help"];
    for (key, name) in ["1j", "2", "3", "4", "5", "?"].into_iter().zip(views) {
        type_in(&mut model, key);
        is_frame(&format!("{name}-80x24.txt"), &trimmed(&model));
    }
    type_in(&mut model, "x1GE");
    is_frame("opened-80x24.txt", &trimmed(&model));
    is_frame("groups-200x60.txt", &trimmed(&trouble(200, 60)));
    is_frame("groups-40x12.txt", &trimmed(&trouble(40, 12)));
    is_frame("once-80.txt", &draw::once(&trouble(80, 24), 80));
    let mut well = self::model(80, 24);
    see(&mut well, 3, vec![served("vg0"), served("vg1")]);
    is_frame("well-80x24.txt", &trimmed(&well));
}

/// Every frame of every view at this size is drawn, and no line is longer than the screen.
fn all_frames(model: &mut Model, size: (u16, u16)) {
    model.update(Event::Resized(size.0, size.1), &draw::shown);
    for view in View::ALL {
        press(model, Key::Show(view));
        for key in [Key::Down, Key::PageDown, Key::Last, Key::Open, Key::Sort, Key::Help, Key::Help, Key::Back] {
            press(model, key);
            let lines = screen(model);
            assert_eq!(lines.len(), usize::from(size.1));
        }
    }
}

#[test]
fn every_size_has_a_frame() {
    let mut model = trouble(80, 24);
    for size in [
        (1, 1),
        (1, 24),
        (80, 1),
        (2, 2),
        (10, 5),
        (20, 8),
        (39, 10),
        (60, 15),
        (80, 24),
        (132, 43),
        (200, 60),
        (500, 200),
    ] {
        all_frames(&mut model, size);
    }
    let mut nothing = self::model(80, 24);
    all_frames(&mut nothing, (80, 24));
    all_frames(&mut nothing, (1, 1));
    see(&mut nothing, 1, Vec::new());
    press(&mut nothing, Key::Show(View::Groups));
    nothing.update(Event::Resized(80, 24), &draw::shown);
    assert!(trimmed(&nothing).contains("No volume groups are known."));
    all_frames(&mut nothing, (30, 9));
}

#[test]
fn a_thousand_volumes_with_long_names() {
    let names: Vec<String> = (0..1000).map(|n| format!("{}-{n:04}", "volume-with-a-name".repeat(5))).collect();
    let mut model = model(80, 24);
    for second in [1, 3] {
        let volumes: Vec<(&str, IoCounts)> = names
            .iter()
            .enumerate()
            .map(|(n, name)| (&**name, IoCounts { write: op(n as u64 * second, 100), ..IoCounts::default() }))
            .collect();
        let mut seen = served("vg0");
        count(&mut seen, second, &volumes, &[]);
        see(&mut model, second, vec![seen]);
    }
    type_in(&mut model, "2");
    let top = screen(&model);
    assert!(top[3].contains('…') && top[3].contains("999"), "{}", top[3]);
    assert!(top[23].contains("1-20 of 1000"), "{}", top[23]);
    type_in(&mut model, "G");
    assert!(screen(&model)[23].contains("981-1000 of 1000"), "{}", screen(&model)[23]);
    press(&mut model, Key::PageUp);
    let at = model.chosen().row.clone().unwrap();
    assert!(at.ends_with("-0020"), "{at}");
    all_frames(&mut model, (80, 24));
    all_frames(&mut model, (200, 60));
}

#[test]
fn colours_are_a_help_only() {
    let frame = |face: Face| {
        let mut model = trouble(80, 24);
        model.face = face;
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        draw::frame(&model, &mut buffer);
        buffer
    };
    let with = frame(FACE);
    let without = frame(Face { has_colours: false, ..FACE });
    let text = |buffer: &Buffer| buffer.content().iter().map(|cell| cell.symbol().to_owned()).collect::<String>();
    assert_eq!(text(&with), text(&without));
    let coloured = |buffer: &Buffer| buffer.content().iter().filter(|cell| cell.fg != Color::Reset).count();
    assert!(coloured(&with) > 0 && coloured(&without) == 0);
    let ascii = text(&frame(Face { is_utf8: false, has_colours: false }));
    assert!(ascii.is_ascii(), "{ascii}");
}
