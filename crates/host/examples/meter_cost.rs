//! What it costs to count a request: `cargo run --release -p rowen-host --example meter_cost [REQUESTS]`. It prints nanoseconds
//! for each request, of a volume's counters and of a disk's. A request to a volume is counted once for it and once for each disk.

use rowen_host::meter::{Meter, Op};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let requests: u64 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10_000_000);
    for (name, meter) in [("volume", Meter::for_one_thread()), ("disk", Meter::for_many_threads())] {
        for _ in 0..3 {
            let start = Instant::now();
            for _ in 0..requests {
                let begun = black_box(&meter).begin();
                black_box(&meter).end(Op::Write, black_box(begun), Some(4096));
            }
            let nanos = start.elapsed().as_nanos() as f64 / requests.max(1) as f64;
            println!("{name}: {nanos:.1} ns");
        }
        assert_eq!(meter.counts().write.requests, 3 * requests);
    }
}
