//! Identifiers: made here, and written as LVM writes them. LVM's text has 32 characters of a 62-letter alphabet in groups
//! of 6-4-4-4-4-4-6; 22 of them carry 128 bits, the other ten are always `0`, so that the text turns back into the bits.

use rowen_engine::units::Uuid;

const ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const GROUPS: [usize; 7] = [6, 4, 4, 4, 4, 4, 6];
const LETTERS: usize = 32;

/// A new random identifier.
pub fn fresh() -> Uuid {
    Uuid(*uuid::Uuid::new_v4().as_bytes())
}

/// A random number that is not 0.
pub fn random() -> u64 {
    fresh().0.first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes).max(1))
}

/// LVM's text form.
pub fn lvm_text(uuid: Uuid) -> String {
    let mut number = u128::from_be_bytes(uuid.0);
    let mut letters = [b'0'; LETTERS];
    // The least significant digit comes first, so that the first group, which people compare, is never constant.
    for letter in &mut letters {
        *letter = ALPHABET[(number % 62) as usize];
        number /= 62;
    }
    let mut text = String::with_capacity(LETTERS + GROUPS.len() - 1);
    let mut rest = &letters[..];
    for length in GROUPS {
        let (group, tail) = rest.split_at(length);
        if !text.is_empty() {
            text.push('-');
        }
        text.extend(group.iter().map(|&letter| char::from(letter)));
        rest = tail;
    }
    text
}

/// The identifier that `text` is LVM's form of; hyphens may be left out.
pub fn parse_lvm_text(text: &str) -> Option<Uuid> {
    let letters: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    if letters.len() != LETTERS {
        return None;
    }
    let number = letters.iter().rev().try_fold(0u128, |number, letter| {
        let digit = ALPHABET.iter().position(|known| known == letter)?;
        number.checked_mul(62)?.checked_add(digit as u128)
    })?;
    Some(Uuid(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_lvms_shape_and_turns_back() {
        for uuid in [Uuid([0; 16]), Uuid([0xff; 16]), fresh()] {
            let text = lvm_text(uuid);
            let lengths: Vec<usize> = text.split('-').map(str::len).collect();
            assert_eq!(lengths, GROUPS);
            assert_eq!(parse_lvm_text(&text), Some(uuid));
        }
        assert_ne!(fresh(), fresh());
    }

    #[test]
    fn what_is_no_identifier_is_refused() {
        for text in ["", "abc", "ZZZZZZ-ZZZZ-ZZZZ-ZZZZ-ZZZZ-ZZZZ-ZZZZZZ", "??????-0000-0000-0000-0000-0000-000000"] {
            assert_eq!(parse_lvm_text(text), None, "{text}");
        }
    }
}
