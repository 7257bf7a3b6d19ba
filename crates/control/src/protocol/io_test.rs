use super::*;

fn counted(latencies: &[u64]) -> OpCounts {
    let mut counts = OpCounts::default();
    for micros in latencies {
        counts.requests += 1;
        counts.bytes += 4096;
        counts.micros += micros;
        counts.buckets[bucket_of(*micros)] += 1;
    }
    counts
}

#[test]
fn each_latency_has_one_bucket() {
    assert_eq!([0, 7].map(bucket_of), [0, 0]);
    assert_eq!([8, 15, 16].map(bucket_of), [1, 1, 2]);
    assert_eq!(bucket_of((1 << 24) - 1), BUCKETS - 2);
    assert_eq!([1 << 24, u64::MAX].map(bucket_of), [BUCKETS - 1; 2]);
    assert_eq!((bucket_end(0), bucket_end(BUCKETS - 2), bucket_end(BUCKETS - 1)), (Some(8), Some(1 << 24), None));
    for bucket in 0..BUCKETS {
        assert_eq!(bucket_of(bucket_start(bucket)), bucket);
        if let Some(end) = bucket_end(bucket) {
            assert_eq!((bucket_of(end - 1), bucket_of(end)), (bucket, bucket + 1));
        }
    }
}

#[test]
fn percentiles_lie_within_the_bucket_of_the_request_in_question() {
    // 98 requests of 10 us, one of 100 us, one of 1000 us.
    let counts = counted(&[&[10; 98][..], &[100, 1000]].concat());
    let micros = |latency: Option<Latency>| match latency {
        Some(Latency::Micros(micros)) => micros,
        other => panic!("{other:?}"),
    };
    assert_eq!(counts.mean(), Some(20.8));
    assert!((8.0..16.0).contains(&micros(counts.percentile(0.5))));
    assert!((64.0..=128.0).contains(&micros(counts.percentile(0.99))));
    assert!((512.0..=1024.0).contains(&micros(counts.percentile(1.0))));
    assert_eq!(counts.longest(), Some(Latency::Micros(1024.0)));
    let mut before = 0.0;
    for share in 0..=100 {
        let now = micros(counts.percentile(f64::from(share) / 100.0));
        assert!(now >= before, "{share}: {now} < {before}");
        before = now;
    }
}

#[test]
fn without_requests_there_is_no_latency() {
    let none = OpCounts::default();
    assert_eq!((none.mean(), none.percentile(0.5), none.longest()), (None, None, None));
}

#[test]
fn a_request_without_end_is_reported_as_one() {
    let counts = counted(&[10, 60_000_000]);
    assert_eq!(counts.longest(), Some(Latency::From(1 << 24)));
    assert_eq!(counts.percentile(0.99), Some(Latency::From(1 << 24)));
}

#[test]
fn a_difference_is_what_was_done_in_between() {
    let (before, after) = (counted(&[10, 20]), counted(&[10, 20, 5000]));
    let done = after.since(&before);
    assert_eq!((done.requests, done.bytes, done.micros), (1, 4096, 5000));
    assert_eq!(done.longest(), Some(Latency::Micros(8192.0)));
    // Counters of another server: no number below zero, and no panic.
    assert_eq!(before.since(&after), OpCounts::default());
}

#[test]
fn the_largest_numbers_are_no_trouble() {
    let most = OpCounts {
        requests: u64::MAX,
        failed: u64::MAX,
        bytes: u64::MAX,
        micros: u64::MAX,
        buckets: [u64::MAX; BUCKETS],
    };
    assert_eq!(most.plus(&most), most);
    assert!(most.percentile(0.5).is_some() && most.mean().is_some());
    let counts = IoCounts { read: most, write: most, under_way: u64::MAX, ..IoCounts::default() };
    assert_eq!((counts.failed(), counts.plus(&counts).under_way), (u64::MAX, u64::MAX));
}
