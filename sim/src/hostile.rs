//! Arbitrary images. Everything that a user would do to one ends, with a message if something is wrong.
//!
//! * No panic, no hang (time is virtual), no use of memory that the image does not justify.
//! * Reading (labels, `check`, a read-only opening) changes no byte.
//! * If `check` finds nothing wrong, the image can be opened.

use crate::client::{Client, Failure};
use crate::crash::{Setup, panic_text};
use crate::disk::{Image, SimDisks};
use crate::exec::World;
use crate::forge::Forger;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::scenario::{self, Runner};
use parking_lot::Mutex;
use rowen_engine::disk::{Disks, PageBuf, PvIndex};
use rowen_engine::group::{Attributes, Config, Group, NewSnapshot, VolumeState};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Bytes that are read at each end of a volume. A forged volume may claim any size.
const READ: u64 = 2 << 20;
/// The longest read.
const STEP: u64 = 256 << 10;
/// Bytes written at each place.
const WRITTEN: u64 = 64 << 10;

/// The result for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageOutcome {
    /// With a message.
    Refused,
    /// Opened, read until something is refused, closed.
    Opened,
}

/// The disks of every scripted scenario, after a close or after the program died.
pub fn sound_images(setup: &Setup) -> Result<Vec<(String, Image)>, String> {
    let mut images = Vec::new();
    for (name, steps) in scenario::scripted() {
        for clean in [true, false] {
            let world = World::new(11);
            let (disks, group) = setup.make(&world).map_err(|e| e.to_string())?;
            let oracle: Arc<Mutex<Oracle>> = Arc::default();
            let client = Client::new(world.handle(), group, oracle);
            let mut runner = Runner::new(client.clone());
            let done = world.run(async {
                runner.run(&steps).await?;
                match clean {
                    true => Ok(client.close().await?),
                    false => Ok::<(), Failure>(()),
                }
            });
            done.map_err(|e| e.to_string())?;
            images.push((
                format!("{name} {}", if clean { "closed" } else { "killed" }),
                disks.moment().killed(&mut Rng::new(1)),
            ));
        }
    }
    Ok(images)
}

async fn read_some(group: &Arc<Group>) -> Result<(), String> {
    for info in group.volumes().iter().filter(|info| info.state == VolumeState::Ok) {
        let volume = group.volume(info.id).map_err(|e| e.to_string())?;
        let size = volume.size_bytes();
        let parts = [(0, size.min(READ)), (size.saturating_sub(READ), size)];
        for (from, to) in parts {
            let mut at = from;
            while at < to {
                let len = (to - at).min(STEP) as u32;
                let read = volume.read(at, len, PageBuf::zeroed(len as usize)).await;
                read.map_err(|e| e.to_string())?;
                at += u64::from(len);
            }
        }
    }
    Ok(())
}

/// Writes at the head, in the middle and at the end of each volume, takes a snapshot, writes again, and removes it.
async fn use_some(group: &Arc<Group>) -> Result<(), String> {
    write_some(group).await?;
    let origin = group.volumes().into_iter().find(|info| info.state == VolumeState::Ok).ok_or("no volume")?;
    let spec = NewSnapshot {
        origin: origin.id,
        name: "hostile".to_string(),
        uuid: Uuid([0xee; 16]),
        read_only: false,
        reserve: None,
        chunk_blocks: 1,
        attributes: Attributes::default(),
    };
    let made = group.snapshot(&[spec]).await.map_err(|e| e.to_string())?;
    write_some(group).await?;
    group.remove(&made).await.map_err(|e| e.to_string())
}

async fn write_some(group: &Arc<Group>) -> Result<(), String> {
    for info in group.volumes().iter().filter(|info| info.state == VolumeState::Ok) {
        let volume = group.volume(info.id).map_err(|e| e.to_string())?;
        let size = volume.size_bytes();
        for offset in [0, size / 2, size.saturating_sub(WRITTEN)] {
            let offset = offset / BLOCK_SIZE * BLOCK_SIZE;
            let len = (size - offset).min(WRITTEN) as u32;
            volume.write(offset, len, Arc::new(PageBuf::zeroed(len as usize))).await.map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// Does to an image what a user would: check, open, read, write, snapshot, let removal run, close. Returns the result.
/// A panic, a hang, or a change after a refusal is an error.
pub fn survive(setup: &Setup, image: &Image, seed: u64) -> Result<ImageOutcome, String> {
    let steps = || {
        let world = World::new(seed);
        let sim = SimDisks::with_image(world.handle(), image.clone());
        let disks: Arc<dyn Disks> = sim.clone();
        for at in 0..image.count() {
            let label = Group::read_label(&*disks, PvIndex(at as u16));
            let _ = world.try_run(label).map_err(|stuck| format!("label: {stuck}"))?;
        }
        let check = world.try_run(Group::check(disks.clone())).map_err(|stuck| format!("check: {stuck}"))?;
        let read_only = Config { read_only: true, ..setup.config.clone() };
        let opening = Group::open(disks.clone(), world.handle(), read_only);
        let opened = world.try_run(opening).map_err(|stuck| format!("opening read-only: {stuck}"))?;
        if let Ok(group) = &opened {
            // A refusal with a message is an answer.
            let _ = world.try_run(read_some(group)).map_err(|stuck| format!("reading: {stuck}"))?;
            let _ = world.try_run(group.close()).map_err(|stuck| format!("closing: {stuck}"))?;
        }
        if sim.counts().writes + sim.counts().discards > 0 {
            return Err("looking at it has changed the disks".to_string());
        }
        if let Ok(report) = &check
            && report.findings.is_empty()
            && let Err(refused) = &opened
        {
            return Err(format!("check finds nothing, and opening it is refused: {refused}"));
        }
        let opening = Group::open(disks, world.handle(), setup.config.clone());
        let group = match world.try_run(opening).map_err(|stuck| format!("opening: {stuck}"))? {
            Ok(group) => group,
            Err(e) if e.to_string().is_empty() => return Err("refused without a word".into()),
            Err(_) => return Ok(ImageOutcome::Refused),
        };
        let _ = world.try_run(read_some(&group)).map_err(|stuck| format!("reading: {stuck}"))?;
        let _ = world.try_run(use_some(&group)).map_err(|stuck| format!("writing: {stuck}"))?;
        let _ = world.try_run(group.reclaim_idle()).map_err(|stuck| format!("removal: {stuck}"))?;
        let _ = world.try_run(group.check_open()).map_err(|stuck| format!("check of the open group: {stuck}"))?;
        let _ = world.try_run(group.close()).map_err(|stuck| format!("closing: {stuck}"))?;
        Ok(ImageOutcome::Opened)
    };
    catch_unwind(AssertUnwindSafe(steps)).unwrap_or_else(|panic| Err(format!("PANIC: {}", panic_text(&panic))))
}

/// Images of all kinds, made hostile in all ways.
pub struct Hostile {
    setup: Setup,
    sound: Vec<(String, Image)>,
    forgers: Vec<Forger>,
}

impl Hostile {
    pub fn new(setup: Setup) -> Result<Hostile, String> {
        let sound = sound_images(&setup)?;
        let forgers = sound.iter().map(|(_, image)| Forger::new(image.clone())).collect();
        Ok(Hostile { setup, sound, forgers })
    }

    /// The image of this seed, and how it was made.
    pub fn image(&self, seed: u64) -> (String, Image) {
        let mut rng = Rng::new(seed);
        let which = rng.below(self.sound.len() as u64) as usize;
        let (name, sound) = &self.sound[which];
        let (how, image) = match rng.below(8) {
            0..=4 => ("forged", self.forgers[which].forged(&mut rng, 4)),
            5 => ("bytes changed", flipped(sound.clone(), &mut rng)),
            6 => ("forged, then bytes changed", flipped(self.forgers[which].forged(&mut rng, 2), &mut rng)),
            _ => ("blocks exchanged", exchanged(sound.clone(), &mut rng)),
        };
        (format!("{name}, {how}"), image)
    }

    /// The result for the image of this seed.
    pub fn judge(&self, seed: u64) -> Result<ImageOutcome, String> {
        let (name, image) = self.image(seed);
        survive(&self.setup, &image, seed).map_err(|what| format!("image {seed} ({name}): {what}"))
    }
}

/// The places where something was written.
fn places(image: &Image) -> Vec<(PvIndex, u64)> {
    let pvs = (0..image.count()).map(|at| PvIndex(at as u16));
    pvs.flat_map(|pv| image.page_offsets(pv).into_iter().map(move |offset| (pv, offset))).collect()
}

/// Changes up to some hundred bytes.
pub fn flipped(mut image: Image, rng: &mut Rng) -> Image {
    let places = places(&image);
    for _ in 0..1 << rng.below(10) {
        let (pv, offset) = *rng.pick(&places);
        let byte = [rng.bits() as u8];
        image.write(pv, offset + rng.below(BLOCK_SIZE), &byte);
    }
    image
}

/// Some blocks get the contents of others: stale, lost, or misdirected writes.
fn exchanged(mut image: Image, rng: &mut Rng) -> Image {
    let places = places(&image);
    for _ in 0..rng.range(1, 8) {
        let (from, to) = (*rng.pick(&places), *rng.pick(&places));
        let mut block = vec![0; BLOCK_SIZE as usize];
        if !rng.one_in(4) {
            image.read(from.0, from.1, &mut block);
        }
        image.write(to.0, to.1, &block);
    }
    image
}
