//! The contract of [`rowen_engine::disk`] as tests, for every [`Disks`]: real and simulated ones. Each check leaves its
//! own contents on the disks.

use rowen_engine::disk::{DiskError, DiskOp, DiskOpKind, Disks, PageBuf, PvIndex, Segment, Segments, start};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Runs a future to its end on whatever completes the disks' requests.
pub type BlockOn<'a> = &'a dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>);

/// A check and its name. The disks must have at least 16 MiB each.
pub type Check = (&'static str, fn(Arc<dyn Disks>, BlockOn<'_>));

/// Checks of valid requests.
pub const CONTRACT: &[Check] = &[
    ("what was written is read", |d, run| run(Box::pin(read_back(d)))),
    ("a request spans disks and takes its buffer in any order", |d, run| run(Box::pin(scattered(d)))),
    ("hundreds of requests at a time", |d, run| run(Box::pin(crowd(d)))),
    ("one big request", |d, run| run(Box::pin(big(d)))),
    ("the first and the last sector", |d, run| run(Box::pin(edges(d)))),
    ("a flush, also with nothing to do", |d, run| run(Box::pin(flushes(d)))),
    ("a discard leaves its neighbours alone", |d, run| run(Box::pin(discards(d)))),
    ("a request whose outcome nobody awaits", |d, run| run(Box::pin(forgotten(d)))),
    ("a request without segments", |d, run| run(Box::pin(empty(d)))),
];

/// Checks that invalid requests fail and do nothing.
pub const REFUSALS: &[Check] = &[
    ("past the end", |d, run| run(Box::pin(past_the_end(d)))),
    ("not on sector boundaries", |d, run| run(Box::pin(misaligned(d)))),
    ("outside its buffer", |d, run| run(Box::pin(outside_buffer(d)))),
    ("on no disk", |d, run| run(Box::pin(no_disk(d)))),
];

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn pattern(len: usize, seed: u64) -> PageBuf {
    let mut buf = PageBuf::zeroed(len);
    let mut numbers = Numbers(seed);
    for word in buf.as_mut_slice().chunks_exact_mut(8) {
        word.copy_from_slice(&numbers.next().to_le_bytes());
    }
    buf
}

fn piece(pv: u16, offset: u64, at: u32, len: u32) -> Segment {
    Segment { pv: PvIndex(pv), offset, at, len }
}

fn one(pv: u16, offset: u64, len: usize) -> Segments {
    let len = u32::try_from(len).expect("the suite's requests are small");
    Segments::from_iter([piece(pv, offset, 0, len)])
}

async fn write(disks: &dyn Disks, segments: Segments, buf: PageBuf) -> Result<PageBuf, DiskError> {
    let buf = Arc::new(buf);
    let done = start(disks, DiskOp::Write { segments, buf: buf.clone() }).await;
    let buf = Arc::try_unwrap(buf).expect("a completed write holds its buffer no more");
    assert!(done?.is_none(), "a write gives no buffer back");
    Ok(buf)
}

async fn read(disks: &dyn Disks, segments: Segments, len: usize) -> Result<PageBuf, DiskError> {
    let buf = PageBuf::zeroed(len);
    let place = buf.as_slice().as_ptr() as usize;
    let buf = start(disks, DiskOp::Read { segments, buf }).await?.expect("a read gives its buffer back");
    assert_eq!(buf.as_slice().as_ptr() as usize, place, "it is the same buffer");
    Ok(buf)
}

/// Writes the pattern of `seed` and expects success.
async fn put(disks: &dyn Disks, pv: u16, offset: u64, len: usize, seed: u64) {
    write(disks, one(pv, offset, len), pattern(len, seed)).await.expect("the write fits");
}

/// Expects the pattern of `seed`.
async fn expect(disks: &dyn Disks, pv: u16, offset: u64, len: usize, seed: u64) {
    let found = read(disks, one(pv, offset, len), len).await.expect("the read fits");
    let same = found.as_slice()[..len] == pattern(len, seed).as_slice()[..len];
    assert!(same, "disk {pv} at {offset}: {len} bytes differ from what was written");
}

fn sector(disks: &dyn Disks, pv: u16) -> usize {
    disks.geometry(PvIndex(pv)).sector as usize
}

fn size(disks: &dyn Disks, pv: u16) -> u64 {
    disks.geometry(PvIndex(pv)).size
}

fn pvs(disks: &dyn Disks) -> std::ops::Range<u16> {
    0..u16::try_from(disks.count()).expect("positions are 16 bits")
}

async fn read_back(disks: Arc<dyn Disks>) {
    for pv in pvs(&*disks) {
        let sector = sector(&*disks, pv);
        let mut model = vec![0u8; 1 << 20];
        write(&*disks, one(pv, 0, model.len()), PageBuf::zeroed(model.len())).await.expect("the write fits");
        let mut numbers = Numbers(7);
        for seed in 0..200 {
            let len = sector * (1 + numbers.next() as usize % 40);
            let offset = numbers.next() as usize % ((model.len() - len) / sector) * sector;
            put(&*disks, pv, offset as u64, len, seed).await;
            model[offset..offset + len].copy_from_slice(&pattern(len, seed).as_slice()[..len]);
        }
        let found = read(&*disks, one(pv, 0, model.len()), model.len()).await.expect("the read fits");
        assert!(found.as_slice() == model, "disk {pv} differs from the model");
    }
}

async fn scattered(disks: Arc<dyn Disks>) {
    let last = u16::try_from(disks.count() - 1).expect("positions are 16 bits");
    // The buffer's pages go to the disks in reverse order, on alternating disks.
    let pieces = |swap: bool| -> Segments {
        (0..8u32)
            .map(|n| {
                let at = if swap { 7 - n } else { n } * 4096;
                piece(if n % 2 == 0 { 0 } else { last }, 65536 + u64::from(n) * 8192, at, 4096)
            })
            .collect()
    };
    write(&*disks, pieces(true), pattern(32768, 1)).await.expect("the write fits");
    let found = read(&*disks, pieces(false), 32768).await.expect("the read fits");
    let written = pattern(32768, 1);
    for (n, page) in found.as_slice().chunks(4096).enumerate() {
        let at = (7 - n) * 4096;
        assert!(page == &written.as_slice()[at..at + 4096], "page {n} went elsewhere");
    }
    // A read leaves what it was not asked for as it was.
    let mut buf = pattern(8192, 2);
    let segments = Segments::from_iter([piece(0, 65536, 4096, 4096)]);
    buf = start(&*disks, DiskOp::Read { segments, buf }).await.expect("the read fits").expect("its buffer");
    assert!(buf.as_slice()[..4096] == pattern(8192, 2).as_slice()[..4096], "the rest of the buffer changed");
}

async fn crowd(disks: Arc<dyn Disks>) {
    for round in 0..3u64 {
        let writes: Vec<_> = (0..800u64)
            .map(|n| {
                let buf = Arc::new(pattern(4096, round * 1000 + n));
                start(&*disks, DiskOp::Write { segments: one(0, n * 4096, 4096), buf })
            })
            .collect();
        for write in writes {
            assert!(write.await.expect("the write fits").is_none());
        }
        let reads: Vec<_> = (0..800u64)
            .map(|n| start(&*disks, DiskOp::Read { segments: one(0, n * 4096, 4096), buf: PageBuf::zeroed(4096) }))
            .collect();
        for (n, read) in reads.into_iter().enumerate() {
            let found = read.await.expect("the read fits").expect("its buffer");
            assert!(found.as_slice() == pattern(4096, round * 1000 + n as u64).as_slice(), "page {n} differs");
        }
    }
}

async fn big(disks: Arc<dyn Disks>) {
    put(&*disks, 0, 1 << 20, 12 << 20, 5).await;
    expect(&*disks, 0, 1 << 20, 12 << 20, 5).await;
}

async fn edges(disks: Arc<dyn Disks>) {
    for pv in pvs(&*disks) {
        let sector = sector(&*disks, pv);
        let last = size(&*disks, pv) - sector as u64;
        put(&*disks, pv, 0, sector, 10).await;
        put(&*disks, pv, last, sector, 11).await;
        expect(&*disks, pv, 0, sector, 10).await;
        expect(&*disks, pv, last, sector, 11).await;
    }
}

async fn flushes(disks: Arc<dyn Disks>) {
    for seed in 0..3 {
        put(&*disks, 0, 8192, 4096, seed).await;
        assert!(start(&*disks, DiskOp::Flush).await.expect("a flush").is_none());
        assert!(start(&*disks, DiskOp::Flush).await.expect("a flush of nothing").is_none());
        expect(&*disks, 0, 8192, 4096, seed).await;
    }
    // Several at a time, concurrent with writes.
    let flushes: Vec<_> = (0..20).map(|_| start(&*disks, DiskOp::Flush)).collect();
    put(&*disks, 0, 8192, 4096, 77).await;
    for flush in flushes {
        flush.await.expect("a flush");
    }
}

async fn discards(disks: Arc<dyn Disks>) {
    for pv in pvs(&*disks) {
        put(&*disks, pv, 0, 3 << 20, 20).await;
        let middle = Segments::from_iter([piece(pv, 1 << 20, 0, 1 << 19), piece(pv, 3 << 19, 0, 1 << 19)]);
        match start(&*disks, DiskOp::Discard { segments: middle }).await {
            Ok(buf) => assert!(buf.is_none(), "a discard has no buffer"),
            // A disk without discards says so, and loses nothing.
            Err(error) => assert_eq!((error.op, error.errno), (DiskOpKind::Discard, libc::EOPNOTSUPP)),
        }
        let found = read(&*disks, one(pv, 0, 3 << 20), 3 << 20).await.expect("all of it can be read");
        let written = pattern(3 << 20, 20);
        assert!(found.as_slice()[..1 << 20] == written.as_slice()[..1 << 20], "what lies before was lost");
        assert!(found.as_slice()[2 << 20..] == written.as_slice()[2 << 20..], "what lies behind was lost");
        put(&*disks, pv, 1 << 20, 1 << 20, 21).await;
        expect(&*disks, pv, 1 << 20, 1 << 20, 21).await;
    }
}

async fn forgotten(disks: Arc<dyn Disks>) {
    for n in 0..100u64 {
        let buf = Arc::new(pattern(4096, n));
        drop(start(&*disks, DiskOp::Write { segments: one(0, n * 4096, 4096), buf }));
        drop(start(&*disks, DiskOp::Read { segments: one(0, n * 4096, 4096), buf: PageBuf::zeroed(4096) }));
    }
    // They are still carried out, but it is unknown when. So other places are used from here on.
    put(&*disks, 0, 4 << 20, 4096, 1).await;
    expect(&*disks, 0, 4 << 20, 4096, 1).await;
}

async fn empty(disks: Arc<dyn Disks>) {
    let read = start(&*disks, DiskOp::Read { segments: Segments::new(), buf: pattern(4096, 3) }).await;
    let buf = read.expect("nothing to do").expect("its buffer");
    assert!(buf.as_slice() == pattern(4096, 3).as_slice());
    let write = DiskOp::Write { segments: Segments::new(), buf: Arc::new(PageBuf::zeroed(4096)) };
    assert!(start(&*disks, write).await.expect("nothing to do").is_none());
    assert!(start(&*disks, DiskOp::Discard { segments: Segments::new() }).await.expect("nothing to do").is_none());
}

/// Expects that each request fails with its own name and place, and that the first and last page stay as they were.
async fn expect_refused(disks: &dyn Disks, segments: &[Segments], buf: usize) {
    let last = size(disks, 0) / 4096 * 4096 - 4096;
    put(disks, 0, 0, 4096, 30).await;
    put(disks, 0, last, 4096, 31).await;
    for segments in segments {
        let read = read(disks, segments.clone(), buf).await;
        let write = write(disks, segments.clone(), pattern(buf, 99)).await;
        for error in [read.err(), write.err()] {
            let error = error.unwrap_or_else(|| panic!("{segments:?} was accepted"));
            assert!(
                segments.iter().any(|s| s.pv == error.pv && s.offset == error.offset),
                "{error} is about no segment"
            );
        }
    }
    expect(disks, 0, 0, 4096, 30).await;
    expect(disks, 0, last, 4096, 31).await;
}

async fn past_the_end(disks: Arc<dyn Disks>) {
    let (size, sector) = (size(&*disks, 0), sector(&*disks, 0) as u32);
    let ranges = [
        one(0, size, 4096),
        one(0, size - u64::from(sector), 2 * sector as usize),
        one(0, u64::MAX - u64::from(sector) + 1, sector as usize),
        one(0, 1 << 62, 4096),
        // The part that fits is not done either.
        Segments::from_iter([piece(0, 0, 0, 4096), piece(0, size, 4096, 4096)]),
    ];
    expect_refused(&*disks, &ranges, 8192).await;
    assert!(start(&*disks, DiskOp::Discard { segments: one(0, size, 4096) }).await.is_err());
}

async fn misaligned(disks: Arc<dyn Disks>) {
    let sector = sector(&*disks, 0) as u32;
    let ranges = [
        Segments::from_iter([piece(0, u64::from(sector) / 2, 0, sector)]),
        Segments::from_iter([piece(0, 0, 0, sector / 2)]),
        Segments::from_iter([piece(0, 0, sector / 2, sector)]),
        Segments::from_iter([piece(0, 0, 0, 0)]),
    ];
    expect_refused(&*disks, &ranges, 8192).await;
}

async fn outside_buffer(disks: Arc<dyn Disks>) {
    let ranges = [
        Segments::from_iter([piece(0, 0, 4096, 4096)]),
        Segments::from_iter([piece(0, 0, 0, 8192)]),
        Segments::from_iter([piece(0, 0, u32::MAX - 4095, 8192)]),
    ];
    expect_refused(&*disks, &ranges, 4096).await;
}

async fn no_disk(disks: Arc<dyn Disks>) {
    let absent = u16::try_from(disks.count()).expect("positions are 16 bits");
    expect_refused(&*disks, &[one(absent, 0, 4096), one(u16::MAX, 0, 4096)], 4096).await;
}
