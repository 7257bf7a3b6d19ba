//! Groups as the tests of the view see them, and what the screen shows then.

use super::draw;
use super::face::Face;
use super::keys::{self, Key};
use super::model::{Effect, Event, Model};
use super::sample::Sample;
use crate::fake::Fake;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use rowen_control::protocol::{
    GroupReport, IoCounts, IoReport, OpCounts, PvIo, PvStatus, StatusReport, VolumeIo, bucket_of,
};
use rowen_control::status::{Counters, KeeperAnswer, KeeperSeen, Process, Seen, ServerSeen, Survey};
use rowen_engine::units::Uuid;

pub const FACE: Face = Face { is_utf8: true, has_colours: true };
/// 25 November 2026, 3 o'clock in the morning of UTC.
pub const TIME: u64 = 1_795_575_600;

/// A group of 10 GiB with a server that has nothing to do.
pub fn served(name: &str) -> Seen {
    let pv = |path: &str, n: u8| PvStatus {
        path: path.into(),
        uuid: uuid(name, n),
        size_bytes: 5 << 30,
        failed_reads: 0,
        failed_writes: 0,
        failed_flushes: 0,
        silent_seconds: None,
        is_missing: false,
    };
    let report = StatusReport {
        open_seconds: 8000,
        pvs: vec![pv("/dev/sdb", 1), pv("/dev/sdc", 2)],
        volumes: 5,
        active_volumes: 2,
        blocks: 2_621_440,
        available_blocks: 1_520_435,
        metadata_blocks: 6144,
        ..StatusReport::default()
    };
    let answer = Some(KeeperAnswer { started: 0, failures: 0, held: 1, deaths: 0 });
    Seen {
        name: name.into(),
        server: ServerSeen::Answered { pid: 1234, report: Box::new(report) },
        keeper: Some(KeeperSeen { process: Process { pid: 1230, state: Some('S') }, answer }),
        devices: 2,
        log: format!("/run/rowen/{name}/server.log"),
        ..Seen::default()
    }
}

pub fn uuid(group: &str, n: u8) -> Uuid {
    let mut bytes = [n; 16];
    bytes.iter_mut().zip(group.bytes()).for_each(|(byte, of)| *byte ^= of);
    Uuid(bytes)
}

/// What the group's server says is changed so.
pub fn report(seen: &mut Seen) -> &mut StatusReport {
    match &mut seen.server {
        ServerSeen::Answered { report, .. } => report,
        other => panic!("{other:?}"),
    }
}

/// The server was stopped by a signal.
pub fn hung(seen: Seen) -> Seen {
    let server = ServerSeen::Silent(Some(Process { pid: 1234, state: Some('T') }));
    Seen { server, counters: None, report: None, ..seen }
}

/// This many requests of 4 KiB, each of which took this many microseconds.
pub fn op(requests: u64, micros: u64) -> OpCounts {
    let mut counts = OpCounts { requests, bytes: requests * 4096, micros: requests * micros, ..OpCounts::default() };
    counts.buckets[bucket_of(micros)] = requests;
    counts
}

/// What the group's server has counted since it opened the group.
pub fn count(seen: &mut Seen, seconds: u64, volumes: &[(&str, IoCounts)], disks: &[IoCounts]) {
    let name = seen.name.clone();
    let volume = |(at, (volume, counts)): (usize, &(&str, IoCounts))| {
        let mut uuid = uuid(&name, 100);
        uuid.0[..8].copy_from_slice(&(at as u64).to_le_bytes());
        VolumeIo { name: (*volume).to_owned(), uuid, is_active: true, counts: *counts }
    };
    let paths = ["/dev/sdb", "/dev/sdc"];
    let pv = |(at, counts): (usize, &IoCounts)| PvIo {
        path: paths[at].into(),
        uuid: uuid(&name, at as u8 + 1),
        counts: *counts,
    };
    let io = IoReport {
        open_micros: seconds * 1_000_000,
        pvs: disks.iter().enumerate().map(pv).collect(),
        volumes: volumes.iter().enumerate().map(volume).collect(),
        ..IoReport::default()
    };
    seen.counters = Some(Box::new(Counters { io, ..Counters::default() }));
}

/// The report of a real group with a volume of 100 MiB and two snapshots of it that hold something.
pub fn with_snapshots(name: &str) -> GroupReport {
    let mut world = Fake::new();
    for line in [
        "vgcreate vg0 /dev/ubda",
        "lvcreate -y -L 100M -n data vg0",
        "lvcreate -y -s -n monday vg0/data",
        "lvcreate -y -s -n tuesday vg0/data",
    ] {
        let printed = world.run(line);
        assert_eq!(printed.code, 0, "{line}: {}", printed.err);
        if line.starts_with("lvcreate") {
            world.write("data", 256);
        }
    }
    let mut report = world.report("vg0");
    report.name = name.into();
    report.volumes.iter_mut().for_each(|volume| volume.attributes.created = TIME - 3 * 86_400);
    report
}

pub fn model(width: u16, height: u16) -> Model {
    Model::new(FACE, "backup1".into(), Vec::new(), (width, height))
}

/// A sample of these groups, at this second.
pub fn see(model: &mut Model, second: u64, groups: Vec<Seen>) {
    let survey = Survey { groups, ..Survey::default() };
    let sample = Sample::new(survey, TIME + second);
    model.update(Event::Sampled { sample, at: second as f64 }, &draw::shown);
}

pub fn press(model: &mut Model, key: Key) -> Effect {
    model.update(Event::Key(key), &draw::shown)
}

/// Keys as they are typed; `E` is Enter and `X` Escape.
pub fn type_in(model: &mut Model, typed: &str) -> Vec<Effect> {
    let code = |c| match c {
        'E' => KeyCode::Enter,
        'X' => KeyCode::Esc,
        c => KeyCode::Char(c),
    };
    let keys = typed.chars().filter_map(|c| keys::meaning(KeyEvent::new(code(c), KeyModifiers::NONE)));
    keys.map(|key| press(model, key)).collect()
}

/// The screen's lines.
pub fn screen(model: &Model) -> Vec<String> {
    let backend = TestBackend::new(model.size.0, model.size.1);
    let mut terminal = Terminal::new(backend).unwrap();
    terminal.draw(|frame| draw::frame(model, frame.buffer_mut())).unwrap();
    let text = terminal.backend().to_string();
    // It shows each line in quotes.
    text.lines().map(|line| line.trim_matches('"').to_owned()).collect()
}

/// The lines as a test has them: without blanks at their ends.
pub fn trimmed(model: &Model) -> String {
    screen(model).iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A busy group, a full one and one whose server hangs, at two seconds.
pub fn trouble(width: u16, height: u16) -> Model {
    let mut model = model(width, height);
    for second in [1, 3] {
        let busy = |n: u64| IoCounts {
            read: op(500 * n * second, 90),
            write: op(2000 * n * second, 300),
            flush: op(10 * n * second, 4000),
            under_way: 2,
            ..IoCounts::default()
        };
        let mut vg0 = served("vg0");
        count(&mut vg0, second, &[("data", busy(2)), ("root", busy(1))], &[busy(3), IoCounts::default()]);
        let left = 1_000_000 - 100_000 * second;
        report(&mut vg0).reclaim_left_blocks = left;
        vg0.report = Some(Box::new(with_snapshots("vg0")));
        let mut full = served("vmpool");
        let stuck = IoCounts { write: op(70_000, 900), under_way: 4, ..IoCounts::default() };
        count(&mut full, second, &[("vm-103-disk-0", stuck)], &[IoCounts::default(); 2]);
        report(&mut full).available_blocks = 0;
        report(&mut full).held =
            vec![rowen_control::protocol::HeldVolume { name: "vm-103-disk-0".into(), seconds: 95 }];
        let hung = if second == 1 { served("archive") } else { hung(served("archive")) };
        see(&mut model, second, vec![hung, vg0, full]);
    }
    model
}
