//! Requests of every length and content are typed or refused, never a panic.

use super::abi::{self, op};
use super::request::{Args, Request, check_range, parse};

#[test]
fn every_opcode_survives_every_length_of_noise() {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for opcode in 0..64 {
        for len in 0..=abi::MAX_ARGS {
            let noise: Vec<u8> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 56) as u8
                })
                .collect();
            if let Request::Read { len, .. } | Request::Write { len, .. } = parse(opcode, &Args::new(&noise), 4096) {
                assert!(len as usize <= super::MAX_WRITE);
            }
        }
    }
}

#[test]
fn a_write_whose_length_is_not_its_data_is_refused() {
    let args = abi::WriteIn { offset: 4096, size: 8192, ..Default::default() };
    let bytes = bytemuck::bytes_of(&args);
    assert_eq!(parse(op::WRITE, &Args::new(bytes), 8192), Request::Write { offset: 4096, len: 8192 });
    assert_eq!(parse(op::WRITE, &Args::new(bytes), 4096), Request::Refuse(libc::EINVAL));
    assert_eq!(parse(op::WRITE, &Args::new(&bytes[..39]), 8192), Request::Refuse(libc::EINVAL));
}

#[test]
fn fallocate_modes_of_the_loop_device_are_known_and_others_refused() {
    let with = |mode| {
        let args = abi::FallocateIn { offset: 0, length: 4096, mode, ..Default::default() };
        parse(op::FALLOCATE, &Args::new(bytemuck::bytes_of(&args)), 0)
    };
    assert_eq!(with(0x03), Request::Discard { offset: 0, len: 4096 });
    assert_eq!(with(0x11), Request::WriteZeroes { offset: 0, len: 4096 });
    for mode in [0x00, 0x01, 0x02, 0x08, 0x20, 0x40] {
        assert_eq!(with(mode), Request::Refuse(libc::EOPNOTSUPP), "mode {mode:#x}");
    }
}

#[test]
fn unknown_requests_and_interrupts_are_refused_and_forgets_are_not_answered() {
    let none = Args::new(&[]);
    assert_eq!(parse(9999, &none, 0), Request::Refuse(libc::ENOSYS));
    assert_eq!(parse(op::INTERRUPT, &none, 0), Request::Refuse(libc::ENOSYS));
    assert_eq!(parse(op::FORGET, &none, 0), Request::Ignore);
    assert_eq!(parse(op::LOOKUP, &none, 0), Request::Refuse(libc::ENOENT));
}

#[test]
fn ranges_end_at_the_end_and_lie_on_sectors() {
    assert_eq!(check_range(0, 8192, 8192, 4096), Ok(()));
    assert_eq!(check_range(4096, 8192, 8192, 4096), Err(libc::ENOSPC));
    assert_eq!(check_range(512, 512, 8192, 4096), Err(libc::EINVAL));
    assert_eq!(check_range(512, 512, 8192, 512), Ok(()));
    assert_eq!(check_range(u64::MAX - 511, 512, 8192, 512), Err(libc::ENOSPC));
    assert_eq!(check_range(512, u64::MAX - 511, 8192, 512), Err(libc::ENOSPC));
}
