//! What comes in over the control socket from clients that are not commands.

use super::Test;
use super::world::{MIB, Vg};
use rowen_control::protocol::{self, Outcome, Request};
use rowen_host::paths;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("socket::garbage_ends_its_own_connection_only", garbage_ends_its_own_connection_only),
    ("socket::half_open_clients_do_not_stand_in_the_way", half_open_clients_do_not_stand_in_the_way),
    ("socket::another_version_is_refused", another_version_is_refused),
    ("socket::nobody_but_root_comes_in", nobody_but_root_comes_in),
];

fn connect(vg: &Vg) -> UnixStream {
    let stream = UnixStream::connect(paths::control_socket(&vg.name)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn garbage_ends_its_own_connection_only() {
    let vg = Vg::make(&[64 * MIB]);
    vg.report();
    let frame = |body: &[u8]| [&(body.len() as u32).to_le_bytes(), body].concat();
    let hello =
        protocol::encode(&Request::Hello { version: protocol::VERSION, caller: protocol::Caller::default() }).unwrap();
    let report = protocol::encode(&Request::Report { with_use: false }).unwrap();
    let deep = frame("[".repeat(1 << 20).as_bytes());
    let cases: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        vec![0; 4096],
        u32::MAX.to_le_bytes().to_vec(),
        frame(b"{}"),
        frame(b"\xff\xfe"),
        frame(b"{\"hello\":{\"version\":-1}}"),
        deep.clone(),
        report.clone(),
        [&hello[..], &frame(b"\"nosuch\"")].concat(),
        [&hello[..], &deep].concat(),
        [&hello[..], &report[..report.len() - 1]].concat(),
    ];
    for bytes in cases {
        let mut stream = connect(&vg);
        // The server may hang up before all of it is sent.
        drop(stream.write_all(&bytes));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        vg.report();
    }
    let mut state = 1u64;
    for length in 0..200usize {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        drop(connect(&vg).write_all(&bytes));
    }
    vg.report();
    assert!(!vg.log().contains("panic"), "{}", vg.log());
}

fn half_open_clients_do_not_stand_in_the_way() {
    let vg = Vg::make(&[64 * MIB]);
    vg.report();
    let silent: Vec<UnixStream> = (0..100).map(|_| connect(&vg)).collect();
    let begun = Instant::now();
    vg.report();
    assert!(begun.elapsed() < Duration::from_secs(1), "a report took {:?}", begun.elapsed());
    // They are shown the door after a while.
    let mut first = &silent[0];
    let mut byte = [0];
    assert_eq!(first.read(&mut byte).unwrap(), 0, "the server said something to a silent client");
    assert!(begun.elapsed() < Duration::from_secs(9));
}

fn another_version_is_refused() {
    let vg = Vg::make(&[64 * MIB]);
    vg.report();
    let mut stream = connect(&vg);
    protocol::write_frame(
        &mut stream,
        &Request::Hello { version: protocol::VERSION + 1, caller: protocol::Caller::default() },
    )
    .unwrap();
    match protocol::read_frame::<Outcome>(&mut stream).unwrap() {
        Some(Outcome::Error { kind: protocol::ErrorKind::Version, message }) => {
            assert!(message.contains("rowen upgrade"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

const NO_ANSWER: i32 = 13;

/// The program's other face: greets a server. Its exit code says whether it got an answer.
pub fn greet_as_whoever_this_is(socket: &str) -> ExitCode {
    let answer = UnixStream::connect(socket).and_then(|mut stream| {
        protocol::write_frame(
            &mut stream,
            &Request::Hello { version: protocol::VERSION, caller: protocol::Caller::default() },
        )?;
        protocol::read_frame::<Outcome>(&mut stream)
    });
    if matches!(answer, Ok(Some(_))) { ExitCode::SUCCESS } else { ExitCode::from(NO_ANSWER as u8) }
}

fn nobody_but_root_comes_in() {
    let vg = Vg::make(&[64 * MIB]);
    vg.report();
    let socket = paths::control_socket(&vg.name);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(&paths::group_dir(&vg.name))), (0o600, 0o700));
    // Without the modes: the peer's identity decides by itself.
    let open_door =
        |path: &std::path::Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open_door(&paths::group_dir(&vg.name), 0o755);
    open_door(&socket, 0o666);
    let program = super::world::dir().join("greet");
    std::fs::copy("/proc/self/exe", &program).unwrap();
    let greet = |as_whom: &[&str]| {
        let status = Command::new("setpriv").args(as_whom).arg(&program).arg("greet").arg(&socket).status().unwrap();
        status.code()
    };
    assert_eq!(greet(&["--reuid=65534", "--regid=65534", "--clear-groups"]), Some(NO_ANSWER));
    assert_eq!(greet(&[]), Some(0));
    open_door(&socket, 0o600);
    open_door(&paths::group_dir(&vg.name), 0o700);
}
