//! Makes the examples of `fuzz/corpus` again: `cargo run -p rowen-fuzz --example corpus`. They are small, and made by
//! the code that writes such bytes.
#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;
use rowen_control::history;
use rowen_control::metadata::{Document, Origin};
use rowen_control::protocol::{self, *};
use rowen_engine::disk::PvIndex;
use rowen_engine::format::tally::Tally;
use rowen_engine::format::{intents, stream, superblock};
use rowen_engine::group::Group;
use rowen_engine::units::Uuid;
use rowen_fuzz::driver::corpus_dir;
use rowen_sim::client::{self, BLOCK, Client, SnapshotKind};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Image, Policy, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::oracle::Oracle;
use rowen_sim::rng::Rng;
use rowen_sim::scenario::{self, Runner};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest example.
const LONGEST: usize = 4096;

struct Corpus {
    examples: BTreeMap<&'static str, Vec<Vec<u8>>>,
    /// Examples of one kind, at most.
    most: usize,
}

impl Corpus {
    fn add(&mut self, target: &'static str, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let kept = self.examples.entry(target).or_default();
        if kept.len() < self.most && bytes.len() <= LONGEST && !kept.iter().any(|known| known == bytes) {
            kept.push(bytes.to_vec());
        }
    }

    fn write(&self) {
        for (target, examples) in &self.examples {
            let dir = corpus_dir(target);
            std::fs::create_dir_all(&dir).unwrap();
            // Those that were found by running stay.
            for old in std::fs::read_dir(&dir).unwrap().map(|old| old.unwrap()) {
                if !old.file_name().to_string_lossy().starts_with("found-") {
                    std::fs::remove_file(old.path()).unwrap();
                }
            }
            for (number, bytes) in examples.iter().enumerate() {
                std::fs::write(dir.join(format!("{number:02}")), bytes).unwrap();
            }
        }
    }
}

/// Without the zeros at its end.
fn trimmed(block: &[u8]) -> &[u8] {
    &block[..block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

/// What scenarios leave on disks.
fn from_disks(corpus: &mut Corpus) {
    for (name, steps) in
        scenario::scripted().into_iter().filter(|(name, _)| ["snapshots", "group-snapshot", "resize"].contains(name))
    {
        println!("{name}");
        let world = World::new(7);
        let (disks, group) = Setup::small(2, 24).make(&world).unwrap();
        let client = Client::new(world.handle(), group, Arc::<Mutex<Oracle>>::default());
        let mut runner = Runner::new(client.clone());
        world.run(async {
            runner.run(&steps).await.unwrap();
            client.checkpoint().await.unwrap();
        });
        blocks_of(corpus, &disks.current());
    }
}

/// What a group leaves that went on without one of its disks: which one is out, and what of it nobody could compare.
fn from_a_lost_disk(corpus: &mut Corpus) {
    const LOST: PvIndex = PvIndex(2);
    println!("a lost disk");
    let setup = Setup::small(3, 24);
    let world = World::new(7);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::<Mutex<Oracle>>::default());
    world.run(async {
        let (kind, full) = (rowen_engine::group::VolumeKind::Thick, rowen_engine::group::FullPolicy::Fail);
        // Few volumes: their list fits into one block.
        for _ in 0..3 {
            let vol = client.create(client::VolumeSpec { kind, blocks: 4500, chunk_blocks: 1, full }).await.unwrap();
            client.write(vol, 0, 800 * BLOCK, &[]).await.unwrap();
            client.snapshot(&[vol], SnapshotKind::default()).await.unwrap();
        }
        client.checkpoint().await.unwrap();
        for vol in [2, 3] {
            client.write(vol, 0, 4 * BLOCK, &[]).await.unwrap();
            client.flush(vol).await.unwrap();
        }
    });
    let mut image = disks.moment().power_cut(Policy::Nothing, &mut Rng::new(5));
    image.set_size(LOST, 0);
    let world = World::new(8);
    let disks = SimDisks::with_image(world.handle(), image);
    let opening = Group::open_without(disks.clone(), world.handle(), setup.config, 77);
    let group = world.run(opening).unwrap();
    assert!(group.out().has(usize::from(LOST.0)) && group.unproven_blocks() > 0, "{}", group.unproven_blocks());
    world.run(group.close()).unwrap();
    let image = disks.current();
    let newest = (0..8).map(|slot| {
        let mut block = vec![0; 4096];
        image.read(PvIndex(0), 4096 + slot * 4096, &mut block);
        block
    });
    let features = |block: &[u8]| u64::from_le_bytes(block[16..24].try_into().unwrap());
    let newest: Vec<_> = newest.filter(|block| features(block) & superblock::FEATURE_UNPROVEN != 0).collect();
    assert!(!newest.is_empty(), "no superblock says that something is unproven");
    newest.iter().for_each(|block| corpus.add("superblock", trimmed(block)));
    blocks_of(corpus, &image);
}

/// Blocks of metadata and of the journal on the first disk.
fn blocks_of(corpus: &mut Corpus, image: &Image) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for offset in image.page_offsets(PvIndex(0)) {
        let mut block = vec![0; 4096];
        image.read(PvIndex(0), offset, &mut block);
        let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
        let kind = match &block[..8] {
            b"ROWENPV1" => "superblock",
            b"ROWENJRN" => "journal",
            b"ROWENIDX" | b"ROWENPAG" => "stream-blocks",
            magic if magic.starts_with(b"RwNd") => "node",
            _ => continue,
        };
        let of_this = kinds.entry(kind).or_default();
        *of_this += 1;
        if *of_this <= 4 {
            corpus.add(kind, trimmed(&block));
        }
        if block.starts_with(b"ROWENPAG") {
            let entry =
                stream::IndexEntry { copy_a: number(32), copy_b: 0, crc: stream::sealed_crc(&block), reserved: 0 };
            if let Ok(payload) = stream::decode_page(&block, number(16), number(24), &entry, number(40))
                && stream::Stream::decode(&payload).is_ok()
            {
                corpus.add("stream", payload);
            }
        }
    }
}

fn attributes() -> Attributes {
    Attributes { tags: vec!["web".into()], pool: "pool".into(), created: 1_700_000_000, ..Attributes::default() }
}

fn requests() -> Vec<Request> {
    let spec = VolumeSpec {
        name: "data".into(),
        uuid: Uuid([3; 16]),
        kind: VolumeKind::Thin,
        segment: SegmentType::Raid1,
        stripes: None,
        blocks: 1024,
        sector: 512,
        chunk_blocks: 16,
        full: FullPolicy::Hold,
        attributes: attributes(),
    };
    let snapshot = SnapshotSpec {
        origin: "data".into(),
        name: "before".into(),
        uuid: Uuid([4; 16]),
        reserve_blocks: Some(64),
        read_only: true,
        chunk_blocks: 16,
        activate: true,
        attributes: attributes(),
    };
    vec![
        Request::Hello { version: VERSION, caller: Caller::default() },
        Request::ReportOf { volumes: vec!["data".into()], with_members: true, with_use: false },
        Request::CreateVolume { spec, activate: true, on: Vec::new() },
        Request::Snapshot { specs: vec![snapshot], freeze: true },
        Request::Activate { names: None, ignore_skip: false, auto: true, partial: false },
        Request::Resize { name: "data".into(), blocks: 2048, force: false, on: Vec::new(), seen: Some(1024) },
        Request::SetAttributes { name: "data".into(), change: AttributeChange::default() },
        Request::ChangeGroup { change: GroupChange::default() },
        Request::TagPv { path: "/dev/sdb".into(), add: vec!["ssd".into()], remove: Vec::new() },
        Request::RepairMirrors { on: Vec::new() },
        Request::Convert { volume: "data".into(), on: Vec::new() },
        Request::ConvertLinear { volume: "data".into(), from: vec!["/dev/sdb".into()] },
        Request::Scrub { volume: "data".into(), action: ScrubAction::Check },
        Request::ResizePv { path: "/dev/sdb".into(), bytes: Some(1 << 30) },
        Request::Stats,
        Request::Status,
        Request::Bookmark {
            snapshot: "before".into(),
            name: "mon".into(),
            uuid: Uuid([6; 16]),
            created: 1_700_000_000,
        },
        Request::RemoveBookmark { name: "mon".into() },
    ]
}

fn report() -> GroupReport {
    let volume = |id: u64, name: &str, origin: Option<&str>| VolumeReport {
        id,
        name: name.into(),
        uuid: Uuid([id as u8; 16]),
        kind: VolumeKind::Thick,
        segment: SegmentType::Linear,
        state: VolumeState::Ok,
        blocks: 1024,
        sector: 512,
        chunk_blocks: 16,
        read_only: false,
        full: FullPolicy::DropSnapshot,
        origin: origin.map(Into::into),
        reserve_blocks: origin.map(|_| 512),
        attributes: attributes(),
        referenced_blocks: 7,
        exclusive_blocks: 5,
        freed_if_removed_blocks: 5,
        snapshot_used_blocks: 3,
        is_partial: false,
        legs: Legs::Whole,
        scrub: None,
        point_uuid: None,
        moment: None,
        node: NodeState::default(),
    };
    GroupReport {
        name: "vg".into(),
        uuid: Uuid([9; 16]),
        extent_blocks: 1024,
        extents: 100,
        free_extents: 90,
        allocatable_extents: 90,
        blocks: 102_400,
        free_blocks: 92_160,
        reserved_blocks: 0,
        pending_blocks: 0,
        metadata_blocks: 2048,
        journal_copies: 1,
        journal_copies_written: 1,
        sequence: 12,
        reclaim_left_blocks: 0,
        stopped: false,
        read_only: false,
        moving: None,
        mirrors: MirrorReport::default(),
        stripes: Some(StripeReport {
            layout: Stripes { columns: 2, blocks: 16 },
            extents: 8,
            free_extents: 2,
            has_volumes: true,
        }),
        attributes: GroupAttributes::default(),
        pvs: Vec::new(),
        volumes: vec![volume(1, "data", None), volume(2, "before", Some("data"))],
        bookmarks: vec![BookmarkReport {
            name: "mon".into(),
            point_uuid: HexUuid(Uuid([8; 16])),
            of: HexUuid(Uuid([1; 16])),
            created: 1_700_000_000,
            blocks: 1024,
            has_ended: false,
        }],
        index: Index::default(),
    }
}

fn from_wires(corpus: &mut Corpus) {
    for request in requests() {
        let frame = protocol::encode(&request).unwrap();
        corpus.add("request", &frame[4..]);
        corpus.add("request", &frame);
    }
    let outcomes = [
        Outcome::Ok,
        Outcome::Hello { version: VERSION, group: "vg".into(), pid: 77, notes: 1, oldest_notes: 1 },
        Outcome::Report(Box::new(report())),
        Outcome::Free { extents: 3 },
        Outcome::Status(Box::default()),
        Outcome::Progress { done: 1, total: 2, what: "blocks".into() },
        Outcome::Error { kind: ErrorKind::NoSpace, message: "insufficient free space".into() },
        Outcome::MergeWaits { is_origin_open: true },
    ];
    for outcome in outcomes {
        corpus.add("outcome", &protocol::encode(&outcome).unwrap()[4..]);
        corpus.add("report", &protocol::encode_compact(&outcome).unwrap()[5..]);
    }
    for message in [
        "S",
        "W",
        "L",
        "B",
        "d",
        "Hfile=data.1\nid=7\nname=data\nloop=3",
        "hfile=a.1\nid=7\nname=a",
        "Rdata.1",
        "Nother",
        "rbecause",
        "tstarted=3\nfailures=2\nheld=1",
        // Carriage returns are a part of a name.
        "Hfile=a\r\r\nid=7\nname=b",
    ] {
        corpus.add("keeper", message);
    }
    for message in [
        r#"{"Attach":{"file":"/run/rowen/vg/data.1","sector":512,"read_only":false}}"#,
        r#"{"Detach":3}"#,
        r#"{"Abandon":[1,2]}"#,
        r#"{"SetReadOnly":[3,true]}"#,
        r#"{"Thaw":["/run/rowen/vg/frozen"]}"#,
        r#"{"Look":["/dev/sdb"]}"#,
        r#"{"Ok":3}"#,
        r#"{"Err":{"System":{"doing":"open it","errno":5,"why":"Input/output error"}}}"#,
        r#"{"Err":{"InUse":{"device":"/dev/loop3","user":"somebody"}}}"#,
    ] {
        corpus.add("helper", message);
    }
}

/// Requests of the kernel: a header, and what follows it.
fn from_the_kernel(corpus: &mut Corpus) {
    let request = |opcode: u32, args: &[u64], data: usize| {
        let mut bytes = Vec::new();
        bytes.extend((40 + 8 * args.len() as u32 + data as u32).to_le_bytes());
        bytes.extend(opcode.to_le_bytes());
        bytes.extend(77u64.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        bytes.extend([0; 16]);
        args.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.resize(bytes.len() + data, 0xAA);
        bytes
    };
    corpus.add("fuse", request(15, &[0, 4096, 8192, 0, 0], 0));
    corpus.add("fuse", request(16, &[0, 4096, 512, 0, 0], 512));
    corpus.add("fuse", request(43, &[0, 0, 1 << 20, 3], 0));
    corpus.add("fuse", request(43, &[0, 4096, 1 << 20, 0x11], 0));
    corpus.add("fuse", request(4, &[8, 0, 1 << 30, 0, 0, 0, 0, 0, 0, 0, 0], 0));
    for opcode in [3, 14, 17, 20, 26] {
        corpus.add("fuse", request(opcode, &[0, 0], 0));
    }
}

fn from_files(corpus: &mut Corpus) {
    let origin = Origin { description: "by hand".into(), host: "host".into(), time: 1_700_000_000 };
    corpus.add("metadata", Document::of(&report(), origin).write());
    let devices = format!(
        "# Physical volumes of Rowen: identifier and path. Commands keep this file.\n# mine\n{} /dev/sdb\n{} /srv/a b.img\n",
        "07".repeat(16),
        "08".repeat(16)
    );
    corpus.add("devices", devices);
    corpus.add("devices", format!("{} relative\n\n0707 /x", "09".repeat(16)));
    for text in [
        "activation {\n\tvolume_list = [ \"vg\", \"@tag\" ]\n\tthin_pool_autoextend_threshold = 70\n}\n",
        "activation/auto_activation_volume_list = []\ntags { hosttags = 1 web { host_list = [ \"a\" ] } }\n",
        "server {\n\tprocessor_latency = 1\n}\nbackup { retain_min = 10 retain_days = 30 }\n",
        "a = 1.5 # real\nb = [ 1, \"two\", [ 3 ] ]\nc { d { e = 'f' } }\n",
    ] {
        corpus.add("settings", text);
    }
    let command = |id: &str, failure: Option<&str>| history::Command {
        time: 1_700_000_000,
        group: "vg".into(),
        id: id.into(),
        command: "lvcreate -L 1G vg".into(),
        request: "create-volume".into(),
        failure: failure.map(str::to_owned),
        user: "root".into(),
        host: "h".into(),
        pid: 7,
        milliseconds: 12,
    };
    let lines = [command("a", None), command("b", Some("no room")), command("a", Some("\u{1b}[2J"))];
    corpus.add("history", lines.iter().map(history::write).collect::<String>());
    let event = |event: history::What, message: &str| history::Event {
        time: 1_700_000_000,
        group: "vg".into(),
        event: event.word().into(),
        message: message.into(),
        host: "h".into(),
        pid: 9,
    };
    let lines = [event(history::What::Started, "served"), event(history::What::PvError, "/dev/sdb failed a write")];
    corpus.add("history", lines.iter().map(history::write).collect::<String>());
    let own = rowen_control::settings::defaults();
    if let Some(text) = own.write(None) {
        corpus.add("settings", text);
    }
}

/// Streams of `rowen send`: of one volume and of several, whole and the rest of one that was cut, and tokens.
fn from_transfers(corpus: &mut Corpus) {
    use rowen_transfer::{Base, Head, MarkPlace, Range, StreamWriter, Token, TokenVolume, Volume};
    let place = MarkPlace { stream: [8; 16], volume: 1, block: 120, hash: [9; 32] };
    for (base, names, continues) in [
        (false, &["db"][..], None),
        (true, &["db"], None),
        (true, &["a", "b", "c"], None),
        (true, &["a", "b"], Some(place)),
    ] {
        let of = |name: &&str| Volume {
            name: (*name).into(),
            blocks: 4096,
            sector: 512,
            thick: true,
            base: base.then(|| Base { point: [3; 16], name: "mon".into() }),
            point: [4; 16],
            snapshot: format!("{name}-tue"),
            changed: Some(3),
        };
        let volumes: Vec<Volume> = names.iter().map(of).collect();
        let count = volumes.len() as u16;
        let group_name = "vg0".to_owned();
        let head = Head { stream: [1; 16], continues, volumes: count, time: 1, group: [2; 16], group_name };
        for compress in [false, true] {
            let mut writer = StreamWriter::begin(Vec::new(), &head, &volumes, compress).expect("memory takes it");
            for number in continues.map_or(0, |place| place.volume)..u32::from(count) {
                let first = 4 * continues.map_or(0, |place| place.block);
                let ranges = [Range { start: first, blocks: 1 }, Range { start: first + 7, blocks: 2 }];
                let written = writer.data(number, &ranges, &[7; 3 * 4096]);
                let written = written.and_then(|()| writer.zeros(number, first + 100, 50));
                written.and_then(|()| writer.mark(number, first + 150)).expect("memory takes it");
            }
            corpus.add("transfer", writer.end().expect("memory takes it"));
        }
        let member = |volume: &Volume| TokenVolume {
            base: volume.base.clone(),
            point: volume.point,
            snapshot: volume.snapshot.clone(),
        };
        let place = MarkPlace { volume: 0, ..place };
        let volumes = volumes.iter().map(member).collect();
        corpus.add("token", Token { place, group_name: "vg0".into(), volumes }.to_bytes());
    }
}

/// What disks with legs of mirrors have beside the contents.
fn from_mirrors(corpus: &mut Corpus) {
    let first = intents::REGIONS_IN_SECTOR;
    for regions in [vec![], vec![first], vec![first, first + 7, 2 * first - 1]] {
        corpus.add("intents", intents::encode(1, 77, regions.into_iter()));
    }
    let mut tally = Tally { own: 9, ..Tally::default() };
    corpus.add("tally", tally.encode(77));
    (tally.known[0], tally.known[1]) = (8, 9);
    corpus.add("tally", tally.encode(77));
}

fn main() {
    let mut corpus = Corpus { examples: BTreeMap::new(), most: 12 };
    from_disks(&mut corpus);
    corpus.most += 4;
    from_a_lost_disk(&mut corpus);
    corpus.most -= 4;
    from_wires(&mut corpus);
    from_the_kernel(&mut corpus);
    from_files(&mut corpus);
    from_transfers(&mut corpus);
    from_mirrors(&mut corpus);
    corpus.write();
}
