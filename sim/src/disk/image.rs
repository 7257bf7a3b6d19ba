//! The contents of disks: sparse, page by page, cheap to copy.
//!
//! An [`Image`] is only the bytes, without a cache and without time. Copies share pages until one of them changes. So a
//! thousand crash states of one moment cost little more than one.

use rowen_engine::disk::{PvGeometry, PvIndex};
use rowen_engine::fixed_hash::Map;
use std::sync::Arc;

const PAGE: usize = 4096;
type Page = Arc<[u8; PAGE]>;

/// Bytes to be written: given, or one value repeated.
#[derive(Clone)]
pub(super) enum Bytes {
    /// `len` bytes of the shared buffer, from the given offset.
    Given(Arc<[u8]>, usize),
    Fill(u8),
}

/// The contents of a set of physical volumes.
#[derive(Clone, Default)]
pub struct Image {
    pvs: Vec<PvImage>,
}

#[derive(Clone)]
struct PvImage {
    geometry: PvGeometry,
    pages: Map<u64, Page>,
}

impl Image {
    /// Physical volumes full of zeros.
    pub fn blank(geometries: &[PvGeometry]) -> Image {
        Image { pvs: geometries.iter().map(|&geometry| PvImage { geometry, pages: Map::default() }).collect() }
    }

    /// Adds a physical volume, full of zeros.
    pub fn add_pv(&mut self, geometry: PvGeometry) {
        self.pvs.push(PvImage { geometry, pages: Map::default() });
    }

    /// Removes the last physical volume.
    pub(super) fn remove_last_pv(&mut self) {
        self.pvs.pop();
    }

    /// Number of physical volumes.
    pub fn count(&self) -> usize {
        self.pvs.len()
    }

    pub fn geometry(&self, pv: PvIndex) -> PvGeometry {
        self.pvs[pv.0 as usize].geometry
    }

    /// The physical volumes in another order, as an operating system may find them.
    pub fn reordered(&self, order: &[usize]) -> Image {
        Image { pvs: order.iter().map(|&at| self.pvs[at].clone()).collect() }
    }

    /// These physical volumes, with one of them as it is in `other`: for example, restored from a copy.
    pub fn with_pv_of(&self, pv: PvIndex, other: &Image) -> Image {
        let mut mixed = self.clone();
        mixed.pvs[pv.0 as usize] = other.pvs[pv.0 as usize].clone();
        mixed
    }

    /// Pages that were ever written.
    pub fn pages(&self) -> usize {
        self.pvs.iter().map(|pv| pv.pages.len()).sum()
    }

    /// Offsets of the pages of one physical volume that were ever written, in order.
    pub fn page_offsets(&self, pv: PvIndex) -> Vec<u64> {
        let mut offsets: Vec<u64> = self.pvs[pv.0 as usize].pages.keys().map(|page| page * PAGE as u64).collect();
        offsets.sort_unstable();
        offsets
    }

    /// Fills `out` with the bytes at the given place.
    pub fn read(&self, pv: PvIndex, offset: u64, out: &mut [u8]) {
        let pages = &self.pvs[pv.0 as usize].pages;
        pieces(offset, out.len(), |page, within, at, len| {
            let out = &mut out[at..at + len];
            match pages.get(&page) {
                Some(bytes) => out.copy_from_slice(&bytes[within..within + len]),
                None => out.fill(0),
            }
        });
    }

    /// Writes `bytes` at the given place.
    pub fn write(&mut self, pv: PvIndex, offset: u64, bytes: &[u8]) {
        let pages = &mut self.pvs[pv.0 as usize].pages;
        pieces(offset, bytes.len(), |page, within, at, len| {
            let page = pages.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within..within + len].copy_from_slice(&bytes[at..at + len]);
        });
    }

    pub(super) fn apply(&mut self, pv: PvIndex, offset: u64, len: usize, bytes: &Bytes) {
        match bytes {
            Bytes::Given(data, from) => self.write(pv, offset, &data[*from..*from + len]),
            Bytes::Fill(value) => {
                let pages = &mut self.pvs[pv.0 as usize].pages;
                pieces(offset, len, |page, within, _, len| {
                    if *value == 0 && len == PAGE {
                        pages.remove(&page);
                    } else if *value != 0 || pages.contains_key(&page) {
                        let page = pages.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
                        Arc::make_mut(page)[within..within + len].fill(*value);
                    }
                });
            }
        }
    }

    /// Flips one bit: bit rot.
    pub fn flip(&mut self, pv: PvIndex, offset: u64, bit: u8) {
        let mut byte = [0];
        self.read(pv, offset, &mut byte);
        self.write(pv, offset, &[byte[0] ^ (1 << (bit & 7))]);
    }

    /// Shortens or lengthens a physical volume. Bytes beyond a new end are lost.
    pub fn set_size(&mut self, pv: PvIndex, size: u64) {
        let pv = &mut self.pvs[pv.0 as usize];
        pv.geometry.size = size;
        pv.pages.retain(|page, _| page * (PAGE as u64) < size);
    }
}

impl PartialEq for Image {
    /// The same bytes everywhere. A page of zeros equals a missing page.
    fn eq(&self, other: &Image) -> bool {
        let covers = |a: &PvImage, b: &PvImage| {
            a.pages.iter().all(|(at, page)| match b.pages.get(at) {
                Some(theirs) => Arc::ptr_eq(page, theirs) || page == theirs,
                None => page.iter().all(|&byte| byte == 0),
            })
        };
        self.pvs.len() == other.pvs.len()
            && self.pvs.iter().zip(&other.pvs).all(|(a, b)| a.geometry == b.geometry && covers(a, b) && covers(b, a))
    }
}

/// Cuts a byte range at page borders: calls `each(page, offset in page, offset in range, length)`.
fn pieces(offset: u64, len: usize, mut each: impl FnMut(u64, usize, usize, usize)) {
    let mut at = 0;
    while at < len {
        let place = offset + at as u64;
        let within = (place % PAGE as u64) as usize;
        let piece = (PAGE - within).min(len - at);
        each(place / PAGE as u64, within, at, piece);
        at += piece;
    }
}
