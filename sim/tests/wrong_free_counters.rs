//! Counters of free space that are too low, in a group that an attacker changed who knows the format. All of them
//! agree, so an opening sees nothing wrong. The free tree has more blocks than they say.

use rowen_engine::disk::{Disks, PageBuf};
use rowen_engine::error::Error;
use rowen_engine::group::{Group, VolumeState};
use rowen_sim::crash::Setup;
use rowen_sim::disk::SimDisks;
use rowen_sim::exec::World;
use rowen_sim::forge::Forger;
use rowen_sim::hostile::sound_images;
use std::sync::Arc;

/// Writes to every volume until one write is refused. Returns the refusal, if there was one.
async fn write_on(group: &Arc<Group>) -> Option<Error> {
    for info in group.volumes().iter().filter(|info| info.state == VolumeState::Ok) {
        let Ok(volume) = group.volume(info.id) else { continue };
        for offset in (0..volume.size_bytes()).step_by(1 << 20) {
            let len = (volume.size_bytes() - offset).min(1 << 20) as u32;
            if let Err(error) = volume.write(offset, len, Arc::new(PageBuf::zeroed(len as usize))).await {
                return Some(error);
            }
        }
    }
    None
}

#[test]
fn counters_that_are_too_low_are_reported() {
    let setup = Setup::small(2, 24);
    let (mut opened, mut damaged) = (0, 0);
    for (name, image) in sound_images(&setup).unwrap().into_iter().filter(|(name, _)| name.ends_with("closed")) {
        for free in [0, 1, 17, 600] {
            let world = World::new(5);
            let sim = SimDisks::with_image(world.handle(), Forger::new(image.clone()).with_free(free));
            let disks: Arc<dyn Disks> = sim.clone();
            let report = world.run(Group::check(disks.clone())).unwrap();
            assert!(!report.findings.is_empty(), "{name}, {free}: a check does not count what is free");
            // A refusal with a message is an answer.
            let Ok(group) = world.run(Group::open(disks, world.handle(), setup.config.clone())) else { continue };
            opened += 1;
            if let Some(error) = world.run(write_on(&group)) {
                assert!(!error.to_string().is_empty(), "{name}, {free}");
                damaged += usize::from(matches!(error, Error::Corrupt { .. }));
            }
            let _ = world.run(group.close());
        }
    }
    assert!(opened > 10 && damaged > 0, "{opened} opened, of {damaged} the damage was seen");
}
