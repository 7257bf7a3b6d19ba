//! A sum of what a volume has, by which two copies are compared.

use crate::BLOCK;

/// It depends on the contents alone: a block of zeros counts as one that was never written.
#[derive(Default)]
pub struct ContentsSum(blake3::Hasher);

impl ContentsSum {
    /// Whole blocks, from this one on. Blocks come in their order.
    pub fn add(&mut self, start_block: u64, data: &[u8]) {
        for (block, bytes) in (start_block..).zip(data.chunks(BLOCK as usize)) {
            if bytes.iter().any(|byte| *byte != 0) {
                self.0.update(&block.to_le_bytes());
                self.0.update(bytes);
            }
        }
    }

    pub fn end(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(parts: &[(u64, &[u8])]) -> String {
        let mut sum = ContentsSum::default();
        parts.iter().for_each(|(start, data)| sum.add(*start, data));
        sum.end()
    }

    #[test]
    fn contents_alone_count() {
        let (ones, zeros) = (vec![1; 4096], vec![0; 4096]);
        let both = [&ones[..], &ones].concat();
        assert_eq!(sum(&[(3, &both)]), sum(&[(2, &zeros), (3, &ones), (4, &ones), (9, &zeros)]));
        assert_ne!(sum(&[(3, &ones)]), sum(&[(4, &ones)]));
        assert_ne!(sum(&[(3, &ones)]), sum(&[(3, &both)]));
        let mut other = ones.clone();
        other[4095] = 2;
        assert_ne!(sum(&[(3, &ones)]), sum(&[(3, &other)]));
        assert_eq!(sum(&[(3, &zeros)]), sum(&[]));
    }
}
