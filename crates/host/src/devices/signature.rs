//! Finds signatures of filesystems, partition tables and other volume managers, so that no data is overwritten without
//! a question.

use super::Error;
use super::plain::Plain;
use rowen_engine::disk::PageBuf;
use std::path::Path;
use std::process::{Command, Stdio};

struct Magic {
    name: &'static str,
    offset: usize,
    bytes: &'static [u8],
}

const fn magic(name: &'static str, offset: usize, bytes: &'static [u8]) -> Magic {
    Magic { name, offset, bytes }
}

/// The usual signatures, within the first [`HEAD`] bytes. blkid finds the others, if it is installed.
const MAGICS: &[Magic] = &[
    magic("LVM2_member", 512, b"LABELONE"),
    magic("LVM2_member", 0, b"LABELONE"),
    magic("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    magic("xfs", 0, b"XFSB"),
    magic("ext", 0x438, b"\x53\xef"),
    magic("btrfs", 0x1_0040, b"_BHRfS_M"),
    magic("swap", 4086, b"SWAPSPACE2"),
    magic("squashfs", 0, b"hsqs"),
    magic("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    magic("ntfs", 3, b"NTFS    "),
    magic("exfat", 3, b"EXFAT   "),
    magic("vfat", 82, b"FAT32   "),
    magic("vfat", 54, b"FAT1"),
    magic("linux_raid_member", 4096, b"\xfc\x4e\x2b\xa9"),
    magic("linux_raid_member", 0, b"\xfc\x4e\x2b\xa9"),
    magic("iso9660", 0x8001, b"CD001"),
    magic("bcache", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    magic("gpt", 512, b"EFI PART"),
    magic("gpt", 4096, b"EFI PART"),
    magic("dos", 510, b"\x55\xaa"),
];

const HEAD: usize = 128 << 10;

/// How much is overwritten at either end when old signatures are wiped: more than any of them lies from it.
const WIPE: u64 = 1 << 20;

/// The name of the signature on the device, if there is one.
pub fn find(device: &Plain) -> Result<Option<String>, Error> {
    let mut head = PageBuf::zeroed(HEAD);
    device.read(head.as_mut_slice(), 0).map_err(|source| Error::Io {
        path: device.path.clone(),
        what: "read",
        source,
    })?;
    let known = MAGICS.iter().find(|magic| head.as_slice()[magic.offset..].starts_with(magic.bytes));
    Ok(known.map(|magic| magic.name.to_owned()).or_else(|| ask_blkid(&device.path)))
}

/// The result of blkid's low-level probe. A host without blkid has only the table above.
fn ask_blkid(path: &Path) -> Option<String> {
    let answer = Command::new("blkid")
        .args(["--probe", "--output", "export", "--"])
        .arg(path)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&answer.stdout);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    value("TYPE=").or_else(|| value("PTTYPE="))
}

/// Overwrites both ends of the device, where signatures lie.
pub fn wipe(device: &Plain) -> Result<(), Error> {
    let zeros = PageBuf::zeroed(WIPE as usize);
    let end = device.geometry.size - WIPE;
    [0, end].into_iter().try_for_each(|offset| device.write(zeros.as_slice(), offset)).map_err(|source| Error::Io {
        path: device.path.clone(),
        what: "write",
        source,
    })
}
