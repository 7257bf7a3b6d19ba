//! Images as text: small enough to be kept with the tests, plain enough to be read in a diff.
//!
//! A line `pv SIZE SECTOR` begins a physical volume. A line `OFFSET PIECES` is a page that is not all zeros: its pieces
//! are hexadecimal bytes, or `N*XX` for N times the same byte; zeros at its end are left out. `#` begins a comment.

use super::Image;
use rowen_engine::disk::{PvGeometry, PvIndex};
use std::fmt::Write;

const PAGE: usize = 4096;
/// The shortest run of equal bytes that is written as a count.
const RUN: usize = 6;

impl Image {
    /// The image as text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for pv in (0..self.count()).map(|at| PvIndex(at as u16)) {
            let PvGeometry { size, sector } = self.geometry(pv);
            let _ = writeln!(text, "pv {size} {sector}");
            for offset in self.page_offsets(pv) {
                let mut page = [0; PAGE];
                self.read(pv, offset, &mut page);
                if let Some(last) = page.iter().rposition(|&byte| byte != 0) {
                    let _ = writeln!(text, "{offset}{}", pieces(&page[..=last]));
                }
            }
        }
        text
    }

    /// The image that [`to_text`](Self::to_text) wrote.
    pub fn from_text(text: &str) -> Result<Image, String> {
        let mut image = Image::default();
        for (number, line) in text.lines().enumerate() {
            let place = |what: &str| format!("line {}: {what}", number + 1);
            let mut words = line.split_whitespace();
            match words.next() {
                None => {}
                Some(word) if word.starts_with('#') => {}
                Some("pv") => {
                    let mut next =
                        || words.next().and_then(|n| n.parse::<u64>().ok()).ok_or_else(|| place("no geometry"));
                    let (size, sector) = (next()?, next()?);
                    let sector = u32::try_from(sector).map_err(|_| place("no sector size"))?;
                    image.add_pv(PvGeometry { size, sector });
                }
                Some(offset) => {
                    let offset: u64 = offset.parse().map_err(|_| place("no offset"))?;
                    let mut bytes = Vec::new();
                    for piece in words {
                        append(&mut bytes, piece).ok_or_else(|| place("no bytes"))?;
                    }
                    let pv = image.count().checked_sub(1).ok_or_else(|| place("a page before the first volume"))?;
                    image.write(PvIndex(pv as u16), offset, &bytes);
                }
            }
        }
        Ok(image)
    }
}

fn pieces(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut hex = false;
    while let Some(&byte) = bytes.first() {
        let run = bytes.iter().take_while(|&&other| other == byte).count();
        if run >= RUN {
            let _ = write!(text, " {run}*{byte:02x}");
        } else {
            let space = if hex { "" } else { " " };
            let _ = write!(text, "{space}{}", format!("{byte:02x}").repeat(run));
        }
        hex = run < RUN;
        bytes = &bytes[run..];
    }
    text
}

fn append(bytes: &mut Vec<u8>, piece: &str) -> Option<()> {
    if let Some((count, byte)) = piece.split_once('*') {
        let count: usize = count.parse().ok().filter(|count| *count <= PAGE)?;
        bytes.resize(bytes.len() + count, u8::from_str_radix(byte, 16).ok()?);
        return Some(());
    }
    for at in (0..piece.len()).step_by(2) {
        bytes.push(u8::from_str_radix(piece.get(at..at + 2)?, 16).ok()?);
    }
    Some(())
}
