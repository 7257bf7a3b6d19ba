//! Two groups on one host in memory, for the tests of what is sent and received.

use crate::console::Console;
use crate::fake::{Fake, Printed};
use rowen_engine::disk::PageBuf;
use rowen_engine::units::BLOCK_SIZE;
use std::sync::Arc;

pub const BLOCK: usize = BLOCK_SIZE as usize;

pub fn run(world: &mut Fake, line: &str, input: Option<&[u8]>) -> (Vec<u8>, String, u8) {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut input = input;
    let answers = input.as_mut().map(|input| input as &mut dyn std::io::BufRead);
    let code = crate::run(world, Console::new(&mut out, &mut err, answers), "rowen", &words);
    (out, String::from_utf8(err).unwrap(), code)
}

/// A stream that could be written.
pub fn send(world: &mut Fake, line: &str) -> Vec<u8> {
    let (stream, err, code) = run(world, line, None);
    assert_eq!((err.as_str(), code), ("", 0), "{line}");
    stream
}

pub fn receive(world: &mut Fake, line: &str, stream: &[u8]) -> Printed {
    let (out, err, code) = run(world, line, Some(stream));
    Printed { out: String::from_utf8(out).unwrap(), err, code }
}

/// What a command said: this is a part of it, and this is its exit code.
pub fn said(world: &mut Fake, line: &str, code: u8, part: &str) -> Printed {
    let done = world.run(line);
    assert!(done.code == code && format!("{}{}", done.out, done.err).contains(part), "{line}: {done:?}");
    done
}

pub fn ok(world: &mut Fake, line: &str) {
    let done = world.run(line);
    assert_eq!(done.code, 0, "{line}: {}", done.err);
}

pub fn write(world: &Fake, (group, volume): (&str, &str), block: u64, blocks: u64, byte: u8) {
    let service = &world.memory(group).service;
    let volume = service.group.volume(service.group.find(volume).unwrap()).unwrap();
    let mut bytes = vec![byte; blocks as usize * BLOCK];
    // Not all of it is easy to compress.
    bytes.iter_mut().enumerate().filter(|(at, _)| at % 3 == 0).for_each(|(at, byte)| *byte = ((at * at) >> 5) as u8);
    let buf = Arc::new(PageBuf::from_slice(&bytes));
    let len = bytes.len() as u32;
    service.run(async move { volume.write(block * BLOCK_SIZE, len, buf).await }).unwrap();
}

pub fn discard(world: &Fake, (group, volume): (&str, &str), block: u64, blocks: u64) {
    let service = &world.memory(group).service;
    let volume = service.group.volume(service.group.find(volume).unwrap()).unwrap();
    service.run(async move { volume.discard(block * BLOCK_SIZE, blocks * BLOCK_SIZE).await }).unwrap();
}

pub fn contents(world: &Fake, group: &str, volume: &str) -> Vec<u8> {
    let service = &world.memory(group).service;
    let volume = service.group.volume(service.group.find(volume).unwrap()).unwrap();
    let len = volume.size_bytes() as usize;
    let read = service.run(async move { volume.read(0, len as u32, PageBuf::zeroed(len)).await }).unwrap();
    read.as_slice()[..len].to_vec()
}

/// All that can be seen of a group's volumes.
pub fn seen(world: &Fake, group: &str) -> Vec<(String, Vec<u8>, Option<[u8; 16]>)> {
    let volumes = world.report(group).volumes.into_iter();
    volumes
        .map(|volume| {
            let bytes = contents(world, group, &volume.name);
            (volume.name, bytes, volume.point_uuid.map(|point| point.0.0))
        })
        .collect()
}

/// Two groups. The volume `db` of the first one has snapshots `mon` and `tue`, between which there were writes, discards and
/// another size.
pub fn two_groups() -> Fake {
    let mut world = Fake::new();
    for line in ["vgcreate vg0 /dev/ubda", "vgcreate vg1 /dev/ubdb", "lvcreate -L 8M -n db vg0"] {
        ok(&mut world, line);
    }
    let db = ("vg0", "db");
    write(&world, db, 0, 40, 1);
    write(&world, db, 500, 600, 2);
    write(&world, db, 2047, 1, 3);
    ok(&mut world, "lvcreate -s -n mon vg0/db");
    for block in 0..6 {
        write(&world, db, 3 * block, 1, 4);
        discard(&world, db, 600 + 4 * block, 2);
    }
    write(&world, db, 100, 300, 5);
    discard(&world, db, 1000, 100);
    ok(&mut world, "lvextend -L +4M vg0/db");
    write(&world, db, 2500, 2, 6);
    ok(&mut world, "lvcreate -s -n tue vg0/db");
    // What comes later is not sent.
    write(&world, db, 0, 2000, 7);
    world
}

/// Where frames begin.
pub fn frames(stream: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        starts.push(at);
        at += 16 + u32::from_le_bytes(stream[at + 8..at + 12].try_into().unwrap()) as usize;
    }
    starts
}

/// Two groups, of which the second one has the base of a stream with several marks.
pub fn with_marks() -> (Fake, Vec<u8>) {
    let mut world = two_groups();
    let full = send(&mut world, "send vg0/mon");
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    for block in 0..6 {
        write(&world, ("vg0", "db"), 420 * block, 400, 20 + block as u8);
        discard(&world, ("vg0", "db"), 420 * block + 401, 3);
    }
    ok(&mut world, "lvcreate -s -n wed vg0/db");
    let stream = send(&mut world, "send -i mon vg0/wed");
    (world, stream)
}

pub fn token(world: &mut Fake, target: &str) -> Option<String> {
    let done = world.run(&format!("rowen receive --token {target}"));
    (done.code == 0).then(|| done.out.trim().to_owned())
}
