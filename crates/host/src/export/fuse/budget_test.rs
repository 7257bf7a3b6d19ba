//! Volumes that use and want memory at random: what is in use, who waits, and who gets it.
//!
//! Rules FB1 and FB2.

use super::*;
use std::sync::atomic::AtomicU64;
use std::task::Wake;

#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll(taking: &mut Taking) -> Option<Permit> {
    match Pin::new(taking).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    }
}

fn budget(mib: usize) -> Arc<Budget> {
    let budget = Arc::new(Budget::default());
    budget.set_limit(mib << 20);
    budget
}

const MIB: usize = 1 << 20;

/// A volume takes what it gets, until it gets no more.
fn fill(share: &Arc<Share>, bytes: usize) -> Vec<Permit> {
    std::iter::from_fn(|| share.try_take(bytes)).collect()
}

#[test]
fn one_volume_uses_half_and_two_use_two_thirds() {
    let budget = budget(96);
    let (one, two) = (budget.share(String::new()), budget.share("pool".into()));
    let held = fill(&one, MIB);
    assert_eq!(held.len(), 48);
    let more = fill(&two, MIB);
    assert_eq!(more.len(), 24);
    assert_eq!(budget.used(), (72 * MIB, 96 * MIB));
    drop((held, more));
    assert_eq!(budget.used().0, 0);
    // However much there is.
    budget.set_limit(1 << 40);
    assert_eq!(fill(&one, MIB).len(), MAX_OF_A_VOLUME / MIB);
}

/// A thousand volumes of one full pool leave memory for volumes of other pools, and for the pool's other volumes.
#[test]
fn volumes_of_a_full_pool_leave_memory_for_others() {
    let budget = budget(64);
    let waiting: Vec<Vec<Permit>> = (0..1000).map(|_| fill(&budget.share("full".into()), MIB + (16 << 10))).collect();
    assert!(!waiting[0].is_empty() && waiting[999].is_empty());
    assert!(budget.used().0 < 50 * MIB, "{:?}", budget.used());
    let held = fill(&budget.share(String::new()), MIB);
    assert!(held.len() >= 6, "{}", held.len());
}

/// A volume that has no memory gets some of its pool's, if others of the pool have not stopped taking it.
#[test]
fn one_busy_volume_leaves_memory_for_others_of_its_pool() {
    let budget = budget(64);
    let busy = fill(&budget.share("pool".into()), MIB);
    let first = fill(&budget.share("pool".into()), MIB);
    assert!(busy.len() == 32 && !first.is_empty(), "{} and {}", busy.len(), first.len());
}

/// Any request fits into the smallest budget.
#[test]
fn a_single_request_always_fits() {
    let budget = budget(0);
    assert_eq!(budget.used(), (0, MIN));
    assert!(budget.share(String::new()).try_take(super::super::MAX_WRITE + super::super::SMALL).is_some());
}

/// Who waits is woken by the first that gives enough back, and who waits no more takes nothing.
#[test]
fn who_waits_is_woken_once() {
    let budget = budget(16);
    let (busy, other) = (budget.share(String::new()), budget.share("pool".into()));
    let mut held = fill(&busy, MIB);
    held.extend(fill(&other, MIB));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut taking = busy.take(4 * MIB);
    assert!(Pin::new(&mut taking).poll(&mut Context::from_waker(&waker)).is_pending());
    let left = busy.take(MIB);
    let mut left = Box::pin(left);
    assert!(left.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(left);
    while woken.0.load(Ordering::Relaxed) == 0 {
        held.pop().expect("it is woken before all is given back");
    }
    let used = budget.used().0;
    let permit = poll(&mut taking).expect("it was woken");
    assert_eq!(budget.used().0, used, "it was counted when it was given");
    drop((permit, held));
    assert_eq!(budget.used().0, 0);
    // It was given, and its task ended before it knew.
    let held = fill(&busy, MIB);
    let mut taking = busy.take(4 * MIB);
    assert!(poll(&mut taking).is_none());
    drop(held);
    assert_eq!(budget.used().0, 4 * MIB);
    drop(taking);
    assert_eq!(budget.used().0, 0);
}

/// FB1 at each step, and at the end everybody has got what they waited for.
#[test]
fn at_random_nobody_waits_for_ever() {
    let mut seed = 11u64;
    let mut below = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % bound
    };
    let budget = budget(24);
    let shares: Vec<Arc<Share>> = (0..12).map(|at| budget.share(format!("pool{}", at % 3))).collect();
    let mut held: Vec<Permit> = Vec::new();
    let mut waiting: Vec<Taking> = Vec::new();
    for step in 0..20_000 {
        match below(5) {
            0 | 1 => waiting.push(shares[below(12)].take(1 + below(2 * MIB))),
            2 if !held.is_empty() => drop(held.swap_remove(below(held.len()))),
            3 if !waiting.is_empty() => drop(waiting.swap_remove(below(waiting.len()))),
            4 if !held.is_empty() => {
                let at = below(held.len());
                held[at].shrink(4096);
            }
            _ => {}
        }
        waiting.retain_mut(|taking| poll(taking).map(|permit| held.push(permit)).is_none());
        let (used, limit) = budget.used();
        let sum: usize = held.iter().map(|permit| permit.bytes).sum();
        assert!(used == sum && used <= limit, "FB1 in step {step}: {used} of {limit}, and {sum} are held");
    }
    while !waiting.is_empty() {
        assert!(held.pop().is_some(), "{} wait for ever", waiting.len());
        waiting.retain_mut(|taking| poll(taking).map(|permit| held.push(permit)).is_none());
    }
    drop(held);
    assert_eq!(budget.used().0, 0);
}
