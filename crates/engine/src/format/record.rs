//! Fixed-size little-endian records, declared once.
//!
//! [`on_disk!`] turns one list of `offset => field: type` into the struct, its codec and its byte table
//! ([`Field`] rows), so that the three cannot disagree; gaps, overlaps and a wrong total do not compile.
//! The module also owns the checksum, and the checksum of a block that contains its own checksum.

use crc_fast::{CrcAlgorithm, Digest};

/// One row of an on-disk table: `len` bytes at offset `at`. `docs/format.md` lists the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub at: usize,
    pub len: usize,
    pub name: &'static str,
}

/// What a record's field can be: a little-endian unsigned integer or plain bytes.
pub trait FieldType: Sized {
    /// Writes the field into exactly its own bytes.
    fn put(&self, bytes: &mut [u8]);
    /// Reads the field from exactly its own bytes.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {
        $(impl FieldType for $t {
            fn put(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("the record gives a field its own width"))
            }
        })*
    };
}

integers!(u8, u16, u32, u64);

impl<const N: usize> FieldType for [u8; N] {
    fn put(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self);
    }
    fn get(bytes: &[u8]) -> Self {
        bytes.try_into().expect("the record gives a field its own width")
    }
}

/// True when the rows lie one after another from offset 0 to `size`. Evaluated at compile time by [`on_disk!`].
pub const fn fills(fields: &[Field], size: usize) -> bool {
    let (mut i, mut end) = (0, 0);
    while i < fields.len() {
        if fields[i].at != end || fields[i].len == 0 {
            return false;
        }
        end += fields[i].len;
        i += 1;
    }
    end == size
}

/// Declares an on-disk record.
///
/// ```text
/// on_disk! {
///     /// What it is.
///     RootSlot, 16 {
///         0 => magic: u64,
///         8 => name: [u8; 8],
///     }
/// }
/// ```
///
/// gives `RootSlot { magic, name }` with `SIZE`, `NAME`, `FIELDS`, `encode()`, `decode(&[u8; SIZE])` and
/// `decode_from(&[u8])`. Decoding checks nothing: the caller checks the values.
macro_rules! on_disk {
    ($(#[$meta:meta])* $name:ident, $size:literal {
        $($(#[$field_meta:meta])* $at:literal => $field:ident : $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        #[allow(dead_code)] // One declaration, not every user needs every face of it.
        impl $name {
            /// Bytes in the record.
            pub const SIZE: usize = $size;
            /// The record's name in `docs/format.md`.
            pub const NAME: &'static str = stringify!($name);
            /// The record's byte table, in order.
            pub const FIELDS: &'static [$crate::format::record::Field] = &[$($crate::format::record::Field {
                at: $at,
                len: ::core::mem::size_of::<$type>(),
                name: stringify!($field),
            },)*];

            /// The record's bytes.
            pub fn encode(&self) -> [u8; $size] {
                let mut bytes = [0u8; $size];
                $($crate::format::record::FieldType::put(
                    &self.$field,
                    &mut bytes[$at..$at + ::core::mem::size_of::<$type>()],
                );)*
                bytes
            }

            /// The record in these bytes. Its values are not checked.
            pub fn decode(bytes: &[u8; $size]) -> Self {
                Self {
                    $($field: $crate::format::record::FieldType::get(
                        &bytes[$at..$at + ::core::mem::size_of::<$type>()],
                    ),)*
                }
            }

            /// The record at the start of `bytes`; `None` when they are too few.
            pub fn decode_from(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk::<$size>().map(Self::decode)
            }
        }

        const _: () = assert!(
            $crate::format::record::fills($name::FIELDS, $size),
            concat!("fields of ", stringify!($name), " leave a gap, overlap or miss its size"),
        );
    };
}
pub(crate) use on_disk;

/// CRC-32C (Castagnoli, as in iSCSI: RFC 3720, section 12.1) of `bytes`: every checksum on the disk is one.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of some bytes, whose checksum is `crc`, followed by `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // The register holds the complement of the checksum so far.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    // 32 bits by the algorithm's definition.
    digest.finalize() as u32
}

/// CRC-32C of `block` with the four bytes at `crc_at` taken as zero: the checksum that they should hold.
pub fn block_crc(block: &[u8], crc_at: usize) -> u32 {
    let before = crc32c(&block[..crc_at]);
    let field = crc32c_append(before, &[0; 4]);
    crc32c_append(field, &block[crc_at + 4..])
}

/// Writes the block's checksum into the four bytes at `crc_at`. The last step of encoding.
pub fn seal(block: &mut [u8], crc_at: usize) {
    let crc = block_crc(block, crc_at);
    block[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
