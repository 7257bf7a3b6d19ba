//! A node is read while its physical volume leaves. When its second copy would be read, that place does not exist any
//! more.

use rowen_engine::disk::{DiskOpKind, Disks, PvIndex};
use rowen_engine::group::{Config, FullPolicy, Group, VolumeKind};
use rowen_engine::runtime::Runtime;
use rowen_sim::client::{BLOCK, Client, Op, VolumeSpec};
use rowen_sim::crash::Setup;
use rowen_sim::disk::{Faults, SimDisks};
use rowen_sim::exec::World;
use rowen_sim::rng::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long the read takes, in microseconds.
const SLOW: u64 = 1_000_000;

/// A volume is made in a group that was just opened. The `nth` read from then on takes long, and all first copies of
/// metadata are rotten. Meanwhile the last physical volume leaves.
fn one_leaves_during_a_read(nth: u64, planted: Option<&'static str>) {
    let setup = Setup { config: Config { planted, ..Config::default() }, ..Setup::small(2, 24) };
    let world = World::new(nth);
    let (disks, group) = setup.make(&world).unwrap();
    let client = Client::new(world.handle(), group, Arc::default());
    let spec = |blocks| VolumeSpec { kind: VolumeKind::Thin, blocks, chunk_blocks: 1, full: FullPolicy::Fail };
    world.run(async {
        let vol = client.create(spec(2000)).await.unwrap();
        for block in (0..2000).step_by(2) {
            client.write(vol, block * BLOCK, BLOCK, &[]).await.unwrap();
        }
        client.remove(&[vol]).await.unwrap();
        client.group.reclaim_idle().await.unwrap();
        client.close().await.unwrap();
    });
    let image = disks.moment().killed(&mut Rng::new(nth));
    let world = World::new(nth);
    let disks = SimDisks::with_image(world.handle(), image);
    let opening = Group::open(disks.clone() as Arc<dyn Disks>, world.handle(), setup.config.clone());
    let group = world.run(opening).unwrap();
    // The metadata area's first copy begins behind the label and the journal, of one MiB each.
    for block in 0..256 {
        disks.rot(PvIndex(0), (2 << 20) + block * 4096 + 100, 1);
    }
    let client = Client::new(world.handle(), group, client.oracle.clone());
    let next = disks.requests(DiskOpKind::Read) + nth;
    disks.set_faults(Faults { slow: Some((DiskOpKind::Read, next, SLOW)), ..Faults::default() });
    let (maker, leaver, handle) = (client.clone(), client.clone(), world.handle());
    let ops: Vec<Op> = vec![
        Box::pin(async move {
            let vol = maker.create(spec(64)).await?;
            maker.write(vol, 0, BLOCK, &[]).await
        }),
        Box::pin(async move {
            handle.sleep(Duration::from_micros(100)).await;
            leaver.group.remove_last_pv().await
        }),
    ];
    world.run(async {
        client.together(ops).await.into_iter().for_each(|outcome| outcome.unwrap());
        client.close().await.unwrap();
    });
}

#[test]
fn what_left_is_not_read() {
    (0..8).for_each(|nth| one_leaves_during_a_read(nth, None));
}

#[test]
fn a_read_of_what_left_is_found() {
    let ended = |nth| catch_unwind(AssertUnwindSafe(|| one_leaves_during_a_read(nth, Some("removed_pv_read"))));
    assert!((0..8).any(|nth| ended(nth).is_err()), "the planted bug was not found");
}
