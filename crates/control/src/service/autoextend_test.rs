use super::*;
use rowen_engine::group::{Attributes, FullPolicy, VolumeKind};
use rowen_engine::units::{Uuid, VolumeId};

const EXTENT: u64 = 1024;

fn volume(name: &str, blocks: u64) -> VolumeInfo {
    VolumeInfo {
        id: VolumeId(1),
        name: name.into(),
        uuid: Uuid::default(),
        kind: VolumeKind::Thick,
        segment: rowen_engine::group::SegmentType::Linear,
        state: VolumeState::Ok,
        blocks,
        sector: 512,
        chunk_blocks: 1,
        read_only: false,
        full: FullPolicy::Fail,
        origin: None,
        reserve: None,
        attributes: Attributes::default(),
        referenced: 0,
        exclusive: 0,
        freed_if_removed: 0,
        snapshot_used: 0,
        point: None,
        moment: None,
    }
}

fn pool(used: u64) -> VolumeInfo {
    VolumeInfo { referenced: used, ..volume("pool", 10 * EXTENT) }
}

/// A snapshot of a volume of 100 extents.
fn snapshot(used: u64, reserve: u64) -> VolumeInfo {
    VolumeInfo { reserve: Some(reserve), snapshot_used: used, ..volume("s", 100 * EXTENT) }
}

fn wanted(snapshots: u64, pools: u64, volumes: (&[VolumeInfo], &[VolumeInfo])) -> Vec<Growth> {
    let policy = |threshold| Autoextend { threshold, percent: 20 };
    let policies = Policies { monitoring: true, snapshots: policy(snapshots), pools: policy(pools) };
    assert!(!Policies { monitoring: false, ..policies }.any());
    assert!(policies.any() || policies.wanted(EXTENT, volumes.0, volumes.1).is_empty());
    policies.wanted(EXTENT, volumes.0, volumes.1)
}

fn growth(name: &str, from: u64, to: u64) -> Growth {
    Growth { name: name.into(), from: from * EXTENT, to: to * EXTENT, is_pool: name == "pool" }
}

#[test]
fn what_is_fuller_than_its_threshold_grows_by_whole_extents() {
    let (pools, snapshots) = ([pool(8 * EXTENT)], [snapshot(4 * EXTENT, 5 * EXTENT)]);
    let both = (&pools[..], &snapshots[..]);
    assert_eq!(wanted(70, 70, both), [growth("pool", 10, 12), growth("s", 5, 6)]);
    assert_eq!(wanted(100, 70, both), [growth("pool", 10, 12)]);
    assert_eq!(wanted(70, 100, both), [growth("s", 5, 6)]);
    assert_eq!(wanted(100, 100, both), []);
    assert_eq!(wanted(80, 80, both), []);
}

#[test]
fn a_full_snapshot_grows_below_its_threshold_and_never_beyond_use() {
    let of = |snapshot| wanted(50, 100, (&[], &[snapshot]));
    assert_eq!(of(snapshot(4 * EXTENT, 4 * EXTENT)), [growth("s", 4, 8)]);
    let most = most_useful_reserve(100 * EXTENT * BLOCK_SIZE, BLOCK_SIZE, EXTENT * BLOCK_SIZE);
    assert_eq!(of(snapshot(95 * EXTENT, 95 * EXTENT)), [growth("s", 95, most)]);
    assert_eq!(of(snapshot(100 * EXTENT, most * EXTENT)), [], "it has all that it can use");
    assert_eq!(of(VolumeInfo { state: VolumeState::Invalid, ..snapshot(4 * EXTENT, 4 * EXTENT) }), []);
}

#[test]
fn a_size_that_is_no_whole_number_of_extents_is_made_one() {
    let all = wanted(50, 100, (&[], &[snapshot(EXTENT, EXTENT + 1)]));
    assert_eq!(all, [Growth { name: "s".into(), from: EXTENT + 1, to: 4 * EXTENT, is_pool: false }]);
}
