use super::*;
use rowen_engine::group::{Attributes, FullPolicy};
use rowen_engine::units::{Uuid, VolumeId};

fn group(free_blocks: u64, reserved_blocks: u64) -> GroupInfo {
    GroupInfo {
        uuid: Uuid::default(),
        name: "vg".into(),
        extent_blocks: 1024,
        extents: 1,
        free_extents: 0,
        allocatable_extents: 0,
        blocks: 1000,
        free_blocks,
        available_blocks: free_blocks - reserved_blocks,
        reserved_blocks,
        pending_blocks: 0,
        metadata_blocks: 0,
        journal_copies: 1,
        journal_copies_written: 1,
        sequence: 1,
        lineage: 0,
        attributes: Default::default(),
        pvs: Vec::new(),
        reclaim_left: 0,
    }
}

fn snapshot(used: u64) -> VolumeInfo {
    VolumeInfo {
        id: VolumeId(1),
        name: "s".into(),
        uuid: Uuid::default(),
        kind: VolumeKind::Thick,
        segment: rowen_engine::group::SegmentType::Linear,
        state: VolumeState::Ok,
        blocks: 1000,
        sector: 512,
        chunk_blocks: 1,
        read_only: false,
        full: FullPolicy::Fail,
        origin: Some(VolumeId(2)),
        reserve: Some(100),
        attributes: Attributes::default(),
        referenced: 0,
        exclusive: 0,
        freed_if_removed: 0,
        snapshot_used: used,
        point: None,
        moment: None,
    }
}

fn warnings() -> Warnings {
    Warnings::new(&Settings::default())
}

/// The sentences that go to the log.
fn fresh(warnings: &Warnings, group: &GroupInfo, at_risk: bool, snapshots: &[VolumeInfo]) -> Vec<String> {
    warnings
        .check(group, at_risk, &[], snapshots)
        .into_iter()
        .filter(|warning| warning.is_new)
        .map(|warning| warning.message)
        .collect()
}

#[test]
fn each_step_is_logged_once_and_again_after_it_was_left() {
    let warnings = warnings();
    let told = |free| fresh(&warnings, &group(free, 0), true, &[]).len();
    assert_eq!([told(201), told(200), told(150), told(100), told(60), told(50)], [0, 1, 0, 1, 0, 1]);
    assert_eq!([told(500), told(40)], [0, 1]);
}

#[test]
fn commands_are_warned_while_the_group_is_nearly_full() {
    let warnings = warnings();
    let told = |free| warnings.check(&group(free, 0), true, &[], &[]).len();
    assert_eq!([told(201), told(200), told(150), told(201)], [0, 1, 1, 0]);
}

#[test]
fn thresholds_can_be_set() {
    let warnings = warnings();
    assert_eq!(warnings.check(&group(600, 0), true, &[], &[]).len(), 0);
    warnings.set_settings(&Settings { thresholds: vec![30], ..Settings::default() });
    assert_eq!(warnings.check(&group(600, 0), true, &[], &[]).len(), 1);
}

#[test]
fn reserved_space_is_not_free() {
    assert_eq!(warnings().check(&group(500, 450), true, &[], &[]).len(), 1);
}

#[test]
fn a_group_whose_reservations_are_all_used_may_be_full() {
    assert!(warnings().check(&group(0, 0), false, &[], &[snapshot(1)]).is_empty());
}

#[test]
fn a_filling_reserve_is_reported_by_name() {
    let warnings = warnings();
    assert!(warnings.check(&group(900, 0), false, &[], &[snapshot(79)]).is_empty());
    let told = fresh(&warnings, &group(900, 0), false, &[snapshot(81)]);
    assert!(told.len() == 1 && told[0].contains("vg/s has used 81.0%"), "{told:?}");
    assert!(warnings.check(&group(900, 0), false, &[], &[snapshot(99)]).is_empty());
}

#[test]
fn a_pool_is_reported_at_each_step_once() {
    let warnings = warnings();
    let pool = |referenced| VolumeInfo { name: "p".into(), blocks: 1000, referenced, reserve: None, ..snapshot(0) };
    let told = |referenced| -> Vec<String> {
        let found = warnings.check(&group(900, 0), false, &[pool(referenced)], &[]);
        found.into_iter().map(|warning| warning.message).collect()
    };
    assert!(told(799).is_empty());
    let message = told(800).remove(0);
    assert!(message.contains("Thin pool vg/p is 80.0% full"), "{message}");
    assert!(told(810).is_empty());
    assert_eq!(told(1000).len(), 1);
    assert!(told(700).is_empty());
    assert_eq!(told(801).len(), 1);
}
