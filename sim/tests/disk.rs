//! The simulated disks keep the contract of `rowen_engine::disk`, and use all of its freedom.

use rowen_engine::disk::{DiskError, DiskOp, DiskOpKind, PageBuf, PvGeometry, PvIndex, Segment, start};
use rowen_sim::disk::{Faults, POLICIES, Policy, SimDisks, SpillDisks, is_metadata};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;

const PV: PvIndex = PvIndex(0);

fn disks(seed: u64) -> (World, Arc<SimDisks>) {
    let world = World::new(seed);
    let disks = SimDisks::new(world.handle(), &[PvGeometry { size: 1 << 20, sector: 512 }; 2]);
    (world, disks)
}

fn segment(offset: u64, len: u32) -> Segment {
    Segment { pv: PV, offset, at: 0, len }
}

fn write(offset: u64, value: u8, len: u32) -> DiskOp {
    let mut buf = PageBuf::zeroed(len as usize);
    buf.as_mut_slice().fill(value);
    DiskOp::Write { segments: [segment(offset, len)].into_iter().collect(), buf: Arc::new(buf) }
}

fn read(offset: u64, len: u32) -> DiskOp {
    DiskOp::Read { segments: [segment(offset, len)].into_iter().collect(), buf: PageBuf::zeroed(len as usize) }
}

fn done(world: &World, disks: &SimDisks, op: DiskOp) -> Result<Vec<u8>, DiskError> {
    world.run(start(disks, op)).map(|buf| buf.map_or(Vec::new(), |buf| buf.as_slice().to_vec()))
}

/// The values of the given sectors after power cuts under a policy, over many draws.
fn outcomes(disks: &SimDisks, policy: Policy, sectors: &[u64]) -> BTreeSet<Vec<u8>> {
    let moment = disks.moment();
    let values = |seed| {
        let image = moment.power_cut(policy, &mut Rng::new(seed));
        let mut byte = [0];
        sectors.iter().map(|sector| (image.read(PV, sector * 512, &mut byte), byte[0]).1).collect()
    };
    (0..200).map(values).collect()
}

#[test]
fn a_read_returns_what_was_written() {
    let (world, disks) = disks(1);
    done(&world, &disks, write(4096, 7, 8192)).unwrap();
    done(&world, &disks, write(4608, 8, 512)).unwrap();
    let bytes = done(&world, &disks, read(4096, 8192)).unwrap();
    assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == if (512..1024).contains(&at) { 8 } else { 7 }));
}

#[test]
fn each_policy_leaves_what_it_says() {
    let (world, disks) = disks(2);
    done(&world, &disks, write(0, 1, 1024)).unwrap();
    done(&world, &disks, DiskOp::Flush).unwrap();
    done(&world, &disks, write(0, 2, 1024)).unwrap();
    done(&world, &disks, write(0, 3, 1024)).unwrap();
    let all = |policy| outcomes(&disks, policy, &[0, 1]);
    let set = |values: &[[u8; 2]]| values.iter().map(|v| v.to_vec()).collect::<BTreeSet<_>>();
    assert_eq!(all(Policy::Nothing), set(&[[1, 1]]));
    assert_eq!(all(Policy::All), set(&[[3, 3]]));
    assert_eq!(all(Policy::Newest), set(&[[3, 3]]));
    assert_eq!(all(Policy::Commands), set(&[[1, 1], [2, 2], [3, 3]]));
    let any = set(&[[1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3], [3, 1], [3, 2], [3, 3]]);
    assert_eq!(all(Policy::Sectors), any);
    assert_eq!(all(Policy::Versions), set(&[[2, 2], [2, 3], [3, 2], [3, 3]]));
}

#[test]
fn a_flush_covers_what_completed_before_it_and_nothing_else() {
    let mut lost = 0;
    for seed in 0..50 {
        let (world, disks) = disks(seed);
        done(&world, &disks, write(0, 1, 512)).unwrap();
        let (late, flush) = (start(&*disks, write(512, 2, 512)), start(&*disks, DiskOp::Flush));
        world.run(async { (flush.await.unwrap(), late.await.unwrap()) });
        assert_eq!(outcomes(&disks, Policy::Nothing, &[0]), BTreeSet::from([vec![1]]));
        lost += usize::from(outcomes(&disks, Policy::Nothing, &[1]).contains(&vec![0]));
        done(&world, &disks, DiskOp::Flush).unwrap();
        POLICIES.iter().for_each(|&policy| assert_eq!(outcomes(&disks, policy, &[0, 1]).len(), 1));
    }
    assert_eq!(lost, 50, "a write that was under way when the flush began is not covered");
}

#[test]
fn what_is_flushed_is_not_overtaken_by_older_cached_writes() {
    for seed in 0..200 {
        let (world, disks) = disks(seed);
        // Two writes in flight together, then one that began after both. It was flushed, so it must stay.
        let (a, b) = (start(&*disks, write(0, 1, 2048)), start(&*disks, write(512, 2, 512)));
        world.run(async { (a.await.unwrap(), b.await.unwrap()) });
        done(&world, &disks, write(0, 3, 1024)).unwrap();
        done(&world, &disks, DiskOp::Flush).unwrap();
        for policy in POLICIES {
            assert_eq!(outcomes(&disks, policy, &[0, 1, 2]), BTreeSet::from([vec![3, 3, 1]]), "seed {seed}");
        }
    }
}

#[test]
fn requests_in_flight_are_carried_out_in_either_order_and_may_land_in_part() {
    let (mut last, mut cut) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..100 {
        let (world, disks) = disks(seed);
        let (a, b) = (start(&*disks, write(0, 1, 1024)), start(&*disks, write(0, 2, 1024)));
        cut.extend(outcomes(&disks, Policy::Sectors, &[0, 1]));
        world.run(async { (a.await.unwrap(), b.await.unwrap()) });
        last.insert(done(&world, &disks, read(0, 512)).unwrap()[0]);
    }
    assert_eq!(last, BTreeSet::from([1, 2]));
    assert_eq!(cut.len(), 9, "{cut:?}");
}

#[test]
fn after_the_programs_death_completed_writes_are_there() {
    let (world, disks) = disks(5);
    done(&world, &disks, write(0, 1, 512)).unwrap();
    let _under_way = start(&*disks, write(0, 2, 512));
    let found: BTreeSet<u8> = (0..100)
        .map(|seed| {
            let mut byte = [0];
            disks.moment().killed(&mut Rng::new(seed)).read(PV, 0, &mut byte);
            byte[0]
        })
        .collect();
    assert_eq!(found, BTreeSet::from([1, 2]));
    drop(world);
}

#[test]
fn faults_strike_where_they_were_asked_for() {
    let (world, disks) = disks(6);
    disks.set_faults(Faults { fail: Some((DiskOpKind::Write, 1)), ..Faults::default() });
    done(&world, &disks, write(0, 1, 512)).unwrap();
    let error = done(&world, &disks, write(0, 2, 512)).unwrap_err();
    assert_eq!((error.op, error.errno), (DiskOpKind::Write, 5));
    done(&world, &disks, write(0, 3, 512)).unwrap();

    disks.set_faults(Faults { unreadable: vec![(PV, 512, 512)], ..Faults::default() });
    assert!(done(&world, &disks, read(0, 1024)).is_err());
    assert!(done(&world, &disks, read(0, 512)).is_ok());
    done(&world, &disks, write(512, 4, 512)).unwrap();
    assert!(done(&world, &disks, read(0, 1024)).is_ok(), "writing heals an unreadable sector");

    disks.set_faults(Faults { lost_write: Some(disks.requests(DiskOpKind::Write)), ..Faults::default() });
    done(&world, &disks, write(512, 5, 512)).unwrap();
    assert_eq!(done(&world, &disks, read(512, 512)).unwrap()[0], 4);

    let number = disks.requests(DiskOpKind::Write);
    disks.set_faults(Faults { misdirected: Some((number, 4096)), ..Faults::default() });
    done(&world, &disks, write(512, 6, 512)).unwrap();
    assert_eq!(done(&world, &disks, read(512, 512)).unwrap()[0], 4);
    assert_eq!(done(&world, &disks, read(4608, 512)).unwrap()[0], 6);

    disks.set_faults(Faults { lying_flush: true, ..Faults::default() });
    done(&world, &disks, DiskOp::Flush).unwrap();
    assert_eq!(outcomes(&disks, Policy::Nothing, &[0]), BTreeSet::from([vec![0]]));

    disks.set_faults(Faults { fail_from: Some((DiskOpKind::Flush, 0)), ..Faults::default() });
    assert!(done(&world, &disks, DiskOp::Flush).is_err());
    disks.set_faults(Faults { hang_from: Some(0), ..Faults::default() });
    assert!(world.try_run(start(&*disks, write(0, 9, 512))).is_err());
}

#[test]
fn pages_that_are_not_kept_read_as_zeros() {
    let (world, disks) = disks(7);
    disks.keep_only(Box::new(|_, offset| offset < 8192));
    done(&world, &disks, write(4096, 1, 4096)).unwrap();
    done(&world, &disks, write(65536, 1, 4096)).unwrap();
    assert_eq!(done(&world, &disks, read(4096, 512)).unwrap()[0], 1);
    assert_eq!(done(&world, &disks, read(65536, 512)).unwrap()[0], 0);
    assert_eq!(disks.current().pages(), 1);
}

#[test]
fn commands_are_counted_by_volume_and_by_kind() {
    let (world, disks) = disks(8);
    let two = [segment(0, 512), Segment { pv: PvIndex(1), offset: 0, at: 512, len: 1024 }];
    let buf = Arc::new(PageBuf::zeroed(4096));
    done(&world, &disks, DiskOp::Write { segments: two.into_iter().collect(), buf }).unwrap();
    done(&world, &disks, DiskOp::Flush).unwrap();
    done(&world, &disks, read(0, 512)).unwrap();
    let counts = disks.counts();
    assert_eq!((counts.writes, counts.written_bytes, counts.reads, counts.flushes), (2, 1536, 1, 1));
    assert_eq!(disks.counts_of(PvIndex(1)).written_bytes, 1024);
    assert_eq!(disks.requests(DiskOpKind::Write), 1);
}

#[test]
fn spilled_disks_keep_metadata_and_drop_data() {
    let geometry = PvGeometry { size: 1 << 30, sector: 512 };
    let disks = SpillDisks::new(&std::env::temp_dir(), &[geometry], is_metadata).unwrap();
    let world = World::new(1);
    let mut node = PageBuf::zeroed(4096);
    node.as_mut_slice()[..4].copy_from_slice(b"RwNd");
    let segments = || [segment(1 << 20, 4096)].into_iter().collect();
    world.run(start(&disks, DiskOp::Write { segments: segments(), buf: Arc::new(node) })).unwrap();
    world.run(start(&disks, write(0, 7, 4096))).unwrap();
    let read = |offset| world.run(start(&disks, read(offset, 512))).unwrap().unwrap().as_slice()[0];
    assert_eq!((read(1 << 20), read(0)), (b'R', 0));
    assert_eq!(disks.written_bytes(), 8192);
}
