//! Arbitrary images: physical volumes with random bytes, rotten bytes, and forged metadata. Opening, checking, reading
//! and closing end, with a message if something is wrong. Nothing panics or takes more memory than the image justifies.
//! A refused group's disks do not change.

use rowen_engine::disk::PvIndex;
use rowen_engine::format::{journal, node, stream, superblock};
use rowen_engine::units::{Epoch, MetaBlock, Seq};
use rowen_sim::crash::Setup;
use rowen_sim::disk::Image;
use rowen_sim::effort::scaled;
use rowen_sim::forge::Forger;
use rowen_sim::hostile::{Hostile, ImageOutcome, flipped, sound_images, survive};
use rowen_sim::rng::Rng;

/// How many mutants of each kind: `ROWEN_FUZZ`, or the usual number.
fn rounds(usual: u64) -> u64 {
    std::env::var("ROWEN_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or_else(|| scaled(usual))
}

/// Judges `rounds` mutants, or the one of `ROWEN_SEED`. `least`: how many must be refused and how many opened. Fewer do
/// not reach everything. Returns the number of opened ones.
fn judge(
    what: &str,
    rounds: u64,
    least: (u64, u64),
    setup: &Setup,
    mutant: impl Fn(&mut Rng) -> (String, Image),
) -> u64 {
    let only: Option<u64> = std::env::var("ROWEN_SEED").ok().and_then(|n| n.parse().ok());
    let (mut refused, mut opened, mut findings) = (0, 0, Vec::new());
    for seed in only.map_or(0..rounds, |only| only..only + 1) {
        let (name, image) = mutant(&mut Rng::new(seed));
        match survive(setup, &image, seed) {
            Ok(ImageOutcome::Refused) => refused += 1,
            Ok(ImageOutcome::Opened) => opened += 1,
            Err(e) => findings.push(format!("ROWEN_SEED={seed} ({name}): {e}")),
        }
    }
    assert!(
        findings.is_empty(),
        "{what}: {} of {rounds} mutants: {}",
        findings.len(),
        findings[..findings.len().min(10)].join("\n")
    );
    assert!(only.is_some() || (refused >= least.0 && opened >= least.1), "{what}: {refused} refused, {opened} opened");
    opened
}

#[test]
fn forged_metadata_is_refused_or_harmless() {
    let setup = Setup::small(2, 24);
    let sound = sound_images(&setup).unwrap();
    let forgers: Vec<(String, Forger)> = sound.into_iter().map(|(name, image)| (name, Forger::new(image))).collect();
    assert!(forgers.iter().all(|(_, forger)| forger.blocks() > 8));
    let before = peak_bytes();
    judge("forged", rounds(6000), (100, 100), &setup, |rng| {
        let (name, forger) = rng.pick(&forgers);
        (name.clone(), forger.forged(rng, 3))
    });
    let grown = peak_bytes() - before;
    assert!(grown < 2 << 30, "a mutant claimed {grown} bytes");
}

/// `rowen-sim --images` makes a million of these.
#[test]
fn hostile_images_are_refused_or_harmless() {
    let hostile = Hostile::new(Setup::small(2, 24)).unwrap();
    let judged: Vec<_> = (0..rounds(3000)).map(|seed| hostile.judge(seed)).collect();
    let wrong: Vec<_> = judged.iter().filter_map(|fate| fate.as_ref().err()).take(5).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let opened = judged.iter().filter(|fate| **fate == Ok(ImageOutcome::Opened)).count();
    let tenth = judged.len() / 10;
    assert!(opened > tenth && judged.len() - opened > tenth, "{opened} of {} opened", judged.len());
}

/// Images that once ended in a panic or not at all. They stay the same as long as the engine makes the same sound
/// images:
///
/// * a count of blocks that a child does not use, larger than any possible one;
/// * a head that two volumes claim, two nodes with one place, two volumes with one number;
/// * counters that were too low;
/// * a tree that is its own parent;
/// * a number that the journal assigns again;
/// * nodes of two trees with one place, written to;
/// * a volume larger than any disk that was reduced.
#[test]
fn images_that_were_found() {
    let hostile = Hostile::new(Setup::small(2, 24)).unwrap();
    for seed in
        [4548, 32057, 60838, 1_067_674, 3_103_730, 5_389_908, 5_396_837, 40_040_537, 40_042_265, 40_125_718, 40_176_681]
    {
        hostile.judge(seed).unwrap();
    }
}

/// The test above would find a write that searches for such a node for ever.
#[test]
fn a_node_that_is_asked_for_again_and_again_is_found() {
    let mut setup = Setup::small(2, 24);
    setup.config.planted = Some("displaced_node_reread");
    let found = Hostile::new(setup).unwrap().judge(40_040_537).unwrap_err();
    assert!(found.contains("livelock"), "{found}");
}

/// A journal record says that a volume takes its own contents. Its replay must not wait for itself.
#[test]
fn a_revert_to_itself_ends() {
    let setup = Setup::small(2, 24);
    let mut forged = 0;
    for (name, mut image) in sound_images(&setup).unwrap().into_iter().filter(|(name, _)| name == "revert killed") {
        for offset in image.page_offsets(PvIndex(0)) {
            let mut block = vec![0; 4096];
            image.read(PvIndex(0), offset, &mut block);
            let number = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap()) as usize;
            let end = 64 + number(12);
            if !block.starts_with(b"ROWENJRN") || end > 4096 {
                continue;
            }
            let (mut at, mut reverts) = (64, Vec::new());
            while at < end {
                reverts.extend((block[at] == 8).then_some(at + 8));
                at += 8 + number(at + 4);
            }
            for body in reverts {
                block.copy_within(body..body + 8, body + 8);
                forged += 1;
            }
            rowen_engine::format::record::seal(&mut block[..end], 8);
            image.write(PvIndex(0), offset, &block);
        }
        survive(&setup, &image, 1).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
    assert!(forged > 0, "no record was forged");
}

#[test]
fn bytes_flipped_anywhere_are_refused_or_harmless() {
    let setup = Setup::small(2, 24);
    let sound = sound_images(&setup).unwrap();
    judge("flipped", rounds(3000), (10, rounds(3000) / 4), &setup, |rng| {
        let (name, image) = rng.pick(&sound);
        (name.clone(), flipped(image.clone(), rng))
    });
}

#[test]
fn disks_of_noise_and_shortened_disks_are_refused() {
    let setup = Setup::small(2, 24);
    let sound = sound_images(&setup).unwrap();
    let opened = judge("noise", rounds(300), (rounds(300), 0), &setup, |rng| {
        let (name, image) = rng.pick(&sound);
        let mut image = image.clone();
        let pv = PvIndex(rng.below(2) as u16);
        match rng.below(3) {
            0 => {
                let size = image.geometry(pv).size;
                image.set_size(pv, rng.below(size / 512) * 512);
            }
            1 => {
                let noise: Vec<u8> = (0..1 << 20).map(|_| rng.bits() as u8).collect();
                image.write(pv, 0, &noise);
            }
            _ => {
                // All superblocks of one disk are those of the other.
                let mut head = vec![0; 1 << 20];
                image.read(PvIndex(1 - pv.0), 0, &mut head);
                image.write(pv, 0, &head);
            }
        }
        (name.clone(), image)
    });
    assert_eq!(opened, 0);
}

/// The most address space that this process ever had. It counts whether the bytes were touched or not.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Random bytes, or zeros with some random bytes, behind the right magic number.
fn noise(rng: &mut Rng, len: usize, magic: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    if rng.one_in(2) {
        bytes.iter_mut().for_each(|byte| *byte = rng.bits() as u8);
    } else {
        for _ in 0..rng.range(1, 64) {
            let at = rng.below(len as u64) as usize;
            bytes[at] = rng.bits() as u8;
        }
    }
    bytes[..magic.len()].copy_from_slice(magic);
    bytes
}

#[test]
fn decoders_take_any_bytes() {
    use rowen_engine::format::record::seal;
    let (tag, mut refused) = (7, 0u64);
    for seed in 0..rounds(20_000) {
        let mut rng = Rng::new(seed);
        let mut block = noise(&mut rng, 4096, b"ROWENPV1");
        block[12..24].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        block[72..76].copy_from_slice(&[0, 0, rng.below(70) as u8, 0]);
        seal(&mut block, 8);
        refused +=
            u64::from(!matches!(superblock::Superblock::decode(&block, "a test"), Ok(Some(s)) if s.group.is_some()));

        let len = rng.below(5000) as usize + 8;
        refused += u64::from(stream::Stream::decode(&noise(&mut rng, len, b"")).is_err());

        let mut block = noise(&mut rng, 4096, b"ROWENIDX");
        seal(&mut block, 8);
        let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
        refused += u64::from(stream::decode_index(&block, number(16), [number(24), number(32)], number(56)).is_err());

        let mut block = noise(&mut rng, 4096, b"ROWENPAG");
        seal(&mut block, 8);
        let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
        let entry = stream::IndexEntry { copy_a: number(32), copy_b: 0, crc: stream::sealed_crc(&block), reserved: 0 };
        refused += u64::from(stream::decode_page(&block, number(16), number(24), &entry, number(40)).is_err());

        let mut block = noise(&mut rng, 4096, b"RwNd");
        block[8..16].copy_from_slice(&[1, 0, rng.below(170) as u8, 0, 0, 0, 0, 0]);
        block[48..64].fill(0);
        seal(&mut block, 4);
        let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
        let name = node::NodeRef { addr: MetaBlock(number(16)), generation: number(24), birth: Epoch(number(32)) };
        refused += u64::from(node::Node::decode(&block, name, 0, number(40)).is_err());

        refused += u64::from(frame_refused(&mut rng, tag));
    }
    assert!(refused > 0, "noise is refused");
}

/// A frame with a right head and a right checksum around records of noise.
fn frame_refused(rng: &mut Rng, tag: u64) -> bool {
    let id = journal::FrameId { journal_id: 1, group: tag, position: 0, first_seq: Seq(1) };
    let mut records = Vec::new();
    let count = rng.range(1, 4);
    for _ in 0..count {
        let body_len = rng.below(300) as usize;
        let body = noise(rng, body_len + 1, b"");
        records.extend((rng.below(12) as u16).to_le_bytes());
        records.extend([0; 2]);
        records.extend((body.len() as u32).to_le_bytes());
        records.extend(body);
    }
    let mut block = vec![0; journal::frame_bytes(records.len())];
    journal::encode_frame(id, count as u32, Seq(1), &records, &mut block);
    journal::decode_frame(&block, id).is_err()
}
