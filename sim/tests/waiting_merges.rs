//! A waiting merge is a mark, and the merge is one record. Whenever the power fails or the program dies, one of two
//! things holds. The snapshot exists, with or without its mark, and both contents are unchanged. Or it is gone, and the
//! origin has its contents.

use rowen_engine::disk::PageBuf;
use rowen_engine::group::{Attributes, FullPolicy, Group, NewSnapshot, NewVolume, VolumeInfo, VolumeKind};
use rowen_engine::units::{BLOCK_SIZE, Uuid, VolumeId};
use rowen_sim::crash::Setup;
use rowen_sim::exec::World;
use rowen_sim::steps::each_is_whole;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A volume's name, whether it waits to be merged, and its first byte.
type Said = Vec<(String, bool, u8)>;

async fn put(group: &Arc<Group>, id: VolumeId, byte: u8) {
    let mut page = PageBuf::zeroed(BLOCK_SIZE as usize);
    page.as_mut_slice().fill(byte);
    let volume = group.volume(id).unwrap();
    volume.write(0, BLOCK_SIZE as u32, Arc::new(page)).await.unwrap();
    volume.flush().await.unwrap();
}

async fn said(group: &Arc<Group>) -> Said {
    let mut said = Vec::new();
    let mut volumes: Vec<VolumeInfo> = group.volumes();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    for volume in volumes {
        let page = PageBuf::zeroed(BLOCK_SIZE as usize);
        let page = group.volume(volume.id).unwrap().read(0, BLOCK_SIZE as u32, page).await.unwrap();
        let bytes = page.as_slice();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{} is torn", volume.name);
        said.push((volume.name, volume.attributes.merging, bytes[0]));
    }
    said
}

#[test]
fn a_mark_and_its_merge_are_whole() {
    let world = World::new(11);
    let (disks, group) = Setup::small(1, 16).make(&world).unwrap();
    let (origin, snapshot) = world.run(async {
        let origin = group
            .create_volume(NewVolume {
                name: "origin".into(),
                uuid: Uuid([1; 16]),
                kind: VolumeKind::Thick,
                blocks: 64,
                sector: 512,
                chunk_blocks: 1,
                full: FullPolicy::Fail,
                attributes: Attributes::default(),
            })
            .await
            .unwrap();
        put(&group, origin, 1).await;
        let snapshot = NewSnapshot {
            origin,
            name: "snapshot".into(),
            uuid: Uuid([2; 16]),
            reserve: Some(32),
            read_only: false,
            chunk_blocks: 1,
            attributes: Attributes::default(),
        };
        let snapshot = group.snapshot(&[snapshot]).await.unwrap()[0];
        put(&group, origin, 2).await;
        group.checkpoint().await.unwrap();
        (origin, snapshot)
    });
    let both = |merging| vec![("origin".to_owned(), false, 2), ("snapshot".to_owned(), merging, 1)];
    let states = [both(false), both(true), vec![("origin".to_owned(), false, 1)]];
    let done = AtomicUsize::new(0);
    let change = async {
        let marked = Attributes { merging: true, ..Attributes::default() };
        group.set_attributes(snapshot, marked).await.unwrap();
        done.store(1, Ordering::SeqCst);
        group.checkpoint().await.unwrap();
        group.revert(origin, snapshot, true).await.unwrap();
        done.store(2, Ordering::SeqCst);
        group.reclaim_idle().await.unwrap();
        group.checkpoint().await.unwrap();
    };
    each_is_whole(&world, &disks, &states, &done, change, said);
}
