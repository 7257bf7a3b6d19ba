//! The models against what was published of the disks, and against what they promise themselves.

use super::hdd::{BARRACUDA_ES, Hdd};
use super::ssd::{Ssd, X25_M};
use super::*;
use crate::trace::Op;

/// SplitMix64.
fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn request(op: Op, offset: u64, len: u64, n: u64, depth: u64) -> Request {
    // `depth` requests are under way at a time: the n-th was submitted when the one that many before was complete.
    Request { op, offset, len, durable: false, submitted: n * 10, completed: (n + depth) * 10 - 1 }
}

fn random(op: Op, count: u64, len: u64, span: u64, depth: u64) -> Vec<Request> {
    (0..count).map(|n| request(op, mix(n) % (span / len) * len, len, n, depth)).collect()
}

fn sequential(op: Op, count: u64, len: u64) -> Vec<Request> {
    (0..count).map(|n| request(op, n * len, len, n, 1)).collect()
}

fn hdd(requests: &[Request]) -> Replayed {
    replay(&mut Hdd::new(BARRACUDA_ES), requests)
}

fn ssd(requests: &[Request]) -> Replayed {
    replay(&mut Ssd::new(X25_M), requests)
}

fn near(found: f64, published: f64, within: f64) {
    assert!((found / published - 1.0).abs() <= within, "{found} is far from {published}");
}

const DISK: u64 = BARRACUDA_ES.capacity;

#[test]
fn the_disk_that_turns_is_as_its_data_sheet_says() {
    // A random read: 8.5 ms of seek and half a turn of 8.33 ms, 12.7 ms or 79 a second.
    let reads = random(Op::Read, 4000, 4096, DISK, 1);
    near(hdd(&reads).waited as f64 / 1e6 / 4000.0, 8.5 + 4.16 + 0.1, 0.03);
    // Streaming at the outside, reads and writes.
    for op in [Op::Read, Op::Write] {
        let took = hdd(&sequential(op, 2000, 1 << 20)).drained;
        near((2000u64 << 20) as f64 / 1e6 / (took as f64 / 1e9), 78.0, 0.03);
    }
    // At the inside half of it; on the average of the surface what was measured on a disk of the family.
    let at = |place: u64| {
        let there = sequential(Op::Read, 200, 1 << 20).into_iter().map(|r| Request { offset: r.offset + place, ..r });
        (200u64 << 20) as f64 / 1e6 / (hdd(&there.collect::<Vec<_>>()).drained as f64 / 1e9)
    };
    near(at(DISK - (2 << 30)), 39.0, 0.05);
    let places = 16;
    near((0..places).map(|n| at(DISK / places * n)).sum::<f64>() / places as f64, 62.0, 0.08);
}

#[test]
fn the_documents_disks_write_without_a_snapshot_as_they_did() {
    // dd of 1000 MiB and sync on two of these as a hardware mirror, in requests of ext2's size; its metadata is not in it.
    let seconds = hdd(&sequential(Op::Write, 8000, 128 << 10)).drained as f64 / 1e9;
    let published = crate::published::VAN_DOK[0].without;
    assert!(seconds > 0.6 * published && seconds < published, "{seconds}");
    // The SSD of the LXD document, which it does not name: dd of 1 GiB and sync at 89 to 95 MB/s.
    let mut writes = sequential(Op::Write, 8192, 128 << 10);
    writes.push(request(Op::Flush, 0, 0, 8192, 1));
    near((1u64 << 30) as f64 / 1e6 / (ssd(&writes).answered as f64 / 1e9), 93.0, 0.08);
}

#[test]
fn queues_caches_and_flushes_of_a_disk_that_turns() {
    // Deep queues are sorted: more than one at a time, less than streaming.
    let alone = hdd(&random(Op::Read, 2000, 4096, DISK, 1)).answered;
    let deep = hdd(&random(Op::Read, 2000, 4096, DISK, 32)).answered;
    assert!(deep * 3 < alone * 2 && deep * 10 > alone, "{deep} of {alone}");
    // The cache answers at once until it is full.
    let few = hdd(&random(Op::Write, 1000, 4096, DISK, 1));
    assert!(few.answered < few.drained / 10, "{few:?}");
    let many = hdd(&random(Op::Write, 20_000, 4096, DISK, 1));
    assert!(many.answered > 30_000_000_000, "{many:?}");
    // What goes into the cache at once shares the interface.
    let together: Vec<_> = (0..8).map(|n| request(Op::Write, n << 30, 1 << 20, n, 8)).collect();
    near(hdd(&together).answered as f64 / 1e9, f64::from(8 << 20) / 300e6, 0.01);
    // Write and flush in turn: each costs at least most of a turn.
    let mut pairs = Vec::new();
    for n in 0..100 {
        pairs.push(request(Op::Write, n * 4096, 4096, 2 * n, 1));
        pairs.push(request(Op::Flush, 0, 0, 2 * n + 1, 1));
    }
    let took = hdd(&pairs).answered as f64 / 1e6 / 100.0;
    near(took, 60e3 / 7200.0, 0.2);
    // A durable write is as slow, without a flush.
    let durable: Vec<_> = sequential(Op::Write, 100, 4096).iter().map(|r| Request { durable: true, ..*r }).collect();
    near(hdd(&durable).answered as f64 / 1e6 / 100.0, 60e3 / 7200.0, 0.2);
    // A flush with nothing to do costs a command, and what was just written is read from the cache.
    assert!(hdd(&[request(Op::Flush, 0, 0, 0, 1)]).answered < 100_000);
    let again = [request(Op::Write, 8192, 8192, 0, 1), request(Op::Read, 8192, 4096, 1, 1)];
    assert!(hdd(&again).answered < 1_000_000);
}

#[test]
fn copying_between_two_places_costs_seeks() {
    // What copy on write does for each chunk: read here, write there, flush, write metadata, flush, write here.
    let mut copies = Vec::new();
    let (store, chunk) = (3u64 << 30, 4096);
    for n in 0..200 {
        let steps = [
            (Op::Read, n * chunk, chunk),
            (Op::Write, store + (n + 1) * chunk, chunk),
            (Op::Flush, 0, 0),
            (Op::Write, store, chunk),
            (Op::Flush, 0, 0),
            (Op::Write, n * chunk, chunk),
        ];
        for (step, (op, offset, len)) in steps.into_iter().enumerate() {
            copies.push(request(op, offset, len, n * 6 + step as u64, 1));
        }
    }
    let each = hdd(&copies).drained as f64 / 1e6 / 200.0;
    assert!(each > 15.0 && each < 60.0, "{each} ms a chunk");
}

#[test]
fn the_ssd_is_as_its_data_sheet_says() {
    let span = 8 << 30;
    near(20_000.0 / (ssd(&random(Op::Read, 20_000, 4096, span, 32)).answered as f64 / 1e9), 35_000.0, 0.02);
    near(20_000.0 / (ssd(&random(Op::Write, 20_000, 4096, span, 32)).answered as f64 / 1e9), 8600.0, 0.03);
    near(ssd(&random(Op::Read, 1000, 4096, span, 1)).waited as f64 / 1e6, 65.0, 0.02);
    near(ssd(&random(Op::Write, 10, 4096, span, 1)).waited as f64 / 1e4, 85.0, 0.02);
    for (op, rate) in [(Op::Read, 250.0), (Op::Write, 100.0)] {
        let took = ssd(&sequential(op, 1000, 1 << 20)).answered as f64 / 1e9;
        near(1000.0 * 1.048_576 / took, rate, 0.03);
    }
    let flushes: Vec<_> = (0..10).map(|n| request(Op::Flush, 0, 0, n, 1)).collect();
    assert!(ssd(&flushes).answered < 1_000_000);
}

#[test]
fn the_same_record_gives_the_same_figures_and_order_is_kept() {
    let mut mixed = random(Op::Read, 500, 4096, 1 << 30, 8);
    mixed.iter_mut().enumerate().for_each(|(n, r)| r.op = [Op::Read, Op::Write, Op::Write, Op::Flush][n % 4]);
    assert_eq!(hdd(&mixed), hdd(&mixed));
    assert_eq!(ssd(&mixed), ssd(&mixed));
    // These are figures of the model, not of a machine: they change only with the model.
    assert_eq!(hdd(&[]), Replayed::default());
    // A chain takes the sum, requests that were under way together do not.
    let chain = ssd(&random(Op::Read, 100, 4096, 1 << 30, 1));
    let together = ssd(&random(Op::Read, 100, 4096, 1 << 30, 100));
    assert_eq!(chain.answered, chain.waited);
    assert!(together.answered < chain.answered / 2);
}

#[test]
fn dirty_stretches_merge_and_are_taken_in_order() {
    let mut dirty = Dirty::default();
    dirty.add(0, 10, 1);
    dirty.add(20, 30, 2);
    dirty.add(5, 22, 3);
    assert_eq!((dirty.bytes, dirty.stretches.len(), dirty.oldest()), (30, 1, Some(1)));
    assert!(dirty.covers(3, 30) && !dirty.covers(3, 31) && !dirty.covers(40, 41));
    dirty.add(40, 50, 4);
    assert_eq!(dirty.take_from(35, 100), Some((40, 50, 4)));
    assert_eq!(dirty.take_from(35, 12), Some((0, 12, 1)));
    assert_eq!(dirty.take_from(12, 100), Some((12, 30, 1)));
    assert_eq!((dirty.take_from(0, 1), dirty.bytes), (None, 0));
}
