//! What the hot paths cost; run by hand: `cargo test -p rowen-engine map::timing -- --ignored --nocapture`.
#![allow(clippy::disallowed_types)] // A test may read the clock.

use super::*;
use std::time::Instant;

struct Owner(u64);

impl NodeOwner for Owner {
    fn can_alloc(&self, _nodes: usize) -> bool {
        true
    }
    fn alloc(&mut self) -> MetaBlock {
        self.0 += 1;
        MetaBlock(self.0)
    }
    fn release(&mut self, _node: NodeRef) {}
    fn owned(&self, _birth: Epoch, _key: u64) -> bool {
        true
    }
    fn birth(&self) -> Epoch {
        Epoch(1)
    }
    fn generation(&self) -> u64 {
        1
    }
}

fn ns_per_op(count: u64, mut op: impl FnMut(u64)) -> f64 {
    let mut state = 88_172_645_463_325_252u64;
    let begin = Instant::now();
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        op(state);
    }
    begin.elapsed().as_nanos() as f64 / count as f64
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
#[ignore = "timing: by hand"]
fn lookup_and_replace() {
    for keys in [20_000u64, 60_000, 1_000_000, 5_000_000] {
        let before = resident_bytes();
        let (cache, mut tree, mut owner) = (NodeCache::new(1 << 34), Tree::default(), Owner(0));
        let single = |key: u64, value| Extent { key, len: 1, value, birth: Epoch(1), flags: 0 };
        let mut next = 0..keys;
        let fill = ns_per_op(keys, |_| {
            let key = next.next().unwrap();
            replace(&cache, &mut tree, &mut owner, key, key + 1, &[single(key, key * 2)], &mut Vec::new()).unwrap();
        });
        let counted = cache.bytes() as f64 / (resident_bytes() - before) as f64;
        let mut out = Extents::new();
        let hot = ns_per_op(2_000_000, |r| {
            out.clear();
            lookup(&cache, &tree, r % 2_000, r % 2_000 + 1, &mut out).unwrap();
        });
        let warm = ns_per_op(2_000_000, |r| {
            out.clear();
            let key = r % keys.min(20_000);
            lookup(&cache, &tree, key, key + 1, &mut out).unwrap();
        });
        let lookup = ns_per_op(2_000_000, |r| {
            out.clear();
            let key = r % keys;
            lookup(&cache, &tree, key, key + 1, &mut out).unwrap();
        });
        let mut old = Vec::new();
        let replace = ns_per_op(2_000_000, |r| {
            old.clear();
            let key = r % keys.min(20_000);
            replace(&cache, &mut tree, &mut owner, key, key + 1, &[single(key, r >> 20)], &mut old).unwrap();
        });
        println!(
            "{keys} extents, {} levels: fill {fill:.0}, lookup among 2000 keys {hot:.0}, 20000 {warm:.0}, all {lookup:.0}, \
              replace {replace:.0} ns; counted/resident {counted:.2}",
            tree.level + 1
        );
    }
}

#[test]
#[ignore = "timing: by hand"]
fn replace_with_a_copied_path() {
    struct Copying<'a>(Owner, u64, &'a NodeCache);
    impl NodeOwner for Copying<'_> {
        fn can_alloc(&self, nodes: usize) -> bool {
            self.0.can_alloc(nodes)
        }
        fn alloc(&mut self) -> MetaBlock {
            self.0.alloc()
        }
        fn release(&mut self, node: NodeRef) {
            self.2.forget(node.addr);
        }
        fn owned(&self, _birth: Epoch, _key: u64) -> bool {
            true
        }
        fn birth(&self) -> Epoch {
            Epoch(1)
        }
        fn generation(&self) -> u64 {
            self.1
        }
    }
    let (cache, mut tree) = (NodeCache::new(1 << 34), Tree::default());
    let mut owner = Copying(Owner(0), 1, &cache);
    let dense: Vec<_> =
        (0..500_000).map(|key| Extent { key, len: 1, value: key * 2, birth: Epoch(1), flags: 0 }).collect();
    replace(&cache, &mut tree, &mut owner, 0, 500_000, &dense, &mut Vec::new()).unwrap();
    let mut old = Vec::new();
    let ns = ns_per_op(20_000, |r| {
        old.clear();
        owner.1 += 1;
        let key = r % 500_000;
        let new = Extent { key, len: 1, value: r >> 20, birth: Epoch(1), flags: 0 };
        replace(&cache, &mut tree, &mut owner, key, key + 1, &[new], &mut old).unwrap();
    });
    println!("{} levels: replace with a whole path copied {ns:.0} ns", tree.level + 1);
}
