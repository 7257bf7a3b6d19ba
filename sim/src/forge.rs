//! Forging: changes of metadata by an attacker who knows the format, so that every checksum is right.
//!
//! A checksum catches a flipped bit, so the code behind the checksum is not tested. A forged block reaches that code.
//! The code must refuse its values with a message, or they must do no harm to the program.

use crate::disk::{Image, is_metadata};
use crate::rng::Rng;
use rowen_engine::disk::PvIndex;
use rowen_engine::format::record::{block_crc, seal};

const PAGE: usize = 4096;

/// A block of metadata: the places of its copies, and its bytes.
struct Block {
    copies: Vec<(PvIndex, u64)>,
    bytes: Vec<u8>,
}

/// Magic number, and the place of the number that shows the newest of a kind. Older ones are not read any more. Tree
/// nodes and journal frames are read whatever their age.
const KINDS: [(&[u8], Option<usize>); 5] =
    [(b"ROWENPV1", Some(32)), (b"ROWENIDX", Some(16)), (b"ROWENPAG", Some(16)), (b"ROWENJRN", None), (b"RwNd", None)];

/// Makes forged images from a sound one.
pub struct Forger {
    sound: Image,
    /// Blocks that opening reads, by kind.
    kinds: Vec<Vec<Block>>,
}

impl Forger {
    pub fn new(sound: Image) -> Forger {
        let mut blocks: Vec<Block> = Vec::new();
        for pv in (0..sound.count()).map(|at| PvIndex(at as u16)) {
            for offset in sound.page_offsets(pv) {
                let bytes = block_at(&sound, pv, offset);
                if !is_metadata(&bytes) {
                    continue;
                }
                match blocks.iter_mut().find(|block| block.bytes == bytes) {
                    Some(block) => block.copies.push((pv, offset)),
                    None => blocks.push(Block { copies: vec![(pv, offset)], bytes }),
                }
            }
        }
        let mut kinds = Vec::new();
        for (magic, age) in KINDS {
            let age_of = |block: &Block| age.map_or(0, |at| word(&block.bytes, at));
            let newest = blocks.iter().filter(|block| block.bytes.starts_with(magic)).map(age_of).max();
            let (kind, rest) =
                blocks.into_iter().partition(|block| block.bytes.starts_with(magic) && Some(age_of(block)) == newest);
            blocks = rest;
            kinds.push(kind);
        }
        kinds.retain(|kind: &Vec<Block>| !kind.is_empty());
        Forger { sound, kinds }
    }

    /// Distinct blocks of metadata.
    pub fn blocks(&self) -> usize {
        self.kinds.iter().map(Vec::len).sum()
    }

    /// An image with one to `most` changes in metadata. Checksums are corrected, and all copies of a block get the same
    /// change.
    pub fn forged(&self, rng: &mut Rng, most: u64) -> Image {
        let mut image = self.sound.clone();
        for _ in 0..rng.range(1, most) {
            let kind = rng.pick(&self.kinds);
            let block = rng.pick(kind);
            let (pv, offset) = block.copies[0];
            // Left there by an earlier change of this round.
            let old = block_at(&image, pv, offset);
            let mut new = old.clone();
            for _ in 0..rng.range(1, 3) {
                change(&mut new, rng);
            }
            reseal(&mut new, CrcPlace::of(&old));
            for &(pv, offset) in &block.copies {
                image.write(pv, offset, &new);
            }
            if new.starts_with(b"ROWENPAG") {
                self.rename_page(&mut image, crc(&old), crc(&new));
            }
        }
        image
    }

    /// An image in which both counters of free space, the group's and those of the physical volumes, say `free` blocks.
    /// They agree, so an opening cannot see that they are wrong.
    pub fn with_free(&self, free: u64) -> Image {
        const PAYLOAD: usize = 48;
        const PV_FREE: usize = PAYLOAD + 192;
        let mut image = self.sound.clone();
        let is_head = |block: &&Block| block.bytes.starts_with(b"ROWENPAG") && word(&block.bytes, 24) == 0;
        let head = self.kinds.iter().flatten().find(is_head).expect("a stream has a first page");
        let mut bytes = head.bytes.clone();
        let (pvs, has_group) = (word(&bytes, PAYLOAD + 120), word(&bytes, PAYLOAD + 128));
        assert_eq!(has_group, 0, "properties of the group would lie in between");
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(PAYLOAD + 24, free);
        (0..pvs as usize).for_each(|pv| put(PV_FREE + 8 * pv, if pv == 0 { free } else { 0 }));
        reseal(&mut bytes, CrcPlace::Whole);
        head.copies.iter().for_each(|&(pv, offset)| image.write(pv, offset, &bytes));
        self.rename_page(&mut image, crc(&head.bytes), crc(&bytes));
        image
    }

    /// An index block names its pages with their checksums, so it has to change, too.
    fn rename_page(&self, image: &mut Image, old: u32, new: u32) {
        for block in self.kinds.iter().flatten().filter(|block| block.bytes.starts_with(b"ROWENIDX")) {
            let mut bytes = block_at(image, block.copies[0].0, block.copies[0].1);
            for entry in bytes[64..].chunks_exact_mut(24).filter(|entry| entry[16..20] == old.to_le_bytes()) {
                entry[16..20].copy_from_slice(&new.to_le_bytes());
            }
            seal(&mut bytes, 8);
            block.copies.iter().for_each(|&(pv, offset)| image.write(pv, offset, &bytes));
        }
    }
}

/// The place of a block's checksum, and the part of the block that it covers.
enum CrcPlace {
    Node,
    Whole,
    Frame,
}

impl CrcPlace {
    fn of(block: &[u8]) -> CrcPlace {
        match &block[..8] {
            b"ROWENJRN" => CrcPlace::Frame,
            magic if magic.starts_with(b"RwNd") => CrcPlace::Node,
            _ => CrcPlace::Whole,
        }
    }
}

fn reseal(block: &mut [u8], place: CrcPlace) {
    match place {
        CrcPlace::Node => seal(block, 4),
        CrcPlace::Whole => seal(block, 8),
        CrcPlace::Frame => {
            let len = u32::from_le_bytes(block[12..16].try_into().expect("four bytes")) as usize;
            // A frame that continues in the next block keeps its wrong checksum: the journal ends there.
            let end = 64usize.saturating_add(len).min(PAGE);
            let crc = block_crc(&block[..end], 8);
            block[8..12].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

fn word(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

fn crc(block: &[u8]) -> u32 {
    u32::from_le_bytes(block[8..12].try_into().expect("four bytes"))
}

fn block_at(image: &Image, pv: PvIndex, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    image.read(pv, offset, &mut bytes);
    bytes
}

/// One change, most often of a field that is in use, to a value that a programmer may have overlooked.
fn change(block: &mut [u8], rng: &mut Rng) {
    let used = block.iter().rposition(|&byte| byte != 0).map_or(PAGE, |last| (last / 8 + 2) * 8).min(PAGE) as u64;
    let reach = if rng.one_in(8) { PAGE as u64 } else { used };
    match rng.below(4) {
        0 => {
            let at = rng.below(reach) as usize;
            block[at] = rng.bits() as u8;
        }
        1 => {
            let at = (rng.below(reach) & !3) as usize;
            let old = u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
            let values = [0, 1, u32::MAX, 1 << 31, 1 << 16, 1 << 20, old.wrapping_add(1), old.wrapping_sub(1)];
            let new: u32 = *rng.pick(&values);
            block[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        2 => {
            let at = (rng.below(reach) & !7) as usize;
            let old = u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
            let values = [
                0,
                1,
                u64::MAX,
                u64::MAX - 1,
                1 << 63,
                1 << 48,
                (1 << 48) - 1,
                (1 << 47) - 1,
                1 << 32,
                256,
                old.wrapping_add(1),
                old.wrapping_sub(1),
                old.wrapping_mul(2),
                old ^ 1 << 48,
            ];
            let new: u64 = *rng.pick(&values);
            block[at..at + 8].copy_from_slice(&new.to_le_bytes());
        }
        _ => {
            // The value of one field in the place of another.
            let (from, to) = ((rng.below(reach) & !7) as usize, (rng.below(reach) & !7) as usize);
            block.copy_within(from..from + 8, to);
        }
    }
}
