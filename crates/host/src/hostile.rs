//! Input of a server, a keeper, a helper or a command: functions that take any bytes, for the tests of hostile bytes
//! (the crate `rowen-fuzz`). Each describes what it read, and panics if a rule is broken.

use crate::devices::file;
use crate::export::fuse::request::{self, Args, Request};
use crate::export::fuse::{MAX_WRITE, abi};
use crate::helper::{Answer, Job};
use crate::keeper::wire::Message;
use rowen_control::protocol::{decode, encode};

/// A packet on a keeper's socket. A message comes back as it went.
pub fn keeper_message(bytes: &[u8]) -> String {
    let Some(message) = Message::decode(bytes) else { return "no message".into() };
    assert_eq!(Message::decode(&message.encode()), Some(message.clone()), "it is another one when it comes back");
    format!("{message:?}")
}

/// A frame on a helper's socket: what it is asked, or what it answers.
pub fn helper_message(bytes: &[u8]) -> String {
    if let Ok(job) = decode::<Job>(bytes) {
        let again = encode(&job).expect("what was read is not too long");
        let again = decode::<Job>(&again[4..]).expect("what was written can be read");
        assert_eq!(format!("{job:?}"), format!("{again:?}"), "it is another one when it comes back");
        return format!("{job:?}");
    }
    match decode::<Answer>(bytes) {
        Ok(answer) => format!("{answer:?}"),
        Err(why) => why.to_string(),
    }
}

/// A request as it is read from /dev/fuse, of a volume of this size and sector. What is let through lies inside the volume.
pub fn fuse_request(bytes: &[u8], size: u64, sector: u32) -> String {
    if bytes.len() < abi::IN_HEADER {
        return "no request".into();
    }
    let header: abi::InHeader = bytemuck::pod_read_unaligned(&bytes[..abi::IN_HEADER]);
    let args = &bytes[abi::IN_HEADER..][..(bytes.len() - abi::IN_HEADER).min(abi::MAX_ARGS)];
    let data = bytes.len().saturating_sub(abi::WRITE_HEADER);
    let request = request::parse(header.opcode, &Args::new(args), data);
    let (offset, len) = match request {
        Request::Read { offset, len } => {
            assert!(len as usize <= MAX_WRITE, "a read of {len} bytes");
            (offset, u64::from(len))
        }
        Request::Write { offset, len } => {
            assert_eq!(len as usize, data, "a write of another length than its data");
            (offset, u64::from(len))
        }
        Request::Discard { offset, len } | Request::WriteZeroes { offset, len } => (offset, len),
        other => return format!("{other:?}"),
    };
    let checked = request::check_range(offset, len, size, sector);
    if checked.is_ok() {
        let end = offset.checked_add(len).expect("a range that ends");
        assert!(end <= size && offset % u64::from(sector) == 0, "{request:?} is outside of {size} bytes");
    }
    format!("{:?} {checked:?}", std::mem::discriminant(&request))
}

/// The devices file. Its entries are the same after it was written again.
pub fn devices_file(bytes: &[u8]) -> String {
    let entries = file::parse(bytes);
    let written = file::format(&entries, bytes);
    assert_eq!(file::parse(&written), entries, "it says something else when it was written anew");
    assert_eq!(file::format(&entries, &written), written, "it grows");
    format!("{} entries of {} lines", entries.len().min(4), written.split(|byte| *byte == b'\n').count().min(4))
}
